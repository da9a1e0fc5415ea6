"""A setting's values have a form, by which each is checked, and spelled as a field of the state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headgate.core.durability import Durability
from headgate.core.names import MOST_SLICES, encode_name, given_name
from headgate.core.when_full import WhenFull
from headgate.core.window import Window
from headgate.errors import InvalidValue, PolicyError
from headgate.units import (
    MAX_RATE,
    MAX_SIZE,
    MAX_SUBSCRIPTIONS,
    MAX_WEIGHT,
    MAX_WINDOW,
    MIN_RATE,
    parse_count,
    parse_duration,
    parse_limit,
    parse_rate,
    parse_size,
)

MOST_POOLS: Final = 4
"""Pools that one destination may be in."""
MOST_GROWTH: Final = 100
"""By which a wait may grow from one attempt to the next."""
Spell = Callable[[Any, str], str]
"""Returns the field's text of a value; the second argument is what errors call it."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """A form checks values, spells them for the state, and says how a policy writes them.

    Attributes:
        spell: checks a value of this form, and returns it as the state keeps it.
        written: how a policy writes it: the name of a form in :mod:`headgate.policy.value_forms`; empty where it is one
            of ``words``, or has a table of its own.
        words: all that it may be.
    """

    spell: Spell
    written: str = ""
    words: tuple[str, ...] = ()


def word(*words: str) -> ValueForm:
    """Return the form of a value that is one of these words."""

    def spell(value: Any, what: str) -> str:
        if value not in words:
            raise PolicyError(f"{value!r}; use {', '.join(words[:-1])} or {words[-1]}", setting=what)
        return str(value)

    return ValueForm(spell, words=words)


def _flag(value: Any, what: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "yes" if word("yes", "no").spell(value, what) == "yes" else ""


def at_least_one(parse: Callable[[Any, str], int], most: int = MAX_SIZE) -> Spell:
    """Return the check of a number for which 0 has no meaning of its own."""

    def spell(value: Any, what: str) -> str:
        number = parse(value, what)
        if number == 0:
            raise InvalidValue("0 has no meaning of its own here; use at least 1", setting=what)
        if number > most:
            raise InvalidValue(f"{number}; use 1 to {most}", setting=what)
        return str(number)

    return spell


def _number(value: Any, what: str) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not MIN_RATE <= number <= MAX_RATE:
        raise InvalidValue(f"{value!r}; use a number from {MIN_RATE:g} to {MAX_RATE:g}", setting=what)
    return repr(number)


def _growth(value: Any, what: str) -> str:
    number = float(_number(value, what))
    if not 1 <= number <= MOST_GROWTH:
        raise InvalidValue(f"{value!r}; use a number from 1 to {MOST_GROWTH}", setting=what)
    return repr(number)


def milliseconds(value: Any, what: str) -> str:
    """Return a duration of at least 1 ms in whole ms.

    Raises:
        InvalidValue: it is none, or shorter.
    """
    duration = parse_duration(value, what)
    if duration < 0.001:
        raise InvalidValue(f"{value!r}; use at least 1 ms", setting=what)
    return str(int(duration * 1000))


def _patience(value: Any, what: str) -> str:
    return value if value == "unlimited" else milliseconds(value, what)


def _share(parse: Callable[[Any, str], int], of: str) -> Spell:
    def spell(value: Any, what: str) -> str:
        if not (isinstance(value, str) and value.strip().endswith("%")):
            return str(parse(value, what))
        try:
            percent = float(value.strip()[:-1])
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise InvalidValue(f"{value!r} is not a percentage; write '80%' (0% to 100%), or a {of}", setting=what)
        return f"{percent}%"

    return spell


def _when_full(value: str, _what: str) -> str:
    return WhenFull.parse(value or "nothing").text


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise InvalidValue(f"{value!r:.80}; use 1 to 200 printable characters", setting=what)
    return value.strip()


def _name(value: Any, what: str) -> str:
    given_name(value, what)
    return str(value)


def _pools(value: Any, what: str) -> str:
    names = [given_name(name, what) for name in str(value).split()]
    if not names or len(names) > MOST_POOLS or len(set(names)) != len(names):
        raise InvalidValue(f"{value!r}; use 1 to {MOST_POOLS} different names, separated by blanks", setting=what)
    return " ".join(names)


def _window(value: Any, _what: str) -> str:
    if isinstance(value, str) and "/" in value:
        return Window.parse(value).text
    return Window.of(value).text


def _windows(value: Any, what: str) -> str:
    if not isinstance(value, dict):
        raise InvalidValue(f"{value!r}; use a table of subscription = window", setting=what)
    return " ".join(f"{encode_name(name, what)}={_window(window, what)}" for name, window in sorted(value.items()))


LIMIT: Final = ValueForm(lambda value, what: str(parse_limit(value, what)), "LimitSize")
LIMIT_COUNT: Final = ValueForm(lambda value, what: str(parse_limit(value, what, parse_count)), "LimitCount")
SIZE: Final = ValueForm(at_least_one(parse_size), "Size")
COUNT: Final = ValueForm(at_least_one(parse_count), "Count")
CREDIT: Final = ValueForm(at_least_one(parse_size, MAX_WINDOW), "Size")
WEIGHT: Final = ValueForm(at_least_one(parse_count, MAX_WEIGHT), "Count")
SUBSCRIPTIONS: Final = ValueForm(at_least_one(parse_count, MAX_SUBSCRIPTIONS), "Count")
KEPT: Final = ValueForm(lambda value, what: str(parse_count(value, what)), "Kept")
SLICES: Final = ValueForm(at_least_one(parse_count, MOST_SLICES), "Count")
SHARE: Final = ValueForm(_share(parse_size, "size"), "Share")
SHARE_COUNT: Final = ValueForm(_share(parse_count, "count"), "ShareCount")
GROWTH: Final = ValueForm(_growth, "Growth")
NUMBER: Final = ValueForm(_number, "Number")
RATE: Final = ValueForm(lambda value, what: repr(parse_rate(value, what)), "Rate")
DURATION: Final = ValueForm(milliseconds, "Duration")
PATIENCE: Final = ValueForm(_patience, "Patience")
WHEN_FULL: Final = ValueForm(_when_full, "WhenFull")
DURABILITY: Final = ValueForm(lambda value, what: Durability.parse(value, what).text, "DurabilityText")
NAME: Final = ValueForm(_name, "Name")
ENCODED: Final = ValueForm(given_name, "Name")
POOLS: Final = ValueForm(_pools, "Pools")
FLAG: Final = ValueForm(_flag, "Flag")
TEXT: Final = ValueForm(_text)
REASON: Final = ValueForm(lambda value, _what: _text(value, "reason"))  # as whoever stops a destination calls it
WINDOW: Final = ValueForm(_window)
WINDOWS: Final = ValueForm(_windows)

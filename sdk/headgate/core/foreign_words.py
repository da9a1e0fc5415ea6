"""An unknown word gets a hint: our word for one of another broker's, or for a near miss of our own.

A setting has one name by hand (``limit_messages``) and a place in a policy (``limit.messages``). Settings of other
brokers are in the tables of :mod:`headgate.brokers`, which importers read too; they are read at the first unknown word.
Code that meets one asks :func:`hint`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final, Literal

from headgate.brokers import PRODUCTS, BrokerSetting, words
from headgate.core.settings_table import PATHS

Door = Literal["policy", "settings", "url", "producer", "consumer", "gate", "session", "pool", "command"]
"""Where a word was met: in a policy, `apply`, a URL, a call that opens something or sets a pool, the command line."""


@dataclass(frozen=True, slots=True)
class ForeignTerm:
    """A foreign term says what another broker's word means here.

    Attributes:
        setting: its name by hand; empty where it is none, and ``note`` says what there is instead.
        note: what else is to know: how values are written.
        part: of the value, where it is a part.
    """

    setting: str
    note: str = ""
    part: str = ""


_SETTINGS: Final = {".".join(map(str, path)): name for name, path in PATHS.items()}
_TABLES: Final = ("store", "pool", "bridge", "channel")
_NO_KEY: Final = "none needed"
_BEGINS: Final = ("-", "_")
"""At the end of a word that stands for all that begin with it."""


@cache
def products() -> dict[str, dict[str, ForeignTerm]]:
    """Return the settings of other brokers that an error can be about, by product and as its documents spell them."""
    return {
        title: {
            word.name: _meaning(word)
            for group in reversed(words(product).values())
            for word in group.values()
            if _has_message(word)
        }
        for product, title in PRODUCTS.items()
    }


def _has_message(word: BrokerSetting) -> bool:
    """Return whether a word is one of theirs and no other: a plain one such as ``name`` may be anybody's."""
    is_plain = re.fullmatch("[a-z]+", word.name) is not None
    return bool(word.ours and word.ours != _NO_KEY) or not is_plain


def _meaning(word: BrokerSetting) -> ForeignTerm:
    if not word.ours or word.ours == _NO_KEY:
        return ForeignTerm("", word.differs or word.hint or "there is nothing to set")
    if word.ours in _SETTINGS:
        return ForeignTerm(_SETTINGS[word.ours], word.hint)
    table, _, key = word.ours.partition(".")
    begin, _, part = word.ours.rpartition(".")
    if begin in _SETTINGS and table not in _TABLES:  # there is a setting `store`, and a table
        return ForeignTerm(_SETTINGS[begin], word.hint, part)
    where = f"{key!r} of a [[{table}]] of a policy" if key else f"a [[{table}]] of a policy"
    more = f": {word.hint}" if word.hint else ""
    return ForeignTerm("", f"it is {where if table in _TABLES else f'{word.ours} of a policy'}{more}")


_ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "producer": {"producer_window": "window", "producer_rate": "rate", "producer_weight": "weight",
                 "producer_timeout": "timeout", "when_full": "when_full", "durability": "durability"},
    "consumer": {"consumer_window": "window", "durable_window": "window", "consumer_rate": "rate",
                 "durability": "durability"},
    "gate": {"producer_window": "window", "producer_weight": "weight", "producer_timeout": "timeout",
             "when_full": "when_full", "durability": "durability"},
    "url": {name: name for name in ("consumer_window", "durable_window", "browser_window", "producer_window",
                                    "consumer_rate", "producer_rate")},
    "settings": {name: name for name in PATHS},
    "policy": {name: ".".join(map(str, path)) for name, path in PATHS.items()},
}  # fmt: skip
"""By door, what a setting is called there; where it is not, a policy and `apply` have it."""
_PREFIXES: Final = ("set", "jms", "connection")
_ARGUMENT: Final = "x-"
"""Before RabbitMQ's arguments of queues, and no word of another product."""


def _plain(word: str) -> str:
    return re.sub(r"[^a-z]", "", word.lower())


@cache
def _known() -> dict[str, tuple[str, ForeignTerm]]:
    """Return all of them as :func:`_plain` spells them: a setting of ours goes before what is none."""
    every = [
        (word, product, meant)
        for product, its in reversed(products().items())
        for word, meant in its.items()
        if not word.endswith(_BEGINS)
    ]
    every.sort(key=lambda one: bool(one[2].setting))
    return {_plain(word): (product, meant) for word, product, meant in every}


@cache
def _areas() -> dict[str, tuple[str, ForeignTerm]]:
    """Return what begins words of a product that are all nothing to a policy, such as ``journal-``."""
    return {
        word: (product, meant)
        for product, its in products().items()
        for word, meant in its.items()
        if word.endswith(_BEGINS)
    }


def foreign(word: str) -> tuple[str, ForeignTerm] | None:
    """Return the product that has a word, and what is meant; None for no product that is known.

    >>> foreign("setConsumerWindowSize")[1].setting
    'consumer_window'
    """
    word = word[:64]
    # Several products have some words, spelled in ways of their own, and mean seconds or milliseconds by them.
    its = {PRODUCTS["rabbitmq"]: products()[PRODUCTS["rabbitmq"]]} if word.startswith(_ARGUMENT) else products()
    word = word.removeprefix(_ARGUMENT)
    if whole := next((title for title, words_of in its.items() if word in words_of), None):
        return whole, its[whole][word]
    plain = _plain(word)
    tries = (plain, *(plain.removeprefix(prefix) for prefix in _PREFIXES), plain.removeprefix("jmsprefetchpolicy"))
    if found := next((_known()[one] for one in tries if one in _known()), None):
        return found
    begins = [area for area in _areas() if word.startswith(area)]
    return _areas()[max(begins, key=len)] if begins else None


def hint(word: str, door: Door, known: Iterable[str] = ()) -> str:
    """Return what to say of an unknown word: what is meant by it, else the nearest of those that are known there.

    >>> hint("max-size-bytes", "policy")
    "in Apache Artemis it is what limit.bytes is here: 'unlimited' for -1"
    >>> hint("limit_messages", "policy"), hint("limit.messages", "settings")
    ("did you mean 'limit.messages'?", "did you mean 'limit_messages'?")

    Args:
        word: as it was written.
        door: where.
        known: the words there; they are listed where none is near.
    """
    if found := _ours(word, door):
        return f"did you mean {' or '.join(map(repr, found))}?"
    if found_there := foreign(word):
        return _translated(*found_there, door)
    if word in PATHS and door in _ARGUMENTS and word not in _ARGUMENTS[door]:
        return _elsewhere(word)
    names = list(known)
    close = get_close_matches(word[:64].lower().replace("-", "_"), names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}" if names else ""


def _ours(word: str, door: Door) -> list[str]:
    """Return what a setting is called at a door that was called as it is elsewhere."""
    here = _ARGUMENTS.get(door, {})
    if word in PATHS:
        return [here[word]] if here.get(word, word) != word else []
    spelled = re.sub(r"[^a-z]+", "_", word.lower())
    settings = [name for name, path in PATHS.items() if spelled == "_".join(map(str, path))]
    if not settings and door == "settings":
        settings = [name for name, path in PATHS.items() if len(path) > 1 and word in (path[0], path[-1])]
    return [here[name] for name in settings if name in here and here[name] != word]


def _translated(product: str, meant: ForeignTerm, door: Door) -> str:
    if not meant.setting:
        return f"{product} has it: here {meant.note}"
    part = f".{meant.part}" if meant.part else ""
    here = _ARGUMENTS.get(door, {}).get(meant.setting)
    note = f": {meant.note}" if meant.note else ""
    if here:
        return f"in {product} it is what {here}{part if door == 'policy' else ''} is here{note}"
    return f"in {product} it is a setting of destinations: {_elsewhere(meant.setting, part)}{note}"


def _elsewhere(setting: str, part: str = "") -> str:
    return f"a policy says it as {_ARGUMENTS['policy'][setting]}{part}, client.apply as {setting}"

"""A limiter's settings have forms, by name as callers give them: checked, and spelled as the state keeps them."""

from collections.abc import Mapping
from typing import Any, Final

from headgate.core.limits.limit import Limit, limits_of, limits_text, reset_of
from headgate.core.limits.zones import offsets_text
from headgate.core.names import encode_name
from headgate.core.spellings import ValueForm, milliseconds, word
from headgate.errors import InvalidName, InvalidValue
from headgate.units import MAX_WEIGHT, parse_count

MOST_WEIGHTS: Final = 256
MOST_KEYS: Final = 10_000_000
MOST_HOLD_OFF: Final = 86_400.0
MOST_LEASE_AHEAD: Final = 60.0
_EXAMPLE: Final = "{'requests': {'rate': '500/min'}, 'in_flight': {'at_once': 50}}"


def read_limits(value: Any, what: str = "limits") -> dict[str, Limit]:
    """Return limits by name from their tables, or from the text that the state keeps.

    Raises:
        InvalidValue: a limit cannot be read.
    """
    if isinstance(value, str):
        try:
            value = {name: _table(limit) for name, limit in limits_of(value).items()}
        except (ValueError, IndexError):
            value = None
    if not isinstance(value, Mapping) or not all(isinstance(table, Mapping) for table in value.values()):
        raise InvalidValue(f"{value!r} are not limits; write e.g. {_EXAMPLE}", setting=what)
    return {name: Limit.of(name, table) for name, table in value.items()}


def _table(limit: Limit) -> dict[str, Any]:
    if limit.form == "rate":
        return {"rate": limit.rate, "burst": limit.most}
    if limit.form == "at_once":
        adapts = {"min": limit.floor, "max": limit.most, "adapt": limit.adapt}
        return {"at_once": adapts if limit.adapt else limit.most}
    return {"quota": f"{limit.most}/{limit.window}", "resets": limit.resets}


def weights_text(weights: Any, what: str = "weight", least: int = 1, most: int = MAX_WEIGHT) -> str:
    """Return weights by key, or by a prefix with ``*``, as the state keeps them: the first that matches counts.

    >>> weights_text({"*": 1, "gold-*": 4, "gold-7": 9})
    'gold-7=9;gold-*=4;*=1'

    Raises:
        InvalidValue: a key or a weight that cannot be one, or too many of them.
    """
    if not isinstance(weights, Mapping) or len(weights) > MOST_WEIGHTS:
        raise InvalidValue(
            f"{weights!r}; write a table of at most {MOST_WEIGHTS} keys and numbers, such as {{'gold-*' = 4}}",
            setting=what,
        )
    found = []
    for pattern, weight in weights.items():
        is_prefix = isinstance(pattern, str) and pattern.endswith("*")
        key = pattern[:-1] if is_prefix else pattern
        try:
            encoded = encode_name(key, "key") if key or not is_prefix else ""
        except InvalidName:
            raise InvalidValue(f"{pattern!r} is neither a key nor a prefix and '*'", setting=what) from None
        if isinstance(weight, bool) or not isinstance(weight, int) or not least <= weight <= most:
            raise InvalidValue(
                f"{pattern!r} = {weight!r}; use {'a weight of ' if least else ''}{least} to {most}", setting=what
            )
        found.append((is_prefix, -len(encoded), f"{encoded}{'*' if is_prefix else ''}={weight}"))
    return ";".join(text for _, _, text in sorted(found))


def _up_to(most: float) -> ValueForm:
    def spell(value: Any, what: str) -> str:
        text = milliseconds(value, what)
        if int(text) > most * 1000:
            raise InvalidValue(f"{value!r}; use at most {most:g} s", setting=what)
        return text

    return ValueForm(spell, "Duration")


def _keys(value: Any, what: str) -> str:
    count = parse_count(value, what)
    if not 1 <= count <= MOST_KEYS:
        raise InvalidValue(f"{value!r}; use 1 to {MOST_KEYS}", setting=what)
    return str(count)


def unless(usual: str, other: str) -> ValueForm:
    """Return the form of one of two words, of which the state keeps nothing for the usual one."""
    words = word(usual, other)
    return ValueForm(lambda value, what: "" if words.spell(value, what) == usual else other, words=(usual, other))


LIMITS: Final = ValueForm(lambda value, what: limits_text(read_limits(value, what)))


def zone_of_quotas(*limits: Any) -> str | None:
    """Return the offsets of the time zone in which quotas reset; None where none says one.

    Args:
        limits: tables of limits by name; anything else says none.

    Raises:
        InvalidValue: they say several, or one that is not known.
    """
    named = [item for tables in limits if isinstance(tables, Mapping) for item in tables.items()]
    zones = {
        reset_of(table["resets"], Limit.of(name, table).window)[1]
        for name, table in named
        if isinstance(table, Mapping) and table.get("resets") is not None
    }
    if len(zones) > 1:
        names = " and ".join(sorted(zone or "none" for zone in zones))
        raise InvalidValue(f"quotas of one limiter have one time zone, and here are {names}", setting="resets")
    zone = next(iter(zones), "")
    return offsets_text(zone, "resets") if zone else None


def weight_among(weights: str, key: str) -> int:
    """Return an encoded key's weight, as ``lua/lib/weights.lua`` finds it: the first pattern that matches counts.

    >>> weight_among("gold-7=9;gold-*=4", "gold-8"), weight_among("gold-*=4", "tin")
    (4, 1)
    """
    named = named_among(weights, key)
    return 1 if named is None else named


def named_among(weights: str, key: str) -> int | None:
    """Return what the first pattern that matches an encoded key says; None where none does."""
    for entry in filter(None, weights.split(";")):
        pattern, _, weight = entry.rpartition("=")
        if pattern == key or (pattern.endswith("*") and key.startswith(pattern[:-1])):
            return int(weight)
    return None


WEIGHTS: Final = ValueForm(weights_text)
ZONE: Final = ValueForm(lambda value, what: offsets_text(str(value), what))
UNKNOWN_KEYS: Final = unless("allow", "refuse")
LEDGER_KEYS: Final = unless("all", "off")
KEYS: Final = ValueForm(_keys, "Amount")
HOLD_OFF: Final = _up_to(MOST_HOLD_OFF)
LEASE_AHEAD: Final = _up_to(MOST_LEASE_AHEAD)

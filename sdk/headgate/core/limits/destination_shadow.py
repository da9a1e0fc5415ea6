"""Shadow limits of queues, topics, gates and buckets: counted beside what binds, and nobody waits for them."""

from collections.abc import Mapping
from typing import Any, Final

from headgate.core.limits.limit import Limit, limits_of, limits_text
from headgate.core.limits.shadow import IN_SHADOW
from headgate.core.spellings import ValueForm
from headgate.errors import InvalidValue, PolicyError
from headgate.units import parse_amount, parse_count

_AT_ONCE: Final = {"bytes": "limit_bytes", "messages": "limit_messages"}
_RATES: Final = {
    "rate": ("send_rate", "send_burst"), "byte_rate": ("send_byte_rate", "send_byte_burst"),
    "tokens": ("rate", "burst"),
}  # fmt: skip
_OF_KIND: Final = {
    "queue": ("bytes", "messages", "rate", "byte_rate"), "topic": ("bytes", "messages", "rate", "byte_rate"),
    "gate": ("bytes", "messages"), "bucket": ("tokens",),
}  # fmt: skip
LIMITS: Final = (*_AT_ONCE.values(), *(rate for rate, _ in _RATES.values()))
"""Fields of limits that can be tried as shadow limits."""
_BINDING: Final = {"shadow": "shadow", "pools": "pools", "hard_bytes": "hard_limit", "key_limits": "key_limits"}
_EXAMPLE: Final = "{'bytes': '1MB', 'messages': 500, 'rate': {'rate': '100/s', 'burst': 50}}"


def read_shadow(value: Any, what: str = "shadow") -> dict[str, Limit]:
    """Return shadow limits by name from a table, or from the text that the state keeps.

    >>> limits_text(read_shadow({"bytes": "1kB", "rate": {"rate": 5, "burst": 20}}))
    'bytes at_once 1000;rate rate 5.0 20'

    Raises:
        InvalidValue: one cannot be read, or there is no such.
    """
    if isinstance(value, str):
        try:
            limits = limits_of(value)
        except (ValueError, IndexError):
            limits = {}
        value = {
            name: {"rate": limit.rate, "burst": limit.most} if limit.form == "rate" else limit.most
            for name, limit in limits.items()
        }
    if not isinstance(value, Mapping) or not value or not set(value) <= {*_AT_ONCE, *_RATES}:
        raise InvalidValue(f"{value!r} are not shadow limits; write e.g. {_EXAMPLE}", setting=what)
    return {name: _limit(name, one) for name, one in value.items()}


def _limit(name: str, value: Any) -> Limit:
    if name in _AT_ONCE:
        return Limit.of(name, {"at_once": (parse_count if name == "messages" else parse_amount)(value, name)})
    return Limit.of(name, value if isinstance(value, Mapping) else {"rate": value})


SHADOW_LIMITS: Final = ValueForm(lambda value, what: limits_text(read_shadow(value, what)))


def as_shadow(fields: Mapping[str, str]) -> str:
    """Return the shadow limits that are as the limits of a destination's fields; empty where there is none."""
    limits = {
        name: Limit(name, "at_once", int(fields[field]))
        for name, field in _AT_ONCE.items()
        if fields.get(field, "").isdigit()
    }
    for name, (rate, burst) in _RATES.items():
        if fields.get(rate):
            limits[name] = Limit(name, "rate", int(fields[burst]), float(fields[rate]))
    return limits_text(limits)


def _move_to_shadow(kind: str | None, fields: dict[str, str]) -> None:
    """Have the limits of a destination that are given be shadow limits, and bind nothing.

    Raises:
        PolicyError: none is given, or some would bind all the same.
    """
    text = as_shadow(fields)
    if not text:
        raise PolicyError("give shadow together with the limits that are to be shadow limits", setting="enforce")
    for name, called in _BINDING.items():
        if fields.get(name):
            raise PolicyError(
                f"{called} is not part of a shadow; leave it out, or enforce", settings=(called, "enforce")
            )
    fields |= {"shadow": text, "enforce": ""}
    fields |= {field: "unlimited" for field in _AT_ONCE.values() if field in fields}
    fields |= {field: "" for pair in _RATES.values() for field in pair if field in fields}
    if kind == "bucket":
        del fields["enforce"]


def check_shadow(kind: str | None, fields: dict[str, str], *, enforce: str | None) -> None:
    """Have limits be shadow limits where ``enforce`` says so, and see that destinations of a kind have such.

    Raises:
        PolicyError: one means nothing there, or binds all the same.
    """
    if enforce == IN_SHADOW and "enforce" in fields:
        _move_to_shadow(kind, fields)
    for name in limits_of(fields.get("shadow", "")) if kind else ():
        if name not in (allowed := _OF_KIND.get(kind or "", ())):
            raise PolicyError(f"{name} means nothing for a {kind}; that takes {', '.join(allowed)}", setting="shadow")

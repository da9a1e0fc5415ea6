"""A descriptor says which limiter the entries that a proxy sends ask, for what and for which key."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.core.limits.limit import MOST_LIMITS, check_name
from headgate.errors import InvalidValue
from headgate.units import parse_amount

MOST_DESCRIPTORS: Final = 1000
"""Of one policy."""
MOST_ENTRIES: Final = 16
"""Entries of one descriptor."""
LONGEST: Final = 255
"""Characters of a domain, and of the key and the value of an entry."""
MOST_OF_A_HIT: Final = 1 << 32
"""Of an amount that one hit takes."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor is one rule for proxies: descriptors with these entries ask this limiter.

    Attributes:
        domain: of the proxy's filter.
        entries: the descriptor's keys, in their order; ``key=value`` where it must have that value.
        limiter: that is asked.
        amounts: that one hit takes, by the names of its limits; empty where a hold is released.
        key: the entry whose value is the limiter's key; None for none.
        hold: the entry whose value names a hold, which stays until it is released or its lease is over.
        release: the entry whose value names the hold that ends.
        ttl_ms: the lease of the hold, which nobody renews.
        origin: where it was written: ``<file>:<line>``.
    """

    domain: str
    entries: tuple[str, ...]
    limiter: str
    amounts: Mapping[str, int]
    key: str | None = None
    hold: str | None = None
    release: str | None = None
    ttl_ms: int = 60_000
    origin: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its entries."""
        return tuple(entry.partition("=")[0] for entry in self.entries)

    @property
    def order(self) -> tuple[bool, ...]:
        """Its place among those with the same keys: from the left, an entry with a value goes before one without."""
        return tuple("=" not in entry for entry in self.entries)

    def fits(self, values: Mapping[str, str]) -> bool:
        """Return whether it is for a descriptor that has its keys, with these values."""
        wanted = (entry.partition("=") for entry in self.entries)
        return all(not asks or values[key] == value for key, asks, value in wanted)

    def __str__(self) -> str:
        return f"{self.domain}: {', '.join(self.entries)}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, without what it does not have."""
        table = asdict(self) | {"entries": list(self.entries), "ttl_ms": None if self.hold is None else self.ttl_ms}
        return {name: value for name, value in table.items() if value is not None}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Descriptor":
        """Return what :meth:`as_dict` wrote."""
        amounts = {str(name): int(amount) for name, amount in table["amounts"].items()}
        return cls(**{**table, "entries": tuple(map(str, table["entries"])), "amounts": amounts})


def check_text(value: Any, what: str) -> str:
    """Return a word of a proxy's configuration as it is.

    Raises:
        InvalidValue: not a text, or of too many characters.
    """
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        raise InvalidValue(f"{str(value)[:40]!r}; write text of 1 to {LONGEST} characters", setting=what)
    return value


def read_entries(value: Any, what: str = "entries") -> tuple[str, ...]:
    """Return the entries of a descriptor.

    Raises:
        InvalidValue: not a list of texts, one of them without a key, or a key that stands there twice.
    """
    if not isinstance(value, list) or not 0 < len(value) <= MOST_ENTRIES:
        raise InvalidValue(f"write a list of 1 to {MOST_ENTRIES}, such as ['path=/search', 'tenant']", setting=what)
    keys = [check_text(entry, what).partition("=")[0] for entry in value]
    if not all(keys):
        raise InvalidValue("an entry is 'key', or 'key=value'; here is one without a key", setting=what)
    if len(set(keys)) < len(keys):
        raise InvalidValue(f"{', '.join(keys)}: name each key once", setting=what)
    return tuple(value)


def read_amounts(value: Any, what: str = "amounts") -> dict[str, int]:
    """Return the amounts that one hit takes, by the names of limits.

    Raises:
        InvalidValue: not a table of amounts from 1.
    """
    if not isinstance(value, Mapping) or not 0 < len(value) <= MOST_LIMITS:
        raise InvalidValue(f"write a table of 1 to {MOST_LIMITS} limits, such as {{ requests = 1 }}", setting=what)
    amounts = {check_name(name, what): parse_amount(amount, what) for name, amount in value.items()}
    for name, amount in amounts.items():
        if not 1 <= amount <= MOST_OF_A_HIT:
            raise InvalidValue(f"{name} = {amount}; use 1 to {MOST_OF_A_HIT}", setting=what)
    return amounts

"""The mapping from descriptors of proxies to limiters: a TOML file, checked whole before a node begins to answer."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from headgate import InvalidValue
from headgate.core.names import encode_name
from headgate.errors import InvalidName
from headgate.limiting.hold import read_ttl

MOST_RULES: Final = 1000
LARGEST_FILE: Final = 1 << 20
TTL: Final = "60s"
"""The lease of a hold, where its rule does not say."""
Text = Annotated[str, Field(min_length=1, max_length=255)]
Entries = Sequence[tuple[str, str]]


class Rule(BaseModel):
    """One rule: descriptors with these entries ask this limiter.

    Attributes:
        domain: of the proxy's filter.
        entries: the descriptor's keys, in their order; ``key=value`` where it must have that value.
        limiter: that is asked.
        amounts: that one hit takes, by the names of its limits.
        key: the entry whose value is the limiter's key; None for none.
        hold: the entry whose value names a hold, which stays until it is released or its lease is over.
        release: the entry whose value names the hold that ends.
        ttl: the lease of the hold: longer than any request takes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    domain: Text
    entries: Annotated[list[Text], Field(min_length=1, max_length=16)]
    limiter: Text
    amounts: Annotated[dict[str, Annotated[StrictInt, Field(ge=1, le=1 << 32)]], Field(max_length=16)] = {}
    key: str | None = None
    hold: str | None = None
    release: str | None = None
    ttl: str | int | float = TTL

    @model_validator(mode="after")
    def _whole(self) -> Self:
        keys = self.keys
        if len(set(keys)) < len(keys):
            raise ValueError("entries: each key once")
        for field in ("key", "hold", "release"):
            name = getattr(self, field)
            if name is not None and name not in keys:
                raise ValueError(f"{field}: {name!r} is none of entries: {', '.join(keys)}")
        if self.hold is not None and self.release is not None:
            raise ValueError("hold and release: a descriptor begins a hold or ends one, so leave out one of them")
        if (self.release is None) != bool(self.amounts):
            raise ValueError("amounts: say what one hit takes, as in { requests = 1 }, but where a hold is released")
        try:
            encode_name(self.limiter)
            read_ttl(self.ttl)
        except (InvalidName, InvalidValue) as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its entries."""
        return tuple(entry.partition("=")[0] for entry in self.entries)

    @property
    def ttl_seconds(self) -> float:
        """The lease of its holds."""
        return read_ttl(self.ttl) / 1000

    def fits(self, entries: Entries) -> bool:
        """Return whether it is for a descriptor that has its keys."""
        for entry, (_, value) in zip(self.entries, entries, strict=True):
            _, asks, wanted = entry.partition("=")
            if asks and value != wanted:
                return False
        return True


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    descriptor: Annotated[list[Rule], Field(min_length=1, max_length=MOST_RULES)]


class Rules:
    """Finds the rule of a descriptor: the first of those with its domain and keys whose values it has.

    Args:
        rules: in their order.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_keys: dict[tuple[str, tuple[str, ...]], list[Rule]] = {}
        for rule in rules:
            self._by_keys.setdefault((rule.domain, rule.keys), []).append(rule)

    def __iter__(self) -> Iterator[Rule]:
        return (rule for rules in self._by_keys.values() for rule in rules)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            InvalidValue: it cannot be read, or says something wrong; the first of that is named with its place.
        """
        try:
            with path.open("rb") as file:
                text = file.read(LARGEST_FILE + 1)
            if len(text) > LARGEST_FILE:
                raise InvalidValue(f"{path} is larger than {LARGEST_FILE} bytes; give fewer descriptors")
            document: Mapping[str, Any] = tomllib.loads(text.decode())
            return cls(_File.model_validate(document).descriptor)
        except OSError as error:
            raise InvalidValue(f"{path} cannot be read: {error.strerror}; name a file with [[descriptor]]") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidValue(f"{path} is not TOML: {error}") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
            said = first["msg"].removeprefix("Value error, ")
            raise InvalidValue(f"{path}: {place + ': ' if place else ''}{said}") from None

    def of(self, domain: str, entries: Entries) -> Rule | None:
        """Return the rule of a descriptor; None where none is for it."""
        for rule in self._by_keys.get((domain, tuple(key for key, _ in entries)), ()):
            if rule.fits(entries):
                return rule
        return None

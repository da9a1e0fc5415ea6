"""Spool stores as one client uses them: how they are set, where their storage is, and what is theirs in the state."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core.full import WhenFull
from headgate.core.policy import origins
from headgate.errors import PolicyError
from headgate.redis.backend import Listener, WakeUps
from headgate.redis.keys import Address, decode_name, encode_name
from headgate.redis.spool_store import SpoolStore
from headgate.redis.store import Store
from headgate.spool.storage import Storage, shown
from headgate.units import parse_limit, parse_size

SEGMENT: Final = 1 << 20
"""Bytes of payload in one segment, unless the store says otherwise."""
FIELDS: Final = ("url", "limit_bytes", "segment_bytes", "when_full", "percent", "total_bytes", "policy")
"""What is set of a store, as the state keeps it."""


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What is set of a store.

    Attributes:
        url: where its segments are, as fsspec reads it; no secrets.
        limit: bytes of segments that it holds at the most; None for no limit.
        segment: bytes of payload in one segment, about.
        when_full: what a send does that finds neither memory nor room here.
    """

    url: str
    limit: int | None
    segment: int
    when_full: WhenFull

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "SpoolSettings":
        """Return what a store's fields say."""
        limit = fields.get("limit_bytes", "")
        return cls(
            fields["url"],
            int(limit) if limit.isdigit() else None,
            int(fields.get("segment_bytes") or SEGMENT),
            WhenFull.parse(fields.get("when_full", "")),
        )


def store_fields(
    url: str,
    *,
    limit: int | str | None = None,
    percent: float | None = None,
    total: int | str | None = None,
    segment: int | str = SEGMENT,
    when_full: str = "block",
) -> dict[str, str]:
    """Return a store's settings as the state's fields.

    Args:
        url: where segments go, as fsspec reads it; a user and a password in it are refused.
        limit: bytes, or ``"unlimited"``; instead of it ``percent`` of a stated ``total``.
        percent: above 0, at most 100.
        total: bytes.
        segment: bytes of payload in one segment, 4 KiB to 64 MiB.
        when_full: ``block``, ``fail``, ``fail-after 3s`` or ``drop``.

    Raises:
        InvalidValue: a value cannot be read.
        PolicyError: a combination that means nothing.
    """
    if not isinstance(url, str) or "://" not in url:
        raise PolicyError(f"url: {url!r}; use one like 'file:///var/spool/headgate' or 's3://bucket/prefix'")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise PolicyError("url: it holds a user or a password; leave them to the environment of those who use it")
    if (limit is None) == (percent is None):
        raise PolicyError("a store needs a limit, or a percent and a total, and not both")
    if (percent is None) != (total is None):
        raise PolicyError("percent and total belong together: a store's size is stated, not asked of the disk")
    fields = {"url": url, "percent": "", "total_bytes": ""}
    if percent is not None and total is not None:
        if isinstance(percent, bool) or not 0 < percent <= 100:
            raise PolicyError(f"percent: {percent!r}; use a number above 0 and up to 100")
        whole = parse_size(total, "total")
        fields |= {"percent": f"{percent:g}", "total_bytes": str(whole), "limit_bytes": str(int(whole * percent / 100))}
    else:
        fields["limit_bytes"] = str(parse_limit(limit if limit is not None else "unlimited", "limit"))
    size = parse_size(segment, "segment")
    if not 4096 <= size <= 64 << 20:
        raise PolicyError(f"segment: {segment!r}; use 4 KiB to 64 MiB")
    if when_full == "spool":
        raise PolicyError("when_full: a store does not spool to another; use block, fail, 'fail-after 3s' or drop")
    WhenFull.parse(when_full)
    return fields | {"segment_bytes": str(size), "when_full": "" if when_full == "block" else when_full}


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store as it stands.

    Attributes:
        name: its name.
        url: where its segments are.
        limit: bytes; None when it has no limit.
        held: bytes of its segments; never above ``limit`` but after that was lowered.
        leased: bytes of room that sessions have and do not use yet.
        segments: how many it has.
        waiting: sessions that wait for room.
        percent: where the limit comes from, as ``50 % of 1000 bytes``; empty when absolute.
        when_full: what a send does that finds no room here either.
        origins: for each field that a policy set, ``<file>:<line>``.
    """

    name: str
    url: str
    limit: int | None
    held: int
    leased: int
    segments: int
    waiting: int
    percent: str
    when_full: str
    origins: Mapping[str, str]


class Spool:
    """One store.

    Attributes:
        name: as the policy calls it.
        encoded: the same, as references have it.
        address: of its counters in the state.
        settings: as last read.
        storage: where its segments are.
    """

    def __init__(self, name: str, address: Address, settings: SpoolSettings) -> None:
        self.name = name
        self.encoded = encode_name(name, "store")
        self.address = address
        self.settings = settings
        self.storage = Storage(settings.url)

    def __repr__(self) -> str:
        return f"Spool({self.name!r}, {self.storage.url!r})"

    def path(self, destination: Address, name: str) -> str:
        """Return where a segment is in the storage."""
        return f"{self.address.namespace}/{folder(destination)}/{name}"


def folder(destination: Address) -> str:
    """Return what a destination's segments are under, at their store and in its storage."""
    return destination.key[4:-1].partition("/")[2]


class Spools:
    """The stores that one client uses, by name; each is read once and again whenever its settings change.

    Args:
        store: the scripts.
        wake_ups: hints.
        namespace: of the client.
        ttl_ms: how long a store that was lost learns.
    """

    def __init__(self, store: Store, wake_ups: WakeUps, namespace: str, ttl_ms: int) -> None:
        self.calls = SpoolStore(store.server)
        self._store = store
        self._wake_ups = wake_ups
        self._namespace = namespace
        self._ttl_ms = ttl_ms
        self._known: dict[str, Spool] = {}
        self._stale: set[str] = set()
        self._remembered: dict[str, dict[str, str]] = {}
        self._lock = asyncio.Lock()

    def address(self, name: str) -> Address:
        """Return where the counters of a store are."""
        return Address.of_store(self._namespace, name)

    async def get(self, name: str) -> Spool:
        """Return a store.

        Raises:
            PolicyError: there is none of this name.
            InvalidValue: its URL cannot be used here; the text says what is missing.
            CoordinatorUnavailable: Redis does not answer.
        """
        known = self._known.get(name)
        if known is not None and name not in self._stale:
            return known
        async with self._lock:
            if name not in self._known:
                await self._wake_ups.subscribe((self.address(name).channels("")[1],), self._hearer(name))
            self._stale.discard(name)
            fields = await self._read(name)
            if "url" not in fields:
                self._stale.add(name)
                raise PolicyError(f"there is no spool store {name!r}; a policy makes one with [[store]]")
            settings = SpoolSettings.of(fields)
            known = self._known.get(name)
            if known is None or known.settings.url != settings.url:
                known = self._known[name] = await asyncio.to_thread(Spool, name, self.address(name), settings)
            known.settings = settings
            self._remembered[name] = {"kind": "store", **fields}
            return known

    def known(self) -> list[Spool]:
        """Return the stores that were used here."""
        return list(self._known.values())

    async def ensure(self, name: str, *, recover: bool) -> None:
        """Make a store exist in the state as it was, if it was lost."""
        if fields := self._remembered.get(name):
            await self._store.apply(
                self.address(name), fields, mode="recover" if recover else "ensure", ttl_ms=self._ttl_ms
            )

    async def set(self, name: str, fields: Mapping[str, str]) -> None:
        """Create a store, or change it; effective at once.

        Args:
            name: any name that a destination may have.
            fields: as :func:`store_fields` returns them.
        """
        settings = {"kind": "store", "ledger_keep": "1000", **fields}
        code, _ = await self._store.apply(self.address(name), settings, mode="change", ttl_ms=self._ttl_ms)
        if code == "OLD":
            raise PolicyError(f"spool store {name!r} was set by a newer policy")

    async def remove(self, name: str) -> None:
        """Forget a store that holds nothing.

        Raises:
            PolicyError: it holds segments.
        """
        key = self.address(name).shared[0]
        held = int(await self._store.server.command(key, "HGET", key, "pending_bytes") or 0)
        if held:
            raise PolicyError(f"spool store {name!r} holds {held} bytes; consume or purge what was spooled to it first")
        await self._store.remove(self.address(name), everything=True)
        self._remembered.pop(name, None)
        self._stale.add(name)

    async def states(self) -> list[StoreState]:
        """Return all stores of the namespace as they stand."""
        return [await self._state(name) for name in await self.names()]

    async def _state(self, name: str) -> StoreState:
        key = self.address(name).shared[0]
        flat = await self._store.server.command(key, "HGETALL", key)
        fields = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
        limit, percent = fields.get("limit_bytes", ""), fields.get("percent")
        return StoreState(
            name,
            shown(fields.get("url", "")),
            int(limit) if limit.isdigit() else None,
            int(fields.get("pending_bytes", 0)),
            int(fields.get("leased_bytes", 0)),
            int(fields.get("pending_messages", 0)),
            int(fields.get("blocked", 0)),
            f"{percent} % of {fields.get('total_bytes')} bytes" if percent else "",
            fields.get("when_full") or "block",
            origins(fields.get("policy", "")),
        )

    async def names(self) -> list[str]:
        """Return the stores of the namespace."""
        start = f"hg:{{{self._namespace}/store:"
        return sorted(decode_name(key[len(start) : -1]) for key in await self._store.server.scan(f"{start}*}}"))

    async def close(self) -> None:
        """Hear of no more changes."""
        for spool in self._known.values():
            spool.storage.close()

    def _hearer(self, name: str) -> Listener:
        def hear(words: list[str]) -> None:
            if words[0] in ("settings", "removed"):
                self._stale.add(name)

        return hear

    async def _read(self, name: str) -> dict[str, str]:
        key = self.address(name).shared[0]
        values = await self._store.server.command(key, "HMGET", key, *FIELDS)
        return {field: value.decode() for field, value in zip(FIELDS, values, strict=True) if value}

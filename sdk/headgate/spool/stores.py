"""Spool stores as one client uses them: how they are set, where their storage is, and what is theirs in the state."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core.names import decode_name, encode_name
from headgate.core.when_full import WhenFull
from headgate.errors import PolicyError
from headgate.redis.backend import Listener, WakeUps
from headgate.redis.keys import PARTS, Address
from headgate.redis.store import Store
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.storage import Storage, check_url
from headgate.units import parse_limit, parse_size

MARKER: Final = ".headgate"
"""Object in the folder of a namespace that tells its storage from a directory where that is not mounted."""
_NO_FOLDERS: Final = (".", "..", MARKER)
MOST_OF_A_FOLDER: Final = 255
"""Bytes that the name of a folder may have, on most file systems."""
SEGMENT: Final = 1 << 20
"""Bytes of payload in one segment, unless the store says otherwise."""
FIELDS: Final = (
    "url",
    "limit_bytes",
    "segment_bytes",
    "when_full",
    "percent",
    "total_bytes",
    "policy",
    "policy_version",
)
"""Settings of a store, as the state keeps them."""


class NewerStoreError(PolicyError):
    """A newer policy has set the store."""


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """The settings of a store say where its segments are, and what they may hold.

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
    segment: int | str | None = None,
    when_full: str = "block",
) -> dict[str, str]:
    """Return a store's settings as the state's fields.

    Args:
        url: where segments go, as fsspec reads it; a user and a password in it are refused.
        limit: bytes, or ``"unlimited"``; instead of it ``percent`` of a stated ``total``.
        percent: above 0, at most 100.
        total: bytes.
        segment: bytes of payload in one segment, 4 KiB to 64 MiB; else 1 MiB, or the limit where that is less.
        when_full: ``block``, ``fail``, ``fail-after 3s`` or ``drop``.

    Raises:
        InvalidValue: a value cannot be read.
        PolicyError: a combination that means nothing.
    """
    check_url(url)
    if (limit is None) == (percent is None):
        raise PolicyError("a store needs a limit, or a percent and a total, and not both")
    if (percent is None) != (total is None):
        raise PolicyError(
            "percent and total belong together: a store's size is stated, not asked of the disk",
            settings=("percent", "total"),
        )
    fields = {"url": url, "percent": "", "total_bytes": ""}
    if percent is not None and total is not None:
        if isinstance(percent, bool) or not 0 < percent <= 100:
            raise PolicyError(f"{percent!r}; use a number above 0 and up to 100", setting="percent")
        whole = parse_size(total, "total")
        fields |= {"percent": f"{percent:g}", "total_bytes": str(whole), "limit_bytes": str(int(whole * percent / 100))}
    else:
        fields["limit_bytes"] = str(parse_limit(limit if limit is not None else "unlimited", "limit"))
    most = int(fields["limit_bytes"]) if fields["limit_bytes"].isdigit() else SEGMENT
    size = min(SEGMENT, most) if segment is None else parse_size(segment, "segment")
    if segment is not None and not 4096 <= size <= 64 << 20:
        raise PolicyError(f"{segment!r}; use 4 KiB to 64 MiB", setting="segment")
    if fields["limit_bytes"].isdigit() and size > most:
        raise PolicyError(
            f"{segment!r} is more than the store's whole limit of {most} bytes; make it less", setting="segment"
        )
    if when_full == "spool":
        raise PolicyError(
            "a store does not spool to another; use block, fail, 'fail-after 3s' or drop", setting="when_full"
        )
    full = WhenFull.parse(when_full).text
    return fields | {"segment_bytes": str(size), "when_full": "" if full == "block" else full}


class Spool:
    """A spool is one store, which keeps payloads in segments.

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
        self.storage = Storage(settings.url, marker=f"{address.namespace}/{MARKER}")
        self.marked = False
        """Whether its storage has its marker, or need not be given one."""

    def __repr__(self) -> str:
        return f"Spool({self.name!r}, {self.storage.url!r})"

    def path(self, destination: Address, name: str) -> str:
        """Return where a segment of a destination is in the storage."""
        return f"{self.address.namespace}/{_safe(folder(destination))}/{name}"

    async def read(self, destination: Address, name: str, start: int, end: int) -> bytes:
        """Return a part of a segment; what it raises is what :meth:`Storage.read` does."""
        return await self.storage.read(self.path(destination, name), start, end)

    async def delete(self, destination: Address, names: Sequence[str]) -> None:
        """Delete segments; those that are not there are no error. It raises what :meth:`Storage.delete` does."""
        await self.storage.delete([self.path(destination, name) for name in names])


def folder(destination: Address) -> str:
    """Return what a destination's segments are under at their store; in its storage too, if that can be a folder."""
    return destination.key[4:-1].partition("/")[2]


def _safe(encoded: str) -> str:
    """Return the folder for a name: one that is none, is taken, or is too long, in pieces that begin with '='."""
    if encoded not in _NO_FOLDERS and len(encoded) <= MOST_OF_A_FOLDER:
        return encoded
    most = MOST_OF_A_FOLDER - 1
    return "/".join(f"={encoded[at : at + most]}" for at in range(0, len(encoded), most))


def row_of(path: str) -> str:
    """Return what an object in the folder of a namespace is called at its store: folder and segment."""
    within, _, name = path.rpartition("/")
    if within.startswith("="):
        within = "".join(piece.removeprefix("=") for piece in within.split("/"))
    return f"{within}/{name}"


class Spools:
    """The stores that one client uses, by name; each is read once and again whenever its settings change."""

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
        self.check_url: Callable[[str], None] | None = None
        """Raises InvalidValue where the storage of a URL is not to be touched from here: a policy says the URL."""

    def address(self, name: str) -> Address:
        """Return where the counters of a store are."""
        return Address.of_store(self._namespace, name)

    async def get(self, name: str) -> Spool:
        """Return a store.

        Raises:
            PolicyError: there is none of this name.
            InvalidValue: its URL cannot be used here; the text says what is missing.
            SpoolUnavailable: it is new, and its storage takes no marker.
            CoordinatorUnavailable: Redis does not answer.
        """
        known = self._known.get(name)
        if known is not None and name not in self._stale and known.marked:
            return known
        async with self._lock:
            if name not in self._known:
                await self._wake_ups.subscribe((self.address(name).channels("")[1],), self._hearer(name))
            self._stale.discard(name)
            fields = await self.fields(name)
            if "url" not in fields:
                self._stale.add(name)
                raise PolicyError(f"there is no spool store {name!r}; a policy makes one with [[store]]")
            settings = SpoolSettings.of(fields)
            known = self._known.get(name)
            if known is None or known.settings.url != settings.url:
                self._stale.add(name)  # until it is known to be usable here
                if self.check_url is not None:
                    self.check_url(settings.url)
                known = self._known[name] = await asyncio.to_thread(Spool, name, self.address(name), settings)
                self._stale.discard(name)
            known.settings = settings
            self._remembered[name] = {"kind": "store", **fields}
            if not known.marked:
                await self._mark(known)
            return known

    async def _mark(self, spool: Spool) -> None:
        """Mark the storage of a store that never had a segment; later, one without the marker is not that storage."""
        key = spool.address.shared[0]
        if not int(await self._store.server.command(key, "HGET", key, "message_seq") or 0):
            await spool.storage.mark()
        spool.marked = True

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
        """Create a store of any name that a destination may have, or change it; effective at once.

        Raises:
            PolicyError: a newer policy has set it.
        """
        settings = {"kind": "store", "ledger_keep": "1000", **fields}
        code, _ = await self._store.apply(self.address(name), settings, mode="change", ttl_ms=self._ttl_ms)
        if code == "OLD":
            raise NewerStoreError(f"spool store {name!r} was set by a newer policy")

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

    async def check(self, name: str, setting: str = "store") -> None:
        """See that there is a store of this encoded name, which that setting has; none is fine.

        Raises:
            PolicyError: there is none.
        """
        if name and "url" not in await self.fields(decode_name(name)):
            raise PolicyError(
                f"there is no spool store {decode_name(name)!r}; a policy makes one with [[store]]", setting=setting
            )

    async def segments(self, name: str) -> int:
        """Return how many segments a store holds."""
        key = self.address(name).shared[1 + PARTS.index("refs")]
        return int(await self._store.server.command(key, "HLEN", key))

    async def idle(self, name: str) -> bool:
        """Return whether a store has no segments, and nobody holds credit to write one; ends leases that are over."""
        await self._store.reap(self.address(name))
        key = self.address(name).shared[0]
        leased = await self._store.server.command(key, "HGET", key, "leased_bytes")
        return int(leased or 0) == 0 and await self.segments(name) == 0

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

    async def fields(self, name: str) -> dict[str, str]:
        """Return what is set of a store, as the state keeps it; nothing where there is none."""
        key = self.address(name).shared[0]
        values = await self._store.server.command(key, "HMGET", key, *FIELDS)
        return {field: value.decode() for field, value in zip(FIELDS, values, strict=True) if value}

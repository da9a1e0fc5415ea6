"""The calls about spooled messages: segments at their store, and at the destination that has references to them."""

from collections.abc import Sequence
from typing import Final

from headgate.redis.backend import Backend, call
from headgate.redis.keys import PARTS, Address, is_link
from headgate.redis.replies import Account, record

MOST: Final = 256
"""Segments that one call names."""
_SESSIONS, _REFS, _SPOOLED, _LINKS = (1 + PARTS.index(part) for part in ("sessions", "refs", "spooled", "links"))


class SpoolStore:
    """Every method is one call, atomic in the slot of a store or of a destination; each may be repeated."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def hold(
        self, store: Address, account: Account, segment: str, size: int, *, ttl_ms: int, sender: str = ""
    ) -> str:
        """Enter a segment that is about to be written, paid with credit at its store; returns the code.

        ``sender`` is the session that is to publish references to it, where that is another one.
        """
        reply = await call(
            self.server, "hold", store.keys(account.session), session=account.session, inc=account.inc,
            epoch=account.epoch, ttl_ms=ttl_ms, segment=segment, bytes=size, sender=sender or account.session,
        )  # fmt: skip
        return str(reply[0].decode())

    async def free(self, store: Address, segments: Sequence[str]) -> tuple[int, int]:
        """Take segments that were deleted out of their store; returns how many were there, and their bytes."""
        freed = size = 0
        for at in range(0, len(segments), MOST):
            reply = await call(self.server, "free", store.keys("-"), segments[at : at + MOST])
            if reply[0] == b"OK":
                freed, size = freed + int(reply[1]), size + int(reply[2])
        return freed, size

    async def spent(self, address: Address, *, after: int = 0, most: int = MOST) -> tuple[int, int, list[str]]:
        """Return segments of a destination without messages, where to go on (0: nowhere), and how many it has."""
        reply = await call(self.server, "spent", address.keys("-"), after=after, most=most, session="-")
        return int(reply[1]), int(reply[2]), [segment.decode() for segment in reply[3]]

    async def room(self, address: Address, session: str = "-") -> int:
        """Return for how many references of a session a destination has room, about; what it holds is for these."""
        return int((await call(self.server, "spent", address.keys("-"), after=0, most=1, session=session))[4])

    async def unspool(self, address: Address, segments: Sequence[str]) -> None:
        """Forget segments of a destination that were deleted from their store."""
        for at in range(0, len(segments), MOST):
            await call(self.server, "unspool", address.keys("-"), segments[at : at + MOST])

    async def segments(self, address: Address) -> dict[str, int]:
        """Return every segment that a destination refers to, and the number of its last message. Reads all at once."""
        key = address.shared[_SPOOLED]
        flat = await self.server.command(key, "ZRANGE", key, 0, -1, "WITHSCORES")
        return {flat[i].decode(): int(float(flat[i + 1])) for i in range(0, len(flat), 2)}

    async def held(self, store: Address, cursor: bytes = b"0") -> tuple[bytes, dict[str, tuple[int, str]]]:
        """Return a page of a store's segments, with their bytes and writers, and its cursor.

        It is over when it is to go on at ``b"0"``.
        """
        key = store.shared[_REFS]
        cursor, flat = await self.server.command(key, "HSCAN", key, cursor, "COUNT", 500)
        found = {}
        for i in range(0, len(flat), 2):
            size, _, session = flat[i + 1].decode().partition(" ")
            found[flat[i].decode()] = int(size), session
        return cursor, found

    async def is_orphan(self, address: Address, segment: str, session: str) -> bool:
        """Return whether nothing refers to a segment, and nothing will: whoever wrote it has no lease any more.

        A link has leases one after the other: what it wrote under one may be stored until the next one has called.
        """
        keys = address.shared
        mark = await self.server.command(keys[0], "HGET", keys[_LINKS], f"to:{session}") if is_link(session) else None
        if mark is not None:
            leased = int(record(mark)["fence"]) <= int(segment.rpartition("/")[2].split("-")[1], 16)
        else:
            leased = bool(await self.server.command(keys[0], "HEXISTS", keys[_SESSIONS], session))
        # Asked in this order: without a lease it publishes no more, so what is not referred to now never will be.
        return not leased and not await self.is_known(address, segment)

    async def is_known(self, address: Address, segment: str) -> bool:
        """Return whether a destination refers to a segment, or has not forgotten it yet."""
        keys = address.shared
        return await self.server.command(keys[0], "ZSCORE", keys[_SPOOLED], segment) is not None

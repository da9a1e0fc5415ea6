"""A look at a destination's slices is shared by sessions of one client: what one reads is good for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.core.names import is_slice, slice_name
from headgate.redis.keys import Address
from headgate.redis.replies import Snapshot
from headgate.redis.stores.sliced_reads import read_within, together

FRESH: Final = 0.5
"""Seconds for which all who wait get the same answer."""
Look = Callable[[Address, int], Awaitable[Snapshot | None]]
Read = Callable[[Address, str, int], Awaitable[Snapshot | None]]


class SliceLooks:
    """`SliceLooks` gives sessions of one client their view of destinations where they wait, however many they are.

    Each reads the slice that it sends to by itself, for its place in line is there. The others are read by the first
    that looks, for all that look with it or half a second later.

    Args:
        read: reads one slice, for a session or for none, with so many entries of its ledger.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._looks: dict[tuple[str, int], tuple[float, asyncio.Task[Any]]] = {}

    async def snapshot(self, own: Address, session: str, entries: int) -> Snapshot | None:
        """Read a destination as a session that sends to one slice of it sees it; None where there is none.

        Raises:
            CoordinatorUnavailable: a slice does not answer.
        """
        looks = iter((self._shared, self._fresh, self._fresh))
        return await read_within(lambda: self._look(own, session, entries, next(looks)))

    async def _look(self, own: Address, session: str, entries: int, read: Look) -> Snapshot | None:
        if not is_slice(own.name):
            first = await self._read(own, session, entries)
            if first is None or "sliced" not in first.fields:
                return first
        else:
            first = await read(own.whole, entries)
            if first is None:
                return None
        whole, slices = own.whole, int(first.fields.get("sliced", 1))
        others = [Address.of(whole.namespace, slice_name(whole.name, number)) for number in range(1, slices)]
        reads = (self._read(part, session, entries) if part == own else read(part, entries) for part in others)
        return together([first, *(one for one in await asyncio.gather(*reads) if one is not None)])

    async def _fresh(self, part: Address, entries: int) -> Snapshot | None:
        return await self._read(part, "", entries)

    async def _shared(self, part: Address, entries: int) -> Snapshot | None:
        seen: Snapshot | None = await self.shared((part.key, entries), lambda: self._read(part, "", entries))
        return seen

    async def shared(self, what: tuple[str, int], read: Callable[[], Awaitable[Any]]) -> Any:
        """Return what is read; who asks half a second later for the same gets that too."""
        now = asyncio.get_running_loop().time()
        known = self._looks.get(what)
        if known is None or now - known[0] >= FRESH or _failed(known[1]):
            self._looks = {key: one for key, one in self._looks.items() if now - one[0] < FRESH}
            known = self._looks[what] = now, asyncio.create_task(_made(read), name=f"headgate look at {what[0]}")
            known[1].add_done_callback(_failed)  # all who asked may have given up
        return await asyncio.shield(known[1])


async def _made(read: Callable[[], Awaitable[Any]]) -> Any:
    return await read()


def _failed(look: "asyncio.Task[Any]") -> bool:
    return look.done() and (look.cancelled() or look.exception() is not None)

"""One message goes to another destination by hand: as a link of one message, so that it is there once, or here still.

The source takes it out under a new number, where nobody else gets it; the target stores it together with that number,
its mark; the source lets go of it. The one that comes next, after a process died on the way, asks the target for it,
and lets go of the message at the source, or puts it back. Where values say the slice, that slice is the target.
"""

import asyncio
import contextlib
from typing import Final

from headgate.core.limits.fairness import keys_over_a_link
from headgate.core.limits.slices import pools_of, with_pools_of_slices
from headgate.core.limits.spread import UNPLACED
from headgate.core.links.calls import Committed, Put
from headgate.core.names import is_slice, read_id, shown_id, slice_name
from headgate.errors import (
    CoordinatorUnavailable,
    DestinationFull,
    HeadgateError,
    InvalidValue,
    MessageTooLarge,
    MessageUnavailable,
    PolicyError,
    UnknownDestination,
)
from headgate.namespace.defaults import durability_of
from headgate.namespace.pool_slices import Pools
from headgate.namespace.registry import Registry
from headgate.namespace.shared_rates import SharedRates
from headgate.namespace.spreads import Place, Spreads
from headgate.redis.keys import Address, move_id
from headgate.redis.replies import Account
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.moves import MoveStarted, MoveStore
from headgate.redis.stores.rates import RateStore
from headgate.redis.stores.spreads import SpreadStore

TTL_MS: Final = 5000
"""Lease of the room that a move has at its target."""
TRIES: Final = 5
"""Times that it begins anew where others fenced it off."""
LOOKS: Final = 8
"""Times that a target is asked for room whose pools are to lend it first."""
PAUSE: Final = 0.05
BARRIER_MS: Final = 1000
_NO_ROOM: Final = {
    "STOPPED": "it was stopped by hand", "RATE": "its rate allows no more now", "FULL": "it has no room for it",
    "NOCREDIT": "it has no room for it", "GAP": "it lost what it knew of such moves; try again",
}  # fmt: skip
"""Codes of a target that stores nothing now."""


def located(destination: Address, text: str) -> tuple[Address, str]:
    """Return where a message of a destination is, which may be a slice of it, and its id there.

    Raises:
        InvalidValue: that is no id of a message.
    """
    found = read_id(text)
    if found is None:
        raise InvalidValue(f"message {text!r}: use the id of a message, such as '17-2048', as browse shows it")
    number, id_ = found
    return Address.of(destination.namespace, slice_name(destination.name, number)) if number else destination, id_


class Moves:
    """`Moves` moves single messages between destinations of one namespace.

    Args:
        store: the scripts.
        pools: whose slices a target may need.
        registry: makes slices that a target lacks.
    """

    def __init__(self, store: Store, pools: Pools, registry: Registry) -> None:
        self.store, self.pools, self.registry = store, pools, registry
        self.spreads = Spreads(registry, SpreadStore(store.server))
        self.rates = SharedRates(registry, RateStore(store.server))
        self.single, self.links = MoveStore(store.server), LinkStore(store.server)

    async def discard(self, address: Address, id_: str) -> None:
        """Delete a message; see :meth:`Client.delete_message`."""
        code, more = await self.single.discard(address, id_)
        self.check(code, address, id_, more)

    async def move(self, source: Address, id_: str, target: Address) -> None:
        """Move a message; see :meth:`Client.move_message`."""
        if source.shown == target.name:
            raise InvalidValue(f"a message of {source.shown!r} is there already", setting="target")
        above = 0
        for _ in range(TRIES):
            place = await self._place(source, id_, target)
            begun = await self.single.begin(source, move_id(source, place.at), above=above)
            move = _Move(self, source, place.at, begun, place)
            self.check(move.begun.code, source, id_)
            try:
                if await move.run(id_):
                    return
            finally:
                await move.leave()
            above = max(above, move.later)
        raise MessageUnavailable(source.shown, shown_id(source.name, id_), "busy")

    async def _place(self, source: Address, id_: str, target: Address) -> Place:
        """Return where a message belongs at a target; a change of that waits for consumers, and so this is refused."""
        stored = await self.store.stored(source, id_)
        for _ in range(LOOKS):
            if (place := await self.spreads.place(target, stored or b"", source.whole.key)) is not None:
                return place
            await asyncio.sleep(PAUSE)
        size = int(id_.partition("-")[2])
        raise DestinationFull(target.name, size, f"{UNPLACED}, as soon as all that is there is settled")

    async def finish(self, source: Address, *, older_than_ms: int) -> int:
        """End what processes that died began to move from a queue; returns how many messages.

        Args:
            source: the queue.
            older_than_ms: so long ago they were taken out; whoever took out a later one may be at work still.

        Raises:
            CoordinatorUnavailable: no answer; call again.
        """
        ended = 0
        snapshot = await self.store.snapshot(source, waiters=0, consumers=1)
        for link, name, since in await self.single.under_way(source) if snapshot else ():
            target = Address.of(source.namespace, name)
            if snapshot and snapshot.now_ms - since >= older_than_ms and move_id(source, target) == link:
                move = _Move(self, source, target, await self.single.begin(source, link))
                try:
                    ended += move.begun.code == "OK" and await move.finish()
                finally:
                    await move.leave()
        return ended

    def check(self, code: str, source: Address, id_: str, more: str = "") -> None:
        """Raise what a code of the source is for people, unless it is OK."""
        if code == "UNKNOWN" and is_slice(source.name):
            code = "GONE"  # it has fewer slices
        if code == "UNKNOWN":
            raise UnknownDestination(source.name, source.namespace)
        if code == "KIND":
            raise PolicyError(
                f"no message of {source.name!r} can be moved or deleted alone: that takes a queue, or a topic to delete"
            )
        if code != "OK":
            raise MessageUnavailable(source.shown, shown_id(source.name, id_), code.lower(), more)


class _Move:
    """A move is one attempt, from the moment that earlier ones are fenced off.

    Attributes:
        begun: the source's answer.
        later: number of the call that fenced this one off.
    """

    def __init__(
        self, moves: Moves, source: Address, target: Address, begun: MoveStarted, place: Place | None = None
    ) -> None:
        self._moves, self._source, self._target, self.begun, self._place = moves, source, target, begun, place
        self._link = move_id(source, target)
        self.later = begun.fence
        self._asked, self._fields = False, dict[str, str]()

    async def run(self, id_: str) -> bool:
        """Move a message; returns False where it is to be tried anew: it was fenced off, or its place is another."""
        moves, begun = self._moves, self.begun
        size = int(id_.partition("-")[2])
        room = await self._reserve(size)
        if room is None or not await self._is_placed() or (begun.taken and not await self._end(room.mark)):
            return False
        taken = moves.single.take(self._source, self._link, id_, self._target, fence=begun.fence, mark=room.mark)
        code, holder, entry = await taken
        if code == "FENCED":
            return False
        moves.check(code, self._source, id_, holder)
        assert entry is not None  # noqa: S101 -- it was taken
        put = Put(entry.seq, entry.body, entry.ttl_ms, entry.path, entry.later_ms)
        done = await self._commit(put, prev=room.mark)
        if done is None:
            return False
        mark = await self._secured(done)
        if not await self._end(mark):
            return False
        if mark < entry.seq:
            raise DestinationFull(self._target.shown, size, _NO_ROOM.get(done.code, "it has no room any more"))
        return True

    async def _is_placed(self) -> bool:
        return self._place is None or await self._moves.spreads.is_in_force(self._place)

    async def finish(self) -> bool:
        """End what an earlier attempt took; returns whether there was any, and this one was not fenced off."""
        if not self.begun.taken:
            return False
        seen = await self._moves.store.snapshot(self._target, waiters=0, consumers=1)
        self._fields = seen.fields if seen is not None else {}
        answer = await self._commit(None)
        return answer is not None and await self._end(await self._secured(answer))

    async def leave(self) -> None:
        """Give the room at the target back; without an answer it goes back with its lease."""
        if self._asked:
            account = Account(self._link, self.begun.fence, 0, weight=0)
            with contextlib.suppress(HeadgateError):
                await self._moves.store.acquire(self._target, account, ttl_ms=TTL_MS, leave=True)

    async def _reserve(self, size: int) -> Committed | None:
        """Return the target's answer once it has granted room; None where this attempt is to be made anew.

        Raises:
            UnknownDestination, PolicyError, MessageTooLarge, DestinationFull: it cannot take it.
        """
        target, pools = self._target, self._moves.pools
        seen = await self._moves.store.snapshot(target, waiters=0, consumers=1)
        if seen is not None and seen.fields["kind"] == "topic" and seen.fields["subscriptions"] == "0":
            raise PolicyError(f"nobody has subscribed to {target.name!r}: the message would be gone")
        self._fields = seen.fields if seen is not None else {}
        names = pools_of(with_pools_of_slices(target.name, self._fields))
        for _ in range(LOOKS if names else 1):
            answer = await self._commit(None, need=size)
            if answer is None or await self._is_anew(answer.code):
                return None
            self._check_target(answer, size)
            if answer.held >= size and answer.held_m >= 1:
                await self._draw_rate(size)
                return answer
            if names:
                pools.refill(target, names, lambda _name, _limit: None)
                await asyncio.sleep(PAUSE)
        raise DestinationFull(target.shown, size, "it has no room for it")

    async def _draw_rate(self, size: int) -> None:
        """Have a slice lent what its rate takes, before the message is taken out."""
        if await self._moves.rates.fetch(self._target, [size]):
            raise DestinationFull(self._target.shown, size, _NO_ROOM["RATE"])

    async def _is_anew(self, code: str) -> bool:
        """Return whether a slice took nothing because it was not there yet, or was held for a change of slices."""
        target, moves = self._target, self._moves
        if code == "UNKNOWN" and is_slice(target.name):
            await moves.registry.ensure(target, ("queue",), recover=False)
            return True
        return code == "STOPPED" and (not await self._is_placed() or await moves.spreads.release(target))

    def _check_target(self, answer: Committed, size: int) -> None:
        target = self._target.shown
        if answer.code == "UNKNOWN":
            raise UnknownDestination(target, self._target.namespace)
        if answer.code == "KIND":
            raise PolicyError(f"{target!r} stores no messages; move it to a queue or a topic")
        if answer.code == "TOO_LARGE":
            raise MessageTooLarge(target, size, int(self._fields.get("limit_bytes", size)))
        if answer.code != "OK" and answer.code in _NO_ROOM:
            raise DestinationFull(target, size, _NO_ROOM[answer.code])

    async def _commit(self, put: Put | None, *, prev: int = 0, need: int = 0) -> Committed | None:
        """Make the target's part; None where a later attempt is at work there."""
        links, target, self._asked = self._moves.links, self._target, True
        entries = [put] if put is not None else []
        keys = keys_over_a_link(entries, await links.fair_by(target)) if entries else ""
        answer = await links.commit(
            target, self._link, entries, fence=self.begun.fence, born=self.begun.born, prev=prev, need=need, want=need,
            ttl_ms=TTL_MS, keys=keys,
        )  # fmt: skip
        self.later = max(self.later, answer.fence)
        return None if answer.code in ("FENCED", "STALE") else answer

    async def _secured(self, answer: Committed) -> int:
        """Return the target's mark once it is as safe there as its settings say.

        Raises:
            CoordinatorUnavailable: it is not yet; the message is ended later, by a node or the next move.
        """
        durability = durability_of(self._fields)
        if not durability or not answer.mark:
            return answer.mark
        again, held = await self._moves.links.barrier(
            self._target, self._link, fence=self.begun.fence, born=self.begun.born, prev=0, ttl_ms=TTL_MS,
            durability=durability, timeout_ms=BARRIER_MS,
        )  # fmt: skip
        if not durability.is_met(held):
            raise CoordinatorUnavailable(
                f"{self._target.shown!r} has the message, but not yet as safely as its settings ask "
                f"({durability.text}); a node ends the move, or the next one from {self._source.shown!r} to there",
                answered=True,
            )
        return again.mark

    async def _end(self, mark: int) -> bool:
        code = await self._moves.single.end(self._source, self._link, fence=self.begun.fence, mark=mark)
        return code != "FENCED"

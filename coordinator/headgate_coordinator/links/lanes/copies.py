"""Copies of what a link can never deliver go to the slices of their values, in any order, each once."""

from collections.abc import Callable
from typing import Any

from headgate.client import Client
from headgate.core.links.calls import Committed, Copy, Entry, Put
from headgate.core.names import is_slice
from headgate.namespace.spreads import Place, Spreads
from headgate.redis.keys import Address
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.rates import Sender
from headgate.redis.stores.spreads import SpreadStore


class Copies:
    """`Copies` brings copies to the dead letters, each once, to the slice of its value where values say that.

    Args:
        client: of the source's site.
        source: name of the source in the path of a message.
        producer: with which copies go that have no value.
        dead: the dead letters, the whole of them.
        link: id of the link there.
        fence: number of the lease.
        ttl_ms: for which credit is kept without a call.
        done: returns up to which number nothing is to be copied any more.
        in_order: whether they come in the order of the source.
    """

    def __init__(
        self, client: Client, source: str, producer: str, dead: Address, link: str, *, fence: int, ttl_ms: int,
        done: Callable[[], int], in_order: bool,
    ) -> None:  # fmt: skip
        self._registry, self._pools, self._rates = client.parts.registry, client.parts.pools, client.parts.rates
        self._links = LinkStore(client.store.server)
        self._spreads = Spreads(self._registry, SpreadStore(client.store.server))
        self._source, self._producer, self._dead, self._link = source, producer, dead, link
        self._fence, self._ttl_ms, self._done, self._in_order = fence, ttl_ms, done, in_order

    async def __call__(self, call: Copy) -> Committed | None:
        """Bring a copy there; returns None where a mark is enough to see to it that it is there once.

        Raises:
            CoordinatorUnavailable: no answer; call again.
        """
        place = await self._spreads.place(self._dead, call.entry.body, self._producer)
        if place is None:
            return Committed("STOPPED")
        if place.number == 0 and self._in_order:
            return None
        for part in self._spreads.others(place):
            answer = await self._commit(part, place, call)
            if answer.code == "FENCED" or answer.has(call.entry.seq):
                return self._answer_about(answer, call.entry)
        return await self._bring(place, call)

    async def _bring(self, place: Place, call: Copy) -> Committed:
        entry, size = call.entry, len(call.entry.body)
        answer = await self._commit(place.at, place, call, need=size)
        if answer.code == "UNKNOWN" and is_slice(place.at.name):
            await self._registry.ensure(place.at, ("queue",), recover=False)
            return Committed("NOCREDIT", again_ms=0)
        if answer.code == "STOPPED":
            await self._spreads.release(place.at)
        if answer.code == "OK" and not answer.has(entry.seq) and (answer.held < size or answer.held_m < 1):
            await self._registry.refresh(place.at)
            self._pools.refill(place.at, self._registry.pools(place.at), lambda _name, _limit: None)
            return Committed("NOCREDIT", again_ms=answer.again_ms)
        if answer.code != "OK" or answer.has(entry.seq):
            return self._answer_about(answer, entry)
        if not await self._spreads.is_in_force(place):
            return Committed("STOPPED")
        answer = await self._commit(place.at, place, call, puts=True)
        sender = Sender(self._link)
        if answer.code == "RATE" and (again_ms := await self._rates.fetch(place.at, [size], sender)) is not None:
            return Committed("RATE", again_ms=max(1, again_ms))
        return self._answer_about(answer, entry)

    async def _commit(self, at: Address, place: Place, call: Copy, *, puts: bool = False, need: int = 0) -> Committed:
        entry = call.entry
        put = Put(entry.seq, entry.body, entry.ttl_ms, (*entry.path, self._source))
        values: dict[str, Any] = {"fence": self._fence, "born": call.born, "prev": 0, "ttl_ms": self._ttl_ms}
        return await self._links.commit(
            at, self._link, (put,) if puts else (), need=need, spread=(place.number, self._done()), **values
        )

    @staticmethod
    def _answer_about(answer: Committed, entry: Entry) -> Committed:
        mark = entry.seq if answer.has(entry.seq) else 0
        return Committed(answer.code, mark, again_ms=answer.again_ms, fence=answer.fence)

"""A slice takes what it sends of a rate from the first slice, which has the whole of it.

Nothing moves in one step between slots. It moves by totals: *look* at a slice, have the first one *lend*, and *take*
that in hand at the slice. Any process may take any of these steps, twice or late, and may die between two of them.
"""

import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.core.names import slice_name, slice_number
from headgate.errors import CoordinatorUnavailable
from headgate.namespace.registry import Registry
from headgate.namespace.slice_limits import agree
from headgate.redis.keys import Address
from headgate.redis.stores.rates import KINDS, Hand, Kind, RateStore, Sender

STEPS: Final = 8
"""Steps for which one attempt goes on: others may change what it saw."""
LOOK_MS: Final = 1000
"""Milliseconds until the next attempt where there is nothing to be lent, or nobody to lend it."""
AT_ONCE: Final = 0.02
"""Seconds of a rate that a sender takes at once while others wait, or one message, as without slices."""


@dataclass(frozen=True, slots=True)
class Lent:
    """An attempt to have a slice lent some of a rate ended so.

    Attributes:
        again_ms: milliseconds until the next; 0 where the slice has what is needed.
        in_hand: what it has then.
    """

    again_ms: int
    in_hand: int = 0


class SharedRates:
    """`SharedRates` brings slices of destinations what they may send of a rate."""

    def __init__(self, registry: Registry, store: RateStore) -> None:
        self._registry, self._store = registry, store

    def draw(
        self, part: Address, sizes: Sequence[int], sender: Sender | None = None
    ) -> Coroutine[Any, Any, int] | None:
        """Return what fetches the rate for messages that wait at a slice; None at a destination without slices.

        It returns in how many ms the first of them may go, 0 where it may now. A sender has its place in line.
        """
        return self._draw(part, sizes, sender) if sizes and "slices_pool" in self._registry.fields(part) else None

    async def fetch(self, part: Address, sizes: Sequence[int], sender: Sender | None = None) -> int | None:
        """Fetch the rate as :meth:`draw` does, after a look at the settings; None without slices.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        await self._registry.refresh(part)
        drawn = self.draw(part, sizes, sender)
        return None if drawn is None else await drawn

    async def _draw(self, part: Address, sizes: Sequence[int], sender: Sender | None) -> int:
        if not self._kinds(part):
            await self._registry.refresh(part)
        some = _at_once(sizes, self._registry.fields(part))
        for kind in self._kinds(part):  # in one order, so that nobody waits for one with the other in hand
            need, most, want = (1, some, len(sizes)) if kind == "send" else (sizes[0], sum(sizes[:some]), sum(sizes))
            if again_ms := (await self.lend(part, kind, need, want, sender, most)).again_ms:
                return again_ms
        return 0

    def _kinds(self, part: Address) -> list[Kind]:
        fields = self._registry.fields(part)
        return [kind for kind in KINDS if fields.get(f"{kind}_rate")]

    async def lend(
        self, part: Address, kind: Kind, need: int, want: int, sender: Sender | None = None, at_once: int = 0
    ) -> Lent:
        """Have a slice lent what it needs, and up to what it wants.

        For a sender that is ``at_once`` at the most while others wait.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        own, take = slice_number(part.name), partial(self._store.take, part, kind, sender=sender)
        hand = await take()
        for _ in range(STEPS):
            if hand.code != "OK":
                break
            if hand.own >= need:
                return Lent(0, hand.left)
            lacks = (need - hand.own, want - hand.own)
            loan = await self._store.lend(
                part.whole, kind, own, hand, *lacks, sender=sender, part=max(0, at_once - hand.own)
            )
            if loan.code == "OK":
                lent = 0 if kind == "delivery" else loan.lent  # any consumer is given what is in hand
                hand = await take(home=loan.home, epoch=hand.epoch, granted=loan.granted, lent=lent)
                return Lent(0, hand.left)
            if loan.code == "OLD":
                hand = await take(home=loan.home)
            elif loan.code == "ASK":
                for number in loan.slices:
                    await self._tell(part, number, kind, loan.home)
            elif loan.code == "SHORT" and loan.slices:
                for number in loan.slices:
                    if number == own:  # it was lent some that did not come
                        hand = await take(home=loan.home, epoch=hand.epoch, granted=loan.granted)
                        continue
                    with contextlib.suppress(CoordinatorUnavailable):  # what it has in hand it keeps
                        await self._tell(part, number, kind, loan.home, back=True)
            elif loan.code == "SHORT":
                return Lent(loan.again_ms)
            else:
                break
        return Lent(LOOK_MS)

    def at_once(self, part: Address, kind: Kind) -> int:
        """Return how much of a rate is little enough to be taken at once."""
        return int(float(self._registry.fields(part).get(f"{kind}_rate") or 0) * AT_ONCE)

    async def _tell(self, of: Address, number: int, kind: Kind, home: int, *, back: bool = False) -> None:
        """Have another slice say what it has in hand, or give it back, and tell the first one."""
        whole = of.whole
        part = Address.of(of.namespace, slice_name(whole.name, number))
        hand = await self._store.take(part, kind, home=home, back=back)
        if hand.code != "OK" and not back:
            hand = await self._bind(part, kind, home)
        if hand.code == "OK":
            await self._store.lend(whole, kind, number, hand)

    async def _bind(self, part: Address, kind: Kind, home: int) -> Hand:
        """Make a slice that is not there yet, or give it what the whole has: without a rate, it sends what it likes."""
        registry = self._registry
        await registry.ensure(part, (await registry.kind(part.whole) or "queue",), recover=bool(registry.fields(part)))
        await agree(self._store.server, part)
        return await self._store.take(part, kind, home=home)


def _at_once(sizes: Sequence[int], fields: Mapping[str, str]) -> int:
    """Return how many of the first messages a sender takes the rates for at once."""
    messages, total = float(fields.get("send_rate") or "inf"), float(fields.get("send_byte_rate") or "inf")
    count = 1
    while count < len(sizes) and (count + 1) / messages <= AT_ONCE and sum(sizes[: count + 1]) / total <= AT_ONCE:
        count += 1
    return count

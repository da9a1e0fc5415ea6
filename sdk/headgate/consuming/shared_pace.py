"""A consumer at several slices settles at a pace that no slice sees: its client has them judged together."""

import asyncio
import hashlib
from collections.abc import Callable, Collection
from typing import Final

from headgate._util.tasks import stop
from headgate.consuming.busy_spell import BusySpell
from headgate.consuming.feed import Feed
from headgate.core.names import slice_number
from headgate.errors import HeadgateError, SlowConsumer
from headgate.namespace.registry import Registry
from headgate.redis.stores.paces import Pace, PaceStore

PERIOD: Final = 5.0
"""Seconds between judgements, unless ``slow_period_ms`` says otherwise; as Redis has it."""
AT_LEAST: Final = 0.05
"""Seconds between two readings of all slices."""
MARGIN: Final = 0.002
"""Seconds that a judgement comes after its period, so that this is over."""


class SharedPace:
    """A shared pace has a consumer judged once a period, while its destination has slices and a rule for it.

    Args:
        store: reads and judges.
        registry: knows the settings of the destination.
        first: the feed at the first slice, whose name is the consumer's.
        feeds: returns the feeds of all slices, that one among them.
    """

    def __init__(
        self, store: PaceStore, registry: Registry, first: Feed, feeds: Callable[[], Collection[Feed]]
    ) -> None:
        self._store, self._registry, self._first, self._feeds = store, registry, first, feeds
        self._spell = BusySpell()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = self._is_detached = False
        self._unread = 0
        self._stirs = asyncio.Event()

    def look(self) -> None:
        """Begin where there is something to judge by, after a change of settings or feeds."""
        if self._period() is None or self._is_closed:
            return
        for feed in self._feeds():
            feed.steps[self._saw] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(), name=f"headgate pace {self._first.id}")

    async def close(self) -> None:
        """End."""
        self._is_closed = True
        await stop(self._task)

    def _period(self) -> float | None:
        fields = self._registry.fields(self._first.address)
        if "sliced" not in fields or not (fields.get("slow_rate") or fields.get("slow_multiple")):
            return None
        return float(fields["slow_period_ms"]) / 1000 if fields.get("slow_period_ms") else PERIOD

    def _saw(self) -> None:
        feeds, now = self._feeds(), asyncio.get_running_loop().time()
        held = sum(feed.held_messages for feed in feeds)
        if held or self._first.is_slow or self._first.source.failure is not None:
            self._stirs.set()  # it is idle no more
        self._spell.saw(now, held, more=not held and any(one.machine.look_at <= now for one in feeds))

    async def _keep(self) -> None:
        wait = 0.0
        while (period := self._period()) is not None:
            await asyncio.sleep(max(AT_LEAST, wait + MARGIN))
            wait = period
            try:
                wait = await self._judge(period)
            except HeadgateError:  # a slice is away, which may not have taken what was settled meanwhile
                self._unread += 1
            if self._is_detached or isinstance(self._first.source.failure, SlowConsumer):
                await self._leave()
                return
        for feed in self._feeds():
            feed.steps.pop(self._saw, None)

    async def _judge(self, period: float) -> float:
        """Read all slices and have that judged; returns in how many seconds to do so again."""
        first, feeds, loop = self._first, tuple(self._feeds()), asyncio.get_running_loop()
        self._saw()
        if not (first.is_slow or any(feed.held_messages for feed in feeds)):
            if first.source.failure is not None:
                return period
            self._stirs.clear()
            await self._stirs.wait()
            return 0.0  # so the first reading of a busy spell comes soon after that begins, and not a period later
        others = [feed for feed in feeds if feed is not first]
        seen = [await self._look(first)]  # first: what is settled from now on is in what others say
        seen += await asyncio.gather(*map(self._look, others))
        if any(one.code != "OK" for one in seen):
            return period
        named = sorted(
            f"{slice_number(feed.address.name)}.{feed.number}.{one.epoch}"
            for feed, one in zip((first, *others), seen, strict=True)
        )
        named.append(str(self._unread))
        verdict = await self._store.judge(
            first.address, first.session, first.number, began=seen[0].now_ms,
            busy_ms=int(self._spell.lasted(loop.time()) * 1000), total=_sum(seen),
            parts=hashlib.sha1(" ".join(named).encode(), usedforsecurity=False).hexdigest(),
        )  # fmt: skip
        self._is_detached = verdict.code == "SLOW"
        return verdict.again_ms / 1000 if verdict.code == "OK" else period

    async def _look(self, feed: Feed) -> Pace:
        return await self._store.look(feed.address, feed.session, feed.number)

    async def _leave(self) -> None:
        """Give back what other slices delivered to it, as the first one did."""
        first = self._first
        first.machine.lease.renew_at = 0.0  # its next call, which is due now, says that it was detached
        first.resume()
        await asyncio.gather(*(feed.close(failed=True) for feed in self._feeds() if feed is not first))


def _sum(seen: Collection[Pace]) -> Pace:
    return Pace(
        "OK",
        settled=sum(one.settled for one in seen),
        held=sum(one.held for one in seen),
        waiting=sum(one.waiting for one in seen),
    )

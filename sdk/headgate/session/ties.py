"""A session's notes of its waits, for the search of deadlocks over many sessions.

They name its consumers, and its holds of limiters and gates, that are tied to a wait: nobody else settles or releases.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from headgate._util.flag import Flag
from headgate._util.tasks import stop
from headgate.core.outbox import Outgoing
from headgate.errors import HeadgateError
from headgate.explain.self_wait import ConsumerUser
from headgate.limiting.limiter import Limiter
from headgate.redis.stores.notes import TELL_EVERY, AnnouncedTies, NoteStore, Tie
from headgate.session.destination import SessionDestination
from headgate.session.waits import TaskWait, holds_of, name_of, sends, waits_of

TELL_AFTER: Final = 0.3
"""Seconds of waiting after which a send is worth telling of."""
LOOK_EVERY: Final = 1.05 * TELL_EVERY
"""Seconds between looks at ties that nothing changes: they are announced again."""
PAUSE: Final = 0.05
"""Seconds between two looks, at the least."""
SHARE: Final = 0.02
"""The part of a processor that looks take, at the most: where thousands wait, they come less often."""
_log: Final = logging.getLogger("headgate")


class Ties:
    """Consumers and holds of one session that are tied to waits of its own: who alone uses them waits.

    It works only while somebody waits in a session that has consumers, or holds something, and writes only of those
    that are tied.
    """

    def __init__(
        self,
        notes: NoteStore,
        destinations: Callable[[], Iterable[SessionDestination]],
        limiters: Callable[[], Iterable[Limiter]],
    ) -> None:
        self._destinations, self._limiters = destinations, limiters
        self._holders: Collection[Any] = ()  # those who wait and hold something, as last seen
        self._announced = AnnouncedTies(notes)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = Flag()
        """Set when a send begins or ceases to wait, or somebody else uses a consumer."""
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Look once a send, or an admission, that begins to wait has waited long enough."""
        if self._timer is not None:
            return  # it finds this one too
        self._changed.set()
        if self._task is None:
            self._timer = self._loop.call_later(TELL_AFTER, self._start)

    @property
    def _has_something(self) -> bool:
        """Whether others may wait for this session: it has consumers, or holds something."""
        return self._holds or any(presence.consumers for presence in self._destinations())

    @property
    def _holds(self) -> bool:
        """Whether it holds something of a limiter or a gate."""
        return any(limiter.line.others for limiter in self._limiters()) or any(
            presence.kind == "gate" and presence.account and presence.account.credit.taken_m
            for presence in self._destinations()
        )

    def _start(self) -> None:
        self._timer = None
        if self._has_something:
            self._task = self._loop.create_task(self._run(), name="headgate ties")

    def doomed(self, destination: str, wait: str) -> Outgoing | None:
        """Return the send that waits there under that name, if it does still and somebody uses a consumer beside it."""
        users = {consumer.use.task for presence in self._destinations() for consumer in presence.consumers}
        users.update(self._holders)
        for presence in self._destinations():
            if presence.address.name == destination:
                return next((one for one in sends(presence) if one.who in users and name_of(one) == wait), None)
        return None

    async def close(self) -> None:
        """Stop, and take the notes back."""
        if self._timer is not None:
            self._timer.cancel()
        await stop(self._task)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(0.2):
                await self._announced.tell((), 0.0)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            now = self._loop.time()
            ties = self._find(now)
            took = self._loop.time() - now
            try:
                await self._announced.tell(ties, now)
            except HeadgateError as error:
                _log.debug("ties could not be reported: %s", error)
            # Now, and not before it was reported: a send that began to wait meanwhile found this at work.
            waits = list(self._waits())
            if not waits and not self._announced.names:
                self._task = None
                return
            uses = [consumer.use for place in self._destinations() for consumer in place.consumers]
            for use in uses:
                use.on_change = self._changed.set
            for one in waits:
                if isinstance(one.done, asyncio.Future):
                    one.done.remove_done_callback(self._over)  # each is called once
                    one.done.add_done_callback(self._over)
            # Whoever waits uses no consumer meanwhile: only another wait can bring a tie where there may be none now.
            until: float | None = None
            users = {use.task for use in uses}
            if self._announced.names or self._holds or any(one.who in users for one in waits):
                young = [one.since + TELL_AFTER for one in waits if one.since + TELL_AFTER > now]
                until = min([now + LOOK_EVERY, *young])
            await asyncio.sleep(max(PAUSE, took / SHARE))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._changed.wait()

    def _waits(self) -> Iterable[TaskWait]:
        return waits_of(self._destinations(), self._limiters())

    def _over(self, _: "asyncio.Future[Any]") -> None:
        self._changed.set()

    def _find(self, now: float) -> list[Tie]:
        waits = {one.who: one for one in self._waits() if now - one.since >= TELL_AFTER}
        found: list[Tie] = []
        uses: dict[tuple[str, str], set[ConsumerUser]] = {}
        for presence in self._destinations() if waits else ():
            for consumer in presence.consumers:
                uses.setdefault((presence.address.shown, consumer.id), set()).add(consumer.use)
        for (name, holder), (use, *others) in uses.items():
            if use.task in waits and not (others or use.is_settling):  # others: the id is another consumer's elsewhere
                found.append(waits[use.task].tie(name, holder, now))
        holders = set()
        for name, holder, wait in holds_of(waits) if waits and self._holds else ():
            found.append(wait.tie(name, holder, now, held=True))
            holders.add(wait.who)
        self._holders = holders or ()
        return found

"""A session's notes of its waits, for the search of deadlocks over many sessions: its consumers that are tied."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from headgate._util.tasks import stop
from headgate.core.outbox import Outgoing
from headgate.errors import HeadgateError
from headgate.redis.stores.notes import TELL_EVERY, AnnouncedTies, NoteStore, Tie
from headgate.session.destination import Presence

TELL_AFTER: Final = 0.3
"""Seconds of waiting after which a send is worth telling of."""
LOOK_EVERY: Final = 1.05 * TELL_EVERY
"""Seconds between looks at ties that nothing changes: they are announced again."""
_log: Final = logging.getLogger("headgate")


class Ties:
    """Consumers of one session that are tied to sends of its own: who alone uses them waits in such a send.

    It works only while sends wait in a session that has consumers, and writes only of those that are tied.
    """

    def __init__(self, notes: NoteStore, presences: Callable[[], Iterable[Presence]]) -> None:
        self._presences = presences
        self._announced = AnnouncedTies(notes)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Set when a send begins or ceases to wait, or somebody else uses a consumer."""
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Look once a send that begins to wait has waited long enough."""
        self._changed.set()
        if self._task is None and self._timer is None and any(presence.consumers for presence in self._presences()):
            self._timer = self._loop.call_later(TELL_AFTER, self._start)

    def _start(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._run(), name="headgate ties")

    def doomed(self, destination: str, wait: str) -> Outgoing | None:
        """Return the send that waits there under that name, if it does still and somebody uses a consumer beside it."""
        users = {consumer.use.task for presence in self._presences() for consumer in presence.consumers}
        for presence in self._presences():
            if presence.address.name == destination:
                return next((one for one in _waiting(presence) if one.who in users and _name(one) == wait), None)
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
            try:
                await self._announced.tell(self._find(now), now)
            except HeadgateError as error:
                _log.debug("ties could not be told: %s", error)
            # Now, and not before it was told: a send that began to wait meanwhile found this at work.
            sends = [one for place in self._presences() for one in _waiting(place)]
            if not sends and not self._announced.names:
                self._task = None
                return
            uses = [consumer.use for place in self._presences() for consumer in place.consumers]
            for use in uses:
                use.on_change = self._changed.set
            for one in sends:
                if isinstance(one.done, asyncio.Future):
                    one.done.remove_done_callback(self._over)  # each is called once
                    one.done.add_done_callback(self._over)
            # Whoever waits uses no consumer meanwhile: only another send can bring a tie where there may be none now.
            until: float | None = None
            if self._announced.names or any(one.who in {use.task for use in uses} for one in sends):
                young = [one.since + TELL_AFTER for one in sends if one.since + TELL_AFTER > now]
                until = min([now + LOOK_EVERY, *young])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._changed.wait()

    def _over(self, _: "asyncio.Future[Any]") -> None:
        self._changed.set()

    def _find(self, now: float) -> Iterable[Tie]:
        sends: dict[Any, tuple[Presence, Outgoing]] = {}
        for presence in self._presences():
            for item in _waiting(presence):
                if now - item.since >= TELL_AFTER:
                    sends[item.who] = presence, item
        if not sends:
            return
        for presence in self._presences():
            for consumer in presence.consumers:
                if consumer.use.task in sends and not consumer.use.is_settling:
                    at, item = sends[consumer.use.task]
                    waited, left = int((now - item.since) * 1000), int(max(0.0, item.deadline - now) * 1000)
                    yield Tie(presence.address.name, consumer.id, at.address.name, _name(item), waited, left)


def _waiting(presence: Presence) -> Iterable[Outgoing]:
    """Yield the sends that wait there, of which it is known for whom."""
    if presence.account is not None:
        for item in presence.account.outbox.waiting:
            if item.who is not None and item.since and not (item.done.done() or item.abandoned()):
                yield item


def _name(item: Outgoing) -> str:
    return f"{item.since:.6f}"

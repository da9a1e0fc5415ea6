"""Sends of a session may wait for room that only the very tasks that send could make: a deadlock within one session."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol

from headgate._util.tasks import current
from headgate.core import deadlock
from headgate.core.deadlock import ConfirmedDeadlocks, Deadlock, Party, Wait
from headgate.core.outbox import Outgoing
from headgate.explain.wait_edges import destination, owner_of, wait_for_consumers
from headgate.redis.replies import Snapshot

CONFIRM_AFTER: Final = 0.4
"""Seconds after which what looks like a deadlock is looked at again."""
_log: Final = logging.getLogger("headgate")


class ConsumerUser:
    """`ConsumerUser` says which task uses a consumer, as long as only one does. For :mod:`headgate.sync`, which thread.

    Args:
        loop: where the tasks run.
        going_out: what is not empty while settlements are on their way out, those of feeds at all slices.

    Attributes:
        task: the one that used it; the one that made it, before anybody did. None once another one used it too: then
            whoever has it may use it any time.
        on_change: called in the loop when :attr:`task` is another.
    """

    __slots__ = ("_alone", "_by_threads", "_loop", "_used", "going_out", "on_change", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop, *going_out: object) -> None:
        self._loop = loop
        self.going_out = going_out
        self.task: Any = current(loop)
        self.on_change: Callable[[], None] | None = None
        self._used = False
        self._alone = True
        self._by_threads = False

    @property
    def is_settling(self) -> bool:
        """Whether settlements are on their way out."""
        return any(self.going_out)

    def include(self, other: "ConsumerUser") -> "ConsumerUser":
        """Take in the user of the same consumer's feed at another slice, and return the one of all of them."""
        self.going_out += other.going_out
        return self

    def note(self) -> None:
        """Note that the task that runs uses it."""
        if self._alone and not self._by_threads:
            task = asyncio.current_task(self._loop)
            if task is not self.task or not self._used:
                self.note_by(task)

    def note_by(self, who: object) -> None:
        """Note that this task or thread uses it."""
        if self._alone:
            if who is not self.task:
                if self._used:
                    self._alone, who = False, None
                self.task = who
                if self.on_change is not None:
                    self._loop.call_soon_threadsafe(self.on_change)
            self._used = True

    def by_others(self) -> None:
        """Look at no tasks from now on: whoever uses it is elsewhere, and may any time."""
        self._alone, self.task = False, None

    def by_threads(self) -> None:
        """Look at no tasks from now on: they only work for threads, which :meth:`note_by` names."""
        self._by_threads = True


class TrackedConsumer(Protocol):
    """A tracked consumer has its name in the state, and its user."""

    @property
    def use(self) -> ConsumerUser:
        """Which task uses it."""

    @property
    def id(self) -> str:
        """The consumer's name in the state."""


class SelfWait:
    """A self-wait check says whether a session waits for itself at one destination.

    It does when consumers alone can make room; all of a queue's, or of one subscription that a topic waits for, are
    this session's; each of its consumers here is used by one task only; each of these tasks waits in a send to this
    same destination; and nothing of that changed between two looks. A consumer that several tasks used is taken for
    one that somebody will use again.

    Attributes:
        action: what is done about it: ``none``, ``alert`` or ``fail``.
        consumers: the session's at the destination.
        deadlock: the one that was found and has not ended, as far as is known.
    """

    def __init__(self, name: str, session: str) -> None:
        self.action = "none"
        self.consumers: Collection[TrackedConsumer] = ()
        self.deadlock: Deadlock | None = None
        self._name = name
        self._session = session
        self._passes = ConfirmedDeadlocks()
        self.suspects = False
        """Whether the last look saw what the next one may confirm."""

    def look(self, snapshot: Snapshot | None, line: Iterable[Outgoing]) -> Outgoing | None:
        """Take in how the destination is and who waits; returns whose send has to fail, if one has to."""
        if self.action == "none":
            self.forget()
            return None
        waiting = [item for item in line if not (item.done.done() or item.abandoned())]
        graph = self._graph(snapshot, waiting) if snapshot else {}
        before, certain = self.deadlock, self._passes.look(graph)
        self.deadlock = certain[0] if certain else None
        self.suspects = bool(graph) and not certain
        if self.deadlock is None:
            return None
        if self.action == "fail":
            users = {consumer.use.task for consumer in self.consumers}
            return next(item for item in reversed(waiting) if item.who in users)
        if before is None:
            _log.warning("%s waits for itself to send to %s: %s", self._session, self._name, self.deadlock)
        return None

    def forget(self) -> None:
        """Forget what was seen: another wait begins."""
        self._passes, self.deadlock, self.suspects = ConfirmedDeadlocks(), None, False

    def _graph(self, snapshot: Snapshot, waiting: list[Outgoing]) -> dict[Party, Wait]:
        """Return the waits, empty unless all of them are this session's for itself."""
        tasks = {item.who for item in waiting if item.who is not None}
        me = Party("session", self._session)
        here = {consumer.id for consumer in self.consumers}
        if not here or here != {consumer for consumer in snapshot.consumers if owner_of(consumer) == me}:
            return {}  # one of them comes or goes
        if any(consumer.use.is_settling or consumer.use.task not in tasks for consumer in self.consumers):
            return {}
        wait = wait_for_consumers(snapshot, self._session, snapshot.own, snapshot.place)
        if wait is None:
            return {}
        at = destination(self._name, snapshot)
        graph = {at: wait, me: deadlock.session([at], tuple(item.since for item in waiting))}
        return graph if deadlock.stuck(graph) else {}

"""Looks for deadlocks over all sessions and links of a namespace, and does what the destinations' settings say.

One node at a time does it, by a lease; when it dies another goes on. Two at once do no harm: all that is done about a
deadlock names the one wait that it is about, and does nothing when that has ended.
"""

import asyncio
import contextlib
import logging
import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.deadlock import ConfirmedDeadlocks, Deadlock
from headgate.errors import HeadgateError
from headgate.namespace.deadlocks import FoundDeadlock, read_deadlocks
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.deadlock.graph import WaitGraph, look
from headgate_coordinator.deadlock.resolving import action_of, resolve
from headgate_coordinator.fleet.leases import LeaseStore
from headgate_coordinator.fleet.node_facts import DeadlockFacts

_log = logging.getLogger("headgate.deadlock")
LEASE: Final = "!deadlock"
"""Of who looks. It is no link's: those have a ``>`` in it."""
EVERY: Final = 0.5
"""Seconds between two looks. A ring that is the same in two of them is certain."""
CLOSING: Final = 1.0


@dataclass(slots=True)
class _Known:
    """A known deadlock keeps when it was found, what was done about it last, and how that was last logged."""

    since: float
    done: str = ""
    logged: str | None = None


class Detector:
    """A detector does a node's part in finding deadlocks of its namespace.

    Args:
        client: connected; it stays the caller's.
        node: id of the node.
        ttl: seconds after which another node takes over when nothing is heard of this one.

    Attributes:
        leads: whether it is this node that looks.
    """

    def __init__(self, client: Client, node: str, *, ttl: float) -> None:
        self.leads = False
        self._client, self._node, self._ttl = client, node, ttl
        self._leases = LeaseStore(client.store.server, client.namespace)
        self._notes = NoteStore(client.store.server, client.namespace)
        self._known: dict[str, _Known] = {}
        self._passes = ConfirmedDeadlocks()
        self._found: Counter[str] = Counter()
        self._renew_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="headgate deadlocks")

    async def close(self) -> None:
        """Stop, and let another node look at once."""
        await stop(self._task)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                if self.leads:
                    await self._leases.call(self._node, (LEASE,), mode="release", ttl_ms=int(self._ttl * 1000))

    def facts(self) -> DeadlockFacts:
        """Return how many there are, and how many this node found so far."""
        return DeadlockFacts(len(self._known) if self.leads else 0, dict(self._found))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if began >= self._renew_at:
                    await self._claim(began)
                if self.leads:
                    await self.round()
            except HeadgateError as error:
                _log.debug("a look for deadlocks ended early: %s", error)
                self.leads = self.leads and began < self._renew_at + self._ttl
            await asyncio.sleep(max(0.05, began + EVERY - loop.time()))

    async def _claim(self, now: float) -> None:
        held = await self._leases.call(
            self._node, (LEASE,), mode="alone", ttl_ms=int(self._ttl * 1000), held=int(self.leads), total=1
        )
        led, self.leads = self.leads, LEASE in held.fences
        self._renew_at = now + min(self._ttl / 4, (held.again_ms or math.inf) / 1000)
        if self.leads and not led:
            self._passes, self._known = ConfirmedDeadlocks(), {}
            for one in await read_deadlocks(self._notes):
                if one.unseen <= self._ttl:  # what the one before knew of
                    self._known[one.id] = _Known(now - one.lasted - one.unseen, one.done, one.done)

    async def round(self) -> tuple[Deadlock, ...]:
        """Look once; returns the deadlocks that are certain.

        Raises:
            CoordinatorUnavailable: Redis does not answer; what was seen so far does not count any more.
        """
        try:
            sight = await look(self._client.store, self._client.namespace, await self._notes.ties())
        except HeadgateError:
            self._passes = ConfirmedDeadlocks()
            raise
        certain = self._passes.look(sight.graph)
        noted = {}
        for deadlock in certain:
            if (action := action_of(deadlock, sight)) != "none":
                one = await self._treat(deadlock, action, sight)
                noted[one.id] = one
        if noted:
            await self._notes.write("deadlocks", {name: one.note for name, one in noted.items()})
        self._forget(noted)
        return certain

    async def _treat(self, deadlock: Deadlock, action: str, sight: WaitGraph) -> FoundDeadlock:
        now = asyncio.get_running_loop().time()
        one = FoundDeadlock(deadlock, action, "", 0.0)
        known = self._known.get(one.id)
        if known is None:
            known = self._known[one.id] = _Known(now)
            self._found[action] += 1
        known.done = await resolve(self._client, deadlock, action, sight) or known.done
        if known.logged != known.done:
            known.logged = known.done
            _log.warning("a deadlock (%s): %s%s", action, deadlock, f"; {known.done}" if known.done else "")
        return FoundDeadlock(deadlock, action, known.done, now - known.since)

    def _forget(self, there: dict[str, FoundDeadlock]) -> None:
        now = asyncio.get_running_loop().time()
        for name in [name for name in self._known if name not in there]:
            known = self._known.pop(name)
            seconds = now - known.since
            _log.info("a deadlock has ended, %.1f s after it was found; %s", seconds, known.done or "by itself")

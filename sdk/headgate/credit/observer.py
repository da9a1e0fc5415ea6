"""An observer sees an account's destination, but for credit: what to do without room, why it waits, what it drops."""

import asyncio
import contextlib
import functools
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from headgate.core.account.waiters import EXPLAIN_AFTER, EXPLAIN_EVERY
from headgate.core.limits.fairness import fair_keys
from headgate.core.limits.slices import pools_of
from headgate.core.outbox import Batch, Outgoing
from headgate.core.selector.wanted import TopicSelectors
from headgate.core.when_full import BLOCK, WhenFull
from headgate.credit.notices import Listeners, Notices
from headgate.errors import CoordinatorUnavailable
from headgate.explain.destination_facts import is_clear
from headgate.explain.explainer import explain, leased
from headgate.explain.link_chain import is_link, through
from headgate.explain.links import Links
from headgate.explain.model import Explanation, Hop
from headgate.explain.self_wait import SelfWait
from headgate.namespace.losses import LossListeners
from headgate.redis.keys import PARTS, Address
from headgate.redis.replies import Snapshot
from headgate.redis.store import Store

T = TypeVar("T")
_log = logging.getLogger("headgate")

REPORT_EVERY: Final = 1.0
"""Seconds between reports of what was dropped."""
LOOK_BACK: Final = 32
"""Ledger entries that tell the pace."""
LINKS: Final = 1 + PARTS.index("links")
FEW: Final = 500
"""Sessions up to which those that hold credit are named, by everybody who waits, every second."""


class Observer:
    """An observer has one session's view of one destination.

    Attributes:
        when_full: what they say of a send that finds no room.
        hard: whether it has a hard limit above its limit.
        store: encoded name of the spool store that takes what finds no room; empty where none does.
        store_nonpersistent: that of the one in its place for what is not durable; empty where there is none.
        copies: whether a topic keeps copies of spooled payloads, see lua/lib/hot.lua: its slices do not.
        most_copied: bytes of one segment of a topic: half of what it keeps copies of.
        dropped: messages dropped for want of room since the account was opened.
        dropped_bytes: the same in bytes.
        notices: whom it tells of its waits.
        confirmations: the same of waits for receipts, of what is stored already.
        unreported: whether more was dropped than the destination knows.
        report_at: when the next report of them may go out.
        self_wait: whether its sends wait for room that only the very tasks that send can make.
        consumers: the session's own there; looks may find that its sends wait for themselves.
        pooled: whether it takes slices of pools.
        fair_by: what its keys are that take turns; empty where it has none.
        wanted: by what subscriptions select, judged before messages are stored.
    """

    __slots__ = (
        "_address", "_explained", "_hops", "_lessees", "_links", "_losses", "_reported", "_reported_bytes", "_seen",
        "_seen_at", "_session", "_store", "_whole", "confirmations", "consumers", "copies", "doomed", "dropped",
        "dropped_bytes", "fair_by", "hard", "listeners", "most_copied", "notices", "pooled", "report_at", "self_wait",
        "store", "store_nonpersistent", "unreported", "waits", "wanted", "when_full",
    )  # fmt: skip

    def __init__(
        self, store: Store, links: Links, address: Address, session: str, listeners: Listeners, losses: LossListeners
    ) -> None:
        self.listeners = listeners
        self.notices = Notices(address.shown, session, listeners)
        self.confirmations = Notices(address.shown, session, listeners)
        self.when_full = BLOCK
        self.hard = self.pooled = False
        self.store = self.store_nonpersistent = self.fair_by = ""
        self.wanted = TopicSelectors(time.thread_time, self._cannot_judge)
        self.copies, self.most_copied = True, math.inf
        self.dropped = self.dropped_bytes = 0
        self.unreported = False
        self.report_at = 0.0
        self.self_wait = SelfWait(address.shown, session)
        self.consumers: Collection[Any] = ()
        self.waits: Callable[[], None] = _nothing
        """Called when a send begins to wait."""
        self.doomed: Callable[[str], Outgoing | None] = _nobody
        """Returns the send that waits under that name, see :class:`headgate.session.ties.Ties`."""
        self._store = store
        self._links = links
        self._losses = losses
        self._address, self._whole = address, address.whole
        self._session = session
        self._reported = self._reported_bytes = 0
        self._seen: Snapshot | None = None
        self._seen_at = 0.0
        self._lessees: dict[str, dict[str, str]] = {}
        self._hops: tuple[Hop, ...] = ()
        self._explained: tuple[tuple[object, ...], Explanation] | None = None
        """The last explanation, after that which it was made of."""

    def meet(self, before: int, epoch: int, lost: int) -> None:
        """Note the epoch of an answer, and how many of the account's receipts a new one lost."""
        if before != epoch:
            self._losses.meet(self._address, epoch, lost)

    def adopt(self, fields: Mapping[str, str]) -> None:
        """Take in the settings that are in force."""
        self.when_full = WhenFull.parse(fields.get("when_full", ""))
        self.fair_by = fields.get("fair_by", "")
        self.wanted.adopt(fields.get("selectors", ""))
        self.hard, self.pooled = bool(fields.get("hard_bytes")), bool(pools_of(fields))
        self.store = fields.get("store", "") if self.when_full.spools else ""
        self.store_nonpersistent = fields.get("store_nonpersistent", "")
        limit = fields.get("limit_bytes", "")
        self.copies = "of_slices" not in fields
        self.most_copied = int(limit) // 16 if self.copies and limit.isdigit() else math.inf
        action = fields.get("deadlock") or "none"
        self.self_wait.action = action if action in ("alert", "fail") else "none"

    def _cannot_judge(self) -> None:
        _log.warning(
            "selectors of subscriptions of %r take too long to be judged as messages are stored; receivers judge alone",
            self._address.shown,
        )

    def keys(self, batch: Batch) -> str:
        """Return the keys in whose turn the messages of a batch are delivered."""
        return fair_keys(batch.items, self.fair_by)

    async def look(self, *, fully: bool = True, unless_seconds: float = 0.0) -> None:
        """See how the destination is, unless it was looked at so short a time ago.

        Args:
            fully: whether somebody is to hear who holds its credit, and what is behind it; seen before, that stays.
            unless_seconds: since it was looked at fully.
        """
        now = time.monotonic()
        if self._seen is None or now - self._seen_at >= unless_seconds:
            seen = await self._read()
            if fully:
                await self._look_beyond(seen)
                self._seen_at = now
            self._seen = seen

    async def _look_beyond(self, seen: Snapshot | None) -> None:
        """See who holds its credit and what is behind its links; a server that is away there is no trouble here."""
        lessees: dict[str, dict[str, str]] = {}
        hops: tuple[Hop, ...] = ()
        with contextlib.suppress(CoordinatorUnavailable):
            if seen is not None and seen.sessions <= FEW and not seen.alone:
                lessees = await self._holders(seen)
            self._lessees = lessees
            if seen is not None and any(map(is_link, seen.consumers)):
                hops = await self._links.behind(self._explain(seen), seen)
        self._lessees, self._hops = lessees, hops

    async def _holders(self, seen: Snapshot) -> dict[str, dict[str, str]]:
        """Return those who hold its credit; of a destination with slices, as this client read them a moment ago."""
        if "sliced" not in seen.fields:
            return await self._store.lessees(self._whole, *leased(seen))
        read = functools.partial(self._store.lessees, self._whole, *leased(seen))
        holders: dict[str, dict[str, str]] = await self._store.looks.shared((self._whole.key, -1), read)
        return holders

    async def _read(self) -> Snapshot | None:
        address, session = self._address, self._session
        if not self.pooled:  # nor has it slices, which share a pool
            return await self._store.snapshot(address, session=session, entries=LOOK_BACK)
        try:
            return await self._store.looks.snapshot(address, session, LOOK_BACK)
        except CoordinatorUnavailable:
            # Of a queue with slices another one may be away: what is to be seen at its own says more than nothing.
            own = await self._store.snapshot(address, session=session, entries=LOOK_BACK, alone=True)
            return own and replace(own, alone=True)

    async def released(self, link: str) -> int | None:
        """See which message a link released last; None where it has nothing to release."""
        key = self._address.shared
        record = await self._store.server.command(key[0], "HGET", key[LINKS], f"from:{link}")
        await self.look()
        if self._seen is None or is_clear(self._seen, link):
            return None
        found = re.search(rb"released=(\d+)", record or b"")
        return int(found[1]) if found else 0

    async def look_during(self, call: Awaitable[T]) -> T:
        """Look while another call is under way, and return its result: refused callers do not wait for the reason."""
        result, _ = await asyncio.gather(call, self.look(unless_seconds=EXPLAIN_AFTER))
        return result

    def wait_begins(self, now: float) -> float:
        """Forget how it was seen, if that is old; returns when somebody is to hear of the wait, if it lasts."""
        if self.self_wait.suspects or self.self_wait.deadlock:
            self.self_wait.forget()
        if time.monotonic() - self._seen_at >= EXPLAIN_EVERY:
            self._seen = None
        return self.notices.due(now)

    def why(self, size: int, *, paid: bool = False, durable: bool | None = None) -> Explanation | None:
        """Return why a message waits, as last seen; None when that is not known.

        Args:
            size: bytes that it lacks.
            paid: whether it has its credit.
            durable: as :func:`headgate.explain.explainer.explain` has it.
        """
        if self._seen is None:
            return None
        asked = (self._seen, self._lessees, self._hops, size, paid, durable)
        if self._explained is None or self._explained[0] != asked:  # of many that wait, most lack the same
            self._explained = asked, through(self._explain(self._seen, size, paid=paid, durable=durable), self._hops)
        explanation = self._explained[1]
        deadlock = None if paid else self.self_wait.deadlock
        return replace(explanation, deadlock=deadlock) if deadlock else explanation

    def _explain(
        self, seen: Snapshot, size: int | None = None, *, paid: bool = False, durable: bool | None = None
    ) -> Explanation:
        name, session = self._address.shown, self._session
        return explain(name, seen, self._lessees, session=session, need=size, paid=paid, durable=durable)

    def find_deadlock(self, line: Iterable[Outgoing]) -> Outgoing | None:
        """See whether those in line wait for themselves, as last seen; returns whose send has to fail, if one has."""
        return self.self_wait.look(self._seen, line)

    def drop(self, size: int) -> None:
        """Count a message that is dropped."""
        self.dropped, self.dropped_bytes = self.dropped + 1, self.dropped_bytes + size
        self.unreported = True

    async def report(self) -> None:
        """Tell the destination what was dropped; what it does not take is sent again later."""
        dropped, size = self.dropped, self.dropped_bytes
        self.report_at = time.monotonic() + REPORT_EVERY
        if await self._store.drop(self._address, self._session, messages=dropped, size=size) == "OK":
            self._reported, self._reported_bytes = dropped, size
            self.unreported = self.dropped > dropped

    def start_anew(self) -> None:
        """Count from nothing: the totals are those of one account, and it has ended."""
        self.dropped, self.dropped_bytes = self.dropped - self._reported, self.dropped_bytes - self._reported_bytes
        self._reported = self._reported_bytes = 0


def _nothing() -> None:
    pass


def _nobody(_wait: str) -> Outgoing | None:
    return None

"""The answer to "why does it wait?": the same object in errors, events, logs, the SDK and on the command line."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from headgate.core.deadlock import Deadlock
from headgate.explain.levels import ShadowState
from headgate.explain.limiter_view import LimiterView
from headgate.explain.limiter_words import duration, shadow_text
from headgate.explain.link_view import LinkAt, LinkEnds, LinkView, Side
from headgate.explain.turns import Turns
from headgate.explain.views import Backlog, Holder, Leaser, Limit, PoolView, StoreView, Waiter, count, credit
from headgate.figures import rounded

State = Literal["open", "full", "blocked", "stopped", "learning", "unknown"]
Cause = Literal[
    "open",
    "enforcement-off",
    "redis-unavailable",
    "producer-rate",
    "not-durable",
    "stopped",
    "spread-anew",
    "held-off",
    "learning",
    "hysteresis",
    "pool",
    "store-full",
    "spooling",
    "send-rate",
    "bucket-rate",
    "channel",
    "serving",
    "behind-larger",
    "oversize",
    "leased",
    "holder-lost",
    "no-consumer",
    "all-paused",
    "same-session",
    "slow-subscription",
    "unsettled",
    "not-due",
    "at-capacity",
    "pull-idle",
    "delivery-rate",
    "slow-consumer",
    "head-needs",
    "slow-consumers",
    "consumer-paused",
    "consumer-full",
    "consumer-empty",
    "consumer-beside",
    "consumer-idle",
    "link",
    "link-empty",
    "link-waits",
    "link-rate",
    "link-nobody",
    "link-stuck",
    "limit-rate",
    "limit-at-once",
    "limit-quota",
    "limit-line",
]
"""Causes of waits, for programs; those that begin with ``consumer-`` are the view of one consumer, those with
``link-`` of one link. ``link``: a link that takes from the destination is held up itself. ``limit-``: of a limiter."""
CONSUMERS_HOLD: Final[frozenset[Cause]] = frozenset({
    "same-session", "unsettled", "at-capacity", "slow-subscription", "slow-consumer", "slow-consumers", "head-needs",
    "pull-idle", "oversize", "hysteresis", "spread-anew",
})  # fmt: skip
"""Of these, causes that only consumers end, by settling: not the passing of time, nor credit that is given back."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason names one cause, in one sentence.

    Attributes:
        limit: the limit that binds, where one does.
        rule: the policy rule behind it, ``<pattern> (<file>:<line>)``; None when it was set by hand.
        remedy: what would free it.
        seconds: until it frees itself, as far as is known.
        settle: how much would have to be settled, in the limit's unit.
        raise_to: or to what the limit would have to be raised.
        place: in the line of the rate, for the session whose view it is; 0 where it is in none.
    """

    cause: Cause
    text: str
    limit: Limit | None = None
    rule: str | None = None
    remedy: str = ""
    seconds: float | None = None
    settle: int | None = None
    raise_to: int | None = None
    place: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop(LinkEnds):
    """One link of a chain, and why it does not move.

    Attributes:
        side: what holds it up.
        state: of its target; ``unknown`` where that cannot be seen.
        cause: the target's where that holds it up, else a word that begins with ``link-``; ``open`` when it moves.
        reason: one sentence.
        limit: of the target, where one binds.
        rule: the policy rule that set it, ``<pattern> (<file>:<line>)``.
        remedy: what would free it.
        seconds: until it frees itself, as far as is known.
    """

    side: Side
    state: State
    cause: Cause
    reason: str
    limit: Limit | None = None
    rule: str | None = None
    remedy: str = ""
    seconds: float | None = None

    @property
    def text(self) -> str:
        """The link and its reason in one sentence."""
        verb = {"target": "waits", "rate": "is paced", "nobody": "rests", "stuck": "is stuck", "source": "is idle"}
        return f"{self.title} {verb.get(self.side, 'moves')}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.text}{f' (set by {self.rule})' if self.rule else ''}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation shows the state of a destination at one instant, and the reason for it.

    Attributes:
        state: ``open``, ``full`` (nobody waits yet), ``blocked`` (somebody waits), ``stopped`` (by hand, or
            held off), ``learning`` (state may have been lost) or ``unknown`` (Redis does not answer).
        cause: a stable word for the reason; see :data:`Cause`.
        reason: one sentence.
        rule: the policy rule that set what binds, ``<pattern> (<file>:<line>)``; None when none did.
        remedy: what would free it.
        unblocks_in: seconds until it does by itself at the present pace; None when that is unknown. At a limiter,
            until the first in line is admitted, or that of the session or key that was asked about.
        settle: how much would have to be settled, in the unit of ``binding``.
        raise_to: or to what that limit would have to be raised.
        binding: the limit that binds, None when none does.
        blocked: how many sessions wait.
        causes: all that hold it up, the first being ``cause``.
        waiters: the first of them.
        consumers: those that hold most, at most five.
        leasers: sessions that hold credit, those that hold most, at most five.
        backlogs: subscriptions of a topic that have most to settle, at most five.
        dropped_messages: dropped so far for want of room; ``dropped_bytes`` are their bytes.
        freed_per_second: bytes, over the last few seconds; None when the ledger does not tell.
        settled_per_second: messages, likewise.
        store: the spool store, where it has one.
        store_nonpersistent: the one in its place for messages that are not durable, where it has two.
        pools: those that it takes slices of, and who holds them; read only while somebody waits.
        session: whose view it is, with its ``place`` in line, the bytes of credit it ``holds`` and, where their number
            has a limit, the messages; empty for nobody's. Where a rate holds it up, the place is in the line of that.
            At a limiter it is that of the first admission of the session, or of the key, that was asked about.
        deadlock: the cycle that the wait is part of; None where none is known, which is not to say that there is none.
        upstream: the links that fill it, as the policy has them.
        downstream: the links that take from it.
        chain: links that wait one for the next, where a link holds it up; the last is the one that binds.
        link: the link itself, where it was asked about; ``destination`` is then what the link is known by.
        limiter: levels of a limiter, and whoever holds or waits; None for all else. ``blocked`` counts admissions then.
        later: messages, and deliveries that failed, that wait for their time.
        next_due_in: seconds until the first of them is due; None where none waits.
        shadows: shadow limits of a queue, topic, gate or bucket; those of a limiter are in ``limiter``.
        turns: keys of a queue with ``fair_by``; None for all else, in a session's view, and where they may not be seen.
    """

    destination: str
    kind: str
    state: State
    cause: Cause
    reason: str
    binding: Limit | None = None
    limits: tuple[Limit, ...] = ()
    blocked: int = 0
    rule: str | None = None
    remedy: str = ""
    unblocks_in: float | None = None
    settle: int | None = None
    raise_to: int | None = None
    causes: tuple[Reason, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    consumers: tuple[Holder, ...] = ()
    leasers: tuple[Leaser, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    dropped_messages: int = 0
    dropped_bytes: int = 0
    freed_per_second: float | None = None
    settled_per_second: float | None = None
    store: StoreView | None = None
    store_nonpersistent: StoreView | None = None
    pools: tuple[PoolView, ...] = ()
    session: str = ""
    place: int = 0
    holds: int = 0
    holds_messages: int = 0
    upstream: tuple[LinkAt, ...] = ()
    downstream: tuple[LinkAt, ...] = ()
    chain: tuple[Hop, ...] = ()
    link: LinkView | None = None
    limiter: LimiterView | None = None
    deadlock: Deadlock | None = None
    later: int = 0
    next_due_in: float | None = None
    turns: Turns | None = None
    shadows: tuple[ShadowState, ...] = ()
    fields: dict[str, str] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)

    @property
    def line(self) -> str:
        """All that matters in one line, for a log."""
        rule = f" (set by {self.rule})" if self.rule else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        soon = f"; about {rounded(self.unblocks_in)} s left" if self.unblocks_in is not None else ""
        cycle = f"; a deadlock: {self.deadlock}" if self.deadlock else ""
        return f"{self.destination} is {self.state}: {self.reason}{rule}{remedy}{soon}{cycle}"

    def __str__(self) -> str:
        return "\n".join((*self._why(), *self._amounts(), *self._who()))

    def _why(self) -> Iterator[str]:
        yield f"{self.destination} ({self.kind or 'not reached'}): {self.state}: {self.reason}"
        if self.rule:
            yield f"  set by {self.rule}"
        if self.remedy:
            yield f"  to free it: {self.remedy}"
        if self.deadlock is not None:
            yield f"  a deadlock: {self.deadlock}"
        if self.unblocks_in is not None:
            yield f"  at the present pace in about {rounded(self.unblocks_in)} s"
        if len(self.chain) > 1:
            yield from (f"  {number}. {hop}" for number, hop in enumerate(self.chain, 1))
        for other in self.causes[1:]:
            yield f"  also: {other.text}{f' (set by {other.rule})' if other.rule else ''}"

    def _amounts(self) -> Iterator[str]:
        if self.link is not None:
            yield f"  {self.link}"
        if self.limiter is not None:
            yield from (f"  {row}" for row in self.limiter.rows())
        if self.turns is not None:
            yield from (f"  {row}" for row in self.turns.rows())
        if self.next_due_in is not None:
            yield f"  for later: {count(self.later)} of these, the next in {duration(self.next_due_in)}"
        for limit in self.limits:
            total = "unlimited" if limit.limit is None else str(limit.limit)
            rule = f" (set by {limit.rule})" if limit.rule and limit.rule != self.rule else ""
            gate = {"bytes": "size", "messages": "calls"}[limit.unit] if self.kind == "gate" else limit.unit
            leased = f" + {limit.leased} leased" if limit.limit is not None or self.kind == "gate" else ""
            yield f"  {gate}: {limit.pending} pending{leased} of {total}{rule}"
        yield from (f"  {store}" for store in (self.store, self.store_nonpersistent) if store is not None)
        held = "in hand" if self.kind == "gate" else "pending"
        yield from (f"  {shadow_text(shadow, None, held)}" for shadow in self.shadows)
        yield from (f"  {pool}" for pool in self.pools)
        if self.dropped_messages:
            yield f"  dropped so far: {count(self.dropped_messages)}, {self.dropped_bytes} bytes"
        if self.freed_per_second:
            yield f"  {rounded(self.freed_per_second)} bytes are freed a second"

    def _who(self) -> Iterator[str]:
        if self.session and self.limiter is None:
            line = f"place {self.place} in line" if self.place else "not in line"
            yield f"  {self.session}: {line}, holds credit for {credit(self.holds, self.holds_messages, self.kind)}"
        # Credit for messages alone means nothing where their number has no limit.
        counted = any(limit.unit == "messages" and limit.limit is not None for limit in self.limits)
        yield from (f"  {leaser.text(self.kind)}" for leaser in self.leasers if leaser.bytes or counted)
        yield from (f"  {waiter.text(self.kind)}" for waiter in self.waiters)
        if self.blocked > len(self.waiters) > 0:
            yield f"  and {self.blocked - len(self.waiters)} more in line"
        yield from (f"  {one}" for one in (*self.consumers, *self.backlogs))
        yield from (f"  {one}" for one in (*self.upstream, *self.downstream))

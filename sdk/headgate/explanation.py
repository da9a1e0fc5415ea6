"""The answer to "why does it wait?": the same object in errors, events, logs, the SDK and on the command line."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from headgate.core.deadlock import Deadlock
from headgate.link_ends import LinkAt, LinkEnds, LinkView, Side

State = Literal["open", "full", "blocked", "stopped", "learning", "unknown"]
Unit = Literal["bytes", "messages"]
Cause = Literal[
    "open",
    "enforcement-off",
    "redis-unavailable",
    "producer-rate",
    "stopped",
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
]
"""What a wait comes from, for programs; those that begin with ``consumer-`` are the view of one consumer, those with
``link-`` of one link. ``link``: a link that takes from the destination is held up itself."""
CONSUMERS_HOLD: Final[frozenset[Cause]] = frozenset({
    "same-session", "unsettled", "at-capacity", "slow-subscription", "slow-consumer", "slow-consumers", "head-needs",
    "pull-idle", "oversize", "hysteresis",
})  # fmt: skip
"""Of these, causes that only consumers end, by settling: not the passing of time, nor credit that is given back."""


def count(number: int, what: str = "message") -> str:
    """Return a number of things, as people write it."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def amount(number: int, unit: Unit, kind: str) -> str:
    """Return an amount with its unit; a gate counts in whatever its callers do: bytes, or calls of size 1."""
    if kind != "gate":
        return f"{number} {unit}"
    return str(number) if unit == "bytes" else count(number, "call")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and how much of it is taken. ``limit`` None: unlimited. ``rule``: where it was set, if a policy did.

    ``kept``: what is not for messages themselves: where payloads are spooled, a part is for references to them.
    """

    unit: Unit
    limit: int | None
    pending: int
    leased: int
    rule: str | None = None
    kept: int = 0

    @property
    def free(self) -> int | None:
        """What is left; None when unlimited."""
        return None if self.limit is None else self.limit - self.kept - self.pending - self.leased


@dataclass(frozen=True, slots=True)
class Waiter:
    """A session in line: its place from 1, the bytes its first message needs, and for how long it has waited."""

    session: str
    place: int
    needs: int
    seconds: float

    def __str__(self) -> str:
        return self.text("queue")

    def text(self, kind: str) -> str:
        """Return it in words, at a destination of that kind."""
        return f"{self.place}. {self.session} needs {amount(self.needs, 'bytes', kind)}, waits {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer and what it has received and not settled.

    Attributes:
        rate: messages settled a second, over the last few seconds; None when the ledger does not tell.
        at_capacity: whether its window is full.
        slow: whether it settles less than the destination's rules call slow.
    """

    consumer: str
    subscription: str
    messages: int
    bytes: int
    window: str
    rate: float | None = None
    at_capacity: bool = False
    slow: bool = False

    @property
    def session(self) -> str:
        """The session it belongs to."""
        return self.consumer.rpartition(".")[0]

    def __str__(self) -> str:
        told = ["full"] if self.at_capacity else []
        told += [f"{self.rate:.3g}/s"] if self.rate is not None else []
        told += ["slow"] if self.slow else []
        more = f" ({', '.join(told)})" if told else ""
        return f"{self.consumer} holds {count(self.messages)}, {self.bytes} bytes of {self.window}{more}"


@dataclass(frozen=True, slots=True)
class Leaser:
    """A session and the credit it holds: granted, and neither used nor given back. ``silent``: seconds not heard of."""

    session: str
    messages: int
    bytes: int
    silent: float = 0.0

    def __str__(self) -> str:
        return self.text("queue")

    def text(self, kind: str) -> str:
        """Return it in words, at a destination of that kind."""
        silent = f", not heard of for {self.silent:.1f} s" if self.silent >= 1 else ""
        return f"{self.session} holds credit for {amount(self.bytes, 'bytes', kind)}{silent}"


@dataclass(frozen=True, slots=True)
class Backlog:
    """A subscription, its consumers, what it has not been sent yet, and what it was sent and has not settled."""

    subscription: str
    consumers: int
    ready: int
    unsettled: int

    @property
    def messages(self) -> int:
        """What it still has to settle."""
        return self.ready + self.unsettled

    def __str__(self) -> str:
        amounts = f"{self.ready} ready, {self.unsettled} unsettled, {count(self.consumers, 'consumer')}"
        return f"subscription {self.subscription}: {amounts}"


@dataclass(frozen=True, slots=True)
class StoreView:
    """The spool store of a destination: where payloads go that find no room in memory.

    Attributes:
        name: of the store.
        limit: bytes, None for unlimited or where there is no such store.
        held: bytes of all segments that it holds, of whatever destination.
        leased: bytes of room that sessions have and do not use yet.
        here: bytes of those that this destination has references to, or had until a moment ago.
        blocked: sessions that wait for room in it.
        rule: where its limit was set, if a policy did.
    """

    name: str
    limit: int | None
    held: int
    leased: int
    here: int
    blocked: int
    rule: str | None = None

    @property
    def free(self) -> int | None:
        """What is left; None when unlimited."""
        return None if self.limit is None else self.limit - self.held - self.leased

    def __str__(self) -> str:
        total = "unlimited" if self.limit is None else str(self.limit)
        return f"store {self.name}: {self.here} bytes from here, {self.held} held + {self.leased} leased of {total}"


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool that a destination takes a slice of, as that wait sees it.

    Attributes:
        name: of the pool.
        exists: False where the namespace has no pool of that name.
        limit: bytes, None for unlimited or where there is no such pool.
        granted: bytes of it that destinations hold as slices.
        here: bytes of these that this destination holds.
        holders: names of the other destinations that hold most, with their bytes; empty also where they are not shown.
        rule: where its limit was set, if a policy did.
    """

    name: str
    exists: bool
    limit: int | None
    granted: int
    here: int
    holders: tuple[tuple[str, int], ...] = ()
    rule: str | None = None

    def __str__(self) -> str:
        if not self.exists:
            return f"pool {self.name}: does not exist"
        total = "unlimited" if self.limit is None else str(self.limit)
        others = "".join(f", {name} {held}" for name, held in self.holders)
        return f"pool {self.name}: {self.granted} bytes lent of {total}: {self.here} here{others}"


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause, in one sentence.

    Attributes:
        limit: the limit that binds, where one does.
        rule: the policy rule behind it, ``<pattern> (<file>:<line>)``; None when it was set by hand.
        remedy: what would free it.
        seconds: until it frees itself, as far as can be told.
        settle: how much would have to be settled, in the limit's unit.
        raise_to: or to what the limit would have to be raised.
    """

    cause: Cause
    text: str
    limit: Limit | None = None
    rule: str | None = None
    remedy: str = ""
    seconds: float | None = None
    settle: int | None = None
    raise_to: int | None = None


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
        seconds: until it frees itself, as far as can be told.
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
    """The state of a destination at one instant, and the reason for it.

    Attributes:
        state: ``open``, ``full`` (nobody waits yet), ``blocked`` (somebody waits), ``stopped`` (by hand), ``learning``
            (state was lost) or ``unknown`` (Redis does not answer).
        cause: a stable word for the reason; see :data:`Cause`.
        reason: one sentence.
        rule: the policy rule that set what binds, ``<pattern> (<file>:<line>)``; None when none did.
        remedy: what would free it.
        unblocks_in: seconds until it does by itself at the present pace; None when that cannot be told.
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
        pools: those that it takes slices of, and who holds them; read only while somebody waits.
        session: whose view it is, with its ``place`` in line and the bytes of credit it ``holds``; empty for nobody's.
        deadlock: the cycle that the wait is part of; None where none is known, which is not to say that there is none.
        upstream: the links that fill it, as the policy has them.
        downstream: the links that take from it.
        chain: links that wait one for the next, where a link holds it up; the last is the one that binds.
        link: the link itself, where it was asked about; ``destination`` is then what the link is known by.
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
    pools: tuple[PoolView, ...] = ()
    session: str = ""
    place: int = 0
    holds: int = 0
    upstream: tuple[LinkAt, ...] = ()
    downstream: tuple[LinkAt, ...] = ()
    chain: tuple[Hop, ...] = ()
    link: LinkView | None = None
    deadlock: Deadlock | None = None
    fields: dict[str, str] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)

    @property
    def line(self) -> str:
        """All that matters in one line, for a log."""
        rule = f" (set by {self.rule})" if self.rule else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        soon = f"; about {self.unblocks_in:.3g} s left" if self.unblocks_in is not None else ""
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
            yield f"  at the present pace in about {self.unblocks_in:.3g} s"
        if len(self.chain) > 1:
            yield from (f"  {number}. {hop}" for number, hop in enumerate(self.chain, 1))
        for other in self.causes[1:]:
            yield f"  also: {other.text}{f' (set by {other.rule})' if other.rule else ''}"

    def _amounts(self) -> Iterator[str]:
        if self.link is not None:
            yield f"  {self.link}"
        for limit in self.limits:
            total = "unlimited" if limit.limit is None else str(limit.limit)
            rule = f" (set by {limit.rule})" if limit.rule and limit.rule != self.rule else ""
            gate = {"bytes": "size", "messages": "calls"}[limit.unit] if self.kind == "gate" else limit.unit
            yield f"  {gate}: {limit.pending} pending + {limit.leased} leased of {total}{rule}"
        if self.store is not None:
            yield f"  {self.store}"
        yield from (f"  {pool}" for pool in self.pools)
        if self.dropped_messages:
            yield f"  dropped so far: {count(self.dropped_messages)}, {self.dropped_bytes} bytes"
        if self.freed_per_second:
            yield f"  {self.freed_per_second:.3g} bytes are freed a second"

    def _who(self) -> Iterator[str]:
        if self.session:
            line = f"place {self.place} in line" if self.place else "not in line"
            yield f"  {self.session}: {line}, holds credit for {amount(self.holds, 'bytes', self.kind)}"
        yield from (f"  {leaser.text(self.kind)}" for leaser in self.leasers)
        yield from (f"  {waiter.text(self.kind)}" for waiter in self.waiters)
        if self.blocked > len(self.waiters) > 0:
            yield f"  and {self.blocked - len(self.waiters)} more in line"
        yield from (f"  {one}" for one in (*self.consumers, *self.backlogs))
        yield from (f"  {one}" for one in (*self.upstream, *self.downstream))

"""Why something waits, as one object: the same in errors, on the command line and in the SDK."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headgate.redis.store import Snapshot

State = Literal["open", "blocked", "full", "learning"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and how much of it is taken. ``limit`` None: unlimited."""

    unit: Literal["bytes", "messages"]
    limit: int | None
    pending: int
    leased: int

    @property
    def free(self) -> int | None:
        """What is left; None when unlimited."""
        return None if self.limit is None else self.limit - self.pending - self.leased


@dataclass(frozen=True, slots=True)
class Waiter:
    """A session in line: its place from 1, the bytes its first message needs, and for how long it has waited."""

    session: str
    place: int
    needs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer and what it has received and not settled."""

    consumer: str
    subscription: str
    messages: int
    bytes: int
    window: str


@dataclass(frozen=True, slots=True)
class Leaser:
    """A session and the credit it holds: granted, and neither used nor given back."""

    session: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of a destination at one instant, and the reason for it.

    Attributes:
        state: ``open``, ``full`` (nobody waits yet), ``blocked`` (somebody waits) or ``learning`` (state was lost).
        reason: one sentence.
        binding: the limit that binds, None when none does.
        blocked: how many sessions wait.
        waiters: the first of them.
        consumers: some of the consumers, those that hold most first.
        leasers: some of the sessions that hold credit, those that hold most first.
    """

    destination: str
    kind: str
    state: State
    reason: str
    binding: Limit | None
    limits: tuple[Limit, ...]
    blocked: int
    waiters: tuple[Waiter, ...] = ()
    consumers: tuple[Holder, ...] = ()
    leasers: tuple[Leaser, ...] = ()
    fields: dict[str, str] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.destination} ({self.kind}): {self.state}: {self.reason}"]
        for limit in self.limits if self.kind != "bucket" else ():
            total = "unlimited" if limit.limit is None else str(limit.limit)
            lines.append(f"  {limit.unit}: {limit.pending} pending + {limit.leased} leased of {total}")
        lines += [f"  {h.session} holds credit for {h.bytes} bytes" for h in self.leasers]
        lines += [f"  {w.place}. {w.session} needs {w.needs} bytes, waits {w.seconds:.1f} s" for w in self.waiters]
        lines += [f"  {c.consumer} holds {c.messages} messages, {c.bytes} bytes of {c.window}" for c in self.consumers]
        return "\n".join(lines)


def explain(
    name: str,
    snapshot: Snapshot,
    sessions: Mapping[str, Mapping[str, str]] | None = None,
    *,
    session: str = "",
    need: int | None = None,
) -> Explanation:
    """Return why a destination is as it is, from what was read of it at one instant.

    Args:
        name: the destination's.
        snapshot: what was read.
        sessions: records of sessions, read a moment later, to name those that hold credit.
    """
    fields = snapshot.fields
    limits = tuple(
        Limit(
            unit,
            None if fields[f"limit_{unit}"] == "unlimited" else int(fields[f"limit_{unit}"]),
            int(fields[f"pending_{unit}"]),
            int(fields[f"leased_{unit}"]),
        )
        for unit in ("bytes", "messages")
    )
    waiters = tuple(
        Waiter(
            sid,
            place,
            max(0, int(record["need"]) - int(record["granted"])),
            max(0.0, (snapshot.now_ms - int(record["since"])) / 1000),
        )
        for place, (sid, record) in enumerate(snapshot.waiters, 1)
        if record
    )
    consumers = tuple(
        sorted(
            (
                Holder(
                    cid,
                    record["sub"],
                    int(record["delivered"]) - int(record["settled"]),
                    int(record["delivered_b"]) - int(record["settled_b"]),
                    record["window"],
                )
                for cid, record in snapshot.consumers.items()
            ),
            key=lambda holder: -holder.bytes,
        )[:5]
    )
    leasers = tuple(
        sorted((_leaser(sid, record) for sid, record in (sessions or {}).items()), key=lambda one: -one.bytes)[:5]
    )
    state, reason, binding = _judge(fields, limits, snapshot, waiters, consumers)
    return Explanation(
        name,
        fields["kind"],
        state,
        reason,
        binding,
        limits,
        int(fields["blocked"]),
        waiters,
        consumers,
        tuple(one for one in leasers if one.bytes > 0),
        fields,
    )


def _leaser(sid: str, record: Mapping[str, str]) -> Leaser:
    held = [int(record[f"granted{d}"]) - int(record[f"used{d}"]) - int(record[f"returned{d}"]) for d in ("_m", "")]
    return Leaser(sid, *held)


def _bucket(fields: dict[str, str], now_ms: int) -> str:
    if "rate" not in fields:
        return "it has no rate: takes are not limited"
    rate, burst = float(fields["rate"]), int(fields["burst"])
    owed = max(0.0, int(fields.get("tat", "0")) / 1e6 - now_ms / 1e3 - burst / rate)
    when = f"the next slot is in {owed:.3g} s" if owed > 0 else "there are tokens now"
    return f"{rate:g}/s with bursts of {burst}: {when}"


def _judge(
    fields: dict[str, str],
    limits: tuple[Limit, ...],
    snapshot: Snapshot,
    waiters: tuple[Waiter, ...],
    consumers: tuple[Holder, ...],
) -> tuple[State, str, Limit | None]:
    blocked = int(fields["blocked"])
    learning = int(fields["learning_until"]) - snapshot.now_ms
    if fields["kind"] == "bucket":
        return "open", _bucket(fields, snapshot.now_ms), None
    if learning > 0:
        return (
            "learning",
            f"Redis lost state; for {learning / 1000:.1f} s holders claim, nothing new is granted",
            None,
        )
    need = waiters[0].needs if waiters else 1
    for limit in limits:
        if limit.free is None or limit.free >= (need if limit.unit == "bytes" else 1):
            continue
        held = sum(holder.messages for holder in consumers)
        if limit.pending == 0:
            why = "all of it is leased to other sessions and not used yet"
        elif not int(fields["consumers"]) and fields["kind"] != "gate":
            why = "no consumer is attached"
        elif held >= int(fields["pending_messages"]) > 0:
            why = "consumers hold all messages unsettled"
        else:
            why = "consumers are slower than producers"
        state: State = "blocked" if blocked else "full"
        return state, f"the limit of {limit.limit} {limit.unit} is reached: {why}", limit
    if blocked:
        return "blocked", f"{blocked} session(s) wait and are about to be served", None
    return "open", "there is room", None

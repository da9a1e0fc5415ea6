"""The limits and counters of a destination at one instant, as its hash in Redis has them. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.core.limits.hold_off import left_of
from headgate.core.limits.slices import is_shut
from headgate.explain.destination_facts import MOST_REFERENCES
from headgate.explain.levels import counts_of

FIELDS: Final = (
    "kind", "limit_bytes", "limit_messages", "pending_bytes", "pending_messages", "leased_bytes", "leased_messages",
    "peak_bytes", "blocked", "consumers", "stopped", "held_off", "shut", "learning_until", "enforce", "message_seq",
    "dropped_messages", "dropped_bytes", "taken", "rate", "spooled_bytes", "reference_bytes", "later", "next_due",
    "limit_reference_bytes", "epoch", "epoch_ms", "epochs", "lost_messages", "epoch_lost", "would_wait",
    "shadowed", "sliced", "bytes_full", "messages_full", "resume_bytes",
    "resume_messages",
)  # fmt: skip
"""The fields that are read of each destination."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss says when Redis may last have lost what a destination had.

    Attributes:
        epoch: that began with it.
        at: when, in seconds since 1970 by Redis' clock.
        age: seconds since then, by the same.
        messages: of which sessions have receipts, and Redis knows nothing; consumers may have had some.
    """

    epoch: int
    at: float
    age: float
    messages: int


@dataclass(frozen=True, slots=True)
class DestinationState:
    """A destination state shows a destination at one instant.

    Attributes:
        state: as :class:`headgate.Explanation` has it, judged by these figures alone.
        limit_bytes: None when unlimited.
        limit_messages: likewise.
        blocked: sessions that wait for credit.
        consumers: that are attached.
        published: messages stored so far.
        settled: of these, those that are not pending any more.
        dropped: messages that producers dropped for want of room; ``dropped_bytes`` are theirs.
        spooled_bytes: of the segments in spool stores that its messages refer to; not part of what is pending.
        reference_bytes: of the references to these that Redis has, ``limit_reference_bytes`` the most that it may have.
        would_wait: messages, credit of a gate or calls of a bucket that a shadow limit would have kept waiting.
        shadowed: the same of each shadow limit; those of a limiter are in its view.
        later_messages: of those that are pending, or failed, that wait for their time.
        next_due_s: until the first of these is due; None where none waits.
        taken: tokens taken of a bucket.
        stopped: why it was stopped by hand; empty when it was not.
        rate: tokens a second of a bucket; None when unlimited or no bucket.
        epochs: times that Redis may have lost some of its state.
        lost: messages that are known to be lost so far.
        loss: the last of these times; None while there was none.
    """

    name: str
    kind: str
    state: str
    limit_bytes: int | None
    limit_messages: int | None
    pending_bytes: int
    pending_messages: int
    leased_bytes: int
    leased_messages: int
    peak_bytes: int
    blocked: int
    consumers: int
    published: int
    settled: int
    dropped: int
    dropped_bytes: int
    spooled_bytes: int
    reference_bytes: int
    limit_reference_bytes: int | None
    taken: float
    stopped: str
    rate: float | None
    epochs: int = 0
    lost: int = 0
    loss: Loss | None = None
    later_messages: int = 0
    next_due_s: float | None = None
    would_wait: int = 0
    shadowed: Mapping[str, int] = field(default_factory=dict)

    @property
    def used(self) -> float | None:
        """How much of its narrowest limit is taken, 1.0 for all of it; None when it has no limit."""
        shares = [
            held / limit
            for held, limit in (
                (self.pending_bytes + self.leased_bytes, self.limit_bytes),
                (self.pending_messages + self.leased_messages, self.limit_messages),
            )
            if limit
        ]
        return max(shares, default=None)


def named(values: Sequence[bytes | None]) -> dict[str, str]:
    """Return the values of :data:`FIELDS`, in their order, by name."""
    return {field: value.decode() for field, value in zip(FIELDS, values, strict=True) if value is not None}


def from_fields(name: str, fields: Mapping[str, str], now_ms: float) -> DestinationState:
    """Return what a destination's fields say."""

    def number(field: str) -> int:
        return int(float(fields.get(field) or 0))

    published, pending = number("message_seq"), number("pending_messages")
    limits = {unit: _limit(fields.get(f"limit_{unit}")) for unit in ("bytes", "messages")}
    rate = fields.get("rate")
    return DestinationState(
        name=name,
        kind=fields["kind"],
        state=_state(fields, number, limits, now_ms),
        limit_bytes=limits["bytes"],
        limit_messages=limits["messages"],
        pending_bytes=number("pending_bytes"),
        pending_messages=pending,
        leased_bytes=number("leased_bytes"),
        leased_messages=number("leased_messages"),
        peak_bytes=number("peak_bytes"),
        blocked=number("blocked"),
        consumers=number("consumers"),
        published=published,
        settled=max(0, published - pending),
        dropped=number("dropped_messages"),
        dropped_bytes=number("dropped_bytes"),
        spooled_bytes=number("spooled_bytes"),
        reference_bytes=number("reference_bytes"),
        limit_reference_bytes=_limit(fields.get("limit_reference_bytes", str(MOST_REFERENCES))),
        taken=float(fields.get("taken") or 0),
        stopped=fields.get("stopped", ""),
        rate=float(rate) if rate else None,
        epochs=number("epochs"),
        lost=number("lost_messages"),
        loss=_loss(number, now_ms) if number("epochs") else None,
        later_messages=number("later"),
        next_due_s=max(0.0, (number("next_due") - now_ms) / 1000) if number("later") else None,
        would_wait=0 if fields["kind"] == "limiter" else number("would_wait"),
        shadowed={} if fields["kind"] == "limiter" else _shadowed(fields.get("shadowed", "")),
    )


def _shadowed(text: str) -> dict[str, int]:
    return {name: times for name, _, times, _ in counts_of(filter(None, text.split(";")))}


def _loss(number: Callable[[str], int], now_ms: float) -> Loss:
    began = number("epoch_ms")
    return Loss(number("epoch"), began / 1000, max(0.0, (now_ms - began) / 1000), number("epoch_lost"))


def _limit(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _state(
    fields: Mapping[str, str], number: Callable[[str], int], limits: Mapping[str, int | None], now_ms: float
) -> str:
    if fields.get("stopped") or left_of(fields.get("held_off", ""), now_ms):
        return "stopped"
    if number("learning_until") > now_ms:
        return "learning"
    if number("blocked"):
        return "blocked"
    if fields.get("enforce") == "off":
        return "open"
    full = any(
        limit is not None and number(f"pending_{unit}") + number(f"leased_{unit}") >= limit
        for unit, limit in limits.items()
    )
    return "full" if full or is_shut(fields, *limits) else "open"

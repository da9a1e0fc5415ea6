"""An audit writes findings, and takes settings as input beside the destinations' ledgers."""

from typing import Final, Literal, NamedTuple

Kind = Literal["violated", "unproven", "lost", "audited"]

ROW: Final = (
    "seq", "ms", "op", "session", "bytes", "messages", "first", "detail",
    "pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "epoch", "version", "problem",
)  # fmt: skip
"""The columns of an entry in the order in which :class:`~headgate_pipeline.audit.replay.Replay` takes them."""


class Finding(NamedTuple):
    """A finding is one row of an audit.

    Attributes:
        finding: ``violated``: the promise was broken by this entry. ``unproven``: no judgement is possible, and why.
            ``lost``: Redis lost as many messages as ``found`` says, and no promise was broken by that.
            ``audited``: the last row of each destination: entries ``first_seq`` to ``seq`` were replayed.
        promise: ``P1`` no overshoot, ``P2`` conservation, ``P3`` no loss, ``P4`` reclaim, ``P5`` once, ``P7`` bands
            that wait, ``P8`` rates.
        seq: of the entry.
        what: one sentence.
        expected: what the entries before it lead to; None where no number does.
        found: what it says.
        entry: the entry as text, with its neighbours.
        before: the one before it.
        after: the one after it.
        entries: how many were replayed; of ``audited`` alone, as the next three.
        first_seq: the number of the first of them.
        excused: grants above the limit that a named exception allows.
        taken_over: grants to accounts from before the period: what they added to is taken from the counters.
    """

    finding: Kind
    promise: str | None = None
    seq: int | None = None
    what: str = ""
    expected: str | None = None
    found: str | None = None
    before: str | None = None
    entry: str | None = None
    after: str | None = None
    entries: int | None = None
    first_seq: int | None = None
    excused: int | None = None
    taken_over: int | None = None


class Settings(NamedTuple):
    """`Settings` holds what a ledger does not tell. Rates are those in force since the last ``apply``.

    Attributes:
        enforce: ``always``, ``with-consumers`` or ``off``; of a ledger that says nothing about it, as the next two.
        oversize: ``allow-one`` or ``refuse``.
        hard_bytes: up to which a publisher whose credit counts messages may go.
        rate: tokens/s of a bucket.
        send_rate: messages/s of all senders, and how many at once.
        send_burst: messages.
        send_byte_rate: bytes/s of all senders, and how many at once.
        send_byte_burst: bytes.
    """

    enforce: str = "always"
    oversize: str = "refuse"
    hard_bytes: int | None = None
    rate: float | None = None
    send_rate: float | None = None
    send_burst: float | None = None
    send_byte_rate: float | None = None
    send_byte_burst: float | None = None


def as_text(row: tuple[object, ...] | None) -> str | None:
    """Return an entry as people read it: number, operation, what it did, and the counters after it."""
    if row is None:
        return None
    seq, _, op, session, size, messages, first, detail, pending, pending_m, leased, leased_m, epoch, *_ = row
    return (
        f"{seq} {op} {session} {size} B {messages} m first {first} [{detail}] "
        f"-> pending {pending} B {pending_m} m, leased {leased} B {leased_m} m, epoch {epoch}"
    )

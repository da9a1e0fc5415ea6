"""The calls of one account: its totals, what they ask for, and what is answered. Values only."""

from dataclasses import dataclass, field

from headgate.core.outbox import Batch


@dataclass(frozen=True, slots=True)
class Totals:
    """A session's cumulative totals at a destination, as its caller knows them. Bytes, and ``_m`` messages."""

    session: str
    inc: int
    epoch: int
    granted: int = 0
    granted_m: int = 0
    used: int = 0
    used_m: int = 0
    returned: int = 0
    returned_m: int = 0
    need: int = 0
    need_m: int = 0
    want: int = 0
    want_m: int = 0
    weight: int = 1
    size: int = 0


@dataclass(frozen=True, slots=True)
class NoStore:
    """A node answers with this where payloads found no room in a spool store.

    Attributes:
        why: a sentence.
        when_full: what a send does there that finds none.
        limit: bytes that the store can ever hold, where the first message has more; else None.
    """

    why: str
    when_full: str
    limit: int | None


@dataclass(frozen=True, slots=True)
class Credit:
    """A credit answers acquire and publish: what was granted, and what of a batch was stored.

    ``first`` is the number of the batch's first entry, 0 where there is none; to acquire with ``resume``, the number of
    the last message that was published before; ``stored`` how many of it were stored:
    fewer than all where the destination's rate allows no more, and ``again_ms`` is then when more may go. ``lost`` is
    how many of those that the session has receipts for are not known in an epoch that is new to it. ``no_store``: why a
    node did not spool the batch.
    """

    code: str
    epoch: int = 0
    granted: int = 0
    granted_m: int = 0
    place: int = 0
    blocked: int = 0
    again_ms: int = 1000
    first: int = 0
    stored: int = 0
    lost: int = 0
    no_store: NoStore | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Open the account, renew its lease, ask for credit, and give some back; answered by :class:`Credit`.

    Attributes:
        totals: of the account.
        resume: whether to learn how many messages its session published before.
        sent: the number of its last message that has a receipt; 0 where Redis may have forgotten it rightly.
        hasty: whether somebody fails at once where there is no room, and wants to know why.
        again: whether it only asks once more for what it stands in line for, at the moment at which others do.
    """

    totals: Totals
    resume: bool = False
    sent: int = 0
    hasty: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Publish:
    """Store the batch in flight, and ask for more credit; answered by :class:`Credit`."""

    totals: Totals
    batch: Batch


@dataclass(frozen=True, slots=True)
class Leave:
    """Give everything back; where ``closes``, the account ends with it, and ``resume`` keeps what it published."""

    totals: Totals
    closes: bool
    resume: bool


@dataclass(frozen=True, slots=True)
class Create:
    """Make the destination exist; ``recover`` says that it was there before, and is gone."""

    recover: bool


@dataclass(frozen=True, slots=True)
class Reap:
    """Sweep what the dead left behind at the destination."""


@dataclass(frozen=True, slots=True)
class Explain:
    """Find out why there is a wait: ``fully``, as somebody is to hear of it, or only whether it is for itself."""

    fully: bool = True


@dataclass(frozen=True, slots=True)
class CountDrops:
    """Say how many messages were dropped."""


Call = Acquire | Publish | Leave | Create | Reap | Explain | CountDrops

"""Calls of a link's worker to its source and its target, with their answers. Values only.

Numbers are of messages at the source: they grow, and none is ever given to another message of that destination.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it was read at the source.

    Attributes:
        seq: its number.
        body: as stored.
        ttl_ms: for which it lives on; None for ever.
        path: places that it came through, the oldest first.
        lost: why its payload is not in its spool store any more, in a sentence; then the body is a stub that says so.
        later_ms: until it is due; 0 where it is.
    """

    seq: int
    body: bytes
    ttl_ms: int | None = None
    path: tuple[str, ...] = ()
    lost: str = ""
    later_ms: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """A put holds a message for the target, with the place that it comes from on its path."""

    seq: int
    body: bytes
    ttl_ms: int | None = None
    path: tuple[str, ...] = ()
    later_ms: int = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """A skip passes over a message that the target is not to have; its mark goes past it."""

    seq: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The source answers :class:`Open` with this.

    Attributes:
        code: as ``lua/link_open.lua`` names it.
        born: which destination of its name the source is: with a number, what identifies a message.
        released: the last message that left it over this link.
        fence: with ``FENCED``, the lease that is in force.
    """

    code: str
    born: int = 0
    released: int = 0
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """The source answers :class:`Fetch` with this.

    Attributes:
        code: as ``lua/link_read.lua`` names it.
        released: the last message that left it over this link.
        entries: in order.
        again_ms: when there will be more; None when that is not known.
        fence: with ``FENCED``, the lease that is in force.
        born: with ``BORN``, which destination it is now.
        lacks: what a slice lacks of the rate of deliveries, for the next message and for all that are there.
    """

    code: str
    released: int = 0
    entries: tuple[Entry, ...] = ()
    again_ms: int | None = None
    fence: int = 0
    born: int = 0
    lacks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The target answers :class:`Commit`, :class:`Secure` and :class:`Copy` with this.

    Attributes:
        code: as ``lua/link_commit.lua`` names it.
        mark: the last message that is there, or was skipped.
        held: bytes of credit.
        held_m: messages of credit.
        place: in line for more, 0 when not.
        blocked: sessions in that line.
        again_ms: when to ask again where it has no room.
        fence: with ``FENCED``, the lease that is in force.
        beyond: numbers above the mark of messages that are there, of a link that brings others to other slices.
    """

    code: str
    mark: int = 0
    held: int = 0
    held_m: int = 0
    place: int = 0
    blocked: int = 0
    again_ms: int = 1000
    fence: int = 0
    beyond: tuple[int, ...] = ()

    def has(self, number: int) -> bool:
        """Return whether it has the message of that number, or one of the other slices has it."""
        return number <= self.mark or number in self.beyond


@dataclass(frozen=True, slots=True)
class NoStore:
    """With this the worker answers a :class:`Commit` that was to spool; nothing of it is at the target.

    Attributes:
        why: the store takes nothing, or the target does not spool; empty where a store can never hold the message.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """Open the link at its source; answered by :class:`Opened`."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Release up to ``mark`` at the source, and read after ``after``; answered by :class:`Read`."""

    born: int
    mark: int
    after: int
    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Put entries into the target, and ask for credit; without entries, ask for credit or for the mark.

    Answered by :class:`Committed`. ``lost`` accepts that what lies between the mark and ``prev`` is gone. With
    ``spools`` their bodies go to a store of the target, or :class:`NoStore` is the answer.
    """

    born: int
    prev: int
    entries: tuple[Put | Skip, ...] = ()
    need: int = 0
    want: int = 0
    lost: bool = False
    spools: bool = False


@dataclass(frozen=True, slots=True)
class Secure:
    """Wait until replicas have at least ``mark``; answered by :class:`Committed` and their number."""

    born: int
    mark: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Put a copy of a message into the dead-letter destination, once; answered by its :class:`Committed`."""

    born: int
    entry: Entry
    reason: str


@dataclass(frozen=True, slots=True)
class TakeRate:
    """Ask the rate that a link shares with others for that many messages and bytes; answered by :class:`RateTaken`."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class RateTaken:
    """They may go now."""


@dataclass(frozen=True, slots=True)
class Regression:
    """The target lost what it had: messages after ``mark`` up to ``released``, which left the source."""

    mark: int
    released: int


Call = Open | Fetch | Commit | Secure | Copy | TakeRate

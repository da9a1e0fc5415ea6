"""A link view shows which links there are at a destination, and how each of them is."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from headgate.core.links.link import spelled

LINK: Final = "link~"
"""The prefix of the ids of links, see :func:`headgate.redis.keys.link_id`."""
Side = Literal["moves", "source", "target", "rate", "nobody", "stuck"]
"""Reasons that hold a link up: nothing, a source that has nothing, a target without room, a rate, no worker, or its
worker's own report."""
HELD_UP: Final[frozenset[Side]] = frozenset({"target", "rate", "nobody", "stuck"})
"""Sides that block the sender into the link."""


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """`LinkEnds` says which link it is, and between which two destinations.

    Attributes:
        id: of its consumer's session at the source, and of its session at the target.
        link: the name that it is known by, the name of its lease.
        source: where it takes messages from.
        target: where it puts them.
        name: as the policy calls it; empty when the policy does not name it.
        kind: ``bridge`` or ``route``.
        site: name of that of the target; empty for here.
    """

    id: str
    link: str
    source: str
    target: str
    name: str = ""
    kind: str = "bridge"
    site: str = ""

    @property
    def where(self) -> str:
        """The target as people read it: with its site where that is another one."""
        return spelled(self.target, self.site)

    @property
    def title(self) -> str:
        """The link's name for people."""
        return f"{self.kind} {self.source}>{self.where}"

    @classmethod
    def of(cls, ends: "LinkEnds", **more: Any) -> Self:
        """Return a link's explanation: its ends, and more."""
        return cls(**{name: getattr(ends, name) for name in LinkEnds.__dataclass_fields__}, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAt(LinkEnds):
    """A link as one of its ends sees it.

    Attributes:
        place: in line for room, at its target; 0 when it does not wait there, or too far behind to be seen.
        holds: messages that it has in hand, at its source.
        backlog: messages that it has to settle there, these included; None at its target.
    """

    place: int = 0
    holds: int = 0
    backlog: int | None = None

    def __str__(self) -> str:
        if self.backlog is None:
            return f"fed by {self.title}{f', place {self.place} in line' if self.place else ''}"
        return f"forwarded by {self.title}: {self.backlog} to settle, {self.holds} in hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView(LinkEnds):
    """A link view shows one link, at one instant.

    Attributes:
        side: what holds it up.
        backlog: messages at the source that it has to settle, with those that other consumers of a queue may get; None
            where there is no source, or it never was a subscription of it.
        in_hand: of these, what it has read.
        mark: number, at the source, of the last message that the target has; None where it has none. Of one to another
            site, of the last that left the source.
        owner: id of the node that works on it, empty for none; None where that may not be read.
        trouble: what that node says of it, in a sentence; empty when it moves.
    """

    side: Side
    backlog: int | None = None
    in_hand: int = 0
    mark: int | None = None
    owner: str | None = None
    trouble: str = ""

    def __str__(self) -> str:
        backlog = (
            "nothing of it at its source yet" if self.backlog is None else f"{self.backlog} to settle at its source"
        )
        mark = "none" if self.mark is None else str(self.mark)
        owner = "" if self.owner is None else f"; node {self.owner or '-'}"
        return f"{backlog}, {self.in_hand} in hand; the target's mark is {mark}{owner}"

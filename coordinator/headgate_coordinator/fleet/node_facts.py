"""A node has facts about itself at one instant. No I/O: metrics, the registry and the live page read these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from headgate.core.links.trouble import Trouble

Direction = Literal["from client", "to client"]
NodeState = Literal["starting", "ready", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Link facts are about one link of a client.

    Attributes:
        id: of the link, unique in its node while the link is attached.
        client: what the client calls its connection, or where it comes from.
        user: as whom it was let in; empty for an anonymous one.
        direction: ``from client`` for a link that sends to us, ``to client`` for one that receives.
        destination: its name.
        link_credit: messages that its sender may still send.
        unsettled: messages sent over it and not settled.
        waiting_seconds: for how long it has waited for credit; None when it does not wait.
        reason: why it waits, in a sentence; empty when it does not.
        messages: that it carried so far.
        bytes: of these.
    """

    id: str
    client: str
    user: str
    direction: Direction
    destination: str
    link_credit: int
    unsettled: int
    waiting_seconds: float | None = None
    reason: str = ""
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """Bridge facts are about one link of the policy that the node works on, or worked on.

    Attributes:
        link: what it is known by: ``<source>><target>``, both encoded and with their sites where these are two.
        source: where it takes messages from.
        target: where it puts them; with its site, ``<site>:<name>``, where that is another one.
        works: whether this node works on it now.
        trouble: why nothing moves; None when it does.
        messages: that this node forwarded.
        bytes: of these.
        packets: of a channel, that this node sent.
        backlog: of a channel, messages that the topic has for it, as last seen; None of other links.
    """

    link: str
    source: str
    target: str
    works: bool
    trouble: Trouble | None = None
    messages: int = 0
    bytes: int = 0
    packets: int = 0
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class DeadlockFacts:
    """Deadlock facts are what the node knows of deadlocks.

    Attributes:
        current: that there are, if it is this node that looks for them; else 0.
        found: that this node found so far, by what was to be done: ``alert``, ``fail`` or ``ticket``.
    """

    current: int = 0
    found: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counters:
    """`Counters` holds totals of a node since it started; ended links are included, so they never go back.

    Attributes:
        messages: carried, by direction.
        bytes: of these.
        rejected: refused, by a short word that says why, such as ``too-large`` or ``not-allowed``.
    """

    messages: Mapping[Direction, int] = field(default_factory=dict)
    bytes: Mapping[Direction, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)

    @property
    def carried(self) -> int:
        """Messages in both directions."""
        return sum(self.messages.values())


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Node facts are about a node at one instant.

    Attributes:
        id: of the node, another one after each start; letters, digits and ``_~-``.
        address: ``host:port`` where AMQP clients reach it.
        admin: base URL of its admin HTTP; empty when it has none.
        started: when, in seconds since 1970 by its own clock.
        state: ``ready`` when it takes clients; ``draining`` when it lets none in any more.
        connections: that are open.
        links: that are attached.
        counters: totals since it started.
        bridges: of the policy, those that it works on or worked on.
        deadlocks: what it knows of them.
        claims: durable links that were attached lately, by a digest of what they are known by -> when.
    """

    id: str
    address: str
    admin: str
    started: float
    state: NodeState
    connections: int = 0
    links: tuple[LinkFacts, ...] = ()
    counters: Counters = field(default_factory=Counters)
    bridges: tuple[BridgeFacts, ...] = ()
    deadlocks: DeadlockFacts = field(default_factory=DeadlockFacts)
    claims: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class NodeView(Protocol):
    """A node view answers questions of admin HTTP to the node that it runs in."""

    def facts(self) -> NodeFacts:
        """Return the node as it is now; cheap, and without waiting."""

    async def readiness(self) -> str | None:
        """Return why it cannot admit messages, in a sentence; None when it can. The caller sets a time limit."""

"""A node and a connection, as far as the ends of links and the gateway use them: they never see more than this."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakSet

from headgate.amqp.engine import Engine
from headgate.amqp.link import Link
from headgate.client import Client
from headgate.session.session import Session
from headgate_coordinator.node.connection_share import ConnectionShare
from headgate_coordinator.node.counters import Counters
from headgate_coordinator.node.credit.credits import DestinationCredits
from headgate_coordinator.node.credit.quotas import Quotas
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.node.shown_policies import ShownPolicies
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.creation_quota import CreationQuota


class Node(Protocol):
    """A broker node offers this to connections, the ends of their links and the gateway.

    Attributes:
        client: of Redis.
        options: how the node runs.
        users: that may come.
        name: as operators call the node.
        counters: of what it did.
        lines: its credit at each destination.
        creations: the count of what users make.
        quotas: of its users, over all nodes.
        policies: what its users are shown of the policy.
        searching: held while all destinations are looked through.
        draining: whether it takes nothing new.
        orphaned: bytes of messages that wait to be stored, and whose links are gone.
        numbers: of its links.
    """

    client: Client
    options: NodeOptions
    users: Users
    name: str
    counters: Counters
    lines: DestinationCredits
    creations: CreationQuota
    quotas: Quotas
    policies: ShownPolicies
    searching: asyncio.Lock
    draining: bool
    orphaned: int

    @property
    def id(self) -> str:
        """The name in the registry, another one after each start."""

    @property
    def numbers(self) -> Iterator[int]:
        """Numbers for links, in the order in which they come."""

    @property
    def left_behind(self) -> WeakSet[Any]:
        """Ends of links that are gone, with messages that wait to be stored."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something beside; its errors are logged."""


class Connection(Protocol):
    """A client's connection offers this to the ends of its links and the gateway.

    Attributes:
        access: what its client may do.
        engine: its AMQP.
        standing: how much of the node it may take.
        held: bytes of its messages that wait to be stored.
        congested: whether its client reads too slowly.
    """

    access: Access
    engine: Engine
    standing: ConnectionShare
    held: int
    congested: bool

    @property
    def node(self) -> Node:
        """The node it came to."""

    @property
    def identity(self) -> Identity | None:
        """The user, once known."""

    @property
    def client(self) -> str:
        """The name of its client for operators."""

    @property
    def ends(self) -> Mapping[Link, Any]:
        """The node's ends of its links."""

    def session(self) -> Session:
        """Return the session of its consumers, opened with the first."""

    def part(self, end: Any, *, lost: bool = False) -> None:
        """Forget an end whose link the node itself has closed."""

    def flush(self) -> None:
        """Send what the engine has to say."""

    def flush_soon(self) -> None:
        """Send what the engine has to say, at the end of this turn of the loop."""

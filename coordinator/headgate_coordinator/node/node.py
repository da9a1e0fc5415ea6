"""A broker node has a socket that AMQP clients come to, before one client of Redis. It can be killed at any time."""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from weakref import WeakSet

from headgate._util.certificates import named
from headgate._util.tasks import stop
from headgate.amqp.link import CONNECTION_FORCED, RESOURCE_LIMIT
from headgate.amqp.sasl import BEARER
from headgate.client import Client
from headgate.errors import HeadgateError, InvalidValue
from headgate.redis.call_line import CALL_TIMEOUT
from headgate_coordinator.fleet.node_facts import BridgeFacts, DeadlockFacts, NodeFacts
from headgate_coordinator.fleet.node_facts import Counters as Totals
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.claims import LinkClaims
from headgate_coordinator.node.connection import Connection
from headgate_coordinator.node.counters import Counters
from headgate_coordinator.node.credit.credits import DestinationCredits
from headgate_coordinator.node.credit.quotas import Quotas
from headgate_coordinator.node.door import Door
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.log_throttle import LogThrottle
from headgate_coordinator.node.options import NodeOptions, place
from headgate_coordinator.node.shown_policies import ShownPolicies
from headgate_coordinator.security import Users
from headgate_coordinator.security.creation_quota import CreationQuota

_log = logging.getLogger("headgate.node")
ASK_WITHIN: Final = 0.5
"""Seconds to find out where another node is."""
GRACE: Final = 0.1
"""Seconds for what clients sent before they heard that they may not."""
CLOSING: Final = 5.0
"""Seconds for what clients held to be given back in Redis."""


class Node:
    """A node serves AMQP clients from one client of Redis, which is connected and stays the caller's."""

    def __init__(self, client: Client, options: NodeOptions, users: Users) -> None:
        self.client = client
        self.options = options
        self.users = users
        self.name = options.name or f"{socket.gethostname()}-{secrets.token_hex(2)}"
        self.counters = Counters()
        self.connections: set[Connection] = set()
        self.claims = LinkClaims()
        self.quotas = Quotas(client, options.ttl)
        self.creations = CreationQuota(client, self.quotas.of)
        self.policies = ShownPolicies()
        self.searching = asyncio.Lock()
        """Held by who looks through all destinations."""
        self.silent: dict[Connection, None] = {}
        """Connections that have not logged in, the oldest first."""
        self.draining = False
        self.address_ends = False
        """Whether all nodes at its address stop when it does, so that clients are sent elsewhere."""
        self.orphaned = 0
        """Bytes of messages that wait to be stored, and whose links are gone."""
        self.left_behind: WeakSet[LinkEnd] = WeakSet()
        """Ends of these links."""
        self.started = time.time()
        self.port = 0
        self.another: Callable[[], Awaitable[tuple[str, int] | None]] | None = None
        """Returns host and port of another node that takes clients; asked when this one stops."""
        self._elsewhere: tuple[str, int] | None = None
        self.bridges: Callable[[], tuple[BridgeFacts, ...]] = tuple
        """Returns the links of the policy that it works on."""
        self.deadlocks: Callable[[], DeadlockFacts] = DeadlockFacts
        """Returns what it knows of deadlocks."""
        self.admin = ""
        self.rpc = ""
        """Base URL of its admin HTTP; empty when it has none."""
        self.lines: DestinationCredits
        self.emptied = asyncio.Event()
        """Set when the last connection is gone."""
        self.numbers = itertools.count(1)
        """Of its links, in the order in which they came."""
        self.refusals: Final = LogThrottle(_log)
        self._locked_out: Final = LogThrottle(_log)
        self._door: Door | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        users.on_change(self.look_again)
        client.parts.registry.may_make = lambda name: not is_reply_queue(name) or name in self.reply_queues()

    @property
    def id(self) -> str:
        """The node's id in the registry, another one after each start."""
        return self._session.id

    def reply_queues(self) -> set[str]:
        """Return the queues that it made for links that are open."""
        return {name for connection in self.connections for name in connection.access.replies}

    @property
    def address(self) -> str:
        """Where clients reach it: ``host:port``."""
        return self.options.public or place(self.options.host, self.port)

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidValue: the host is empty, which the system takes for all addresses; or the address cannot be had, or
                a certificate.
        """
        if not self.options.host:
            raise InvalidValue(
                "the node's host is empty; 127.0.0.1 is for this host alone, 0.0.0.0 for all that reach it"
            )
        self.client.store.server.line_timeout = CALL_TIMEOUT  # clients wait no longer, and make it at another node
        self._session = self.client.session(self.name, ttl=self.options.ttl)
        self.lines = DestinationCredits(self.client, self._session, self.options)
        encrypted = self.options.certificate is not None
        self._door = Door(lambda: Connection(self, encrypted=encrypted), self._context(), self.options.handshake)
        host, port = self.options.host, self.options.port
        try:
            self.port = await self._door.listen(host, port, shared=self.options.shared)
        except OSError as error:  # of a bind asyncio's own words name the address once more
            why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise InvalidValue(f"AMQP cannot listen on {host}:{port}: {why}; choose another") from None
        self._sweep = asyncio.create_task(self.lines.sweep(), name="headgate lines")
        self._watch = asyncio.create_task(self.quotas.watch(self.connections), name="headgate quotas")
        _log.info("node %s listens at %s", self.name, self.address)
        self.ways_in(encrypted=encrypted)

    def _context(self) -> ssl.SSLContext | None:
        options = self.options
        if options.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            with named(**{"--tls-cert": options.certificate, "--tls-key": options.key}):
                context.load_cert_chain(options.certificate, options.key)
            if options.client_authorities is not None:
                with named(**{"--client-ca": options.client_authorities}):
                    context.load_verify_locations(options.client_authorities)
                context.verify_mode = ssl.CERT_OPTIONAL  # others come with a password; one of another CA is refused
        except OSError as error:
            raise InvalidValue(f"{error.strerror}") from None
        return context

    def ways_in(self, *, encrypted: bool, certified: str = "") -> tuple[str, ...]:
        """Return the SASL mechanisms that a client is offered; if none leads in, the log says why.

        Args:
            encrypted: whether it comes over TLS.
            certified: whom its certificate names; empty without one.
        """
        plain = encrypted or self.options.plain_without_tls
        anonymous = self.users.anonymous() is not None
        if not anonymous and not plain:
            self._locked_out.warn(
                "nobody can sign in at node %s: there are users, and passwords need TLS; give --tls-cert, or "
                "--plain-without-tls where nobody can listen, or add the user 'anonymous'",
                self.name,
            )
        elif not anonymous and not self.users.has_any:
            self._locked_out.warn(
                "nobody can sign in at node %s: it requires users, and there are none; see headgate user add", self.name
            )
        external = bool(certified) and self.users.certified(certified) is not None
        offered = (("EXTERNAL", external), ("ANONYMOUS", anonymous), ("PLAIN", plain))
        bearer = BEARER if plain and self.users.take_tokens else ()
        return (*(word for word, leads_in in offered if leads_in), *bearer)

    def facts(self) -> NodeFacts:
        """Return what operators see of it."""
        ends = [end for connection in self.connections for end in connection.ends.values()]
        counters = self.counters
        return NodeFacts(
            id=self.id,
            address=self.address,
            admin=self.admin,
            started=self.started,
            state="draining" if self.draining else "ready",
            connections=len(self.connections),
            links=tuple(end.facts() for end in ends),
            counters=Totals(
                {"from client": counters.messages_in, "to client": counters.messages_out},
                {"from client": counters.bytes_in, "to client": counters.bytes_out},
                dict(counters.rejected),
            ),
            bridges=self.bridges(),
            deadlocks=self.deadlocks(),
            claims=self.claims.recent(),
        )

    async def readiness(self) -> str | None:
        """Return why it cannot admit messages; None when it can."""
        if self.draining:
            return f"node {self.name} is about to stop"
        try:
            await self.client.policy()
        except HeadgateError as error:
            return str(error)
        return None

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do something beside; what goes wrong is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a task failed: %r", error, exc_info=error)

    def refusal(self) -> tuple[str, str] | None:
        """Return why a new connection cannot be served, as an AMQP error; None if it can."""
        if self.draining:
            return CONNECTION_FORCED, f"node {self.name} is about to stop; connect to another one"
        if len(self.connections) > self.options.connections:
            self.counters.refused("connections")
            return RESOURCE_LIMIT, f"node {self.name} serves {self.options.connections} connections already"
        return None

    def has_too_many(self, newcomer: Connection) -> bool:
        """Return whether a user has more connections here than it may."""
        identity = newcomer.identity
        if identity is None or identity.max_connections is None:
            return False
        of_user = [c for c in self.connections if c.identity is not None and c.identity.name == identity.name]
        return len(of_user) > identity.max_connections

    def look_again(self) -> None:
        """End what clients may not do any more, at once: the users, or what they may, have just changed."""
        for connection in tuple(self.connections):
            connection.look_again()
        for end in tuple(self.left_behind):
            end.look_again()

    async def drain(self) -> None:
        """Stop: take nothing new, let what is under way be stored and settled, and send the clients elsewhere."""
        if self.draining:
            return
        self.draining = True
        if self._door:
            self._door.close()
        if not self.connections:
            self.emptied.set()
        for connection in tuple(self.connections):
            connection.rest()
        if self.another is not None:
            with contextlib.suppress(TimeoutError, HeadgateError):
                async with asyncio.timeout(ASK_WITHIN):
                    self._elsewhere = await self.another()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.drain):
                await asyncio.sleep(GRACE)
                stirred = self.lines.stirred()
                while self._part():
                    stirred.clear()
                    self.lines.confirm()
                    await stirred.wait()
                await self.lines.flush()
        self._part(busy_too=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.emptied.wait()

    def stir(self) -> None:
        """Note that a client may have less under way than before: :meth:`drain` waits for that."""
        if self.draining:
            self.lines.stirred().set()

    def _part(self, *, busy_too: bool = False) -> bool:
        """Send the clients away that have nothing under way; returns whether others have."""
        staying = False
        for connection in tuple(self.connections):
            if connection.busy and not busy_too:
                staying = True
            elif not connection.leaving:
                other = "{}:{}".format(*self._elsewhere) if self._elsewhere else "another one"
                connection.send_away(
                    CONNECTION_FORCED, f"node {self.name} is stopping; connect to {other}", self._elsewhere
                )
        return staying

    async def close(self) -> None:
        """Let go of everything; what clients hold goes back."""
        if self._door:
            self._door.close()
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        await stop(self._sweep)
        await stop(self._watch)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSING):  # without Redis, what is left goes when its TTL is over
                while self._tasks:
                    await asyncio.wait(tuple(self._tasks))
                await self.quotas.close()
                await self._session.close()
        for task in tuple(self._tasks):
            task.cancel()

"""A client is a connection to one Redis deployment, seen through one namespace."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from typing import Any, Self

from headgate._util.forks import FORKED, watch
from headgate._util.keywords import explains
from headgate._util.tasks import carried_through
from headgate.backends import BackendUrl, place_of
from headgate.consuming.browse import Browsed, browse
from headgate.context import Context
from headgate.core.addresses.url_options import UrlOptions
from headgate.core.deadlock import Deadlock
from headgate.errors import AccessDenied, Closed, HeadgateError, InvalidValue
from headgate.explain.explainer import as_consumer, explain, leased
from headgate.explain.limiters import explain_limiter
from headgate.explain.links import Links
from headgate.explain.model import Explanation
from headgate.namespace.administration import Administration
from headgate.namespace.losses import LossCallback, LossListeners
from headgate.namespace.pool_limits import PolicyPools
from headgate.namespace.pool_slices import Pools
from headgate.namespace.registry import Registry
from headgate.options import SessionOptions
from headgate.redis.backend import Backend
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address, check_namespace
from headgate.redis.store import Store
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.pools import PoolStore
from headgate.session.session import Session
from headgate.spans import found


class Client(Administration):
    """A client is what :func:`connect` returns; use it as ``async with``, or await it and close it.

    Attributes:
        namespace: the tenant whose destinations it sees.
    """

    def __init__(self, url: str | None, *, namespace: str = "default") -> None:
        self.namespace = check_namespace(namespace)
        self._place: BackendUrl | None = place_of(url) if url is not None else None
        self._embedded: EmbeddedRedis | None = None
        self._backend: Backend | None = None
        self._sessions: set[Session] = set()
        self._losses = LossListeners()
        self._closed = False
        self._refuses = "the client is not connected; use 'async with headgate.connect(...)' or await it"
        self._sees_no_deadlocks = False

    def __repr__(self) -> str:
        where = self._place.text if self._place else "embedded"
        return f"Client({where!r}, namespace={self.namespace!r}{', closed' if self._closed else ''})"

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._backend is not None:
            return self
        backend = (await self._find()).backend()
        try:
            await backend.open()
        except BaseException:
            try:
                await backend.close()
            finally:
                if self._embedded:
                    self._embedded.stop()
            raise
        watch(self)
        self._backend = backend
        store, wake_ups, namespace = Store(backend), backend.wake_ups(), self.namespace
        ttl_ms = int(SessionOptions().ttl * 1000)
        pools = Pools(PoolStore(backend), namespace, ttl_ms, wake_ups)
        registry = Registry(store, wake_ups, PolicyPools(pools), namespace, ttl_ms, self._losses)
        links = Links(store, registry.policies, namespace)
        self._registry, self._pools = registry, pools
        tracing = found()
        self._context = Context(store, wake_ups, registry, links, pools, namespace, tracing=tracing)
        if tracing is not None:
            self._context.waits.listeners.append(tracing.heard)
        if backend.waited is not None:
            self._context.waits.listeners.append(backend.waited)
        return self

    async def _find(self) -> BackendUrl:
        if self._place is None:
            starting = asyncio.get_running_loop().run_in_executor(None, EmbeddedRedis.start)
            try:
                await asyncio.wait([starting])
            except asyncio.CancelledError:  # its thread goes on
                starting.add_done_callback(_not_wanted)
                raise
            self._embedded = starting.result()
            self._place = place_of(self._embedded.url)
        return self._place

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The scripts themselves, for tools."""
        return self.parts.store

    @property
    def parts(self) -> Context:
        """The client's parts, for brokers in front of Redis that act for others."""
        self._check_connected()
        return self._context

    def _check_connected(self) -> None:
        if self._backend is None or self._closed:
            raise Closed(self._refuses)

    def forked(self) -> None:
        """Refuse from now on: the connections are those of the parent process."""
        self._closed, self._refuses = True, f"the client cannot be used: {FORKED}"

    @property
    def redis_url(self) -> str:
        """Where it is connected, without secrets."""
        return self._place.text if self._place else "embedded, not started"

    @explains("session")
    def session(
        self, name: str | None = None, *, ttl: float | str = 10.0, on_loss: str = "last-lease", resume: str = ""
    ) -> Session:
        """Open a session.

        Args:
            name: what operators call it; the id begins with it. The host's name when None.
            ttl: seconds after which it loses what it holds when it is not heard of.
            on_loss: without Redis, ``"last-lease"`` spends what is held until its lease ends, ``"closed"`` blocks.
            resume: a key of the work that it does. A later session of the same name and key takes its place: the
                earlier one is fenced, and :attr:`Producer.resumed` says how many messages were stored so far, as long
                as the last of them was stored within the hour. A sender of the same messages in the same order, and
                leaves out as many, sends each once, however often the work is begun anew.

        Raises:
            InvalidValue: an argument cannot be used.
            Closed: the client is not connected.
        """
        connection = self._place.options if self._place else UrlOptions()
        options = replace(SessionOptions.of(ttl, on_loss, connection), resumes=bool(resume))
        session = Session(self.parts, name or socket.gethostname(), options, self._sessions.discard, resume)
        self._sessions.add(session)
        return session

    def on_state_loss(self, callback: LossCallback) -> Callable[[], None]:
        """Call back when Redis may have lost its last writes to a destination that this client uses.

        Args:
            callback: called with a :class:`StateLoss`, on the event loop; may be async. Its errors are logged. It is
                called as the client meets a new epoch of a destination, and again where another session of it lost
                messages there. A bucket begins full again without a word.

        Returns:
            A function that ends it.
        """
        return self._losses.add(callback)

    async def explain(
        self,
        destination: str = "",
        *,
        producer: str = "",
        consumer: str = "",
        link: str = "",
        key: str | None = None,
    ) -> Explanation:
        """Say what a destination's state is, or a link's, and why; over links to what binds in the end.

        Args:
            destination: its name.
            producer: id of a session (:attr:`Session.id`), for its view: why its sends, or its admissions, wait.
            consumer: id of a consumer, for its view: why it gets messages or does not.
            link: instead of a destination, a link of the policy: the name of its bridge, ``<source>><target>``, or its
                id. Why it moves or does not, who works on it, and how much it has to do.
            key: of a limiter, for its view: what is taken of its own limits, and why its admissions wait.

        Raises:
            PolicyError: there is no such destination, or no such link.
            InvalidName: the name cannot be used, or is missing.
            InvalidValue: that session or consumer is not there; or a link is given and a destination too; or a key is
                given for what is no limiter.
        """
        store, links = self.store, self.parts.links
        if link:
            if destination or producer or consumer or key is not None:
                raise InvalidValue("explain a destination, for one producer or consumer of it, or a link")
            return await links.explain(link)
        address = Address.given(self.namespace, destination)
        snapshot = await store.snapshot(address, session=producer, entries=100)
        if snapshot is None:
            raise self._unknown(destination)
        if snapshot.fields["kind"] == "limiter" and not consumer:
            limiters = LimiterStore(store.server)
            explained, deadlock = await asyncio.gather(
                explain_limiter(limiters, address, snapshot.fields, key=key, session=producer),
                self._deadlock(destination, producer),
            )
            return replace(explained, deadlock=deadlock)
        if key is not None:
            text = f"{destination!r} is a {snapshot.fields['kind']}; `headgate state` shows a key of a gate or a bucket"
            raise InvalidValue(text, setting="key")
        if producer and not snapshot.own:
            raise InvalidValue(f"session {producer!r} neither sends to {destination!r} nor consumes it")
        sessions, deadlock = await asyncio.gather(
            store.lessees(address, *leased(snapshot)), self._deadlock(destination, producer)
        )
        explanation = explain(destination, snapshot, sessions, session=producer, deadlock=deadlock)
        if consumer:
            return as_consumer(explanation, consumer, snapshot)
        return await links.place(explanation, snapshot)

    async def _deadlock(self, destination: str, producer: str) -> Deadlock | None:
        """Return the deadlock that nodes found there; None for who may not see them, for they name others too."""
        if self._sees_no_deadlocks:
            return None
        try:
            found = await self.deadlocks()
        except HeadgateError as error:
            self._sees_no_deadlocks = isinstance(error, AccessDenied)
            return None
        for one in found:
            within = {party.name for party in one.deadlock.parties}
            if one.is_current and destination in one.destinations and (not producer or producer in within):
                return one.deadlock
        return None

    def browse(self, destination: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[Browsed]:
        """Iterate over the stored messages, oldest first, delivered ones included; takes no credit, changes nothing.

        Those of a queue with slices come slice by slice.

        A payload in a spool store is read back; one that cannot be is shown as a stub that says why.

        Args:
            destination: a queue or a topic; one that does not exist has no messages.
            after: id of the message to begin after; from the oldest when None.
            limit: at most how many; all when None. Messages sent or settled meanwhile may or may not be seen.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        address = Address.given(self.namespace, destination)
        return browse(self.store, self._registry.spooling, address, after=after, limit=limit)

    @carried_through
    async def close(self) -> None:
        """Close its sessions and connections; never flow-controlled, about 1 s at the most. Stops an embedded Redis."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(session.close() for session in tuple(self._sessions)))
        if self._backend is not None:
            await self._registry.close()
            await self._losses.close()
            await self._pools.close()
            await self._context.wake_ups.close()
            await self._backend.close()
        if self._embedded:
            await asyncio.to_thread(self._embedded.stop)


def _not_wanted(starting: asyncio.Future[EmbeddedRedis]) -> None:
    if starting.exception() is None:
        starting.result().stop()


@explains("url")
def connect(url: str | None = None, *, namespace: str = "default") -> Client:
    """Return a client for a Redis, or for nodes before one; ``async with`` or ``await`` connects it.

    Args:
        url: see :mod:`headgate.redis.url`, and :mod:`headgate.amqp.url` for nodes; None starts a private Redis that
            ends with the client.
        namespace: the tenant, 1 to 63 of a-z, 0-9 and '-'.

    Raises:
        InvalidValue: the URL cannot be read.
        InvalidName: nor the namespace.
    """
    return Client(url, namespace=namespace)

"""Clients: a connection to one Redis deployment, seen through one namespace."""

import asyncio
import socket
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headgate.backends import Place, place_of
from headgate.browse import Browsed, browse
from headgate.core.policy import Policy, Resolved
from headgate.core.url_options import UrlOptions
from headgate.errors import Closed, InvalidValue, PolicyError
from headgate.explain import as_consumer, explain, leased
from headgate.explanation import Explanation
from headgate.index import is_pattern
from headgate.options import SessionOptions
from headgate.pool_limits import PolicyPools, PoolState, apply_pools, pool_states, remove_pool, set_pool
from headgate.pools import Pools
from headgate.redis.backend import Backend
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address, check_namespace, parse_key
from headgate.redis.pool_store import PoolStore
from headgate.redis.replies import Recount
from headgate.redis.store import Store
from headgate.registry import Registry
from headgate.session import Session
from headgate.settings import DEFAULT, Settings


class Client:
    """What :func:`connect` returns; use it as ``async with``, or await it and close it.

    Attributes:
        namespace: the tenant whose destinations it sees.
    """

    def __init__(self, url: str | None, *, namespace: str = "default") -> None:
        self.namespace = check_namespace(namespace)
        self._place: Place | None = place_of(url) if url is not None else None
        self._embedded: EmbeddedRedis | None = None
        self._backend: Backend | None = None
        self._sessions: set[Session] = set()
        self._closed = False

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
            await backend.close()
            if self._embedded:
                self._embedded.stop()
            raise
        self._backend = backend
        self._store = Store(backend)
        self._wake_ups = backend.wake_ups()
        ttl_ms = int(SessionOptions().ttl * 1000)
        self._pools = Pools(PoolStore(backend), self.namespace, ttl_ms)
        self._registry = Registry(self._store, self._wake_ups, PolicyPools(self._pools), self.namespace, ttl_ms=ttl_ms)
        return self

    async def _find(self) -> Place:
        if self._place is None:
            self._embedded = await asyncio.to_thread(EmbeddedRedis.start)
            self._place = place_of(self._embedded.url)
        return self._place

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The scripts themselves, for tools."""
        self._check_connected()
        return self._store

    def _check_connected(self) -> None:
        if self._backend is None or self._closed:
            raise Closed("the client is not connected; use 'async with headgate.connect(...)' or await it")

    @property
    def redis_url(self) -> str:
        """Where it is connected, without secrets."""
        return self._place.text if self._place else "embedded, not started"

    def session(self, name: str | None = None, *, ttl: float | str = 10.0, on_loss: str = "last-lease") -> Session:
        """Open a session.

        Args:
            name: what operators call it; the id begins with it. The host's name when None.
            ttl: seconds after which it loses what it holds when it is not heard of.
            on_loss: without Redis, ``"last-lease"`` spends what is held until its lease ends, ``"closed"`` blocks.

        Raises:
            InvalidValue: an argument cannot be used.
            Closed: the client is not connected.
        """
        store = self.store
        session = Session(
            store,
            self._wake_ups,
            self._registry,
            self._pools,
            self.namespace,
            name or socket.gethostname(),
            SessionOptions.of(ttl, on_loss, self._place.options if self._place else UrlOptions()),
            self._sessions.discard,
        )
        self._sessions.add(session)
        return session

    async def apply(self, destination: str, settings: Settings | None = None, **values: Any) -> None:
        """Create a destination or change its settings, effective at once, waiting senders included.

        Args:
            destination: its name.
            settings: what to set, or
            **values: the fields of :class:`Settings` by name, e.g. ``limit="10MiB", kind="gate"``.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            CoordinatorUnavailable: Redis does not answer.
        """
        if settings is None:
            known = Settings.__dataclass_fields__
            if unknown := set(values) - set(known):
                raise PolicyError(f"setting {sorted(unknown)[0]!r} is unknown; there are {', '.join(known)}")
            settings = Settings(**values)
        elif values:
            raise PolicyError("give Settings or values by name, not both")
        address = Address.of(self.namespace, destination)
        self._check_connected()
        await self._registry.apply(address, settings)
        if settings.pools is not None:
            await self._pools.leave(address, self._registry.pools(address))

    async def set_pool(
        self,
        name: str,
        *,
        limit: int | str | None = None,
        percent: float | str | None = None,
        total: int | str | None = None,
        reserve: int | str = 0,
    ) -> None:
        """Create or change a pool: a limit in bytes that all destinations whose setting ``pools`` names it share.

        Args:
            name: its name.
            limit: bytes or ``"unlimited"``; or
            percent: of ``total``, or, without one, of Redis' ``maxmemory`` as it is now, over all masters of a cluster.
            total: bytes; not compared with what there really is.
            reserve: bytes of the limit that only destinations set ``reserved="yes"`` may use.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        await set_pool(self._pools, name, limit=limit, percent=percent, total=total, reserve=reserve)

    async def pools(self) -> list[PoolState]:
        """Return the pools of the namespace and what is used of each; asks every member, so it takes a moment."""
        self._check_connected()
        return await pool_states(self._pools)

    async def apply_pools(self, entries: Sequence[Mapping[str, Any]], *, version: int, prune: bool = False) -> None:
        """Set the pools of a compiled policy, all of them checked before the first is set.

        Args:
            entries: ``{"name": ..., "fields": {"limit_bytes" | "percent", "total_bytes", "reserve_bytes"}}``, and
                ``"origins"`` where it is known: for each field, where it was written.
            version: of the policy; older ones are refused.
            prune: remove pools of earlier policies that are not among them; only when no destination names them any
                more, for a destination whose pool is gone is served nothing.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            PolicyError: a newer policy is in force.
        """
        self._check_connected()
        await apply_pools(self._pools, entries, version=version, prune=prune)

    async def remove_pool(self, name: str) -> None:
        """Delete a pool; destinations that name it still are served nothing until it is set again."""
        self._check_connected()
        await remove_pool(self._pools, name)

    async def apply_policy(self, policy: Policy, *, expected: int | None = None) -> int:
        """Put a policy in force for the namespace, whole, and bring every destination under it; returns its version.

        It is in force at once: new destinations are made as it says, and every client applies it to those that it uses,
        waiting senders included. This call applies it to all there are; when it fails half-way, a repeated call, or
        whoever uses a destination, does the rest. A policy that is in force already keeps its version.

        Args:
            policy: its version does not matter; a policy without rules ends all that policies set.
            expected: the version that this one is to replace, 0 for none; whatever is in force when None.

        Raises:
            PolicyConflict: another version is in force than was expected; nothing was changed.
            CoordinatorUnavailable: Redis does not answer; repeat the call.
        """
        self._check_connected()
        return await self._registry.apply_policy(policy, expected)

    async def check_policy(self, policy: Policy) -> None:
        """See whether a policy could be applied here; nothing is changed.

        Raises:
            PolicyError: a pool cannot be set, such as a percent of a ``maxmemory`` that Redis does not have.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        await self._registry.check(policy)

    async def policy(self) -> Policy:
        """Return the policy in force; version 0, without rules, where there is none.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        return await self._registry.policies.look()

    async def effective(self, destination: str) -> Resolved:
        """Return what the policy says about a destination, each value with its origin; it need not exist.

        Raises:
            InvalidName: the name cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        address = Address.of(self.namespace, destination)
        self._check_connected()
        return await self._registry.effective(address)

    async def explain(self, destination: str, *, producer: str = "", consumer: str = "") -> Explanation:
        """Say what a destination's state is, and why.

        Args:
            destination: its name.
            producer: id of a session (:attr:`Session.id`), for its view: why its sends wait.
            consumer: id of a consumer, for its view: why it gets messages or does not.

        Raises:
            PolicyError: there is no such destination.
            InvalidValue: that session or consumer is not there.
        """
        address = Address.of(self.namespace, destination)
        snapshot = await self.store.snapshot(address, session=producer, entries=100)
        if snapshot is None:
            raise self._unknown(destination)
        if producer and not snapshot.own:
            raise InvalidValue(f"session {producer!r} neither sends to {destination!r} nor consumes it")
        sessions = await self.store.lessees(address, *leased(snapshot))
        explanation = explain(destination, snapshot, sessions, session=producer)
        return as_consumer(explanation, consumer, snapshot) if consumer else explanation

    def _unknown(self, destination: str) -> PolicyError:
        return PolicyError(f"there is no destination {destination!r} in namespace {self.namespace!r}")

    async def block(self, destination: str, reason: str) -> None:
        """Let nobody send to a destination until :meth:`unblock`; whoever waits is told the reason.

        Raises:
            PolicyError: there is no such destination.
            InvalidValue: the reason is empty, longer than 200 characters or not printable.
        """
        await self._change(destination, Settings(stopped=reason))

    async def unblock(self, destination: str) -> None:
        """Take a :meth:`block` away; one that is not there does not matter.

        Raises:
            PolicyError: there is no such destination.
        """
        await self._change(destination, Settings(stopped=DEFAULT))

    async def _change(self, destination: str, settings: Settings) -> None:
        address = Address.of(self.namespace, destination)
        if await self.store.snapshot(address, waiters=0, consumers=1) is None:
            raise self._unknown(destination)  # as a new one it would be made
        await self._registry.apply(address, settings)

    def browse(self, destination: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[Browsed]:
        """Iterate over the stored messages, oldest first, delivered ones included; takes no credit, changes nothing.

        Args:
            destination: a queue or a topic; one that does not exist has no messages.
            after: id of the message to begin after; from the oldest when None.
            limit: how many at the most; all when None. What is sent or settled meanwhile may or may not be seen.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        return browse(self.store, Address.of(self.namespace, destination), after=after, limit=limit)

    async def destinations(self) -> list[str]:
        """Return the names of all destinations of the namespace."""
        keys = await self.store.server.scan(f"hg:{{{self.namespace}/*}}")
        return [parsed[1] for key in keys if (parsed := parse_key(key))]

    async def recount(self, destination: str, *, repair: bool = False) -> Recount:
        """Count a destination's pending and leased from the ground truth, and repair its counters on request."""
        return await self.store.recount(Address.of(self.namespace, destination), repair=repair)

    async def purge(self, destination: str) -> int:
        """Remove all messages of a destination, delivered or not; returns how many."""
        messages, _ = await self.store.remove(Address.of(self.namespace, destination), everything=False)
        return messages

    async def remove(self, destination: str) -> None:
        """Delete a destination with all that it holds; sessions that use it find it new and empty."""
        address = Address.of(self.namespace, destination)
        self._check_connected()
        await self._registry.index.withdraw(address)  # first: wildcard consumers then see that it was removed, not lost
        snapshot = await self.store.snapshot(address, waiters=0, consumers=1)
        await self.store.remove(address, everything=True)
        self._registry.forget(address)
        if snapshot and (names := snapshot.fields.get("pools")):
            await self._pools.release(address, names, int(snapshot.fields["epoch"]))

    async def unsubscribe(self, destination: str, subscription: str) -> None:
        """Remove a durable subscription with all that it has not settled.

        Args:
            destination: a topic, or the pattern of a wildcard subscription: then it goes from every topic, unless
                another pattern has a subscription of the same name there.
            subscription: its name; one that does not exist is not an error.

        Raises:
            InvalidName: a name that cannot be used.
            PolicyError: it has consumers; close them first.
            CoordinatorUnavailable: Redis does not answer; call again.
        """
        self._check_connected()
        index = self._registry.index
        if is_pattern(destination):
            removed = await index.unsubscribe_pattern(self.namespace, destination, subscription)
        else:
            removed = await index.unsubscribe(Address.of(self.namespace, destination), subscription)
        if not removed:
            raise PolicyError(f"subscription {subscription!r} of {destination!r} has consumers; close them first")

    async def close(self) -> None:
        """Close its sessions and connections; never flow-controlled, about 1 s at the most. Stops an embedded Redis."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(session.close() for session in tuple(self._sessions)))
        if self._backend is not None:
            await self._registry.close()
            await self._pools.close()
            await self._wake_ups.close()
            await self._backend.close()
        if self._embedded:
            await asyncio.to_thread(self._embedded.stop)


def connect(url: str | None = None, *, namespace: str = "default") -> Client:
    """Return a client for a Redis; ``async with`` or ``await`` connects it.

    Args:
        url: see :mod:`headgate.redis.url`; None starts a private Redis that ends with the client.
        namespace: the tenant, 1 to 63 of a-z, 0-9 and '-'.

    Raises:
        InvalidValue: the URL cannot be read.
        InvalidName: nor the namespace.
    """
    return Client(url, namespace=namespace)

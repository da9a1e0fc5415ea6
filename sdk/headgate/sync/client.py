"""Clients, sessions and buckets for threads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import headgate.client
import headgate.consuming.consumer
import headgate.limiting.bucket
import headgate.session.session
from headgate._util.keywords import explains
from headgate.consuming.browse import Browsed
from headgate.core.policy import Policy, Resolved
from headgate.core.window import Window
from headgate.credit.notices import NOTIFY_AFTER, Blocked, Unblocked
from headgate.errors import Closed
from headgate.explain.model import Explanation
from headgate.namespace.deadlocks import FoundDeadlock
from headgate.namespace.losses import StateLoss
from headgate.namespace.pool_limits import PoolState
from headgate.options import DEFAULT_TIMEOUT
from headgate.redis.replies import Recount
from headgate.settings import Settings
from headgate.spool.states import StoreState
from headgate.sync.consumer import Consumer
from headgate.sync.gate import Gate, SharedCreditLine
from headgate.sync.producer import Producer
from headgate.sync.thread import LoopThread

T = TypeVar("T")


class Bucket:
    """:class:`headgate.Bucket` for threads. Get one from :meth:`Session.bucket`."""

    def __init__(self, thread: LoopThread, inner: headgate.limiting.bucket.Bucket) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def take(self, tokens: int = 1, *, timeout: float | str = DEFAULT_TIMEOUT) -> None:
        """Wait until ``tokens`` may be used; errors as :meth:`headgate.Bucket.take`."""
        self._thread.run(self._inner.take(tokens, timeout=timeout))


class Session:
    """:class:`headgate.Session` for threads. Get one from :meth:`Client.session`."""

    def __init__(self, thread: LoopThread, inner: headgate.session.session.Session) -> None:
        self._thread = thread
        self._inner = inner
        self._consumers: WeakValueDictionary[int, Consumer] = WeakValueDictionary()

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The session's name in the state."""
        return self._inner.id

    @property
    def name(self) -> str:
        """The session's name for operators."""
        return self._inner.name

    @explains("producer")
    def producer(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        rate: float | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
        durability: str | None = None,
    ) -> Producer:
        """Open a producer; arguments and errors as :meth:`headgate.Session.producer`."""
        work = self._inner.producer(
            destination, window=window, rate=rate, weight=weight, timeout=timeout, when_full=when_full,
            durability=durability,
        )  # fmt: skip
        return Producer(self._thread, self._thread.run(work))

    @explains("gate")
    def gate(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
        durability: str | None = None,
    ) -> Gate:
        """Open a gate; arguments and errors as :meth:`headgate.Session.gate`."""
        work = self._inner.gate(
            destination, window=window, weight=weight, timeout=timeout, when_full=when_full, durability=durability
        )
        return Gate(self._thread, self._thread.run(work))

    @explains("consumer")
    def consumer(
        self,
        destination: str,
        *,
        window: Window | int | str | None = None,
        subscription: str | None = None,
        durable: bool = False,
        rate: float | str | None = None,
        durability: str | None = None,
        selector: str | None = None,
    ) -> Consumer:
        """Open a consumer; arguments and errors as :meth:`headgate.Session.consumer`."""
        work = self._inner.consumer(
            destination,
            window=window,
            subscription=subscription,
            durable=durable,
            rate=rate,
            durability=durability,
            selector=selector,
        )
        inner = self._thread.run(work)
        consumer = self._consumers[id(inner)] = Consumer(self._thread, inner)
        return consumer

    def on_slow(self, callback: Callable[[Consumer], None]) -> None:
        """Call ``callback`` with each consumer of this session that becomes slow, on Headgate's own thread."""

        def tell(inner: headgate.consuming.consumer.Consumer) -> None:
            if (consumer := self._consumers.get(id(inner))) is not None:
                callback(consumer)

        self._inner.on_slow(tell)

    def bucket(self, destination: str) -> Bucket:
        """Open a bucket; errors as :meth:`headgate.Session.bucket`."""
        return Bucket(self._thread, self._thread.run(self._inner.bucket(destination)))

    def on_blocked(
        self, callback: Callable[[Blocked | Unblocked], object], *, notify_after: float | str = NOTIFY_AFTER
    ) -> Callable[[], None]:
        """Call back when sends or admissions wait; as :meth:`headgate.Session.on_blocked`.

        The callback runs in a thread of its own, one event after the other, so it may use the client.
        """
        return self._inner.on_blocked(_in_a_thread(callback), notify_after=notify_after)

    def close(self) -> None:
        """Close everything of it and end its leases; never flow-controlled, about 1 s at the most."""
        if self._thread.is_ours:
            self._thread.run(self._inner.close())


class Client:
    """What :func:`connect` returns; use it as ``with``, or close it."""

    def __init__(self, url: str | None, *, namespace: str = "default") -> None:
        self._inner = headgate.client.Client(url, namespace=namespace)
        self._thread = LoopThread()
        self._closed = False
        try:
            self._thread.run(self._inner.__aenter__())
        except BaseException:
            self._closed = True
            self._thread.stop()
            raise

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        """The tenant whose destinations it sees."""
        return self._inner.namespace

    @property
    def redis_url(self) -> str:
        """Where it is connected, without secrets."""
        return self._inner.redis_url

    @explains("session")
    def session(
        self, name: str | None = None, *, ttl: float | str = 10.0, on_loss: str = "last-lease", resume: str = ""
    ) -> Session:
        """Open a session; arguments and errors as :meth:`headgate.Client.session`."""

        async def open_session() -> headgate.session.session.Session:
            session = self._inner.session(name, ttl=ttl, on_loss=on_loss, resume=resume)
            session.credit_line = SharedCreditLine
            return session

        return Session(self._thread, self._run(open_session))

    def on_state_loss(self, callback: Callable[[StateLoss], object]) -> Callable[[], None]:
        """Call back when Redis may have lost its last writes; as :meth:`headgate.Client.on_state_loss`.

        The callback runs in a thread of its own, one event after the other, so it may use the client.
        """
        return self._inner.on_state_loss(_in_a_thread(callback))

    def apply(self, destination: str, settings: Settings | None = None, **values: Any) -> None:
        """Create a destination or change its settings; arguments and errors as :meth:`headgate.Client.apply`."""
        self._run(lambda: self._inner.apply(destination, settings, **values))

    @explains("pool")
    def set_pool(
        self,
        name: str,
        *,
        limit: int | str | None = None,
        percent: float | str | None = None,
        total: int | str | None = None,
        reserve: int | str = 0,
    ) -> None:
        """Create or change a pool; arguments and errors as :meth:`headgate.Client.set_pool`."""
        self._run(lambda: self._inner.set_pool(name, limit=limit, percent=percent, total=total, reserve=reserve))

    @explains("pool")
    def set_store(
        self,
        name: str,
        url: str,
        *,
        limit: int | str | None = None,
        percent: float | None = None,
        total: int | str | None = None,
        segment: int | str | None = None,
        when_full: str = "block",
    ) -> None:
        """Create or change a spool store; arguments and errors as :meth:`headgate.Client.set_store`."""
        self._run(
            lambda: self._inner.set_store(
                name, url, limit=limit, percent=percent, total=total, segment=segment, when_full=when_full
            )
        )

    def stores(self) -> list[StoreState]:
        """Return the spool stores of the namespace and what they hold."""
        return self._run(self._inner.stores)

    def remove_store(self, name: str) -> None:
        """Forget an empty spool store; as :meth:`headgate.Client.remove_store`."""
        self._run(lambda: self._inner.remove_store(name))

    def pools(self) -> list[PoolState]:
        """Return the pools of the namespace and what is used of each."""
        return self._run(self._inner.pools)

    def apply_pools(self, entries: Sequence[Mapping[str, Any]], *, version: int, prune: bool = False) -> None:
        """Set the pools of a compiled policy; arguments and errors as :meth:`headgate.Client.apply_pools`."""
        self._run(lambda: self._inner.apply_pools(entries, version=version, prune=prune))

    def remove_pool(self, name: str) -> None:
        """Delete a pool; destinations that name it still are served nothing until it is set again."""
        self._run(lambda: self._inner.remove_pool(name))

    def apply_policy(self, policy: Policy, *, expected: int | None = None) -> int:
        """Put a policy in force for the namespace; arguments and errors as :meth:`headgate.Client.apply_policy`."""
        return self._run(lambda: self._inner.apply_policy(policy, expected=expected))

    def check_policy(self, policy: Policy) -> None:
        """See whether a policy could be applied here; errors as :meth:`headgate.Client.check_policy`."""
        self._run(lambda: self._inner.check_policy(policy))

    def policy(self) -> Policy:
        """Return the policy in force; errors as :meth:`headgate.Client.policy`."""
        return self._run(self._inner.policy)

    def effective(self, destination: str) -> Resolved:
        """Return what the policy says about a destination; errors as :meth:`headgate.Client.effective`."""
        return self._run(lambda: self._inner.effective(destination))

    def explain(self, destination: str = "", *, producer: str = "", consumer: str = "", link: str = "") -> Explanation:
        """Say what a destination's or a link's state is, and why; arguments and errors as for an async client."""
        return self._run(lambda: self._inner.explain(destination, producer=producer, consumer=consumer, link=link))

    def block(self, destination: str, reason: str) -> None:
        """Let nobody send to a destination until :meth:`unblock`; errors as :meth:`headgate.Client.block`."""
        self._run(lambda: self._inner.block(destination, reason))

    def unblock(self, destination: str) -> None:
        """Take a :meth:`block` away; errors as :meth:`headgate.Client.unblock`."""
        self._run(lambda: self._inner.unblock(destination))

    def browse(self, destination: str, *, after: str | None = None, limit: int | None = None) -> Iterator[Browsed]:
        """Iterate over the stored messages; arguments and errors as :meth:`headgate.Client.browse`."""
        found = self._inner.browse(destination, after=after, limit=limit)
        nothing = object()
        while (message := self._run(lambda: _next(found, nothing))) is not nothing:
            yield message

    def destinations(self) -> list[str]:
        """Return the names of all destinations of the namespace."""
        return self._run(self._inner.destinations)

    def deadlocks(self) -> list[FoundDeadlock]:
        """Return the deadlocks that nodes saw in the last minute; as :meth:`headgate.Client.deadlocks`."""
        return self._run(self._inner.deadlocks)

    def recount(self, destination: str, *, repair: bool = False) -> Recount:
        """Count a destination's pending and leased from the ground truth, and repair its counters on request."""
        return self._run(lambda: self._inner.recount(destination, repair=repair))

    def purge(self, destination: str) -> int:
        """Remove all messages of a destination, delivered or not; returns how many."""
        return self._run(lambda: self._inner.purge(destination))

    def remove(self, destination: str) -> None:
        """Delete a destination with all that it holds."""
        self._run(lambda: self._inner.remove(destination))

    def unsubscribe(self, destination: str, subscription: str) -> None:
        """Remove a durable subscription; arguments and errors as :meth:`headgate.Client.unsubscribe`."""
        self._run(lambda: self._inner.unsubscribe(destination, subscription))

    def close(self) -> None:
        """Close its sessions, connections and thread; about 1 s at the most."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_ours:
            self._thread.run(self._inner.close())
            self._thread.stop()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise Closed("the client is closed")
        return self._thread.run(work())


def _in_a_thread(callback: Callable[[T], object]) -> Callable[[T], Coroutine[Any, Any, None]]:
    one_at_a_time = asyncio.Lock()

    async def tell(event: T) -> None:
        async with one_at_a_time:
            await asyncio.to_thread(callback, event)

    return tell


async def _next(found: AsyncIterator[Any], nothing: Any) -> Any:
    return await anext(found, nothing)


@explains("url")
def connect(url: str | None = None, *, namespace: str = "default") -> Client:
    """Connect to a Redis, and return a client for threads.

    Args:
        url: see :mod:`headgate.redis.url`; None starts a private Redis that ends with the client.
        namespace: the tenant, 1 to 63 of a-z, 0-9 and '-'.

    Raises:
        InvalidValue: the URL cannot be read.
        InvalidName: nor the namespace.
        CoordinatorUnavailable: nothing answers, or it is too old.
        AccessDenied: it refuses the credentials.
    """
    return Client(url, namespace=namespace)

"""Clients, sessions and buckets for threads are used without ``await``."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary

import headgate.client
import headgate.consuming.consumer
import headgate.limiting.bucket
import headgate.session.session
from headgate._util.inner_property import InnerProperty
from headgate._util.keywords import explains
from headgate.consuming.browse import Browsed
from headgate.credit.notices import NOTIFY_AFTER, Blocked, Unblocked
from headgate.errors import Closed
from headgate.namespace.losses import StateLoss
from headgate.settings import Settings
from headgate.sync.consumer import Consumer
from headgate.sync.faces import Face, blocking
from headgate.sync.gate import Gate, SharedCreditLine
from headgate.sync.limiter import Limiter
from headgate.sync.producer import Producer
from headgate.sync.thread import LoopThread
from headgate.sync.turn import ThreadTurn

P = ParamSpec("P")
T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 -- what is inside a face


class Bucket(Face[headgate.limiting.bucket.Bucket]):
    """This is :class:`headgate.Bucket` for threads. Get one from :meth:`Session.bucket`."""

    take = blocking(headgate.limiting.bucket.Bucket.take)
    try_take = blocking(headgate.limiting.bucket.Bucket.try_take)
    state = blocking(headgate.limiting.bucket.Bucket.state)
    hold_off = blocking(headgate.limiting.bucket.Bucket.hold_off)


def _opening(
    call: Callable[Concatenate[headgate.session.session.Session, P], Coroutine[Any, Any, I]],
    face: Callable[["Session", I], T],
) -> Callable[Concatenate["Session", P], T]:
    """Return the same call for threads, with its arguments, errors and docstring; its result is in a ``face``."""

    @functools.wraps(call)
    def opening(self: "Session", /, *args: P.args, **named: P.kwargs) -> T:
        return face(self, self._thread.run(call(self._inner, *args, **named)))

    return opening


class Session(Face[headgate.session.session.Session]):
    """This is :class:`headgate.Session` for threads. Get one from :meth:`Client.session`."""

    def __init__(self, thread: LoopThread, inner: headgate.session.session.Session) -> None:
        super().__init__(thread, inner)
        self._consumers: WeakValueDictionary[int, Consumer] = WeakValueDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The session's name for operators."""
        return self._inner.name

    @property
    def id(self) -> str:
        """The session's name in the state."""
        return self._inner.id

    producer = _opening(headgate.session.session.Session.producer, lambda self, inner: Producer(self._thread, inner))
    gate = _opening(headgate.session.session.Session.gate, lambda self, inner: Gate(self._thread, inner))
    consumer = _opening(headgate.session.session.Session.consumer, lambda self, inner: self._kept(inner))
    bucket = _opening(headgate.session.session.Session.bucket, lambda self, inner: Bucket(self._thread, inner))
    limiter = _opening(headgate.session.session.Session.limiter, lambda self, inner: Limiter(self._thread, inner))

    def on_slow(self, callback: Callable[[Consumer], None]) -> None:
        """Call ``callback`` with each consumer of this session that becomes slow, on Headgate's own thread."""

        def tell(inner: headgate.consuming.consumer.Consumer) -> None:
            if (consumer := self._consumers.get(id(inner))) is not None:
                callback(consumer)

        self._inner.on_slow(tell)

    def on_blocked(
        self, callback: Callable[[Blocked | Unblocked], object], *, notify_after: float | str = NOTIFY_AFTER
    ) -> Callable[[], None]:
        """Call back when sends or admissions wait; as :meth:`headgate.Session.on_blocked`.

        The callback runs in a thread of its own, one event after the other, so it may use the client.
        """
        return self._inner.on_blocked(_in_a_thread(callback), notify_after=notify_after)

    def close(self) -> None:
        """Close everything of it and end its leases; never flow-controlled, about 1 s at the most."""
        self._thread.finish(self._inner.close())

    def _kept(self, inner: headgate.consuming.consumer.Consumer) -> Consumer:
        consumer = self._consumers[id(inner)] = Consumer(self._thread, inner)
        return consumer


def _blocking(
    call: Callable[Concatenate[headgate.client.Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """Return the same call for threads, with its arguments, errors and docstring; it returns when that is done."""

    @functools.wraps(call)
    def blocking(self: "Client", /, *args: P.args, **named: P.kwargs) -> T:
        return self._run(lambda: call(self._inner, *args, **named))

    return blocking


class Client:
    """A client is the result of :func:`connect`; use it as ``with``, or close it."""

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

    redis_url = InnerProperty(headgate.client.Client.redis_url)

    @property
    def namespace(self) -> str:
        """The tenant whose destinations it sees."""
        return self._inner.namespace

    @explains("session")
    def session(
        self, name: str | None = None, *, ttl: float | str = 10.0, on_loss: str = "last-lease", resume: str = ""
    ) -> Session:
        """Open a session; arguments and errors as :meth:`headgate.Client.session`."""

        async def open_session() -> headgate.session.session.Session:
            session = self._inner.session(name, ttl=ttl, on_loss=on_loss, resume=resume)
            session.credit_line, session.hand_lock = SharedCreditLine, ThreadTurn
            session.traces_receives = False
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

    set_pool = _blocking(headgate.client.Client.set_pool)
    pools = _blocking(headgate.client.Client.pools)
    apply_pools = _blocking(headgate.client.Client.apply_pools)
    remove_pool = _blocking(headgate.client.Client.remove_pool)
    set_store = _blocking(headgate.client.Client.set_store)
    stores = _blocking(headgate.client.Client.stores)
    remove_store = _blocking(headgate.client.Client.remove_store)
    apply_policy = _blocking(headgate.client.Client.apply_policy)
    check_policy = _blocking(headgate.client.Client.check_policy)
    policy = _blocking(headgate.client.Client.policy)
    effective = _blocking(headgate.client.Client.effective)
    explain = _blocking(headgate.client.Client.explain)
    block = _blocking(headgate.client.Client.block)
    unblock = _blocking(headgate.client.Client.unblock)
    destinations = _blocking(headgate.client.Client.destinations)
    deadlocks = _blocking(headgate.client.Client.deadlocks)
    recount = _blocking(headgate.client.Client.recount)
    purge = _blocking(headgate.client.Client.purge)
    delete_message = _blocking(headgate.client.Client.delete_message)
    end_moves = _blocking(headgate.client.Client.end_moves)
    move_message = _blocking(headgate.client.Client.move_message)
    remove = _blocking(headgate.client.Client.remove)
    unsubscribe = _blocking(headgate.client.Client.unsubscribe)

    def browse(self, destination: str, *, after: str | None = None, limit: int | None = None) -> Iterator[Browsed]:
        """Iterate over the stored messages; arguments and errors as :meth:`headgate.Client.browse`."""
        found = self._inner.browse(destination, after=after, limit=limit)
        nothing = object()
        while (message := self._run(lambda: _next(found, nothing))) is not nothing:
            yield message

    def close(self) -> None:
        """Close its sessions, connections and thread; about 1 s at the most."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.finish(self._inner.close())
        except RuntimeError:  # it would wait for itself: somebody else is to close it
            self._closed = False
            raise
        if self._thread.is_ours:
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

"""A session is one unit of liveness. Its credit is reclaimed when it is not heard of for its TTL."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from headgate._util.forks import watch
from headgate._util.keywords import explains
from headgate._util.tasks import carried_through
from headgate.consuming.consumer import Consumer, MessageSource
from headgate.consuming.inbox import Inbox
from headgate.context import Context
from headgate.core.addresses.url_options import split_address
from headgate.core.credit import CreditLine
from headgate.core.durability import MEMORY, Durability
from headgate.core.names import given_name
from headgate.core.selector.messages import matcher
from headgate.core.selector.parser import Selector
from headgate.core.when_full import WhenFull
from headgate.core.window import Window
from headgate.credit.account import CreditAccount
from headgate.credit.notices import NOTIFY_AFTER, Callback, Listeners
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.spool_quota import SpoolQuota
from headgate.credit.spread_account import SpreadAccount
from headgate.errors import Closed, InvalidValue, PolicyError
from headgate.limiting.bucket import Bucket
from headgate.limiting.by_key import KeyedLimiter
from headgate.limiting.gate import Gate
from headgate.limiting.limiter import Limiter
from headgate.namespace.defaults import durability_of
from headgate.options import DEFAULT_TIMEOUT, SessionOptions, read_weight, read_window
from headgate.producing.inflow import Inflow
from headgate.producing.producer import Producer
from headgate.redis.keys import Address, session_id
from headgate.redis.stores.limiters import LimiterStore
from headgate.session.destinations import SessionDestinations, kinds_from
from headgate.session.opening import ConsumerOpener, ConsumerRequest, SlowCallback
from headgate.spool.stores import Spool
from headgate.tracing import TracedConsumer, TracedProducer
from headgate.units import parse_duration, parse_rate, parse_timeout


class Session:
    """A session holds producers, consumers, gates and buckets that live and die together.

    Get one from :meth:`Client.session`.
    """

    __slots__ = (
        "__weakref__", "_bucket_id", "_buckets", "_by_key", "_closed", "_consumers", "_context", "_destinations",
        "_limiters", "_listeners", "_on_close", "credit_line", "hand_lock", "id", "name", "traces_receives",
    )  # fmt: skip

    def __init__(
        self, client: Context, name: str, options: SessionOptions, on_close: Callable[["Session"], None], resume: str
    ) -> None:
        prefix = client.store.server.session_prefix
        self.id = session_id(name, prefix, resume)
        self._bucket_id = session_id(name, prefix) if resume else self.id
        self.name = name
        self._context = replace(client, session=self.id, options=options)
        self._on_close = on_close
        self.credit_line: Callable[[], CreditLine] = CreditLine
        """The maker of a gate's credit line."""
        self.hand_lock: Callable[[], object] = contextlib.nullcontext
        """The maker of the lock of what a limiter has in hand."""
        self.traces_receives = True
        """Whether its consumers trace what they receive; for threads it has come already."""
        self._listeners = Listeners()
        self._destinations = SessionDestinations(self._context, self._listeners)
        self._consumers = ConsumerOpener(self._destinations)
        self._buckets: dict[str, Bucket] = {}
        self._by_key: dict[str, KeyedLimiter] = {}
        self._limiters = self._destinations.limiters
        self._closed = False
        watch(self)

    def __repr__(self) -> str:
        return f"Session({self.id!r}{', closed' if self._closed else ''})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @explains("producer")
    async def producer(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        rate: float | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
        durability: str | None = None,
        kind: str = "queue",
    ) -> Producer:
        """Open a producer. Options left out follow the destination's settings, and change with them.

        Args:
            destination: a queue or a topic; an unknown name becomes what the policy says, else as ``kind`` says,
                without limits.
            window: bytes of credit to keep in hand, and the most that is on its way at a time; else 512 KiB.
            rate: messages a second that this producer may send; else no bound.
            weight: its share among the producers of the destination; else 1.
            timeout: seconds that a send waits when it does not say, or ``"unlimited"``; else 30.
            when_full: what a send does that finds no room: ``block``, ``fail``, ``fail-after 3s`` or ``drop``;
                else block.
            durability: what has a message before its receipt is given: ``memory``, ``fsync``, ``replicas:1`` or
                ``fsync replicas:1``; the destination's setting holds beside it, and so does that of other producers of
                this session there.
            kind: ``queue`` or ``topic``.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used; nothing was changed.
            PolicyError: the destination takes no messages, ``when_full`` is another word, or this Redis cannot say when
                a message is so safe.
            CoordinatorUnavailable: Redis does not answer.
        """
        how = WhenFull.parse(when_full) if when_full is not None else None
        destination, url_options = split_address(destination, self._context.options.connection)
        own = parse_rate(rate, "rate") if rate is not None else url_options.producer_rate
        patience = parse_timeout(timeout) if timeout is not None else None
        window = url_options.producer_window if window is None else window
        wanted = self._durability(durability)
        account, requested = await self._account(destination, window, weight, kinds_from(kind))
        if wanted:
            requested.insist(wanted)
        if self._context.tracing is not None:
            traced = TracedProducer(account, requested, timeout=patience, rate=own, when_full=how)
            traced.tracing = self._context.tracing
            producer: Producer = traced
        else:
            producer = Producer(account, requested, timeout=patience, rate=own, when_full=how)
        self._destinations.at(account.address.name).follower.send(producer)
        return producer

    async def inflow(self, destination: str, *, window: int, kind: str) -> Inflow:
        """Open the way into a destination for a broker in front of Redis; errors are those of :meth:`producer`.

        Args:
            destination: a queue or a topic; an unknown name becomes what the policy says, else as ``kind`` says.
            window: bytes of credit to keep in hand.
            kind: ``queue`` or ``topic``.
        """
        destination, url_options = split_address(destination, self._context.options.connection)
        account, requested = await self._account(destination, window, None, kinds_from(kind))
        presence = self._destinations.at(account.address.name)
        inflow = Inflow(account, requested, presence.kind, rate=url_options.producer_rate)
        presence.follower.send(inflow)
        return inflow

    async def room_at(self, spool: Spool) -> SpoolQuota:
        """Return the session's room at a spool store, for a broker that writes segments of others there."""
        return await self._destinations.quota(spool)

    @explains("gate")
    async def gate(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
        durability: str | None = None,
    ) -> Gate:
        """Open a gate; arguments and errors are those of :meth:`producer`. An unknown name is made without limits.

        With a ``durability`` credit admits once replicas, or the disk, know that it was granted.

        A gate has no message to drop: ``when_full="drop"`` is refused, and a destination that says so fails instead.
        """
        how = WhenFull.parse(when_full) if when_full is not None else None
        if how is not None and how.drops:
            raise PolicyError("when_full: a gate has no message to drop; use block, fail or 'fail-after 3s'")
        patience = parse_timeout(timeout) if timeout is not None else None
        wanted = self._durability(durability)
        account, requested = await self._account(destination, window, weight, ("gate",))
        if wanted:
            requested.insist(wanted)
        assert isinstance(account, CreditAccount)  # noqa: S101 -- permits have no values
        gate = Gate(account, self._keys(account.address.whole, "gate"), timeout=patience, when_full=how)
        self._destinations.at(account.address.name).follower.send(gate)
        return gate

    @explains("consumer")
    async def consumer(
        self,
        destination: str,
        *,
        window: Window | int | str | None = None,
        subscription: str | None = None,
        durable: bool = False,
        rate: float | str | None = None,
        durability: str | None = None,
        kind: str | None = None,
        selector: str | None = None,
    ) -> Consumer:
        """Open a consumer.

        Args:
            destination: a queue or a topic; an unknown name becomes what the policy says, else a queue, or a topic
                where a subscription is named. A pattern subscribes to every topic that it matches, also those to come:
                words between dots, ``*`` for one of them, a last ``#`` for any number, a last ``>`` for at least one.
            window: what it may hold unsettled: ``Window(...)``, a number of messages, ``"pull"``, ``"paused"``
                or ``"unlimited"``; when None as the destination's settings say, and changing with them, else 1000.
            subscription: of a topic; consumers of one subscription share its messages. A new one of its own when None.
                A queue has no subscriptions, so it is refused there.
            durable: keep the subscription, which has to have a name, when its last consumer goes.
            rate: messages a second that this consumer takes; when None as the settings say, else no bound.
            durability: what has a settlement before it is confirmed to who waits for that, as of :meth:`producer`.
            kind: what an unknown name becomes, ``queue`` or ``topic``, where the policy does not say.
            selector: of a topic: a condition on the headers of a message, such as ``"region = 'EU'"``. Messages for
                which it is not true are settled as they come, for the whole subscription, so its
                consumers should all have the same.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used; nothing was changed.
            PolicyError: the destination holds no messages, or is a queue, and a subscription or a selector is given.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_open()
        selects = None if selector is None else matcher(Selector.parse(selector))
        of_topic = subscription is not None or selects is not None
        kinds = kinds_from(kind or ("topic" if of_topic else "queue"))
        wanted = self._durability(durability)
        if durable and subscription is None:
            raise InvalidValue("durable: a subscription that stays needs a name to come back to; give subscription too")
        if of_topic and kinds[0] != "topic":
            what = "selector" if subscription is None else "subscription"
            raise InvalidValue(f"{what}: a queue has none, and kind says 'queue'; leave one of the two out")
        try:
            only = ("topic",) if of_topic else kinds
            request = ConsumerRequest(destination, only, window, subscription, durable, selects, wanted, selector)
            return await self._consumers.open(request, rate, self._receiver)
        except PolicyError as error:
            if not of_topic:
                raise
            raise PolicyError(
                f"{error}: only topics have subscriptions and selectors; for a queue leave them out"
            ) from None

    @property
    def consumers(self) -> ConsumerOpener:
        """The opener of its consumers; for brokers in front of Redis, which open feeds of their own."""
        self._check_open()
        return self._consumers

    async def bucket(self, destination: str) -> Bucket:
        """Open a bucket, as :meth:`Client.apply` set it; one that nobody set has no limit.

        Raises:
            InvalidName: the name cannot be used.
            PolicyError: it is not a bucket.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_open()
        at = self._destinations
        address = Address.given(self._context.namespace, destination)
        async with at.opening(destination):
            if address.key not in self._buckets:
                ensure = at.ensure(address, ("bucket",))
                await ensure(False)
                keys = self._keys(address, "bucket")
                self._buckets[address.key] = Bucket(
                    self._context.store, address, self._bucket_id, ensure, keys, waits=self._context.waits
                )
        return self._buckets[address.key]

    async def limiter(self, destination: str, *, in_hand: bool = True, timeout: float | str | None = None) -> Limiter:
        """Open a limiter, as a policy or :meth:`Client.apply` set it; opened again, it is the same.

        Args:
            destination: its name. One that nothing says the limits of is refused: it would limit nothing.
            in_hand: whether amounts for many admissions are taken ahead where many come and nobody waits, so that they
                take no call; such a hold has no id. False: each is decided in Redis, and each hold has an id.
            timeout: seconds that an admission waits when it does not say, or ``"unlimited"``; else 30.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used, or differs from that of the first time.
            PolicyError: it is no limiter, or nothing says its limits.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_open()
        patience = parse_timeout(timeout) if timeout is not None else DEFAULT_TIMEOUT
        at, context = self._destinations, self._context
        address = Address.given(context.namespace, destination)
        async with at.opening(destination):
            if address.key not in self._limiters:
                ensure = at.ensure(address, ("limiter",))
                await ensure(False)
                context.store.server.promise(durability_of(context.registry.fields(address)))
                limiter = Limiter(
                    LimiterStore(context.store.server), context.wake_ups, address, self._bucket_id,
                    context.options.ttl, lambda part: at.ensure(part, ("limiter",)), context.losses.meet,
                    pinned=context.registry.pinned, in_hand=in_hand, timeout=patience, lock=self.hand_lock(),
                    waits=context.waits,
                )  # fmt: skip
                await context.registry.follow(address, limiter.adopt)
                limiter.adopt(context.registry.fields(address))
                limiter.line.on_wait = at.ties.begin
                await limiter.start()
                self._limiters[address.key] = limiter
        limiter = self._limiters[address.key]
        limiter.check_options(in_hand=in_hand, timeout=patience)
        return limiter

    def on_slow(self, callback: SlowCallback) -> None:
        """Call ``callback`` with each consumer of this session that becomes slow, on the event loop.

        It may be async. Its errors are logged.
        """
        self._consumers.on_slow.append(callback)

    def on_blocked(self, callback: Callback, *, notify_after: float | str = NOTIFY_AFTER) -> Callable[[], None]:
        """Call back when sends or admissions of this session wait, and when they do no more.

        Args:
            callback: called with a :class:`Blocked`, and with the :class:`Unblocked` that belongs to it; may be async.
                There is at most one pair a second for each destination. Its errors are logged.
            notify_after: seconds that the first in line has waited before it is reported.

        Returns:
            What ends it, to be called.

        Raises:
            InvalidValue: not a duration.
        """
        return self._listeners.add(callback, parse_duration(notify_after, "notify_after"))

    def forked(self) -> None:
        """Open nothing from now on, and leave what there is to the parent process."""
        self._closed = True

    @carried_through
    async def close(self) -> None:
        """Close everything of it and end its leases; never flow-controlled, about 1 s at the most."""
        if self._closed:
            return
        self._closed = True
        for bucket in self._buckets.values():
            await bucket.close()
        for keys in self._by_key.values():
            await keys.close()
        for limiter in self._limiters.values():
            await self._context.registry.unfollow(limiter.address, limiter.adopt)
            await limiter.close()
        await self._consumers.close()
        await self._destinations.close()
        await self._listeners.close()
        await self._consumers.close_callbacks()
        self._on_close(self)

    def _receiver(self, inbox: Inbox, supply: MessageSource) -> Consumer:
        if self._context.tracing is None or not self.traces_receives:
            return Consumer(inbox, supply)
        return TracedConsumer(inbox, supply, self._context.tracing)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"session {self.id} is closed")

    def _keys(self, address: Address, kind: str) -> KeyedLimiter:
        """Return what it does for keys of a gate or a bucket."""
        if address.key not in self._by_key:
            ensure = self._destinations.ensure(address, (kind,))
            self._by_key[address.key] = KeyedLimiter(self._context, address, self._bucket_id, ensure)
        return self._by_key[address.key]

    def _durability(self, text: str | None) -> Durability:
        wanted = Durability.parse(text) if text is not None else MEMORY
        self._context.store.server.promise(wanted)
        return wanted

    async def _account(
        self, destination: str, window: int | str | None, weight: int | None, kinds: tuple[str, ...]
    ) -> tuple[CreditAccount | SpreadAccount, RequestedTerms]:
        self._check_open()
        given_name(destination)
        size, share = read_window(window), read_weight(weight)
        return await self._destinations.account(
            self._destinations.at(destination), size, share, kinds, self.credit_line
        )

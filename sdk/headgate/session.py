"""Sessions: one unit of liveness. What a session holds is reclaimed when it is not heard of for its TTL."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from headgate.account import CLOSE_WITHIN, CreditAccount
from headgate.account_calls import Ensure
from headgate.blocked import NOTIFY_AFTER, Callback, Listeners
from headgate.bucket import Bucket
from headgate.callbacks import Callbacks
from headgate.consumer import Consumer
from headgate.core.credit import CreditLine
from headgate.core.full import WhenFull
from headgate.core.url_options import split_address
from headgate.core.window import Window
from headgate.errors import Closed, HeadgateError, InvalidValue, PolicyError
from headgate.following import Following
from headgate.gate import Gate
from headgate.index import Entry, is_pattern, read_pattern
from headgate.options import SessionOptions
from headgate.outlook import Outlook
from headgate.pools import Pools
from headgate.presence import Presence
from headgate.producer import Producer
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address, encode_name, session_id
from headgate.redis.replies import Account as Totals
from headgate.redis.store import Store
from headgate.registry import Registry
from headgate.units import parse_duration, parse_rate, parse_size
from headgate.wildcard import Part, WildcardConsumer

SlowCallback = Callable[[Consumer], Awaitable[None] | None]


class Session:
    """Producers, consumers, gates and buckets that live and die together. Get one from :meth:`Client.session`."""

    def __init__(
        self,
        store: Store,
        wake_ups: WakeUps,
        registry: Registry,
        pools: Pools,
        namespace: str,
        name: str,
        options: SessionOptions,
        on_close: Callable[["Session"], None],
    ) -> None:
        self.id = session_id(name)
        self.name = name
        self._store = store
        self._wake_ups = wake_ups
        self._registry = registry
        self._pools = pools
        self._namespace = namespace
        self._options = options
        self._on_close = on_close
        self.credit_line: Callable[[], CreditLine] = CreditLine
        """What makes the credit line of a gate."""
        self._listeners = Listeners()
        self._presences: dict[str, Presence] = {}
        self._buckets: dict[str, Bucket] = {}
        self._wildcards: set[Consumer] = set()
        self._lock = asyncio.Lock()
        self._slow_listeners: list[SlowCallback] = []
        self._guarded = Callbacks("on_slow")
        self._closed = False

    def __repr__(self) -> str:
        return f"Session({self.id!r}{', closed' if self._closed else ''})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def producer(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        rate: float | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
    ) -> Producer:
        """Open a producer. What it does not say follows the destination's settings, and changes with them.

        Args:
            destination: a queue or a topic; an unknown name becomes what the policy says, else a queue without limits.
            window: bytes of credit to keep in hand, and the most that is on its way at a time; else 512 KiB.
            rate: messages a second that this producer may send; else no bound.
            weight: its share among the producers of the destination; else 1.
            timeout: seconds that a send waits when it does not say; else 30.
            when_full: what a send does that finds no room: ``block``, ``fail``, ``fail-after 3s`` or ``drop``;
                else block.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used; nothing was changed.
            PolicyError: the destination takes no messages, or ``when_full`` is another word.
            CoordinatorUnavailable: Redis does not answer.
        """
        how = WhenFull.parse(when_full) if when_full is not None else None
        destination, said = split_address(destination, self._options.connection)
        own = parse_rate(rate, "rate") if rate is not None else said.producer_rate
        patience = parse_duration(timeout, "timeout") if timeout is not None else None
        window = said.producer_window if window is None else window
        account = await self._account(destination, window, weight, ("queue", "topic"))
        producer = Producer(account, timeout=patience, rate=own, when_full=how)
        self._presence(destination).following.send(producer)
        return producer

    async def gate(
        self,
        destination: str,
        *,
        window: int | str | None = None,
        weight: int | None = None,
        timeout: float | str | None = None,
        when_full: str | None = None,
    ) -> Gate:
        """Open a gate; arguments and errors are those of :meth:`producer`. An unknown name is made without limits.

        A gate has no message to drop: ``when_full="drop"`` is refused, and a destination that says so fails instead.
        """
        how = WhenFull.parse(when_full) if when_full is not None else None
        if how is not None and how.drops:
            raise PolicyError("when_full: a gate has no message to drop; use block, fail or 'fail-after 3s'")
        patience = parse_duration(timeout, "timeout") if timeout is not None else None
        account = await self._account(destination, window, weight, ("gate",))
        gate = Gate(account, timeout=patience, when_full=how)
        self._presence(destination).following.send(gate)
        return gate

    async def consumer(
        self,
        destination: str,
        *,
        window: Window | int | str | None = None,
        subscription: str | None = None,
        durable: bool = False,
        rate: float | str | None = None,
    ) -> Consumer:
        """Open a consumer.

        Args:
            destination: a queue or a topic; an unknown name becomes what the policy says, else a queue, or a topic
                where a subscription is named. A pattern subscribes to every topic that it matches, also those to come:
                words between dots, ``*`` for one of them, a last ``#`` for any number, a last ``>`` for at least one.
            window: what it may hold unsettled: ``Window(...)``, a number of messages, ``"pull"``, ``"paused"``
                or ``"unlimited"``; when None as the destination's settings say, and changing with them, else 1000.
            subscription: of a topic; consumers of one subscription share its messages. A new one of its own when None.
            durable: keep the subscription when its last consumer goes.
            rate: messages a second that this consumer takes; when None as the settings say, else no bound.

        Raises:
            InvalidName, InvalidValue: an argument cannot be used; nothing was changed.
            PolicyError: the destination holds no messages.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_open()
        destination, said = split_address(destination, self._options.connection)
        own = parse_rate(rate, "rate") if rate is not None else said.consumer_rate
        if subscription is not None:
            encode_name(subscription, "subscription")
        if is_pattern(destination):
            asked = Window.of(window) if window is not None else said.window("topic", durable=durable) or Window()
            return await self._wildcard(destination, asked, subscription, durable=durable, rate=own)
        checked = Window.of(window) if window is not None else None
        presence = self._presence(destination)
        kinds = ("topic", "queue") if subscription is not None else ("queue", "topic")
        ensure = self._ensure(presence.address, kinds)
        async with self._lock:
            kind = await ensure(False)
            following = presence.following
            await following.begin()
            lasting = durable and kind == "topic"
            checked = checked or said.window(kind, durable=lasting)
            name = "queue" if kind == "queue" else subscription or f"{self.id}-{secrets.token_hex(2)}"
            consumer = Consumer(
                self._store,
                self._wake_ups,
                presence.address,
                self.id,
                self._options,
                ensure,
                self._ensure_messages,
                number=presence.next_number,
                subscription=name,
                durable=lasting,
                window=checked or following.defaults.consumer_window(encode_name(name), durable=lasting),
                rate=own if own is not None else following.defaults.consumer_rate,
                on_close=lambda consumer: self._consumer_closed(presence, consumer),
                on_slow=self._tell_slow,
            )
            following.receive(consumer, window=checked is None, rate=own is None)
            presence.consumers.add(consumer)
            if presence.account:
                presence.account.consumers += 1
            try:
                await consumer.start()
            except BaseException:
                await self._consumer_closed(presence, consumer)
                raise
        return consumer

    async def bucket(self, destination: str) -> Bucket:
        """Open a bucket, as :meth:`Client.apply` set it; one that nobody set has no limit.

        Raises:
            InvalidName: the name cannot be used.
            PolicyError: it is not a bucket.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_open()
        address = Address.of(self._namespace, destination)
        async with self._lock:
            if address.key not in self._buckets:
                ensure = self._ensure(address, ("bucket",))
                await ensure(False)
                self._buckets[address.key] = Bucket(self._store, address, self.id, ensure)
        return self._buckets[address.key]

    def on_slow(self, callback: SlowCallback) -> None:
        """Call ``callback`` with each consumer of this session that becomes slow, on the event loop.

        It may be async. What it raises is logged.
        """
        self._slow_listeners.append(callback)

    def _tell_slow(self, consumer: Consumer) -> None:
        for callback in self._slow_listeners:
            self._guarded.call(callback, consumer)

    def on_blocked(self, callback: Callback, *, notify_after: float | str = NOTIFY_AFTER) -> Callable[[], None]:
        """Be told when sends or admissions of this session wait, and when they do no more.

        Args:
            callback: called with a :class:`Blocked`, and with the :class:`Unblocked` that belongs to it; may be async.
                There is at most one pair a second for each destination. What it raises is logged.
            notify_after: seconds that the first in line has waited before it is told.

        Returns:
            What ends it, to be called.

        Raises:
            InvalidValue: not a duration.
        """
        return self._listeners.add(callback, parse_duration(notify_after, "notify_after"))

    async def close(self) -> None:
        """Close everything of it and end its leases; never flow-controlled, about 1 s at the most."""
        if self._closed:
            return
        self._closed = True
        for bucket in self._buckets.values():
            await bucket.close()
        await asyncio.gather(*(consumer.close() for consumer in tuple(self._wildcards)))
        await asyncio.gather(*(presence.close() for presence in self._presences.values()))
        await self._listeners.close()
        await self._guarded.close()
        self._on_close(self)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"session {self.id} is closed")

    def _presence(self, destination: str) -> Presence:
        address = Address.of(self._namespace, destination)
        if address.key not in self._presences:
            following = Following(self._registry, address)
            outlook = Outlook(self._store, address, self.id, self._listeners)
            self._presences[address.key] = Presence(address, following, outlook)
        return self._presences[address.key]

    def _ensure(self, address: Address, kinds: tuple[str, ...]) -> Ensure:
        async def ensure(recover: bool) -> str:  # noqa: FBT001
            return await self._registry.ensure(address, kinds, recover=recover)

        return ensure

    def _ensure_messages(self, address: Address) -> Ensure:
        return self._ensure(address, ("queue", "topic"))

    async def _account(
        self, destination: str, window: int | str | None, weight: int | None, kinds: tuple[str, ...]
    ) -> CreditAccount:
        self._check_open()
        size = parse_size(window, "window") if window is not None else None
        if size is not None and size < 1:
            raise InvalidValue("window: 0 sends nothing; use at least 1 byte")
        if weight is not None and (not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= 1000):
            raise InvalidValue(f"weight: {weight!r}; use a whole number from 1 to 1000")
        presence = self._presence(destination)
        async with self._lock:
            ensure = self._ensure(presence.address, kinds)
            await ensure(False)
            await presence.following.begin()
            account = presence.account
            if account is None or account.closed:
                before = account if kinds != ("gate",) else None  # a consumer may have kept what Redis knows of it
                line = self.credit_line() if kinds == ("gate",) else None
                account = CreditAccount(
                    self._store,
                    self._wake_ups,
                    presence.outlook,
                    presence.address,
                    self.id,
                    self._options,
                    ensure,
                    lambda: self._registry.forget(presence.address),
                    lambda tell: self._pools.refill(presence.address, self._registry.pools(presence.address), tell),
                    holds_messages=kinds != ("gate",),
                    credit=before.credit if before else line,
                )
                if before:
                    account.outbox.next_seq = before.outbox.next_seq
                account.consumers = len(presence.consumers)
                presence.following.use(account, size, weight)
                await account.start()
                presence.account = account
            else:
                presence.following.use(account, size, weight)
            account.users += 1
        return account

    async def _wildcard(
        self, destination: str, window: Window, subscription: str | None, *, durable: bool, rate: float | None
    ) -> Consumer:
        pattern = read_pattern(destination)
        name = subscription or f"{self.id}-{secrets.token_hex(2)}"

        async def forget(consumer: Consumer) -> None:
            self._wildcards.discard(consumer)

        consumer = WildcardConsumer(
            store=self._store,
            wake_ups=self._wake_ups,
            address=Address(self._namespace, destination, "", ()),
            session=self.id,
            options=self._options,
            ensure_at=self._ensure_messages,
            on_slow=self._tell_slow,
            index=self._registry.index,
            entry=Entry(pattern, name, durable, int(self._options.ttl * 1000)),
            open_part=self._part,
            subscription=name,
            durable=durable,
            window=window,
            rate=rate,
            on_close=forget,
        )
        self._wildcards.add(consumer)
        try:
            await consumer.start()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def _part(self, whole: WildcardConsumer, topic: str) -> Part:
        presence = self._presence(topic)
        part = Part(
            whole,
            store=self._store,
            wake_ups=self._wake_ups,
            address=presence.address,
            session=self.id,
            options=self._options,
            ensure=self._ensure(presence.address, ("topic",)),
            ensure_at=self._ensure_messages,
            on_slow=self._tell_slow,
            number=presence.next_number,
            subscription=whole.subscription,
            durable=whole.durable,
            window=whole.window,
            rate=None,
            on_close=lambda consumer: self._consumer_closed(presence, consumer),
        )
        async with self._lock:
            presence.consumers.add(part)
            if presence.account:
                presence.account.consumers += 1
            try:
                await part.start()
            except BaseException:
                await part.close()  # it may have attached; a subscription must not stay because of it
                raise
        return part

    async def _consumer_closed(self, presence: Presence, consumer: Consumer) -> None:
        if presence.part_with(consumer):
            await self._end_lease(presence.address)
            presence.outlook.start_anew()

    async def _end_lease(self, address: Address) -> None:
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._store.acquire(address, Totals(self.id, inc=1 << 30, epoch=0), ttl_ms=1000, leave=True)

"""How a session opens its consumers: of one destination, or of every topic that a pattern matches."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from headgate._util.callbacks import Callbacks
from headgate.consuming.consumer import Consumer
from headgate.consuming.wildcard import Part, WildcardConsumer
from headgate.core.addresses.url_options import split_address
from headgate.core.durability import MEMORY, Durability
from headgate.core.names import encode_name
from headgate.core.selector.messages import Matcher
from headgate.core.window import Window
from headgate.errors import PolicyError
from headgate.namespace.topics import Entry, is_pattern, read_pattern
from headgate.redis.keys import Address
from headgate.session.destination import Presence
from headgate.session.destinations import Presences
from headgate.units import parse_rate

SlowCallback = Callable[[Consumer], Awaitable[None] | None]


class Consumers:
    """Opens the consumers of one session.

    Attributes:
        on_slow: whom it tells of each that becomes slow.
    """

    def __init__(self, presences: Presences) -> None:
        self.on_slow: list[SlowCallback] = []
        self._presences = presences
        self._wildcards: set[Consumer] = set()
        self._guarded = Callbacks("on_slow")

    async def open(
        self,
        destination: str,
        *,
        window: Window | int | str | None,
        subscription: str | None,
        durable: bool,
        rate: float | str | None,
        kinds: tuple[str, ...],
        selects: Matcher | None = None,
        durability: Durability = MEMORY,
        make: Callable[..., Consumer] | None = None,
    ) -> Consumer:
        """Open a consumer; other arguments and errors are those of :meth:`Session.consumer`.

        Args:
            destination: a name or a pattern.
            window: as it was given.
            subscription: likewise; of a queue it plays no part.
            durable: likewise.
            rate: likewise.
            kinds: that the destination may be, the one first that an unknown name becomes.
            selects: says which stored messages it is for.
            durability: that its settlements are to have, at least.
            make: called in place of :class:`Consumer`, or of :class:`WildcardConsumer` for a pattern; for brokers in
                front of Redis.
        """
        destination, said = split_address(destination, self._presences.options.connection)
        own = parse_rate(rate, "rate") if rate is not None else said.consumer_rate
        if subscription is not None:
            encode_name(subscription, "subscription")
        if is_pattern(destination):
            asked = Window.of(window) if window is not None else said.window("topic", durable=durable) or Window()
            whole = make or WildcardConsumer
            return await self._wildcard(
                whole,
                destination,
                asked,
                subscription,
                durable=durable,
                rate=own,
                selects=selects,
                durability=durability,
            )
        checked = Window.of(window) if window is not None else None
        presence = self._presences.at(destination)
        ensure = self._presences.ensure(presence.address, kinds)
        async with self._presences.opening(destination):
            kind = presence.kind = await ensure(False)
            if selects is not None and kind == "queue":  # what it does not match would be gone for its other consumers
                raise PolicyError(
                    f"{destination!r} is a queue; a selector is for the subscription of a topic, so receive all of a "
                    "queue, and select there"
                )
            following = presence.following
            await following.begin()
            self._presences.store.server.promise(following.defaults.durability)
            lasting = durable and kind == "topic"
            checked = checked or said.window(kind, durable=lasting)
            name = "queue" if kind == "queue" else subscription or f"{self._presences.session}-{secrets.token_hex(2)}"
            consumer = (make or Consumer)(
                self._presences.store,
                self._presences.wake_ups,
                presence.address,
                self._presences.session,
                self._presences.options,
                ensure,
                self._presences.ensure_messages,
                number=presence.next_number,
                subscription=name,
                durable=lasting,
                window=checked or following.defaults.consumer_window(encode_name(name), durable=lasting),
                rate=own if own is not None else following.defaults.consumer_rate,
                on_close=lambda consumer: self._closed(presence, consumer),
                on_slow=self._tell_slow,
                losses=self._presences.registry.losses,
                spooling=self._presences.spooling,
            )
            consumer.selects = selects
            consumer.insists = durability
            following.receive(consumer, window=checked is None, rate=own is None)
            presence.consumers.add(consumer)
            if presence.account:
                presence.account.consumers += 1
            try:
                await consumer.start()
            except BaseException:
                await self._closed(presence, consumer)
                raise
        return consumer

    async def close_wildcards(self) -> None:
        """Close the consumers by pattern; those of one destination close with what the session has there."""
        await asyncio.gather(*(consumer.close() for consumer in tuple(self._wildcards)))

    async def close_callbacks(self) -> None:
        """Give callbacks that still run a moment, and end them."""
        await self._guarded.close()

    def _tell_slow(self, consumer: Consumer) -> None:
        for callback in self.on_slow:
            self._guarded.call(callback, consumer)

    async def _wildcard(
        self,
        make: Callable[..., Consumer],
        destination: str,
        window: Window,
        subscription: str | None,
        *,
        durable: bool,
        rate: float | None,
        selects: Matcher | None,
        durability: Durability,
    ) -> Consumer:
        pattern = read_pattern(destination)
        name = subscription or f"{self._presences.session}-{secrets.token_hex(2)}"

        async def forget(consumer: Consumer) -> None:
            self._wildcards.discard(consumer)

        consumer = make(
            store=self._presences.store,
            wake_ups=self._presences.wake_ups,
            address=Address(self._presences.namespace, destination, "", ()),
            session=self._presences.session,
            options=self._presences.options,
            ensure_at=self._presences.ensure_messages,
            on_slow=self._tell_slow,
            losses=self._presences.registry.losses,
            index=self._presences.registry.index,
            entry=Entry(pattern, name, durable, int(self._presences.options.ttl * 1000)),
            open_part=self._part,
            subscription=name,
            durable=durable,
            window=window,
            rate=rate,
            on_close=forget,
        )
        consumer.selects = selects
        consumer.insists = durability
        self._wildcards.add(consumer)
        try:
            await consumer.start()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def _part(self, whole: WildcardConsumer, topic: str) -> Part:
        presence = self._presences.at(topic)
        part = whole.make_part(
            store=self._presences.store,
            wake_ups=self._presences.wake_ups,
            address=presence.address,
            session=self._presences.session,
            options=self._presences.options,
            ensure=self._presences.ensure(presence.address, ("topic",)),
            ensure_at=self._presences.ensure_messages,
            on_slow=self._tell_slow,
            losses=self._presences.registry.losses,
            number=presence.next_number,
            subscription=whole.subscription,
            durable=whole.durable,
            window=whole.window,
            rate=None,
            on_close=lambda consumer: self._closed(presence, consumer),
            spooling=self._presences.spooling,
        )
        part.selects = whole.selects
        part.insists = whole.insists
        async with self._presences.opening(topic):
            presence.consumers.add(part)
            if presence.account:
                presence.account.consumers += 1
            try:
                await part.start()
            except BaseException:
                await part.close()  # it may have attached; a subscription must not stay because of it
                raise
        return part

    async def _closed(self, presence: Presence, consumer: Consumer) -> None:
        if presence.part_with(consumer):
            await self._presences.end_lease(presence)

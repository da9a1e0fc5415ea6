"""A client's link that receives: messages of one consumer, under the link's credit and the consumer's window."""

import asyncio
from typing import Any, Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import INTERNAL_ERROR, RESOURCE_DELETED, TOO_LARGE, Link, Outcome, Terminus
from headgate.consuming.consumer import Consumer
from headgate.core.window import Window
from headgate.errors import Closed, HeadgateError, InvalidValue, MessageFormatError, SessionExpired, SlowConsumer
from headgate.message import Message, to_amqp
from headgate.message import Outcome as Settlement
from headgate.redis.replies import Deliveries
from headgate.session.destinations import kinds_from
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.ends.reattaching import unsubscribe
from headgate_coordinator.node.ends.selecting import Selecting
from headgate_coordinator.node.ends.temporary import make, remove
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

_SAYS: Final[dict[Outcome, Settlement]] = {
    "accepted": "accepted",
    "released": "released",
    "failed": "failed",
    "rejected": "rejected",
    "undeliverable": "rejected",
}


class Feed(Consumer):
    """A consumer whose messages an outlet hands to its client; it holds no more than the link has credit for."""

    outlet: "Outlet"

    def _ended(self, task: Any) -> None:
        super()._ended(task)
        if self._failure is not None:
            self.outlet.failed(self._failure)

    def next_message(self) -> Message | None:
        """Return a message that is here."""
        return self._buffer.popleft() if self._buffer else None

    def count_received(self) -> None:
        """Note that a message went to the client."""
        self._received += 1

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        raise NotImplementedError

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something, by the window."""
        raise NotImplementedError

    def ask(self, receivers: int) -> None:
        """Say how many messages the link has credit for."""
        raise NotImplementedError

    def resume(self) -> None:
        """Fetch again, if it had given back what it could not hand on."""
        raise NotImplementedError

    def look(self) -> None:
        """Fetch now."""
        raise NotImplementedError


class Fetcher(Consumer):
    """A consumer of one destination for a link, which hands on at once what it fetched."""

    outlet: "Outlet"
    _hands_over = True
    started = False
    """Whether its client ever gave credit."""

    @property
    def _attached_window(self) -> str:
        """Paused until its client gives credit for the first time: a receiver that asks for nothing is not started."""
        return super()._attached_window if self.started else Window.paused.text

    async def _step(self) -> bool:
        if self.outlet.credit and not self.started:
            self.started = True
            try:
                await self._tell_window()
            except BaseException:
                self.started = False  # the next call carries it
                raise
        return await super()._step()

    def _deliver(self, answer: Deliveries, *, asked: int) -> None:
        self._hands_over = False
        try:
            super()._deliver(answer, asked=asked)
        finally:
            self._hands_over = True
        self.outlet.pump()
        if asked and len(answer.messages) < asked:
            self._found_all()

    def _arrive(self, message: Message, attempts: int, trouble: str) -> None:
        super()._arrive(message, attempts, trouble)
        if self._hands_over:  # its payload came from a store, a while after its delivery
            self.outlet.pump()
            self._recalled()

    def _found_all(self) -> None:
        """Note that nothing is left at the destination."""

    def _recalled(self) -> None:
        """Note that a payload came from a store."""

    def _expire(self) -> None:
        super()._expire()
        self.outlet.expired(self)

    def _resting(self) -> bool:
        return self._rests

    @property
    def _waits(self) -> int:
        """One, if the client has credit and nothing in hand: what it does with what it has, nobody here knows."""
        return 1 if self._receivers and not self._holding.messages else 0


class LinkConsumer(Fetcher, Feed):
    """A consumer of one destination that fetches no more than its link has credit for."""

    def _free(self) -> tuple[int, int]:
        wanted = self.outlet.credit - len(self._buffer) - len(self._recall)
        messages, size = super()._free()
        return (min(messages, wanted), size) if wanted > 0 and messages else (0, 0)

    def _found_all(self) -> None:
        self.outlet.exhausted()

    def _recalled(self) -> None:
        if not self.recalls and self.outlet.drains:
            self.look()

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return len(self._recall)

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something, by the window."""
        return self._free()[0] > 0

    def ask(self, receivers: int) -> None:
        """Say how many messages the link has credit for."""
        if receivers > self._receivers:
            self.resume()
        self._receivers = receivers

    def resume(self) -> None:
        """Fetch again, if it had given back what it could not hand on."""
        if self._rests:
            self._rests = False
            self._look_at = 0.0
        self._wake.set()

    def look(self) -> None:
        """Fetch now."""
        self._look_at = 0.0
        self._wake.set()


class Outlet(LinkEnd):
    """Hands the messages of one consumer to a client, and settles them as the client says."""

    def __init__(self, connection: Connection, link: Link, destination: str) -> None:
        super().__init__(connection, link, destination)
        self.credit = 0
        self._consumer: Feed | None = None
        self._unsettled: dict[Any, Message] = {}
        self._rests = False
        self._drains = False
        """Whether its client wants to hear when nothing is left."""

    @property
    def needs(self) -> Action | None:
        """To receive."""
        return Action.CONSUME

    async def open(self, kind: str, *, subscription: str | None, durable: bool) -> None:
        """Answer the client's attach and begin to fetch.

        Raises:
            HeadgateError: it cannot receive from there.
        """
        asked = self.link.source.selector
        selects = None if asked is None else Selecting(asked[1], self.fail)
        session = self.connection.session()
        if self.link.source.dynamic:
            await make(self.connection, self.destination)
            if not self.link.alive:
                return
        consumer = await session.consumers.open(
            self.destination,
            window=None,
            subscription=subscription,
            durable=durable,
            rate=None,
            kinds=kinds_from(kind),
            selects=selects,
            make=self._make,
        )
        if not self.link.alive:
            await consumer.close()
            return
        source = self.link.source
        if consumer.subscription == "queue":  # whatever was asked for, this is what it is
            words: tuple[str, ...] = ("queue",)
        else:
            words = ("topic", *(word for word in source.capabilities if word in ("shared", "global")))
        answer = Terminus(
            self.destination, source.dynamic, consumer.durable, capabilities=words, selector=source.selector
        )
        self.link.accept(answer, self.link.target)
        self.flowed()
        self.connection.flush_soon()

    def _make(self, *args: Any, **kwargs: Any) -> Feed:
        self._consumer = consumer = LinkConsumer(*args, **kwargs)
        consumer.outlet, consumer.started = self, self.link.credit > 0
        return consumer

    def received(self, messages: list[Incoming]) -> None:
        """Nothing comes in over a link that goes out."""

    def flowed(self) -> None:
        """Take note of the client's credit."""
        consumer = self._consumer
        if consumer is None or not self.link.is_open:
            return
        self.credit = self.link.credit
        self.pump()
        self._drains = self.link.drains
        if self._drains:
            if self.credit > 0 and consumer.seeks:
                consumer.look()
            else:
                self.exhausted()

    def pump(self) -> None:
        """Send what is here, as far as the link's credit reaches and the client reads."""
        consumer, link, connection = self._consumer, self.link, self.connection
        if consumer is None or not link.is_open or connection.node.draining:
            return
        credit = self.credit = link.credit
        sent = size = 0
        while credit > 0 and not self._rests and not connection.congested and (message := consumer.next_message()):
            try:
                payload = to_amqp(message.stored, delivery_count=message.delivery_count)
            except MessageFormatError as error:
                self._settle(message, "rejected", str(error))
                continue
            if link.peer_max_message and len(payload) > link.peer_max_message:  # others may take it, or another link
                self._settle(message, "released", "")
                self.fail(TOO_LARGE, f"a message of {len(payload)} bytes; this receiver takes {link.peer_max_message}")
                return
            delivery = link.send(payload, settled=link.presettled)
            consumer.count_received()
            if delivery is None:
                self._settle(message, "accepted", "")
            else:
                self._unsettled[delivery] = message
            credit -= 1
            sent += 1
            size += len(payload)
        self.credit = credit
        consumer.ask(credit)
        if sent:
            self.messages += sent
            self.bytes += size
            connection.node.counters.went(sent, size)
            connection.flush_soon()

    @property
    def drains(self) -> bool:
        """Whether its client wants to hear when nothing is left."""
        return self._drains and self.link.alive

    def rest(self) -> None:
        """Deliver nothing more; what was fetched ahead goes back when the link ends."""
        self._rests = True

    @property
    def unsettled(self) -> int:
        """Messages that the client holds."""
        return len(self._unsettled)

    def exhausted(self) -> None:
        """Give the credit back to a client that wants it used up, when there is nothing to use it for."""
        if self._consumer and self._consumer.recalls:
            return  # these use credit up once they are here
        if self.link.alive and self._drains:
            self._drains = False
            self.link.drained()
            self.credit = 0
            if self._consumer:
                self._consumer.ask(0)
            self.connection.flush_soon()

    def settled(self, delivery: Any, outcome: Outcome, reason: str) -> None:
        """Settle a message as the client says."""
        message = self._unsettled.pop(delivery, None)
        self.link.forget(delivery)
        if message is not None:
            if outcome == "undeliverable":
                reason = "its receiver says that it cannot be delivered there"
            self._settle(message, outcome, reason)

    def _settle(self, message: Message, outcome: Outcome, reason: str) -> None:
        if self._consumer is not None:
            try:
                self._consumer.settle(message, _SAYS[outcome], confirm=False, reason=reason)
            except (SessionExpired, Closed, InvalidValue):  # others have it now
                self.connection.node.counters.refused("expired")

    def relieved(self) -> None:
        """Go on: the client reads again."""
        if self._consumer is not None:
            self._consumer.resume()
        self.pump()

    def expired(self, consumer: Consumer) -> None:
        """Forget what others were given meanwhile; the client may still have it, and is not believed any more."""
        lost = [delivery for delivery, message in self._unsettled.items() if message._consumer is consumer]  # noqa: SLF001
        for delivery in lost:
            del self._unsettled[delivery]
            if self.link.alive:
                self.link.settle(delivery, "released")

    def failed(self, error: BaseException) -> None:
        """End the link: the consumer cannot go on."""
        gone = isinstance(error, SlowConsumer) or is_reply_queue(self.destination)
        self.fail(RESOURCE_DELETED if gone else INTERNAL_ERROR, str(error))

    def gone(self, *, lost: bool) -> None:
        """Give back what the client held: untried when it detached, as a failed attempt when its connection broke."""
        unsettled, self._unsettled = self._unsettled, {}
        for message in unsettled.values():
            self._settle(message, "failed" if lost else "released", "")
        if self.link.closed and self.link.source.durable:  # its client hears of the end when there is none left
            self.link.linger()
        self.connection.node.spawn(self._close(ended=self.link.closed))

    async def finish(self) -> None:
        """Let what was begun come to its end; a reply queue is made whole before it is removed."""
        if self.link.source.dynamic and self._task:
            await asyncio.wait((self._task,))
        else:
            await super().finish()

    async def _close(self, *, ended: bool) -> None:
        """Let go of what it had here, or was about to have; a durable subscription goes if its client ended it."""
        await self.finish()
        consumer = self._consumer
        try:
            if consumer is not None:
                await consumer.close()
            if not self.link.source.dynamic and ended and consumer is not None and consumer.durable:
                await unsubscribe(self.connection, consumer.address.name, consumer.subscription)
        except HeadgateError:
            pass  # the sweeps of its session, and of reply queues, do the rest
        finally:
            if self.link.source.dynamic:
                await remove(self.connection, self.destination)
            if self.link.lingers:
                self.link.leave()
                self.connection.flush_soon()

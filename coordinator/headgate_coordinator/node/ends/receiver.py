"""A receiver's link gets the messages of one subscription, under the link's credit and a window."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import INTERNAL_ERROR, RESOURCE_DELETED, TOO_LARGE, Fate, Link, Outcome, Terminus
from headgate.core.due_time import MOST_LATER
from headgate.errors import Closed, HeadgateError, InvalidValue, MessageFormatError, SessionExpired, SlowConsumer
from headgate.message import Holder, Message, accept, to_amqp
from headgate.message import Outcome as Settlement
from headgate.session.destinations import kinds_from
from headgate.session.opening import ConsumerOpener, ConsumerRequest
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.conditions import TooManyTopics, condition_of
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.ends.reattaching import unsubscribe
from headgate_coordinator.node.ends.selecting import LinkSelector
from headgate_coordinator.node.ends.sinks import Backlog, Buffer, MessageSource, by_name
from headgate_coordinator.node.ends.temporary import kind_of, make, remove
from headgate_coordinator.node.ends.traced import Deliveries
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

_SAYS: Final[dict[Outcome, Settlement]] = {
    "accepted": "accepted", "released": "released", "failed": "failed", "rejected": "rejected",
    "undeliverable": "rejected",
}  # fmt: skip


Opening = Callable[["LinkReceiver", ConsumerOpener, ConsumerRequest], Awaitable[MessageSource]]


class LinkReceiver(LinkEnd):
    """Hands the messages of one subscription to a client, and settles them as the client says.

    Args:
        connection: whose link it is.
        link: the link.
        destination: its address.
        opening: opens what brings it messages.

    Attributes:
        buffer: messages that are here, and not sent yet.
        supply: what brings them; None before it is open.
        credit: for how many more messages the link has credit, as far as the client takes any.
        asked: the same, as far as the supply knows.
        handed: how many messages went to the client.
    """

    __slots__ = (
        "_drains", "_opening", "_rests", "_started", "_unsettled", "asked", "buffer", "credit", "handed", "supply",
    )  # fmt: skip

    def __init__(self, connection: Connection, link: Link, destination: str, opening: Opening = by_name) -> None:
        super().__init__(connection, link, destination)
        self.credit = self.asked = self.handed = 0
        self.buffer: Buffer = Backlog()
        self.supply: MessageSource | None = None
        self._opening = opening
        self._started = False
        tracing = connection.node.client.parts.tracing
        self._unsettled: dict[Any, Message] = {} if tracing is None else Deliveries(tracing)
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
        _, asked = self.link.source.selector or ("", None)
        selects = None if asked is None else LinkSelector(asked, self.fail)
        session = self.connection.session()
        if self.link.source.dynamic:
            await make(self.connection, self.destination, kind_of(self.link.source))
            if not self.link.alive:
                return
        request = ConsumerRequest(
            self.destination, kinds_from(kind), None, subscription, durable, selects, selector=asked
        )
        lasting = subscription if durable else None
        async with self.connection.node.creations.by(self.connection.access, self.destination, lasting):
            supply = await self._opening(self, session.consumers, request)
        if not self.link.alive:
            await supply.close()
            return
        source = self.link.source
        if supply.subscription == "queue":  # whatever was asked for, this is what it is
            words: tuple[str, ...] = ("queue",)
        else:
            words = ("topic", *(word for word in source.capabilities if word in ("shared", "global")))
        answer = Terminus(
            self.destination, source.dynamic, supply.durable, capabilities=words, selector=source.selector
        )
        self.link.accept(answer, self.link.target)
        self.flowed()
        self.connection.flush_soon()

    def received(self, messages: list[Incoming]) -> None:
        """Nothing comes in over a link that goes out."""

    def flowed(self) -> None:
        """Take note of the client's credit."""
        supply = self.supply
        if supply is None or not self.link.is_open:
            return
        self.credit = self.link.credit
        self.pump()
        self._drains = self.link.drains
        if self._drains and not self._is_held_up:
            if self.credit > 0 and supply.seeks:
                supply.look()
            else:
                self.exhausted()

    def pump(self) -> None:
        """Send what is here, as far as the link's credit and the session's window reach and the client reads.

        The rest stays in the buffer, where those who wait for it beside this link can have it.
        """
        supply, link, connection = self.supply, self.link, self.connection
        if supply is None or not link.is_open or self._rests or connection.node.draining:
            return
        credit, frame = link.credit, link.engine.windows.frame
        room = 0 if connection.congested else link.window
        buffer, sent, size = self.buffer, 0, 0
        while credit > 0 and room > 0 and buffer:
            message = buffer.popleft()
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
            self.handed += 1
            if delivery is None:
                self._settle(message, "accepted", "")
            else:
                self._unsettled[delivery] = message
            credit -= 1
            room -= 1 + len(payload) // frame
            sent += 1
            size += len(payload)
        if room < credit:
            credit = max(0, room)
            link.engine.windows.wait(link, credit)
        self.credit = credit
        self._ask(supply, credit)
        if sent:
            self.messages += sent
            self.bytes += size
            connection.node.counters.went(sent, size)
            connection.flush_soon()

    def _ask(self, supply: MessageSource, credit: int) -> None:
        """Have as much fetched as there is credit for."""
        before, self.asked = self.asked, credit
        if credit > before:
            supply.resume()

    @property
    def started(self) -> bool:
        """Whether its client ever gave credit."""
        self._started = self._started or self.credit > 0 or self.link.credit > 0
        return self._started

    @property
    def _is_held_up(self) -> bool:
        """Whether the client takes nothing, although its link has credit."""
        return self.credit <= 0 < self.link.credit

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

    @property
    def waiting(self) -> tuple[float, str] | None:
        """For how long its user has had as many messages as its quota allows, and why; None while that is not so."""
        return self.connection.node.quotas.held_up(self.connection.access.user) if self.asked > 0 else None

    def exhausted(self) -> None:
        """Give the credit back to a client that wants it used up, when there is nothing to use it for."""
        if self.supply and (self.supply.recalls or (self.buffer and self._is_held_up)):
            return  # these use credit up once they are here, or the client takes them
        if self.link.alive and self._drains:
            self._drains = False
            self.link.drained()
            self.credit = 0
            self.asked = 0
            self.connection.flush_soon()

    def settled(self, fates: list[Fate]) -> None:
        """Settle messages as the client says."""
        pop, accepted = self._unsettled.pop, list[Message]()
        for delivery, outcome, reason, delay in fates:
            message = pop(delivery, None)
            if message is None:
                continue
            if outcome == "accepted":
                accepted.append(message)
                continue
            if delay is not None:
                message.put_off(min(delay / 1000, MOST_LATER))
            why = "the receiver says that it cannot be delivered to it" if outcome == "undeliverable" else reason
            self._settle(message, outcome, why)
        if accepted and (refused := accept(accepted)):
            self.connection.node.counters.refused("expired", refused)

    def _settle(self, message: Message, outcome: Outcome, reason: str) -> None:
        try:
            message.settle(_SAYS[outcome], reason=reason)
        except (SessionExpired, Closed, InvalidValue):  # others have it now
            self.connection.node.counters.refused("expired")

    def relieved(self) -> None:
        """Go on: the client reads again."""
        if self.supply is not None:
            self.supply.resume()
        if self.link.credit > 0:
            self.flowed()

    def expired(self, holder: Holder) -> None:
        """Forget what others were given meanwhile; the client may still have it, and is not believed any more."""
        lost = [delivery for delivery, message in self._unsettled.items() if message.is_of(holder)]
        for delivery in lost:
            del self._unsettled[delivery]
            if self.link.alive:
                self.link.settle(delivery, "released")
        self.connection.flush_soon()

    def failed(self, error: BaseException) -> None:
        """End the link: nothing can come any more."""
        if isinstance(error, TooManyTopics):
            self.fail(*condition_of(error))
            return
        gone = isinstance(error, SlowConsumer) or is_reply_queue(self.destination)
        self.fail(RESOURCE_DELETED if gone else INTERNAL_ERROR, str(error))

    def gone(self, *, lost: bool) -> None:
        """Give back what the client held: untried when it detached, as a failed attempt when its connection broke."""
        unsettled = tuple(self._unsettled.values())
        self._unsettled.clear()
        for message in unsettled:
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
        supply = self.supply
        try:
            if supply is not None:
                await supply.close()
            if not self.link.source.dynamic and ended and supply is not None and supply.durable:
                await unsubscribe(self.connection, supply.address.name, supply.subscription)
        except HeadgateError:
            pass  # the sweeps of its session, and of reply queues, do the rest
        finally:
            if self.link.source.dynamic:
                await remove(self.connection, self.destination)
            if self.link.lingers:
                self.link.leave()
                self.connection.flush_soon()

"""A sender's link takes a client's messages for one destination."""

import asyncio
import logging
import math
import time
from typing import Any, Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import RESOURCE_LIMIT, Link, Terminus
from headgate.core.amqp.sections import EXPIRES, HEADED, LATER, check, expiry_of, header_of, later_of
from headgate.core.outbox import Outgoing
from headgate.errors import Closed, HeadgateError
from headgate.message import MAX_MESSAGE, Receipt
from headgate.options import DEFAULT_TIMEOUT
from headgate.producing.inflow import Inflow, check_stored
from headgate.spans import Span
from headgate_coordinator.node.conditions import condition_of
from headgate_coordinator.node.credit.destination_credit import DestinationCredit
from headgate_coordinator.node.credit.link_pace import LinkPace
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

_log = logging.getLogger("headgate.node")
LINGER: Final = 2.0
"""Seconds that a detach waits for earlier messages to be stored, so that its client hears of them."""


SAFE_WITHIN: Final = DEFAULT_TIMEOUT
"""Seconds for which a message that is stored may wait for replicas or the disk."""
FOR_EVER: Final = 10 * 365 * 86_400_000
"""Ms from now on; a message that expires later does not expire."""


def _sooner(raw: bytes, ttl_ms: int | None) -> int | None:
    """Return for how many ms a message is good, by its properties or by its header, whichever is less."""
    expiry = expiry_of(raw)
    left = FOR_EVER if expiry is None else max(1, expiry - int(time.time() * 1000))
    return ttl_ms if left >= FOR_EVER else min(left, ttl_ms or left)


class Arrival:
    """An arrival is a message on its way to Redis: given its fate, as a future would be, it tells the client."""

    __slots__ = ("delivery", "inflow", "item", "over", "sender", "size")

    def __init__(self, sender: "LinkSender", inflow: Inflow, delivery: Any, size: int) -> None:
        self.sender = sender
        self.inflow = inflow
        self.delivery = delivery
        self.size = size
        self.item: Outgoing | None = None
        """As it stands in line, once it does."""
        self.over = False

    def done(self) -> bool:
        """Return whether its fate is known, or nobody wants to know it any more."""
        return self.over

    def cancelled(self) -> bool:
        """Return whether nobody wants it sent any more."""
        return self.over

    def cancel(self) -> None:
        """Forget it."""
        self.over = True

    def set_result(self, receipt: Receipt) -> None:
        """Tell the client that it is stored, or was dropped because the destination says so."""
        self.over = True
        self.sender.stored(self, dropped=receipt.dropped)

    def set_exception(self, error: HeadgateError) -> None:
        """Tell the client that it is not."""
        self.over = True
        self.sender.refused(self, error)

    def exception(self) -> None:
        """Nothing is left to be looked at."""


class TracedArrival(Arrival):
    """A message on its way to Redis, with a span in its trace until its fate is known."""

    __slots__ = ("span",)
    span: Span

    def cancel(self) -> None:
        """Forget it."""
        super().cancel()
        self.span.end()

    def set_result(self, receipt: Receipt) -> None:
        """Tell the client that it is stored."""
        super().set_result(receipt)
        self.span.end()

    def set_exception(self, error: HeadgateError) -> None:
        """Tell the client that it is not."""
        super().set_exception(error)
        self.span.end(error)


class LinkSender(LinkEnd):
    """A sender takes messages for one destination: each is accepted once Redis has it."""

    __slots__ = ("_container", "_held", "_kind", "_line", "_looks", "_loop", "_over", "_since", "_tracing", "pace")

    def __init__(self, connection: Connection, link: Link, destination: str, kind: str) -> None:
        super().__init__(connection, link, destination)
        self._kind = kind
        self._tracing = connection.node.client.parts.tracing
        self._line: DestinationCredit | None = None
        self._container = ""
        self._held: dict[Arrival, None] = {}
        self._over = False
        """Whether the link is gone: what came before that is still stored."""
        self.pace = LinkPace()
        self._looks = False
        """Whether it looks at the end of this turn."""
        self._loop = asyncio.get_running_loop()
        self._since = 0.0
        """When it last got something stored, or had nothing to store."""

    @property
    def needs(self) -> Action | None:
        """To send."""
        return Action.PRODUCE

    async def open(self) -> None:
        """Answer the client's attach, and give it credit.

        Raises:
            HeadgateError: it cannot send there.
        """
        node = self.connection.node
        async with node.creations.by(self.connection.access, self.destination):
            line = await node.lines.get(self.destination, self._kind)
        if not self.link.alive:
            return
        await self._rate()
        self._line, self._container = line, self.connection.engine.peer
        target = Terminus(self.destination, dynamic=self.link.target.dynamic, capabilities=(line.inflow.kind,))
        self.link.accept(self.link.source, target, max_message=node.options.limits.message)
        line.join(self)
        self.connection.flush_soon()

    async def _rate(self) -> None:
        identity, quotas = self.connection.identity, self.connection.node.quotas
        allowance = await quotas.allowance(identity.name) if identity is not None else None
        if allowance is not self.pace.allowance:
            self.pace.allow(allowance, self)

    def rated(self) -> None:
        """Go by the quotas that users have now."""
        self.connection.node.spawn(self._rate())
        self.look_soon()

    def received(self, messages: list[Incoming]) -> None:
        """Put messages in line; those above what a connection may hold are given back at once."""
        line, connection = self._line, self.connection
        if line is None:
            return
        if not self._held:
            self._since = time.monotonic()
        inflow, most, now = line.inflow, connection.node.options.held, self._loop.time()
        total, items = 0, list[Outgoing]()
        for raw, delivery in messages:
            size = len(raw)
            total += size
            if connection.held + size <= most or self._has_room(size, delivery):
                self._read(inflow, raw, delivery, size, now, items)
            elif not self.link.alive:
                break
        self._put(inflow, items)
        self.messages += len(messages)
        self.bytes += total
        connection.node.counters.came(len(messages), total)
        if self.pace.binds:
            self.pace.book(now, len(messages), total)
        line.saw(len(messages), total)
        self.look_soon()

    def take(self, inflow: Inflow, raw: bytes, delivery: Any, size: int) -> None:
        """Send one message on its way."""
        items: list[Outgoing] = []
        self._read(inflow, raw, delivery, size, self._loop.time(), items)
        self._put(inflow, items)

    def _read(self, inflow: Inflow, raw: bytes, delivery: Any, size: int, now: float, items: list[Outgoing]) -> None:
        """Add a message to those that go on; one that cannot be stored is refused."""
        arrival = Arrival(self, inflow, delivery, size)
        if self._tracing is not None and (span := self._tracing.hop("transfer", inflow.destination, raw)):
            arrival = TracedArrival(self, inflow, delivery, size)
            arrival.span = span
        self._held[arrival] = None
        self.connection.held += size
        if self._over:
            self.connection.node.orphaned += size
        ttl_ms, later = None, ""
        try:
            if found := check(raw):
                ttl_ms = header_of(raw).ttl_ms if found & HEADED else None
                if found & EXPIRES:
                    ttl_ms = _sooner(raw, ttl_ms)
                if found & LATER:
                    later = later_of(raw, time.time)
            if ttl_ms is not None or size > MAX_MESSAGE:
                check_stored(size, ttl_ms)
        except HeadgateError as error:
            arrival.set_exception(error)
            return
        arrival.item = item = Outgoing(raw, size, math.inf, arrival, ttl_ms, None, None, now)
        item.beyond, item.safe_within, item.producer, item.later = True, SAFE_WITHIN, self._container, later
        items.append(item)

    def _put(self, inflow: Inflow, items: list[Outgoing]) -> None:
        try:
            inflow.put(items)
        except HeadgateError as error:
            for item in items:
                item.done.set_exception(error)

    def flowed(self) -> None:
        """Note that its client used credit for messages that it then aborted."""
        self.look_soon()

    def look_soon(self) -> None:
        """See, at the end of this turn of the loop, what credit is due to it."""
        if self._line and (self._over or not self._looks):
            self._looks = True
            self._line.look_soon(self)

    def look(self) -> None:
        """Note that this turn of the loop is over: tell the client what became of its messages."""
        self._since, self._looks = time.monotonic(), False
        self.connection.flush_soon()

    def _has_room(self, size: int, delivery: Any) -> bool:
        """Return whether the connection may hold that many bytes more; what it may not hold is given back."""
        connection = self.connection
        if not connection.held or connection.held + size <= connection.node.options.held:
            return True
        reason = f"the connection holds {connection.held} bytes that wait to be stored; send again later"
        connection.node.counters.refused("held")
        if delivery is None:  # settled by its sender: it cannot be given back
            self.fail(RESOURCE_LIMIT, reason)
        elif self.link.alive:
            self.link.settle(delivery, "released")
        return False

    def abandon(self) -> None:
        """Forget all that is not stored yet, what the client settled itself included."""
        for arrival in tuple(self._held):
            self._forget(arrival)
        self._leave_soon()

    def _forget(self, arrival: Arrival) -> bool:
        """Give a message up if it has not gone out; returns whether its client can still hear of it."""
        arrival.cancel()
        arrival.inflow.left(arrival.item)
        return self._let_go(arrival)

    def look_again(self) -> None:
        """End the link if its user may not send here any more; of one that is over, forget what it left behind."""
        if not self._over:
            super().look_again()
        elif not self.connection.access.may(Action.PRODUCE, self.name):
            self.abandon()

    def _let_go(self, arrival: Arrival) -> bool:
        """Forget a message whose fate is known; returns whether its client can still hear of it."""
        self._held.pop(arrival, None)
        self.connection.held -= arrival.size
        if self._over:
            self.connection.node.orphaned -= arrival.size
        heard = self.is_heard
        self.look_soon()
        return heard

    @property
    def is_heard(self) -> bool:
        """Whether its client can still hear of the fate of its messages."""
        return self.link.alive or self.link.lingers

    def _leave_soon(self) -> None:
        """Answer the end of the link once nothing that came before it is open any more."""
        if self.link.lingers and not self.unconfirmed:
            self._leave()

    def _leave(self) -> None:
        if self.link.lingers:
            self.link.leave()
            self.connection.flush_soon()

    def stored(self, arrival: Arrival, *, dropped: bool) -> None:
        """Accept a message, and give credit for more at the end of this turn of the loop."""
        if dropped:
            self.connection.node.counters.refused("dropped")
        if self._over:
            if self._let_go(arrival) and arrival.delivery is not None:
                self.link.accept_delivery(arrival.delivery)
            self._leave_soon()
            return
        self._held.pop(arrival, None)
        self.connection.held -= arrival.size
        if arrival.delivery is not None and self.link.alive:
            self.link.accept_delivery(arrival.delivery)
        if not self._looks:
            self.look_soon()

    def refused(self, arrival: Arrival, error: HeadgateError) -> None:
        """Give a message back, or say that it can never be stored."""
        condition, description = condition_of(error)
        self.connection.node.counters.refused(type(error).__name__)
        if not self._let_go(arrival):
            return
        if arrival.delivery is None:  # nobody waits for an answer, so the link itself must tell
            self.fail(condition, description)
        elif isinstance(error, Closed):
            self.link.settle(arrival.delivery, "released")
        else:
            self.link.settle(arrival.delivery, "rejected", condition, description)
        self._leave_soon()
        self.connection.flush_soon()

    def gone(self, *, lost: bool) -> None:
        """Store what came before its client ended the link; else what has no outcome is forgotten.

        Messages that wait for room without their client are bounded over all clients of the node: more are forgotten.
        """
        del lost
        node, dropped = self.connection.node, 0
        for arrival in tuple(self._held):
            if not self.link.ended and arrival.delivery is not None:  # its client will send it again
                self._forget(arrival)
            elif node.orphaned + arrival.size > node.options.held:
                self._forget(arrival)
                dropped += 1
            else:
                node.orphaned += arrival.size
        self._over = True
        if self.unconfirmed:
            node.left_behind.add(self)
        if dropped:
            node.counters.refused("held")
            _log.warning(
                "%s: %d of the messages that it left behind for %.100r were dropped, without an outcome: %d bytes of "
                "such messages wait for room already",
                *(self.connection.client, dropped, self.destination, node.orphaned),
            )
        if self.link.ended and self.unconfirmed:
            self.link.linger()
            asyncio.get_running_loop().call_later(LINGER, self._leave)
        if self._line:
            self._line.part(self)

    @property
    def unconfirmed(self) -> int:
        """Messages that came and whose fate is not known, or not to be sent yet."""
        return len(self._held)

    @property
    def waiting(self) -> tuple[float, str] | None:
        """For how long it has waited for room, or for a channel, and why."""
        allowance = self.pace.allowance
        if allowance is not None and (seconds := allowance.withheld) is not None:
            return seconds, allowance.why
        if not self._held or self._line is None:
            return None
        if not (self._line.inflow.is_blocked or self._line.inflow.account.is_confirming):
            return None
        return time.monotonic() - self._since, self._line.inflow.reason

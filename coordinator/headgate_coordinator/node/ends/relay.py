"""A relay is a link without an address of its own: each message says where it goes (``ANONYMOUS-RELAY``)."""

import asyncio
from typing import Any, Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import INVALID_FIELD, UNAUTHORIZED, Link, Terminus
from headgate.core.amqp.sections import to_of
from headgate.errors import HeadgateError
from headgate_coordinator.node.addresses import address_of
from headgate_coordinator.node.conditions import condition_of
from headgate_coordinator.node.credit.destination_credit import DestinationCredit
from headgate_coordinator.node.ends.sender import LinkSender
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

LINES: Final = 256
"""Destinations of one relay whose lines are kept open."""


class Relay(LinkSender):
    """A relay takes messages for any destination. A line to each is opened when the first message asks for it.

    Messages keep their order for each destination; while one of them is full, what is for others goes on, as far as the
    link's credit reaches.
    """

    def __init__(self, connection: Connection, link: Link) -> None:
        super().__init__(connection, link, "", "queue")
        self._lines: dict[str, DestinationCredit] = {}
        self._late: dict[str, list[Incoming]] = {}
        self._looking = False

    @property
    def needs(self) -> Action | None:
        """Nothing for the link: each message is asked for by itself."""
        return None

    async def open(self) -> None:
        """Answer the client's attach, and give it credit."""
        await self._rate()
        if not self.link.alive:
            return
        self.link.accept(self.link.source, Terminus(), max_message=self.connection.node.options.limits.message)
        self._renew()
        self.connection.flush_soon()

    def received(self, messages: list[Incoming]) -> None:
        """Send each message where it says."""
        total = 0
        for raw, delivery in messages:
            total += len(raw)
            try:
                name = (to := to_of(raw)) and address_of(to)
            except HeadgateError as error:
                self._reject(delivery, *condition_of(error))
                continue
            if not name:
                self._reject(
                    delivery, INVALID_FIELD, "a message over the anonymous relay must say in 'to' where it goes"
                )
            elif "?" in name:
                self._reject(delivery, INVALID_FIELD, f"{name!r}: options are for addresses of links; 'to' is a name")
            elif not self.connection.access.may(Action.PRODUCE, name):
                self._reject(delivery, UNAUTHORIZED, self.connection.access.refusal(Action.PRODUCE, name))
            elif not self._has_room(len(raw), delivery):
                if not self.link.alive:
                    break
            elif line := self._lines.get(name):
                self.take(line.inflow, raw, delivery, len(raw))
            else:
                self.connection.held += len(raw)  # until the line is open, and counts it
                if late := self._late.get(name):
                    late.append((raw, delivery))
                else:
                    self._late[name] = [(raw, delivery)]
                    self.connection.node.spawn(self._open_line(name))
        self.messages += len(messages)
        self.bytes += total
        self.connection.node.counters.came(len(messages), total)
        if self.pace.allowance is not None:
            self.pace.allowance.spend(len(messages), total)
        self._renew()

    def _reject(self, delivery: Any, condition: str, description: str) -> None:
        self.connection.node.counters.refused("relay")
        if delivery is not None and self.is_heard:
            self.link.settle(delivery, "rejected", condition, description)
        self.connection.flush_soon()

    async def _open_line(self, name: str) -> None:
        node = self.connection.node
        try:
            async with node.creations.by(self.connection.access, name):
                line = await node.lines.get(name)
        except (HeadgateError, asyncio.CancelledError) as error:
            for _, delivery in self._late_ones(name):
                self._reject(delivery, *condition_of(error))
            self._leave_soon()
            return
        for raw, delivery in self._late_ones(name):
            if delivery is None or not self._over or self.link.ended:
                self.take(line.inflow, raw, delivery, len(raw))
        if self._over:
            return
        self._lines[name] = line
        line.guests += 1
        while len(self._lines) > LINES:  # who answers at reply queues meets a new name with each question
            self._lines.pop(next(iter(self._lines))).guests -= 1
        self._renew()

    def _late_ones(self, name: str) -> list[Incoming]:
        late = self._late.pop(name, [])
        self.connection.held -= sum(len(raw) for raw, _ in late)
        return late

    def look_again(self) -> None:
        """Reject what waits for destinations to which the user may not send any more."""
        access = self.connection.access
        for arrival in tuple(self._held):
            name = arrival.inflow.destination
            if not access.may(Action.PRODUCE, name) and self._forget(arrival):
                self._reject(arrival.delivery, UNAUTHORIZED, access.refusal(Action.PRODUCE, name))
        for name in tuple(self._late):
            if not access.may(Action.PRODUCE, name):
                for _, delivery in self._late_ones(name):
                    self._reject(delivery, UNAUTHORIZED, access.refusal(Action.PRODUCE, name))
        self._leave_soon()

    def abandon(self) -> None:
        """Forget all that is not stored yet."""
        for name in tuple(self._late):
            self._late_ones(name)
        super().abandon()

    def look_soon(self) -> None:
        """See, at the end of this turn of the loop, whether it is to have more credit."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Give more credit while little of what came is still held: one full destination must not take all of it."""
        self._looking = False
        link, options = self.link, self.connection.node.options
        free = options.credit - self.unconfirmed
        if self.pace.allowance is not None:
            free = self.pace.allowance.credit(free)
        if link.alive and link.credit <= options.low_credit and free > link.credit:
            link.set_credit(free)
        self.look()

    def gone(self, *, lost: bool) -> None:
        """Store what came before the end of the link, as any link does; leave the lines."""
        super().gone(lost=lost)
        for line in self._lines.values():
            line.guests -= 1

    @property
    def unconfirmed(self) -> int:
        """Messages that came and whose fate is not known, those that wait for a line included."""
        return len(self._held) + sum(map(len, self._late.values()))

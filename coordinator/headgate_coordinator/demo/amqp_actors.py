"""The demo's nodes and their AMQP clients are processes that :mod:`headgate_coordinator.demo.actors` begins."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import headgate
from headgate.core.amqp.mapping import written
from headgate.core.amqp.sections import header_of
from headgate.errors import HeadgateError
from headgate.message import decode
from headgate_coordinator.demo import AMQP_CONSUMERS, AMQP_PRODUCERS, TTL
from headgate_coordinator.demo.corpus import Piece
from headgate_coordinator.demo.journal import Journal
from headgate_coordinator.demo.orders import Orders
from headgate_coordinator.demo.peer import Peer, connections
from headgate_coordinator.demo.sending import Sending, received

CREDIT: Final = 20
"""Messages that a consumer may have in hand."""
LOOK: Final = 0.1
"""Seconds after which a client looks whether it is to stop."""
COUNT: Final = 0.25
"""Seconds between two times that a node writes down what went through it."""
DRAIN: Final = 2.0


async def serve(name: str, client: headgate.Client, limit: int, journal: Journal, orders: Orders) -> None:
    """Be a node, the same as `headgate node` runs, until ordered to stop."""
    from headgate_coordinator.node.options import NodeOptions  # clients begin in half the time without
    from headgate_coordinator.security import Users
    from headgate_coordinator.service.service import AdminOptions, service

    options = NodeOptions(port=0, name=f"demo-{name}", window=max(1, limit // 8), drain=DRAIN, ttl=TTL)
    async with client, service(client, options, Users.from_redis, AdminOptions(port=0)) as node:
        journal.write("listens", node.address, node.admin)
        journal.write("session", node.id)
        while not orders.stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(orders.stop.wait(), COUNT)
            counters = node.counters
            messages, size = counters.messages_in + counters.messages_out, counters.bytes_in + counters.bytes_out
            journal.write("served", messages, size)
        await node.drain()


async def produce(
    name: str, nodes: Mapping[str, str], pieces: Iterator[Piece], journal: Journal, orders: Orders
) -> None:
    """Send files until ordered to stop, and write down what was accepted; what a node did not accept is sent again."""
    sender, number = _Sender(name, pieces, journal, orders), 0
    async with contextlib.aclosing(connections(name, nodes, _home(name), receives=False)) as found:
        async for node, peer in found:
            number += 1
            journal.write("at", node, time.monotonic())
            await sender.use(peer, number)
            if sender.done:
                return


class _Sender:
    def __init__(self, name: str, pieces: Iterator[Piece], journal: Journal, orders: Orders) -> None:
        self._name = name
        self._pieces = pieces
        self._journal = journal
        self._orders = orders
        self._pause = 1 / rate if (rate := AMQP_PRODUCERS[name]) else 0.0
        self._seq = 0
        self._unaccepted: dict[int, Piece] = {}

    @property
    def done(self) -> bool:
        return self._orders.stop.is_set() and not self._unaccepted

    async def use(self, peer: Peer, connection: int) -> None:
        """Send over one connection until it is over, or all is done; first what is still not accepted, in order."""
        again = deque(self._unaccepted)
        while peer.usable and not self.done:
            while peer.usable and peer.only.credit > 0 and (seq := self._next(again)):
                sending = Sending(self._unaccepted[seq], self._name, seq, connection)
                payload = written(sending.piece.body, sending.headers, 0)
                peer.send(payload, (sending, len(payload)))
                await asyncio.sleep(self._pause)
            await peer.wait(LOOK)
            while peer.outcomes:
                (sending, size), outcome, reason = peer.outcomes.popleft()
                if outcome == "rejected":
                    raise HeadgateError(f"message {sending.seq} is rejected: {reason}")
                if outcome != "accepted":
                    return  # given back: it goes again over the next connection, before what comes after it
                del self._unaccepted[sending.seq]
                self._journal.write("accepted", *sending.accepted(size))

    def _next(self, again: "deque[int]") -> int | None:
        """Return the number of what is to be sent now; None when nothing new is to be begun."""
        if again:
            return again.popleft()
        if self._orders.stop.is_set():
            return None
        self._seq += 1
        self._unaccepted[self._seq] = next(self._pieces)
        return self._seq


async def consume(name: str, nodes: Mapping[str, str], journal: Journal, orders: Orders) -> None:
    """Receive, work, accept, write down, until ordered to stop."""
    async with contextlib.aclosing(connections(name, nodes, _home(name), receives=True)) as found:
        async for node, peer in found:
            journal.write("at", node, time.monotonic())
            while peer.usable and not orders.stop.is_set():
                await _take(name, peer, journal, orders)
            if orders.stop.is_set():
                return


async def _take(name: str, peer: Peer, journal: Journal, orders: Orders) -> None:
    here = len(peer.arrived)
    if peer.only.credit + here <= CREDIT // 2:
        peer.only.set_credit(CREDIT - here)
        peer.flush_soon()
    if not here:
        await peer.wait(LOOK)
        return
    raw, delivery = peer.arrived.popleft()
    if not orders.hurry.is_set():
        await asyncio.sleep(AMQP_CONSUMERS[name])
    if peer.usable:  # else it is not ours any more
        peer.only.settle(delivery, "accepted")
        peer.flush_soon()
        journal.write("received", *received(*decode(raw), len(raw), header_of(raw).delivery_count))


def _home(name: str) -> str:
    return name.rpartition("-")[2]

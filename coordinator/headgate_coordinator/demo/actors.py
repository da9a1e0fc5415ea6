"""One process of the demo runs as `python -m headgate_coordinator.demo.actors producer|consumer|node ...`.

It works until its standard input is closed, which also happens when the demo itself is killed: nothing is left running.
Where Redis is comes from HEADGATE_URL and HEADGATE_NAMESPACE: a URL may hold a password, and arguments are seen by all.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import headgate
from headgate import HeadgateError, Receipt, SessionExpired, Window
from headgate_coordinator.demo import AMQP_PRODUCERS, CONSUMERS, PRODUCERS, QUEUE, TTL
from headgate_coordinator.demo.corpus import Piece, messages
from headgate_coordinator.demo.journal import Journal
from headgate_coordinator.demo.orders import Orders
from headgate_coordinator.demo.sending import Sending, received

PATIENCE: Final = 60.0
"""Seconds that a send may wait; the demo is over long before."""
UNCONFIRMED: Final = 256
"""Messages of a producer that may be on their way."""
LOOK: Final = 0.1
"""Seconds after which a consumer that gets nothing looks whether it is to stop."""


@dataclass(frozen=True, slots=True)
class _Sent:
    sending: Sending
    receipt: Awaitable[Receipt]


async def produce(name: str, source: Path, limit: int, journal: Journal, orders: Orders) -> None:
    """Send files until ordered to stop, and write down every receipt."""
    pieces = _pieces(name, source, limit)
    async with _connect() as client, client.session(f"producer-{name}", ttl=TTL) as session:
        producer = await session.producer(QUEUE, window=max(1, limit // 8), rate=PRODUCERS[name], timeout=PATIENCE)
        journal.write("session", session.id)
        sent: asyncio.Queue[_Sent | None] = asyncio.Queue(UNCONFIRMED)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_write_receipts(sent, journal))
            seq = 0
            while not orders.stop.is_set():
                seq += 1
                sending = Sending(next(pieces), name, seq)
                receipt = await producer.post(sending.piece.body, headers=sending.headers)
                await sent.put(_Sent(sending, receipt))
            await sent.put(None)


async def _write_receipts(sent: asyncio.Queue[_Sent | None], journal: Journal) -> None:
    while message := await sent.get():
        receipt = await message.receipt
        journal.write("accepted", *message.sending.accepted(receipt.size))


async def consume(name: str, limit: int, journal: Journal, orders: Orders) -> None:
    """Receive, work, accept, write down, until ordered to stop."""
    async with _connect() as client, client.session(f"consumer-{name}", ttl=TTL) as session:
        consumer = await session.consumer(QUEUE, window=Window(messages=20, bytes=limit // 16))
        journal.write("session", session.id)
        while not orders.stop.is_set():
            message = await consumer.receive(timeout=LOOK)
            if message is None:
                continue
            if not orders.hurry.is_set():
                await asyncio.sleep(CONSUMERS[name])
            try:
                await message.accept()
            except SessionExpired:
                continue  # this process stood still for a whole TTL: the message is somebody else's now
            journal.write("received", *received(message.body, message.headers, message.size, message.delivery_count))
        await consumer.flush()


def _connect() -> headgate.Client:
    return headgate.connect(os.environ["HEADGATE_URL"], namespace=os.environ["HEADGATE_NAMESPACE"])


def _pieces(name: str, source: Path, limit: int) -> Iterator[Piece]:
    names = [*PRODUCERS, *AMQP_PRODUCERS]
    return messages(source, names.index(name), len(names), limit)


async def _act(arguments: argparse.Namespace, journal: Journal) -> None:
    orders, role, name = Orders.listen(), arguments.role, arguments.name
    if role == "node" or arguments.nodes:
        from headgate_coordinator.demo import amqp_actors as amqp  # needs the extra amqp

        nodes = dict(node.split("=") for node in arguments.nodes)
        if role == "node":
            await amqp.serve(name, _connect(), arguments.limit, journal, orders)
        elif role == "producer":
            await amqp.produce(name, nodes, _pieces(name, arguments.source, arguments.limit), journal, orders)
        else:
            await amqp.consume(name, nodes, journal, orders)
    elif role == "producer":
        await produce(name, arguments.source, arguments.limit, journal, orders)
    else:
        await consume(name, arguments.limit, journal, orders)


def main() -> int:
    """Run one process of the demo; returns its exit code."""
    parser = argparse.ArgumentParser(prog="headgate-demo-actor")
    parser.add_argument("role", choices=("producer", "consumer", "node"))
    parser.add_argument("name")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--nodes", nargs="*", default=(), metavar="NAME=HOST:PORT", help="where AMQP clients go")
    parser.add_argument("--limit", type=int, required=True)
    arguments = parser.parse_args()
    code = 0
    with Journal(arguments.journal) as journal:
        try:
            asyncio.run(_act(arguments, journal))
        except* HeadgateError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            journal.write("error", f"{type(error).__name__}: {error}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())

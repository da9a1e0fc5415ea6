"""One process of the demo: `python -m headgate_coordinator.demo.actors producer|consumer ...`.

It works until its standard input is closed, which also happens when the demo itself is killed: nothing is left running.
Where Redis is comes from HEADGATE_URL and HEADGATE_NAMESPACE: a URL may hold a password, and arguments are seen by all.
"""

import argparse
import asyncio
import hashlib
import os
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import headgate
from headgate import HeadgateError, Receipt, SessionExpired, Window
from headgate_coordinator.demo import CONSUMERS, PRODUCERS, QUEUE, TTL
from headgate_coordinator.demo.corpus import Piece, messages
from headgate_coordinator.demo.journal import Journal

PATIENCE: Final = 60.0
"""Seconds that a send may wait; the demo is over long before."""
UNCONFIRMED: Final = 256
"""Messages of a producer that may be on their way."""
LOOK: Final = 0.1
"""Seconds after which a consumer that gets nothing looks whether it is to stop."""
LAST: Final = 20.0
"""Seconds after which a process that was told to stop ends in any case."""


@dataclass(frozen=True, slots=True)
class _Sent:
    piece: Piece
    seq: int
    sha256: str
    receipt: Awaitable[Receipt]


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent says: to hurry (a consumer no longer takes its time), and to stop."""

    hurry: asyncio.Event
    stop: asyncio.Event

    @classmethod
    def listen(cls) -> "Orders":
        """Return the orders that come on standard input: a byte is to hurry, its end is to stop."""
        orders, loop = cls(asyncio.Event(), asyncio.Event()), asyncio.get_running_loop()

        def heard() -> None:
            if os.read(sys.stdin.fileno(), 1):
                orders.hurry.set()
            else:
                loop.remove_reader(sys.stdin)
                orders.stop.set()
                loop.call_later(LAST, os._exit, 1)

        loop.add_reader(sys.stdin, heard)
        return orders


async def produce(name: str, source: Path, limit: int, journal: Journal, orders: Orders) -> None:
    """Send files until told to stop, and write down every receipt."""
    pieces = messages(source, list(PRODUCERS).index(name), len(PRODUCERS), limit)
    async with _connect() as client, client.session(f"producer-{name}", ttl=TTL) as session:
        producer = await session.producer(QUEUE, window=max(1, limit // 8), rate=PRODUCERS[name], timeout=PATIENCE)
        journal.write("session", session.id)
        sent: asyncio.Queue[_Sent | None] = asyncio.Queue(UNCONFIRMED)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_write_receipts(name, sent, journal))
            seq = 0
            while not orders.stop.is_set():
                piece, seq = next(pieces), seq + 1
                digest = hashlib.sha256(piece.body).hexdigest()
                headers = {"path": piece.path, "part": piece.part, "sha256": digest, "producer": name, "seq": seq}
                receipt = await producer.post(piece.body, headers=headers)
                await sent.put(_Sent(piece, seq, digest, receipt))
            await sent.put(None)


async def _write_receipts(name: str, sent: asyncio.Queue[_Sent | None], journal: Journal) -> None:
    while message := await sent.get():
        receipt = await message.receipt
        journal.write("accepted", receipt.id, name, message.seq, message.sha256, receipt.size, message.piece.path)


async def consume(name: str, limit: int, journal: Journal, orders: Orders) -> None:
    """Receive, work, accept, write down, until told to stop."""
    async with _connect() as client, client.session(f"consumer-{name}", ttl=TTL) as session:
        consumer = await session.consumer(QUEUE, window=Window(messages=20, bytes=limit // 16))
        journal.write("session", session.id)
        while not orders.stop.is_set():
            message = await consumer.receive(timeout=LOOK)
            if message is None:
                continue
            if not orders.hurry.is_set():
                await asyncio.sleep(CONSUMERS[name])
            body = message.body if isinstance(message.body, bytes) else message.body.encode()
            try:
                await message.accept()
            except SessionExpired:
                continue  # this process stood still for a whole TTL: the message is somebody else's now
            stated = message.headers
            journal.write(
                "received",
                message.id,
                stated["producer"],
                stated["seq"],
                hashlib.sha256(body).hexdigest(),
                stated["sha256"],
                message.size,
                message.delivery_count,
            )
        await consumer.flush()


def _connect() -> headgate.Client:
    return headgate.connect(os.environ["HEADGATE_URL"], namespace=os.environ["HEADGATE_NAMESPACE"])


async def _act(arguments: argparse.Namespace, journal: Journal) -> None:
    orders = Orders.listen()
    if arguments.role == "producer":
        await produce(arguments.name, arguments.source, arguments.limit, journal, orders)
    else:
        await consume(arguments.name, arguments.limit, journal, orders)


def main() -> int:
    """Run one process of the demo; returns its exit code."""
    parser = argparse.ArgumentParser(prog="headgate-demo-actor")
    parser.add_argument("role", choices=("producer", "consumer"))
    parser.add_argument("name")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--source", type=Path)
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

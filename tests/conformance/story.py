"""What the stories of the documents are made of: messages of a size, sends that wait, and what Redis says of them."""

import asyncio

import headgate
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, field, look, waiting
from tests.support.waiting import wait_until

KiB = 1 << 10
MiB = 1 << 20


def body(size: int) -> bytes:
    """Return a body that takes ``size`` bytes as stored: what a message counts for."""
    assert size >= 3, "no message takes less"
    head = 3 if size < 3 + 256 else 4 if size < 4 + 65536 else 6
    return b"x" * (size - head)


def with_options(url: str, options: str) -> str:
    """Return the URL of a connection with options."""
    return f"{url}{'&' if '?' in url else '?'}{options}"


async def fill(client: headgate.Client, destination: str, count: int, size: int = 100) -> None:
    """Store that many messages, and keep no credit."""
    async with client.session("fill") as session:
        producer = await session.producer(destination)
        await asyncio.gather(*(producer.send(body(size), timeout=GUARD) for _ in range(count)))


async def blocked_send(
    client: headgate.Client, producer: headgate.Producer, size: int
) -> "asyncio.Task[headgate.Receipt]":
    """Begin a send, and return it when it waits in line; fails when it is sent instead."""
    before = await field(client, producer.destination, "blocked")
    send = asyncio.ensure_future(producer.send(body(size), timeout=GUARD))

    async def in_line() -> bool:
        return send.done() or await waiting(client, producer.destination, at_least=before + 1)

    await wait_until(in_line)
    assert not send.done(), f"{size} bytes were sent to {producer.destination!r}, which should be full"
    return send


async def take(consumer: headgate.Consumer) -> headgate.Message:
    """Receive one message and keep it."""
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    return message


async def held(client: headgate.Client, consumer: headgate.Consumer) -> int:
    """Return how many messages a consumer holds unsettled, as Redis has it."""
    record = (await look(client, consumer.address.name)).consumers[consumer.id]
    return int(record["delivered"]) - int(record["settled"])


async def holds(client: headgate.Client, consumer: headgate.Consumer, count: int) -> None:
    """Wait until a consumer holds that many, and has them all here."""

    async def all_here() -> bool:
        return await held(client, consumer) == consumer.held_messages == count

    await wait_until(all_here, description=f"{consumer!r} holds {count}")


async def published(client: headgate.Client, destination: str) -> list[tuple[int, int]]:
    """Return when, in microseconds of Redis' clock, how many messages were stored: what the ledger says."""
    key = Address.of(client.namespace, destination).shared[-1]
    entries = await client.store.server.command(key, "XRANGE", key, "-", "+")
    columns = [entry[1][1].decode().split(",") for entry in entries]
    return [(int(c[1]) * 1000, int(c[5])) for c in columns if c[2] == "publish"]

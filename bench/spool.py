"""Sends and receives through a spool store in a local directory, beside those through memory, in turn in one run."""

import asyncio
import tempfile
from pathlib import Path

import headgate
from bench.harness import Figure, Stopwatch, at_least, at_most, private_client

TASKS = 256
MESSAGES = 20_480
BODY = b"x" * 1024
MOST_OPERATIONS = 1.0
LEAST_SHARE = 0.4


async def _send(session: headgate.Session, destination: str, count: int) -> float:
    producer = await session.producer(destination)

    async def one() -> None:
        for _ in range(count // TASKS):
            await producer.send(BODY, timeout=60)

    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(TASKS)))
    await producer.close()
    return count / watch.seconds


async def _receive(session: headgate.Session, destination: str, count: int) -> float:
    consumer = await session.consumer(destination)
    got = 0
    with Stopwatch() as watch:
        async for message in consumer:
            await message.accept()
            got += 1
            if got == count:
                break
        await consumer.flush()
    await consumer.close()
    return count / watch.seconds


async def _spent(client: headgate.Client) -> None:
    """Wait until every segment is deleted, so that the next round begins as this one did."""
    while any(store.held for store in await client.stores()):  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.1)


async def measure(*, quick: bool) -> list[Figure]:
    """Return spooled sends/s and receives/s, their share of those in memory, and operations for 100 messages."""
    count, rounds = (MESSAGES // 4, 1) if quick else (MESSAGES, 5)
    rates: dict[str, list[float]] = {"memory send": [], "memory receive": [], "spool send": [], "spool receive": []}
    operations: list[float] = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        async with private_client() as (client, _), client.session("bench") as session:
            await client.set_store("disk", Path(folder).as_uri(), limit="unlimited")
            storage = (await client.parts.registry.spooling.spools.get("disk")).storage
            await client.apply("memory", limit="unlimited")
            # So little memory that next to nothing but references finds room in it.
            await client.apply("spool", limit=f"{count * 64}", when_full="spool", store="disk")
            for turn in range(rounds + 1):
                for name in ("memory", "spool"):
                    before = storage.operations
                    sent = await _send(session, name, count)
                    got = await _receive(session, name, count)
                    await _spent(client)
                    if turn:  # the first warms up
                        rates[f"{name} send"].append(sent)
                        rates[f"{name} receive"].append(got)
                        if name == "spool":
                            operations.append((storage.operations - before) * 100 / count)
    shares = {
        verb: [one / other for one, other in zip(rates[f"spool {verb}"], rates[f"memory {verb}"], strict=True)]
        for verb in ("send", "receive")
    }
    return [
        *(
            at_least(f"{verb} 1 KiB, {name}", rates[f"{name} {verb}"], "1/s")
            for name in ("memory", "spool")
            for verb in shares
        ),
        Figure.typical("  share of sends in memory", shares["send"], "", at_least=LEAST_SHARE),
        Figure.typical("  share of receives in memory", shares["receive"], "", at_least=LEAST_SHARE),
        at_most("storage operations for 100 messages", operations, "", MOST_OPERATIONS),
    ]

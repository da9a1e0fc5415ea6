"""Sends and receives through a spool store in a local directory, beside those through memory, in turn.

A send through the store takes a flush of the disk, so its share of those in memory depends on how many go at once: with
256 all of them wait for one flush, as each waits for its receipt; with 1,024 the next segment fills meanwhile.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import headgate
from bench.harness import Figure, Stopwatch, at_least, at_most, private_client
from headgate.redis.keys import Address

TASKS = (256, 1024)
"""Senders, each of which waits for its receipt."""
MESSAGES = 40_960
BODY = b"x" * 1024
REFERENCE = 56
"""Bytes, at the most."""
VERBS = ("send", "receive")
FLUSHES = 20
MOST_OPERATIONS = 1.0
LEAST_SHARE: dict[str, dict[int, float | None]] = {"send": {256: None, 1024: 0.7}, "receive": {256: 0.4, 1024: 0.4}}


async def _send(session: headgate.Session, destination: str, count: int, tasks: int) -> float:
    producer = await session.producer(destination)

    async def one() -> None:
        for _ in range(count // tasks):
            await producer.send(BODY, timeout=60)

    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(tasks)))
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


def _flush(folder: Path, size: int) -> float:
    """Return the seconds that a bare loop takes to write and flush a file of so many bytes."""
    data, name = os.urandom(size), folder / "bare"
    with Stopwatch() as watch:
        for _ in range(FLUSHES):
            with name.open("wb", buffering=0) as file:
                file.write(data)
                os.fsync(file)
            name.unlink()
    return watch.seconds / FLUSHES


async def _spent(client: headgate.Client) -> None:
    """Wait until every segment is deleted, so that the next round begins as this one did."""
    address = Address.of_store(client.namespace, "disk")
    while (await client.store.recount(address)).stored[0]:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.1)


async def _measure(tasks: int, count: int, rounds: int) -> list[Figure]:
    limit = count * REFERENCE * 4  # a quarter is kept for references
    full = limit * 3 // 4 // tasks // len(BODY) * tasks
    rates: dict[str, list[float]] = {f"{where} {verb}": [] for where in ("memory", "spool") for verb in VERBS}
    operations: list[float] = []
    flushes: list[float] = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        async with private_client() as (client, _), client.session("bench") as session:
            await client.set_store("disk", Path(folder).as_uri(), limit="unlimited")
            storage = (await client.parts.registry.spooling.spools.get("disk")).storage
            await client.apply("memory", limit="unlimited")
            await client.apply("spool", limit=limit, when_full="spool", store="disk")
            for turn in range(rounds + 1):
                for name in ("memory", "spool"):
                    before = storage.operations
                    if turn and name == "spool":
                        flush = await asyncio.to_thread(_flush, Path(folder), tasks * len(BODY))
                        flushes.append(flush * rates["memory send"][-1] / tasks)
                    await _send(session, name, full, tasks)  # then memory has no room
                    sent = await _send(session, name, count, tasks)
                    await _receive(session, name, full)
                    got = await _receive(session, name, count)
                    await _spent(client)
                    if turn:  # the first warms up
                        rates[f"{name} send"].append(sent)
                        rates[f"{name} receive"].append(got)
                        if name == "spool":
                            operations.append((storage.operations - before) * 100 / count)
    shares = {
        verb: [one / other for one, other in zip(rates[f"spool {verb}"], rates[f"memory {verb}"], strict=True)]
        for verb in VERBS
    }
    of = f"of {tasks} senders"
    return [
        *(
            at_least(f"{verb} 1 KiB, {name}, {of}", rates[f"{name} {verb}"], "1/s")
            for name in ("memory", "spool")
            for verb in VERBS
        ),
        *(
            Figure.typical(f"  share of {verb}s in memory, {of}", shares[verb], "", at_least=LEAST_SHARE[verb][tasks])
            for verb in VERBS
        ),
        Figure.typical(f"  a bare flush of their bytes beside sends in memory, {of}", flushes, ""),
        at_most(f"storage operations for 100 messages, {of}", operations, "", MOST_OPERATIONS),
    ]


async def measure(*, quick: bool) -> list[Figure]:
    """Return spooled sends/s and receives/s, their share of those in memory, and storage operations."""
    count, rounds = (MESSAGES // 4, 2) if quick else (MESSAGES, 5)
    return [figure for tasks in TASKS for figure in await _measure(tasks, count, rounds)]

"""The cost of waiting producers to their client: the processor time of those that are blocked, and do nothing else."""

import asyncio
import logging
import re
import time

import headgate
from bench.harness import Figure, at_most, private_client
from headgate.redis.backend import Backend

BODY = b"x" * 900
SETTLE = 3.0
"""Seconds until all stand in line and have found out why."""
TARGET = 10.0
"""Percent of a core, at the most, for a thousand in one client."""


async def _waiting(client: headgate.Client, sessions: int, producers: int) -> list[asyncio.Task[headgate.Receipt]]:
    """Begin so many sends that find no room, spread over so many sessions; each ends when it is cancelled."""
    opened = [client.session(f"blocked-{number}") for number in range(sessions)]
    return [
        asyncio.create_task((await opened[number % sessions].producer("full", timeout="unlimited")).send(BODY))
        for number in range(producers)
    ]


async def _calls(slices: int, seconds: float) -> float:
    """Return the calls a second that Redis gets of a thousand sessions that wait at a queue with so many slices."""
    async with private_client() as (client, _):
        server = client.parts.store.server
        await client.apply("full", kind="queue", limit="1KiB", slices=slices)
        async with client.session("filler") as filler:
            await (await filler.producer("full", window="1KiB")).send(BODY)
            sends = await _waiting(client, 1000, 1000)
            await asyncio.sleep(SETTLE)
            before, began = await _processed(server), time.perf_counter()
            await asyncio.sleep(seconds)
            rate = (await _processed(server) - before) / (time.perf_counter() - began)
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
    return rate


async def _processed(server: Backend) -> int:
    (found,) = await server.everywhere("INFO", "commandstats")
    calls = re.findall(rb"cmdstat_(?:evalsha|fcall):calls=(\d+)", found)
    return sum(map(int, calls))


async def _share(sessions: int, producers: int, seconds: float) -> float:
    """Return the percentage of a core that this process needs while so many producers wait."""
    async with private_client() as (client, _):
        await client.apply("full", limit="1KiB")
        async with client.session("filler") as filler:
            await (await filler.producer("full", window="1KiB")).send(BODY)
            sends = await _waiting(client, sessions, producers)
            await asyncio.sleep(SETTLE)
            began, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(seconds)
            share = 100 * (time.process_time() - used) / (time.perf_counter() - began)
            assert not any(send.done() for send in sends)
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
    return share


async def measure(*, quick: bool) -> list[Figure]:
    """Have producers wait in one session, and in a session each."""
    logging.getLogger("headgate").setLevel(logging.ERROR)  # each of them would say that it waits
    seconds, times = (3.0, 1) if quick else (10.0, 3)
    figures = []
    for sessions, producers in ((1, 200), (1, 1000), (200, 200), (1000, 1000)):
        shares = [await _share(sessions, producers, seconds) for _ in range(times)]
        where = "in one session" if sessions == 1 else "in a session each"
        target = TARGET if producers == 1000 else None
        figures.append(at_most(f"{producers:,} blocked producers {where}", shares, "% of a core", target))
    for slices in (1, 12):
        rates = [await _calls(slices, seconds) for _ in range(times)]
        what = f"calls of 1,000 blocked sessions at {slices} slice{'s' * (slices > 1)}"
        figures.append(at_most(what, rates, "a second", None))
    return figures

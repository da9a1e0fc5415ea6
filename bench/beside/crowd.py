"""This bench shows what a crowd at one queue with slices costs three masters while nothing moves.

    python -m bench.beside.crowd [--sessions 1000] [--clients 4] [--slices 1 12] [--seconds 10] [--out FILE]

First all sessions wait to send to a queue that is full, then all wait to receive from one that is empty. It prints
script calls a second, the processor time of all masters together, as a share of a core, how long it took to open all,
and bytes of Redis' memory for each session.
"""

import argparse
import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import redis.asyncio

import headgate
from bench.beside.masters import script_calls
from bench.beside.slices import cpu
from headgate.errors import HeadgateError
from tests.support.cluster import RedisCluster3

T = TypeVar("T")
AT_ONCE: Final = 20
"""Sessions that open at a time."""
SETTLED: Final = 6.0
"""Seconds until those who were opened have looked, and wait as they will go on to."""


async def memory(urls: list[str]) -> int:
    """Return the bytes that all masters use."""
    used = 0
    for url in urls:
        async with redis.asyncio.Redis.from_url(url) as direct:
            used += (await direct.info("memory"))["used_memory"]
    return used


async def opened(opens: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """Open all, some at a time; again where a busy machine was too slow."""

    async def sure(one: Callable[[], Awaitable[T]]) -> T:
        while True:
            with suppress(headgate.CoordinatorUnavailable):
                return await one()

    found: list[T] = []
    for at in range(0, len(opens), AT_ONCE):
        found += await asyncio.gather(*map(sure, opens[at : at + AT_ONCE]))
    return found


async def send(producer: headgate.Producer) -> None:
    """Send as long as there is room, and then wait for it."""
    with suppress(HeadgateError):
        while True:
            await producer.send(bytes(1000), timeout=3600)


async def crowd(urls: list[str], slices: int, options: argparse.Namespace, *, sends: bool) -> dict[str, Any]:
    """Have all sessions wait, and count."""
    async with AsyncExitStack() as stack:
        namespace = f"bench-{slices}-{'out' if sends else 'in'}"
        connects = (headgate.connect(urls[number % 3], namespace=namespace) for number in range(options.clients))
        clients = [await stack.enter_async_context(connect) for connect in connects]
        await clients[0].apply("orders", kind="queue", limit="64KiB", slices=slices)
        sessions = [clients[number % options.clients].session() for number in range(options.sessions)]
        had, began = await memory(urls), time.monotonic()
        if sends:
            producers = await opened([partial(one.producer, "orders", window="2KiB") for one in sessions])
            waiting = [asyncio.create_task(send(producer)) for producer in producers]
        else:
            consumers = await opened([partial(one.consumer, "orders", window=16) for one in sessions])
            waiting = [asyncio.create_task(consumer.receive()) for consumer in consumers]
        took = time.monotonic() - began
        await asyncio.sleep(SETTLED)
        calls, used, began = await script_calls(urls), sum(await cpu(urls)), time.monotonic()
        await asyncio.sleep(options.seconds)
        seconds = time.monotonic() - began
        row = {
            "what": "waiting to send" if sends else "waiting to receive",
            "sessions": options.sessions,
            "clients": options.clients,
            "slices": slices,
            "calls_per_second": round((await script_calls(urls) - calls) / seconds),
            "cores": round((sum(await cpu(urls)) - used) / seconds, 3),
            "open_seconds": round(took, 1),
            "bytes_per_session": round((await memory(urls) - had) / options.sessions),
            "load": round(os.getloadavg()[0], 1),
        }
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return row


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    logging.getLogger("headgate").setLevel(logging.ERROR)  # each that waits says so
    rows = []
    for slices in options.slices:
        for sends in (True, False):
            with await asyncio.to_thread(RedisCluster3.start) as cluster:
                rows.append(await crowd(cluster.urls, slices, options, sends=sends))
            print(json.dumps(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 12])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))

"""This bench shows what a rate of deliveries costs that slices share, and how much of it is used.

    python -m bench.beside.deliveries [--slices 1 6] [--consumers 3] [--clients 1 3] [--rate 100] [--burst 10]
        [--uneven]

Six sessions send a tenth more than the rate. With ``--uneven`` the last client has all consumers but
one of each other. It prints what part of the rate was delivered, calls of scripts for a message, sends included, and
what each consumer got.
"""

import argparse
import asyncio
import json
import logging
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import headgate
from bench.beside.masters import script_calls
from bench.harness import private_client

SENDERS: Final = 6
WARM: Final = 3.0
"""Seconds until what the burst let go at once is gone."""


async def send(producer: headgate.Producer, rate: float) -> None:
    """Send so many a second, whatever a send takes."""
    began, sent = time.monotonic(), 0
    while True:
        sent += 1
        await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
        await producer.send(b"x" * 50, timeout="unlimited")


async def receive(consumer: headgate.Consumer, got: list[int], number: int) -> None:
    """Accept what comes, and count it."""
    async for message in consumer:
        got[number] += 1
        await message.accept()


async def delivered(slices: int, clients: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came while all of them were at it."""
    async with private_client() as (client, server), AsyncExitStack() as stack:
        many: Any = {"slices": slices} if slices > 1 else {}
        await client.apply(
            "orders", kind="queue", limit="1MiB", delivery_rate=options.rate, delivery_burst=options.burst, **many
        )
        connected = [await stack.enter_async_context(headgate.connect(server.url)) for _ in range(clients)]
        got, work = [0] * options.consumers, list[Any]()
        for number in range(SENDERS):
            session = await stack.enter_async_context(client.session(f"s{number}"))
            work.append(send(await session.producer("orders"), options.rate * 1.1 / SENDERS))
        for number in range(options.consumers):
            own = connected[min(number, clients - 1) if options.uneven else number % clients]
            session = await stack.enter_async_context(own.session(f"c{number}"))
            work.append(receive(await session.consumer("orders", window=options.window), got, number))
        tasks = [asyncio.create_task(one) for one in work]
        await asyncio.sleep(WARM)
        before, calls, began = list(got), await script_calls([server.url]), time.monotonic()
        await asyncio.sleep(options.seconds)
        seconds, calls = time.monotonic() - began, await script_calls([server.url]) - calls
        each = [now - ago for now, ago in zip(got, before, strict=True)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {
            "slices": slices, "consumers": options.consumers, "clients": clients, "window": options.window,
            "rate": options.rate, "burst": options.burst, "used": round(sum(each) / seconds / options.rate, 2),
            "calls_a_message": round(calls / max(1, sum(each)), 1), "each": each, "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    logging.getLogger("headgate").setLevel(logging.ERROR)  # each that waits says so
    rows = []
    for slices in options.slices:
        for clients in options.clients if slices > 1 else options.clients[:1]:
            rows.append(await delivered(slices, clients, options))
            print(json.dumps(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 6])
    parser.add_argument("--consumers", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--burst", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))

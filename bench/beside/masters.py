"""This bench shows what grows with what on real servers: sessions at one master, and at a cluster of three.

    python -m bench.beside.masters [--sessions 30 300] [--seconds 8] [--out FILE]

As in the fleets of `bench.beside.scale`, four of five sessions send a message a second, and one consumes; ten share a
queue. It prints calls of Redis for a message and a second, its processor time with a log that is synced for each write,
and how long it takes until sessions have receipts again after all servers were killed and started anew.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any, Final

import redis.asyncio

import headgate
from bench.beside.slices import cpu
from headgate.errors import HeadgateError
from tests.support.cluster import RedisCluster3
from tests.support.servers import RedisServer, newest_server

AT_A_QUEUE: Final = 10
AWAY: Final = 1.0
"""Seconds for which all servers are gone."""
_CALLS: Final = ("cmdstat_evalsha", "cmdstat_fcall", "cmdstat_evalsha_ro", "cmdstat_fcall_ro")


async def script_calls(urls: list[str]) -> int:
    """Return how many calls of scripts these servers had."""
    calls = 0
    for url in urls:
        async with redis.asyncio.Redis.from_url(url) as direct:
            stats = await direct.info("commandstats")
            calls += sum(stats[name]["calls"] for name in _CALLS if name in stats)
    return calls


class Crowd:
    """Sessions that send and consume, and when each had its last receipts."""

    def __init__(self, client: headgate.Client, sessions: int) -> None:
        self.client = client
        self.queues = [f"q{number}" for number in range(max(1, sessions // AT_A_QUEUE))]
        self.count = sessions
        self.receipts = 0
        self.since = float("inf")
        self.served: dict[int, float] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Have all of them open, and begin."""
        for name in self.queues:
            await self.client.apply(name, kind="queue", limit="64KiB")
        for number in range(self.count):
            session, name = self.client.session(f"s{number}"), self.queues[number % len(self.queues)]
            if (number // len(self.queues)) % 5 == 4:
                work = self._consume(await session.consumer(name, window=16))
            else:
                work = self._send(number, await session.producer(name, window="2KiB"))
            self.tasks.append(asyncio.create_task(work))

    async def _send(self, number: int, producer: headgate.Producer) -> None:
        while True:
            await asyncio.sleep(0.5 + random.random())
            with contextlib.suppress(HeadgateError):
                await producer.send(bytes(500), timeout=60)
                self.receipts += 1
                if time.monotonic() > self.since:
                    self.served.setdefault(number, time.monotonic() - self.since)

    async def _consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            with contextlib.suppress(HeadgateError):
                await message.accept()

    def end(self) -> None:
        """Have nothing more happen."""
        for task in self.tasks:
            task.cancel()


async def measure(servers: list[RedisServer], sessions: int, seconds: float) -> dict[str, Any]:
    """Return what so many sessions cost these servers."""
    urls = [server.url for server in servers]
    async with headgate.connect(urls[0], namespace=f"bench-{sessions}") as client:
        crowd = Crowd(client, sessions)
        await crowd.open()
        await asyncio.sleep(2.0)
        calls, used, sent, began = await script_calls(urls), await cpu(urls), crowd.receipts, time.monotonic()
        await asyncio.sleep(seconds)
        took, sent, calls = time.monotonic() - began, crowd.receipts - sent, await script_calls(urls) - calls
        busy = [after - earlier for after, earlier in zip(await cpu(urls), used, strict=True)]
        for server in servers:
            await asyncio.to_thread(server.kill9)
        await asyncio.sleep(AWAY)
        await asyncio.gather(*(asyncio.to_thread(server.restart) for server in servers))
        crowd.since = time.monotonic()
        senders = sum((number // len(crowd.queues)) % 5 != 4 for number in range(sessions))
        until = crowd.since + 40
        while len(crowd.served) < senders and time.monotonic() < until:  # noqa: ASYNC110 -- it is their time that counts
            await asyncio.sleep(0.1)
        crowd.end()
        served = sorted(crowd.served.values())
    return {
        "masters": len(urls),
        "sessions": sessions,
        "messages a second": round(sent / took),
        "calls of Redis a message": round(calls / sent, 2),
        "calls of Redis a second": round(calls / took),
        "Redis, us a message": round(1e6 * sum(busy) / sent),
        "a master's share of a core": [round(one / took, 3) for one in busy],
        "restart: half served, s": round(served[len(served) // 2], 1) if served else None,
        "restart: 99 % served, s": round(served[int(0.99 * len(served))], 1) if served else None,
        "restart: served": f"{len(served)} of {senders}",
    }


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    rows = []
    for sessions in options.sessions:
        for masters in (1, 3):
            with contextlib.ExitStack() as stack:
                if masters == 1:
                    servers = [stack.enter_context(RedisServer.start(newest_server(), persist=True))]
                else:
                    cluster = await asyncio.to_thread(RedisCluster3.start, persist=True)
                    stack.callback(cluster.stop)
                    servers = cluster.nodes
                rows.append(await measure(servers, sessions, options.seconds) | {"load": round(os.getloadavg()[0], 1)})
            print(json.dumps(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[30, 300])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))

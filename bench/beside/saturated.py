"""This bench shows what masters carry that never lack work: a queue with one slice, and with many over three masters.

    python -m bench.beside.saturated [--sessions 64] [--seconds 4] [--rounds 5] [--slices 1 3 6 12] [--out FILE]

The clients of `bench.beside.slices` take more than twice the processor time of Redis, so servers stand idle between
calls there. Here the scripts are called straight, as sessions and consumers call them, without what a client does
beside; the slices' parts of the limit are drawn by real producers, which stay open. Each round has each number of
slices once, and three queues without slices, one at each master. It prints medians, and ratios to one slice.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import headgate
from bench.beside.slices import apart, cpu
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.store import Store
from tests.support.cluster import RedisCluster3

BATCH: Final = 16
BODY: Final = bytes(1024)
BACKLOG: Final = 16_384
"""Messages that are stored at most, so that all runs work on as many, and no part of the limit is ever used up."""
CONSUMERS: Final = 12
TTL_MS: Final = 60_000


class Load:
    """Sessions that publish and consumers that settle, one call after the other, until the time is over."""

    def __init__(self, store: Store, until: float) -> None:
        self.store, self.until = store, until
        self.sent = self.settled = 0

    async def publish(self, address: Address, session: str) -> None:
        """Publish batch after batch, with room for four asked for ahead."""
        size, spent, number = BATCH * len(BODY), 0, 0
        account = Account(session, 1, 0)
        while time.monotonic() < self.until:
            ask: dict[str, Any] = {"need": spent + size, "need_m": (number + 1) * BATCH}
            if self.sent - self.settled > BACKLOG:
                await asyncio.sleep(0.001)
                continue
            ask |= {"want": spent + 4 * size, "want_m": (number + 4) * BATCH}
            account = replace(account, used=spent, used_m=number * BATCH, **ask)
            if account.granted < ask["need"] or account.granted_m < ask["need_m"]:
                answer = await self.store.acquire(address, account, ttl_ms=TTL_MS)
                if answer.granted < ask["need"]:
                    await asyncio.sleep(0.002)
            else:
                seq, bodies = 1 + number * BATCH, [BODY] * BATCH
                account = replace(account, need=0, need_m=0)
                answer = await self.store.publish(address, account, seq=seq, bodies=bodies, ttl_ms=TTL_MS)
                assert answer.code == "OK", answer
                spent, number, self.sent = spent + size, number + 1, self.sent + BATCH
            account = replace(account, epoch=answer.epoch, granted=answer.granted, granted_m=answer.granted_m)

    async def settle(self, address: Address, session: str) -> None:
        """Fetch, and accept with the next fetch, until nothing comes any more."""
        await self.store.attach(
            address, session, number=1, subscription="queue", durable=True, window="-", ttl_ms=TTL_MS
        )
        ids: list[bytes] = []
        fetch = 0
        while time.monotonic() < self.until or ids:
            fetch += 1
            found = await self.store.settle(
                address, session, f"{session}.1", ttl_ms=TTL_MS, accepted=ids, fetch=fetch, max_messages=256,
                max_bytes=1 << 22,
            )  # fmt: skip
            self.settled += len(ids)
            ids = [message[0] for message in found.messages]
            if len(ids) < 128:  # let more of them come together, as a window does
                await asyncio.sleep(0.003)


async def through(
    urls: list[str], slices: int, queues: int, round_: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Have the masters work for some seconds."""
    namespace = f"bench-{slices}-{queues}-{round_}"  # receipts stay for an hour
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(headgate.connect(urls[0], namespace=namespace))
        names = ["orders"] if queues == 1 else apart(namespace, queues)
        for name in names:
            await client.apply(name, kind="queue", limit=(1 << 30) // queues, slices=slices)
            for _ in range(slices):
                await (await client.session().producer(name)).send(BODY)
        parts = names if slices == 1 else [slice_name("orders", number) for number in range(slices)]
        places = [Address.of(namespace, name) for name in parts]
        load = Load(client.store, time.monotonic() + options.seconds)
        before, began, own = await cpu(urls), time.monotonic(), time.process_time()
        await asyncio.gather(
            *(load.publish(places[number % len(places)], f"s{number}") for number in range(options.sessions)),
            *(load.settle(places[number % len(places)], f"c{number}") for number in range(max(CONSUMERS, slices))),
        )
        took, own = time.monotonic() - began, time.process_time() - own
        used = [after - earlier for after, earlier in zip(await cpu(urls), before, strict=True)]
        for name in names:
            await client.remove(name)
        return {
            "what": f"{queues} queues" if queues > 1 else f"{slices} slices",
            "messages_per_second": round(load.settled / took),
            "redis_us_per_message": round(1e6 * sum(used) / load.settled, 2),
            "client_us_per_message": round(1e6 * own / load.settled, 2),
            "busiest_master": round(max(used) / took, 2),
            "processor_share": [round(one / sum(used), 3) for one in used],
        }


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    rows: dict[str, list[dict[str, Any]]] = {}
    with await asyncio.to_thread(RedisCluster3.start) as cluster:
        for round_ in range(options.rounds):
            for slices, queues in [*((count, 1) for count in options.slices), (1, 3)]:
                row = await through(cluster.urls, slices, queues, round_, options)
                rows.setdefault(row["what"], []).append(row)
                print(json.dumps(row), flush=True)
    first = next(iter(rows.values()))
    summary: dict[str, Any] = {"load": os.getloadavg()}
    for what, taken in rows.items():
        summary[what] = {
            name: {
                "median": statistics.median(row[name] for row in taken),
                "of one": round(statistics.median(a[name] / b[name] for a, b in zip(taken, first, strict=True)), 3),
            }
            for name in ("messages_per_second", "redis_us_per_message")
        }
    print(json.dumps(summary, indent=2))
    if options.out:
        options.out.write_text(json.dumps({"summary": summary, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 3, 6, 12])
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))

"""How long an explanation takes: with 10,000 in line, credit held by many, and 100 consumers; over four links."""

import itertools
import time
from typing import Any

from redis.asyncio import Redis

import headgate
from bench.harness import Figure, at_most, private_client
from bench.scripts import crowd
from headgate.core.links.link import Link
from headgate.core.policy import Policy
from headgate.explain.links import STALE_MS
from headgate.redis.keys import Address, forwarder_id
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.nodes import NodeStore
from headgate_coordinator.fleet.leases import LeaseStore

LINE = 10_000
HOLDERS = 1_000
CONSUMERS = 100
ROUNDS = 20
PLACES = "abcde"
STORED = 100


async def measure(*, quick: bool) -> list[Figure]:
    """Return milliseconds of one explanation, the slowest of each round's calls, and of Redis for its script."""
    line, holders = (LINE // 10, HOLDERS // 10) if quick else (LINE, HOLDERS)
    async with private_client() as (client, server):
        redis = Redis(unix_socket_path=server.url.removeprefix("unix://").split("?")[0], protocol=2)
        address = Address.of("default", "bench")
        await client.apply("bench", limit=holders)
        await crowd(redis, address, holders, line)
        for number in range(CONSUMERS):
            await client.store.attach(
                address,
                f"in-{number}",
                number=1,
                subscription="queue",
                durable=False,
                window="10/unlimited",
                ttl_ms=60_000,
            )
        took = [await _explain(client.explain("bench")) for _ in range(ROUNDS)]
        one = [
            await _explain(client.explain("bench", producer="line-5000" if not quick else "line-5"))
            for _ in range(ROUNDS)
        ]
        await redis.config_resetstat()
        for _ in range(ROUNDS):
            await client.store.snapshot(address, session="line-5", entries=100)
        script = (await redis.info("commandstats"))["cmdstat_evalsha"]["usec_per_call"] / 1000
        await client.remove("bench")
        await _chain(client, redis, line)
        chain = [await _explain(client.explain("a")) for _ in range(ROUNDS)]
        await NodeStore(client.store.server, "default", STALE_MS).beat("node~1", "{}")
        link = [await _explain(client.explain(link="a>b")) for _ in range(ROUNDS)]
        assert len((await client.explain("a")).chain) == len(PLACES) - 1
        await redis.aclose()
    text = f"with {line} waiters, {holders} holders, {CONSUMERS} consumers"
    return [
        at_most(f"explain {text}", took, "ms", 50),
        at_most("  the slowest of them", [max(took)], "ms", 50),
        at_most("  for one session in line", one, "ms", 50),
        at_most("  its script in Redis", [float(script)], "ms"),
        at_most(f"explain a destination before a chain of four links, {line} waiters at each", chain, "ms", 50),
        at_most("  the slowest of them", [max(chain)], "ms", 50),
        at_most("  the first of the links", link, "ms", 50),
    ]


async def _chain(client: headgate.Client, redis: Any, line: int) -> None:
    """Fill destinations that bridges lead through, each of which has all in hand, and waits at the end of a line."""
    ends = tuple(Link(f"{one} to {to}", one, to) for one, to in itertools.pairwise(PLACES))
    await client.apply_policy(Policy(0, (), links=ends))
    names = [link.link for link in ends]
    await LeaseStore(client.store.server, "default").call("node~1", names, mode="hold", ttl_ms=60_000, total=len(names))
    links, body = LinkStore(client.store.server), b"x" * 1000
    for name in PLACES:
        await client.apply(name, kind="queue", limit=STORED * (len(body) + 4))
        async with client.session() as session:
            producer = await session.producer(name, window=2000)
            for _ in range(STORED):
                await producer.send(body)
        await crowd(redis, Address.of("default", name), 0, line)
    for bridge in ends:
        source, target = (Address.of("default", name) for name in (bridge.source, bridge.target))
        link, fence = forwarder_id("default", bridge.link), 1
        born = (await links.open(source, link, fence=fence, window="1000/1048576")).born
        await links.read(source, link, fence=fence, born=born, mark=0, after=0, messages=256, size=1 << 20)
        await links.commit(target, link, fence=fence, born=born, prev=0, ttl_ms=60_000, need=1000, want=1 << 20)


async def _explain(call: object) -> float:
    began = time.perf_counter()
    await call  # type: ignore[misc]  # a coroutine
    return (time.perf_counter() - began) * 1000

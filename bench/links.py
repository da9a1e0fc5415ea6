"""Links as nodes run them: messages a second, what a hop adds to a message's way, and what idle links cost."""

import asyncio
import re
import time

import headgate
from bench.harness import Figure, Stopwatch, at_least, at_most, cpu_seconds, percentile
from bench.traffic.brokers import Cluster, running_nodes
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.links.listing import list_links

MESSAGES = 40_960
TASKS = 256
BODY = b"x" * 1024
SAMPLES = 400
IDLE_LINKS = 1000
IDLE_SECONDS = 20.0
SETTLING = 20.0
"""Seconds after which links without messages look as rarely as they ever do."""


def bridges(*ends: tuple[str, str]) -> str:
    """Return a policy of these bridges."""
    tables = "".join(f'[[bridge]]\nname = "{one}"\nfrom = "{one}"\nto = "{to}"\n' for one, to in ends)
    return 'destination = [{ match = "#", limit = "1GiB" }]\n' + tables


async def _send(client: headgate.Client, name: str, count: int) -> float:
    """Return messages a second into a queue."""
    async with client.session("sender") as session:
        producer = await session.producer(name)

        async def some() -> None:
            for _ in range(count // TASKS):
                await producer.send(BODY)

        with Stopwatch() as watch:
            await asyncio.gather(*(some() for _ in range(TASKS)))
        await producer.close()
    return count / watch.seconds


async def _receive(client: headgate.Client, name: str, count: int) -> float:
    """Return messages a second out of a queue, and leave it empty."""
    async with client.session("receiver") as session:
        consumer = await session.consumer(name)
        with Stopwatch() as watch:
            for _ in range(count):
                message = await consumer.receive(timeout=30)
                assert message is not None
                await message.accept()
            await consumer.flush()
        await consumer.close()
    return count / watch.seconds


async def _pending(client: headgate.Client, name: str) -> int:
    key = Address.of(client.namespace, name).shared[0]
    return int(await client.store.server.command(key, "HGET", key, "pending_messages") or 0)


async def _forwarded(client: headgate.Client, name: str, count: int) -> float:
    """Return messages a second that come to a queue, from when a part of them is there."""
    while (first := await _pending(client, name)) < count // 16:  # noqa: ASYNC110 -- another process's work
        await asyncio.sleep(0.002)
    began = time.perf_counter()
    while await _pending(client, name) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return (count - first) / (time.perf_counter() - began)


async def _throughput(cluster: Cluster, count: int, times: int) -> list[Figure]:
    client = cluster.client
    links: list[float] = []
    alone: list[float] = []
    node: list[float] = []
    store: list[float] = []
    for number in range(times + 1):
        here, there = f"from.{number}", f"to.{number}"
        send = await _send(client, here, count)
        used = cpu_seconds(cluster.nodes[0].pid), cpu_seconds(cluster.store)
        await client.apply_policy(loads(bridges((here, there))))
        links.append(await _forwarded(client, there, count))
        node.append((cpu_seconds(cluster.nodes[0].pid) - used[0]) / count * 1e6)
        store.append((cpu_seconds(cluster.store) - used[1]) / count * 1e6)
        receive = await _receive(client, there, count)
        alone.append(1 / (1 / send + 1 / receive))
    return [
        at_least("one link, 1 KiB", links[1:], "1/s"),
        at_least("one process that sends and then receives, 1 KiB", alone[1:], "1/s"),
        at_least("  link / process", [max(links[1:]) / max(alone[1:])], "", 0.5),
        at_most("processor time of the node a message", node[1:], "us"),
        at_most("processor time of Redis a message", store[1:], "us"),
    ]


async def _ways(client: headgate.Client, ways: list[tuple[str, str]], samples: int) -> list[list[float]]:
    """Return, of each way from one queue to another or itself, the ms from sends to arrivals; the ways in turn."""
    waits: list[list[float]] = [[] for _ in ways]
    async with client.session("sender") as sending, client.session("receiver") as receiving:
        ends = [(await sending.producer(source), await receiving.consumer(target)) for source, target in ways]
        for _ in range(samples):
            for told, (producer, consumer) in zip(waits, ends, strict=True):
                arriving = asyncio.create_task(consumer.receive(timeout=30))
                await asyncio.sleep(0.01)  # what was before is settled everywhere: it is this one that is measured
                began = time.perf_counter()
                await producer.send(BODY)
                message = await arriving
                told.append((time.perf_counter() - began) * 1000)
                assert message is not None
                await message.accept()
    return [told[5:] for told in waits]  # the first ones find nothing reserved


async def _latency(cluster: Cluster, samples: int) -> list[Figure]:
    client = cluster.client
    await client.apply_policy(loads(bridges(("hop", "hopped"))))
    await _working(client, 1)
    direct, hop = await _ways(client, [("direct", "direct"), ("hop", "hopped")], samples)
    figures = []
    for share in (0.5, 0.99):
        name, one, two = f"p{share * 100:.0f}", percentile(direct, share), percentile(hop, share)
        figures += [
            at_most(f"from producer to consumer, {name}", [one], "ms"),
            at_most(f"  with a link between, {name}", [two], "ms"),
            at_most(f"  added by a hop, {name}", [two - one], "ms", 5 if share == 0.5 else None),
        ]
    return figures


async def _working(client: headgate.Client, count: int) -> None:
    """Wait until so many links are worked on."""
    while sum(link.state == "works" for link in await list_links(client)) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def _idle(cluster: Cluster, count: int, seconds: float) -> list[Figure]:
    client = cluster.client
    with Stopwatch() as watch:
        await client.apply_policy(loads(bridges(*((f"idle.{n}", f"out.{n}") for n in range(count)))))
        await _working(client, count)
    await asyncio.sleep(SETTLING)
    pids = [*(node.pid for node in cluster.nodes), cluster.store]
    calls = await _calls(client)
    before = [cpu_seconds(pid) for pid in pids]
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    passed = time.perf_counter() - began
    shares = [100 * (cpu_seconds(pid) - used) / passed for pid, used in zip(pids, before, strict=True)]
    rate = (await _calls(client) - calls) / passed
    what = f"{count} idle links on {len(cluster.nodes)} nodes"
    return [
        at_most(f"{what}: until all are worked on", [watch.seconds], "s"),
        at_most("  processors, nodes and Redis in sum", [sum(shares)], "%", 20),
        at_most("  of it Redis", [shares[-1]], "%"),
        Figure("  of it the busier node", max(shares[:-1]), "%", rounds=shares[:-1]),
        at_most("  scripts a second", [rate], "1/s"),
    ]


async def _calls(client: headgate.Client) -> int:
    """Return how many scripts were called so far."""
    text = await client.store.server.command(b"", "INFO", "commandstats")
    return sum(map(int, re.findall(rb"cmdstat_(?:evalsha|fcall):calls=(\d+)", text)))


async def measure(*, quick: bool) -> list[Figure]:
    """Return the rate of one link beside that of its ends, the time that a hop adds, and the cost of idle links."""
    count, times = (MESSAGES // 4, 1) if quick else (MESSAGES, 4)
    async with running_nodes() as cluster:
        figures = await _throughput(cluster, count, times)
        figures += await _latency(cluster, SAMPLES // 4 if quick else SAMPLES)
    async with running_nodes(2) as cluster:
        figures += await _idle(cluster, IDLE_LINKS, IDLE_SECONDS / (4 if quick else 1))
    return figures

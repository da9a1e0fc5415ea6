"""How long a policy takes to reach 10,000 destinations, what a producer in another process notices, and resolutions."""

import asyncio
import multiprocessing
import time
from multiprocessing.synchronize import Event
from typing import Any

import headgate
from bench.harness import Figure, Stopwatch, at_least, at_most, median, percentile, private_client
from headgate.core.policy import Policy, Rule
from headgate.settings import DEFAULTS

DESTINATIONS = 10_000
QUIET_SECONDS = 3.0
RULES = 200
RESOLUTIONS = 200_000


async def measure(*, quick: bool) -> list[Figure]:
    """Return resolutions/s, seconds for a change that concerns every destination or one, and how long sends took."""
    count = DESTINATIONS // 10 if quick else DESTINATIONS
    first, cached = zip(*(_resolve(count) for _ in range(3)), strict=True)
    async with private_client() as (client, server):
        await _make(client, count)
        changes = ((1, _policy("1MiB")), (2, _policy("2MiB")), (3, _policy("3MiB")))
        spawn = multiprocessing.get_context("spawn")
        latencies: Any = spawn.Queue()
        during, over = spawn.Event(), spawn.Event()
        traffic = spawn.Process(target=_traffic, args=(server.url, during, over, latencies), daemon=True)
        traffic.start()
        await asyncio.to_thread(latencies.get)  # it flows
        await asyncio.sleep(QUIET_SECONDS)
        during.set()
        all_of_them = [await _apply(client, policy) for _, policy in changes]
        over.set()
        before, meanwhile = await asyncio.to_thread(latencies.get)
        await asyncio.to_thread(traffic.join)
        one_of_them = [await _apply(client, _policy("3MiB", f"{number}MiB")) for number in (5, 6, 7)]
        reached = {(await client.effective(f"d.{number}")).fields["limit_bytes"] for number in range(0, count, 97)}
        assert reached == {str(3 << 20)}
    ratio = percentile(meanwhile, 0.99) / percentile(before, 0.99)
    return [
        at_least(f"resolutions of {RULES} rules, cached", list(cached), "1/s", 200_000),
        at_least("  the first of each name", list(first), "1/s"),
        at_most(f"a change for all of {count} destinations", all_of_them, "s", 5),
        at_most(f"a change for one of {count}", one_of_them, "s", 5),
        Figure("sends meanwhile, p99", percentile(meanwhile, 0.99), "ms"),
        Figure("sends meanwhile, the longest", max(meanwhile), "ms"),
        Figure("sends before, p99", percentile(before, 0.99), "ms"),
        Figure("p99 meanwhile / before", ratio, "x", rounds=[median(meanwhile) / median(before)]),
    ]


def _resolve(count: int) -> tuple[float, float]:
    """Return resolutions a second of names that were not resolved before, and of those that were."""
    said = [f"d.{'*.' * (number % 3)}{number}{'.#' * (number % 2)}" for number in range(RULES)]
    rules = [Rule("d.#", None, {"limit_bytes": "1000"}, {}), *(Rule(m, None, {"max_attempts": "5"}, {}) for m in said)]
    policy = Policy(1, rules, defaults=DEFAULTS)
    names = [f"d.{number % 97}.{number}" for number in range(count)]
    with Stopwatch() as watch:
        for name in names:
            policy.resolve(name, "queue")
    first = count / watch.seconds
    rounds = RESOLUTIONS // count
    with Stopwatch() as watch:
        for _ in range(rounds):
            for name in names:
                policy.resolve(name, "queue")
    return first, rounds * count / watch.seconds


def _policy(limit: str, of_one: str | None = None) -> Policy:
    said = [("d.#", limit), *([("d.7", of_one)] if of_one else [])]
    rules = [
        Rule(match, None, fields, dict.fromkeys(fields, f"bench.toml:{line}"))
        for line, (match, size) in enumerate(said, 1)
        for fields in [headgate.Settings(limit=size, max_attempts=5, producer_window="64KiB").fields()]
    ]
    return Policy(0, rules, (), "bench.toml")


async def _make(client: headgate.Client, count: int) -> None:
    names = iter(range(count))

    async def some() -> None:
        for number in names:
            await client.apply(f"d.{number}", kind="queue")

    await asyncio.gather(*(some() for _ in range(32)))


async def _apply(client: headgate.Client, policy: Policy) -> float:
    with Stopwatch() as watch:
        await client.apply_policy(policy)
    return watch.seconds


def _traffic(url: str, during: Event, over: Event, out: Any) -> None:
    asyncio.run(_send(url, during, over, out))


async def _send(url: str, during: Event, over: Event, out: Any) -> None:
    """Send, and consume, one message after the other; report how long each took, before and during, in ms."""
    before: list[float] = []
    meanwhile: list[float] = []
    async with headgate.connect(url) as client, client.session("traffic") as session:
        producer, consumer = await session.producer("traffic"), await session.consumer("traffic")

        async def consume() -> None:
            async for message in consumer:
                await message.accept()

        consuming = asyncio.create_task(consume())
        for _ in range(500):
            await producer.send(b"x" * 100)
        out.put("it flows")
        while not over.is_set():
            into = meanwhile if during.is_set() else before
            began = time.perf_counter()
            await producer.send(b"x" * 100)
            into.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.001)
        consuming.cancel()
    out.put((before, meanwhile))

"""Limiters while processes are killed and stopped and replies are lost: nothing is ever held or used beyond a limit.

A seed decides what happens to whom. Judges are what the processes wrote down themselves, the limiter's ledger, and what
Redis says is taken at the end. With HEADGATE_FAULT_FIGURES=<file> each run appends its figures to it, a line of JSON.
"""

import asyncio
import json
import os
import random
import re
import signal
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import pytest
import redis

import headgate
from headgate.core.ledger import events
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from tests.amqp.node_processes import NodeProcess, nodes
from tests.faults import admitting
from tests.faults.judging import most_at_once, most_beyond, read
from tests.support.audited import audit
from tests.support.faultproxy import FaultProxy
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.timeout(300)]
PROCESSES: Final = 4
GUARD: Final = 60
AT_ONCE: Final = {"slots": 24, "bytes": 64 * 1024}
KEY_AT_ONCE: Final = {"slots": 8, "bytes": 32 * 1024}
RATES: Final = {"requests": (60, 24), "tokens": (4000, 1600)}
KEY_RATES: Final = {"requests": (50, 12)}
QUOTA: Final = 100
SECONDS: Final = {10.0: 26, 2.0: 12, 1.0: 1.5}
"""How long there are faults, by TTL."""


@dataclass
class Process:
    """A process that admits, and the line on which it does."""

    process: Forked
    session: str
    proxy: FaultProxy | None
    killed_ms: int = 0


@dataclass
class Chaos:
    """Processes of one limiter, and what happens to them.

    Args:
        redis_url: of the server that has the limiter, without a proxy.
        urls: for each process where it finds the limiter.
        proxies: those on the lines that can be cut; none where processes find nodes by themselves.
        client: for what is looked at.
        path: of the file of the witness.
        ttl: of the sessions.
        seed: of all that is random.
        times: so many times the limits that have all wait for each other: where nobody waits, slices are in hand.
        nodes: through which processes admit.
        slices: over which its keys are spread.
    """

    redis_url: str
    urls: list[str]
    proxies: list[FaultProxy]
    client: headgate.Client
    path: Path
    ttl: float
    seed: int
    times: int = 1
    nodes: list[NodeProcess] = field(default_factory=list)
    slices: int = 1
    processes: list[Process] = field(default_factory=list)
    killed: list[Process] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("killed", "stopped", "cut", "nodes"), 0))
    troubled: asyncio.Lock = field(default_factory=asyncio.Lock)
    stack: ExitStack = field(default_factory=ExitStack)

    async def __aenter__(self) -> Self:
        self.dice = random.Random(self.seed)
        reset = (datetime.now(UTC).hour + 12) % 24
        limits: dict[str, Any] = {name: {"at_once": most} for name, most in self.bounds(AT_ONCE).items()}
        limits |= {
            name: {"rate": f"{rate * self.times}/s", "burst": burst * self.times}
            for name, (rate, burst) in RATES.items()
        }
        of_keys: dict[str, Any] = {name: {"at_once": most} for name, most in self.bounds(KEY_AT_ONCE).items()}
        of_keys |= {
            name: {"rate": f"{rate * self.times}/s", "burst": burst * self.times}
            for name, (rate, burst) in KEY_RATES.items()
        }
        limits["mails"] = {"quota": f"{QUOTA}/day", "resets": f"{reset:02}:00 UTC"}
        await self.client.apply(
            admitting.LIMITER, kind="limiter", limits=limits, key_limits=of_keys, ledger_keep=10_000_000,
            slices=self.slices,
        )  # fmt: skip
        for number in range(PROCESSES):
            self.processes.append(await self.start(number))
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self.processes:
            one.process.send_signal(signal.SIGCONT)
            one.process.kill()
        self.stack.close()

    def bounds(self, limits: dict[str, int]) -> dict[str, int]:
        """Return what may be held at once."""
        return {name: most * self.times for name, most in limits.items()}

    async def start(self, number: int) -> Process:
        """Start a process; every second one has slices in hand. One that finds no node is started again."""
        proxy = self.proxies[number % len(self.proxies)] if self.proxies else None
        arguments = (
            *(admitting.__name__, self.urls[number % len(self.urls)], self.client.namespace, str(self.path)),
            *(f"{self.seed}/{number}/{len(self.killed)}", str(self.ttl), "yes" if number % 2 else "no"),
        )
        async with asyncio.timeout(GUARD):
            while True:
                process = Forked(*arguments, environment=os.environ, stdin=PIPE, stdout=PIPE)
                self.stack.enter_context(process)
                assert process.stdout is not None
                words = (await asyncio.to_thread(process.stdout.readline)).split()
                if words[:1] == ["ready"]:
                    return Process(process, words[1], proxy)

    async def rage(self) -> None:
        """Have one thing after the other go wrong; several may at a time."""
        ends = time.monotonic() + SECONDS[self.ttl]
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < ends:
                number = self.dice.randrange(PROCESSES)
                group.create_task(
                    self.dice.choice((self.kill, self.stop, self.cut, self.cut, self.trouble_node))(number)
                )
                await asyncio.sleep(self.dice.random() * self.ttl / 3)
        for proxy in self.proxies:
            proxy.pass_through()

    async def kill(self, number: int) -> None:
        """Kill a process, and start another."""
        one = self.processes[number]
        if one.killed_ms:
            return
        self.counts["killed"] += 1
        one.killed_ms = time.time_ns() // 1_000_000
        one.process.kill()
        await asyncio.to_thread(one.process.wait, GUARD)
        if (proxy := one.proxy) is not None:
            proxy.pass_through()
            if not self.nodes:
                await wait_until(lambda: not proxy.lines, timeout=GUARD, description="its last calls are at Redis")
        async with self.troubled:  # a node that is stopped has calls of it yet
            one.killed_ms = time.time_ns() // 1_000_000
        self.killed.append(one)
        self.processes[number] = await self.start(number)

    async def stop(self, number: int) -> None:
        """Stop a process for a while, one time in two for longer than its leases."""
        process = self.processes[number].process
        self.counts["stopped"] += 1
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.ttl * self.dice.choice((0.1, 0.5, 1.1, 1.3)))
        process.send_signal(signal.SIGCONT)

    async def cut(self, number: int) -> None:
        """Lose replies, hold the line, or cut it."""
        self.counts["cut"] += 1
        proxy = self.processes[number].proxy
        if proxy is None:
            with redis.Redis.from_url(self.redis_url) as direct, suppress(redis.RedisError):
                direct.execute_command("CLIENT", "KILL", "TYPE", "normal")
            return
        match self.dice.randrange(4):
            case 0:
                proxy.hold()
            case 1:
                proxy.delay(self.dice.random() * self.ttl / 10)
            case 2:
                proxy.reset()
            case _:
                proxy.lose_every(self.dice.randrange(2, 20))
        await asyncio.sleep(self.dice.random() * self.ttl / 3)
        proxy.pass_through()

    async def trouble_node(self, number: int) -> None:
        """Kill a node and start it again, or stop it for a while; the other one goes on."""
        if not self.nodes or self.troubled.locked():
            return
        async with self.troubled:
            self.counts["nodes"] += 1
            node = self.nodes[number % len(self.nodes)]
            if self.dice.random() < 0.5:
                node.kill9()
                await asyncio.to_thread(node.start)
            else:
                node.signal(signal.SIGSTOP)
                await asyncio.sleep(self.ttl * self.dice.random())
                node.signal(signal.SIGCONT)

    async def go_on(self) -> None:
        """Wait until each process admits, now that nothing goes wrong any more."""
        pids = {str(one.process.pid) for one in self.processes}
        begun = len(self.path.read_text().splitlines())

        def admit() -> bool:
            lines = self.path.read_text().splitlines()[begun:]
            return pids <= {line.split(" ")[0] for line in lines if " begin " in line}

        await wait_until(admit, timeout=GUARD, description="all processes admit again")

    async def end(self) -> None:
        """End the processes, and wait until nothing is held or waited for."""
        for one in self.processes:
            assert one.process.stdin is not None
            one.process.stdin.close()
        for one in self.processes:
            assert await asyncio.to_thread(one.process.wait, GUARD) == 0

        async def is_over() -> bool:
            with suppress(headgate.CoordinatorUnavailable):  # a line that was cut
                for part in self.parts:
                    await self.store.sweep(part)
                levels = await self.store.levels(self.address, most=1000, slices=self.slices)
                return levels is not None and not levels.holds and not levels.waiting
            return False

        await wait_until(is_over, timeout=GUARD, description="nothing is held any more")

    @property
    def store(self) -> LimiterStore:
        return LimiterStore(self.client.store.server)

    @property
    def address(self) -> Address:
        return Address.of(self.client.namespace, admitting.LIMITER)

    @property
    def parts(self) -> list[Address]:
        """All its slices."""
        names = (slice_name(admitting.LIMITER, number) for number in range(self.slices))
        return [Address.of(self.client.namespace, name) for name in names]

    def ledger(self, part: Address) -> list[tuple[bytes, Any]]:
        """Return all entries of a slice's ledger."""
        key = f"{part.key}:ledger"
        kind = redis.Redis if self.proxies else redis.RedisCluster
        with kind.from_url(self.redis_url) as direct:
            return [(number, *fields.items()) for number, fields in direct.xrange(key)]

    def burst(self, rate: int, burst: int) -> float:
        """Return what may be used at once: a burst, and what the processes that take slices have in hand of it."""
        return self.times * (burst + PROCESSES / 2 * min(burst / 4, rate / 10))

    def back(self, story: list[list[str]]) -> list[int]:
        """Return after how many ms the holds of a killed process were over; nobody is late who looked first then.

        A lease is doubted by the first call after 0.6 of it: as long as all others are stopped too, nobody can.
        """
        took, times = [], [int(entry[1]) for entry in story]
        for one in self.killed:
            held: dict[str, int] = {}
            dead = last = one.killed_ms  # call before
            for entry in story:
                at = int(entry[1])
                if entry[3] == one.session:  # what it sent before was under way still
                    dead = max(dead, at)
                for event, words in events(entry[7]):
                    hold = words[0] if words else ""
                    if hold.rpartition(".")[0] == one.session and event == "held":
                        held[hold] = at
                    elif event in ("lapsed", "freed") and held.pop(hold, None) is not None and at > dead:
                        at_first = bisect_left(times, dead + 600 * self.ttl)
                        took.append(last - max(dead, times[min(at_first, len(times) - 1)] - round(600 * self.ttl)))
                last = max(last, at)
            assert not held, "they are over at the end"
        return took

    async def judge(self, name: str) -> None:
        """See that nothing was held, used or counted beyond a limit, by all who know of it."""
        ledgers = list(map(self.ledger, self.parts))
        for entries in ledgers:
            assert not audit(entries)
        levels = await self.store.levels(self.address, most=1000, slices=self.slices)
        assert levels is not None
        mails = next(int(row.split()[5]) for row in levels.limits if row.startswith("mails "))
        stories = [[text.decode().split(",") for _, (_, text) in entries] for entries in ledgers]
        counted, back = _mails(stories[0]), [took for story in stories for took in self.back(story)]
        holds = read(self.path)
        figures = {
            "scenario": name, "seed": self.seed, "ttl": self.ttl, **self.counts, "holds": len(holds),
            "in_hand": sum(one.in_hand for one in holds),
            "replies_lost": sum(proxy.lost for proxy in self.proxies), "mails": mails,
            "back_within_s": max(back, default=0) / 1000,
        }  # fmt: skip
        at_once = {of: most_at_once(holds, of) for of in AT_ONCE}
        beyond = {of: most_beyond(holds, of, rate * self.times) for of, (rate, _) in RATES.items()}
        of_keys = {of: most_beyond(holds, of, rate * self.times) for of, (rate, _) in KEY_RATES.items()}
        figures |= {"at_once": at_once, "beyond": beyond, "of_keys": of_keys}
        if path := os.environ.get("HEADGATE_FAULT_FIGURES"):
            with Path(path).open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - a line
                file.write(f"{json.dumps(figures)}\n")
        for of, held in at_once.items():
            assert held.pop("*", 0) <= self.times * AT_ONCE[of], (of, figures)
            assert all(number <= self.times * KEY_AT_ONCE[of] for number in held.values()), (of, figures)
        for of, rate in RATES.items():
            assert beyond[of].get("*", 0) <= self.burst(*rate), (of, figures)
        for of, rate in KEY_RATES.items():
            assert all(most <= self.burst(*rate) for key, most in of_keys[of].items() if key != "*"), (of, figures)
        assert mails == counted <= QUOTA
        assert sum(one.amounts.get("mails", 0) for one in holds) <= mails
        assert max(back, default=0) <= (self.ttl + 1) * 1000, figures


def _mails(story: list[list[str]]) -> int:
    """Return how many of the quota were ever taken and did not come back, as the ledger has it."""
    taken: dict[str, int] = {}
    settled: set[str] = set()
    for entry in story:
        for event, words in events(entry[7]):
            found = re.search(r"\bmails=(\d+)", ":".join(words))
            if event == "held" and found:
                taken[words[0]] = int(found[1])
            elif event == "used" and found and words[0] in taken and words[0] not in settled:
                taken[words[0]] = int(found[1])
                settled.add(words[0])
    return sum(taken.values())


@asynccontextmanager
async def chaos(
    url: str, namespace: str, path: Path, ttl: float, seed: int, *, cuts: bool = True, slices: int = 1
) -> AsyncIterator[Chaos]:
    """Processes of a Redis, each with a line of its own that can be cut; or of a cluster, whose servers cut theirs."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(headgate.connect(url, namespace=namespace))
        proxies = [await stack.enter_async_context(FaultProxy(url)) for _ in range(PROCESSES)] if cuts else []
        urls = [proxy.url for proxy in proxies] or [url]
        yield await stack.enter_async_context(
            Chaos(url, urls, proxies, client, path / "witness", ttl, seed, 1 + 19 * (seed % 2), slices=slices)
        )


async def _run(chaos: Chaos, name: str) -> None:
    await chaos.go_on()
    await chaos.rage()
    await chaos.go_on()
    await chaos.end()
    await chaos.judge(name)


@pytest.mark.parametrize(
    ("ttl", "seed"),
    [
        (1.0, 1),
        *(pytest.param(2.0, seed, marks=pytest.mark.soak) for seed in range(1, 11)),
        *(pytest.param(10.0, seed, marks=pytest.mark.soak) for seed in range(11, 15)),
    ],
)
async def test_processes_that_are_killed_stopped_and_cut_off_hold_no_more_than_they_may(
    redis_url: str, cleanup_namespace: str, tmp_path: Path, ttl: float, seed: int
) -> None:
    async with chaos(redis_url, cleanup_namespace, tmp_path, ttl, seed) as running:
        await _run(running, "redis")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("ttl", "seed"), [*((2.0, seed) for seed in range(1, 11)), *((10.0, seed) for seed in range(11, 15))]
)
async def test_they_hold_no_more_where_keys_are_spread_over_slices(
    redis_url: str, cleanup_namespace: str, tmp_path: Path, ttl: float, seed: int
) -> None:
    async with chaos(redis_url, cleanup_namespace, tmp_path, ttl, seed, slices=3) as running:
        await _run(running, "slices")


@pytest.mark.soak
@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("seed", range(3))
async def test_they_do_so_on_a_cluster(
    cluster_url: str, cleanup_namespace: str, tmp_path: Path, seed: int, slices: int
) -> None:
    async with chaos(cluster_url, cleanup_namespace, tmp_path, 2.0, seed, cuts=False, slices=slices) as running:
        await _run(running, "cluster")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_they_do_so_over_nodes_that_are_killed_and_stopped_too(
    redis_url: str, cleanup_namespace: str, tmp_path: Path, seed: int
) -> None:
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(FaultProxy(redis_url)) for _ in range(2)]
        started = ExitStack()
        stack.push_async_callback(asyncio.to_thread, started.close)
        both = []
        for proxy in proxies:  # which run in this loop
            both += await asyncio.to_thread(started.enter_context, nodes(proxy.url, cleanup_namespace, 1))
        client = await stack.enter_async_context(headgate.connect(redis_url, namespace=cleanup_namespace))
        places = [f"127.0.0.1:{node.port}" for node in both]
        urls = [f"amqp://{','.join(places)}", f"amqp://{','.join(reversed(places))}"]
        running = Chaos(redis_url, urls, proxies, client, tmp_path / "witness", 2.0, seed, 1 + 19 * (seed % 2), both)
        await _run(await stack.enter_async_context(running), "nodes")

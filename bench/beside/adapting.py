"""A limit that adapts, beside a static one and one that each process adapts for itself, at a service of known capacity.

    python -m bench.beside.adapting [--seconds 40] [--sessions 1 50] [--kinds aimd] [--slots 30] [--took 0.5]

The service is in this process: so many slots, a queue, and times that scatter; its capacity halves, and doubles again.
All contenders meet it alone, one after the other, for the same time. Redis is a private one, clients are real sessions.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, quantiles
from time import monotonic
from typing import Any, Final

import headgate

SLOTS: Final = 30
TOOK: Final = 0.5
SPREAD: Final = 0.3
FLOOR: Final = 4
MOST: Final = 4
"""Times the slots, that the limit may become."""
CALLERS: Final = 3
"""Callers for each slot."""
PHASES: Final = ((1.0, "cold"), (0.5, "halved"), (1.0, "doubled"))
KINDS: Final = ("aimd", "each for itself", "gradient", "static")
WITHIN: Final = {"cold": 20, "halved": 10, "doubled": 10}


class Refused(Exception):
    """The service is full."""


class Service:
    """A service: it does ``slots`` calls at a time, lets ``queue`` wait, and refuses more."""

    def __init__(self, slots: int, queue: int, took: float, seed: int = 1) -> None:
        self.slots, self.queue = slots, queue
        self.most, self.took = slots, took
        self.busy, self.inside = 0, 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.random = random.Random(seed)
        self.sigma = math.sqrt(math.log(1 + SPREAD**2))

    async def call(self) -> None:
        if self.busy >= self.slots and len(self.waiting) >= self.queue:
            await asyncio.sleep(0.002)
            raise Refused
        self.inside += 1
        try:
            if self.busy >= self.slots:
                turn = asyncio.get_running_loop().create_future()
                self.waiting.append(turn)
                await turn
            self.busy += 1
            try:
                took = self.took * math.exp(self.random.gauss(-(self.sigma**2) / 2, self.sigma))
                await asyncio.sleep(took)
            finally:
                self.busy -= 1
                while self.waiting and self.busy < self.slots:
                    turn = self.waiting.popleft()
                    if not turn.done():
                        turn.set_result(None)
                        break
        finally:
            self.inside -= 1


@dataclass
class Seen:
    """The figures of one contender."""

    begun: float = field(default_factory=monotonic)
    good: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    times: dict[int, list[float]] = field(default_factory=dict)
    limits: dict[int, float] = field(default_factory=dict)
    inside: dict[int, list[int]] = field(default_factory=dict)

    @property
    def second(self) -> int:
        return int(monotonic() - self.begun)


Enter = Callable[[], Any]


async def call(service: Service, enter: Enter, seen: Seen, over: asyncio.Event) -> None:
    """Call again and again, each time admitted first; the time counts from when it was wanted."""
    while not over.is_set():
        wanted = monotonic()
        try:
            async with enter():
                began = monotonic()
                await service.call()
        except Refused:
            seen.refused[seen.second] += 1
            await asyncio.sleep(0.02)
        except headgate.HeadgateError:  # a machine too busy for Redis to answer in time
            await asyncio.sleep(0.1)
        else:
            seen.good[seen.second] += 1
            seen.times.setdefault(seen.second, []).append(monotonic() - began)
        del wanted


class Own:
    """AIMD of one process: one more for each full round that went well, nine tenths after a refusal."""

    def __init__(self, most: int) -> None:
        self.limit, self.held = float(FLOOR), 0
        self.most = most
        self.free = asyncio.Condition()

    @asynccontextmanager
    async def enter(self) -> Any:
        async with self.free:
            await self.free.wait_for(lambda: self.held < int(self.limit))
            self.held += 1
        full = self.held >= int(self.limit) - 1
        try:
            yield
            if full:
                self.limit = min(self.most, self.limit + 1 / self.limit)
        except Refused:
            self.limit = max(1.0, self.limit * 0.9)
            raise
        finally:
            async with self.free:
                self.held -= 1
                self.free.notify(2)


async def look_inside(service: Service, seen: Seen, over: asyncio.Event) -> None:
    """Note how many calls are at the service, waiting there or being done, twenty times a second."""
    while not over.is_set():
        seen.inside.setdefault(seen.second, []).append(service.inside)
        await asyncio.sleep(0.05)


async def drive(service: Service, enters: list[Enter], seconds: int, watch: Callable[[], Awaitable[float]]) -> Seen:
    """Have callers at work through all phases, and look at the limit each second."""
    seen, over = Seen(), asyncio.Event()
    tasks = [
        asyncio.create_task(call(service, enters[n % len(enters)], seen, over)) for n in range(CALLERS * service.most)
    ]
    tasks.append(asyncio.create_task(look_inside(service, seen, over)))
    try:
        for phase, (part, _) in enumerate(PHASES):
            service.slots = round(service.most * part)
            while seen.second < (phase + 1) * seconds:
                await asyncio.sleep(max(0.0, seen.begun + seen.second + 0.9 - monotonic()))
                with contextlib.suppress(headgate.HeadgateError):
                    seen.limits[seen.second] = await watch()
                await asyncio.sleep(max(0.001, seen.begun + seen.second + 1 - monotonic()))
    finally:
        over.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return seen


def to_limit(seen: Seen, seconds: range) -> Iterator[float]:
    """Yield what was inside as a part of the limit in force: that of its second or of one beside it."""
    for at in seconds:
        limits = [seen.limits[near] for near in (at - 1, at, at + 1) if near in seen.limits]
        if limits and at in seen.inside:
            yield max(seen.inside[at]) / max(limits)


def figures(seen: Seen, seconds: int, slots: int, took: float) -> dict[str, Any]:
    """Return what came of each phase."""
    found: dict[str, Any] = {}
    for phase, (part, name) in enumerate(PHASES):
        begin, end = phase * seconds, (phase + 1) * seconds
        capacity = round(slots * part)
        limits = [seen.limits[at] / capacity for at in range(begin, end) if at in seen.limits]
        settled = range(begin + WITHIN[name], end)
        tail = [seen.limits[at] / capacity for at in settled if at in seen.limits]
        times = sorted(one for at in settled for one in seen.times.get(at, ()))
        middle = mean(tail)
        inside = [one / capacity for at in settled for one in seen.inside.get(at, ())]
        found[name] = {
            "found_after_s": next((at for at, one in enumerate(limits, 1) if 0.85 <= one <= 1.15), None),
            "limit_to_capacity": round(middle, 3),
            "lowest": round(min(tail), 3),
            "highest": round(max(tail), 3),
            "seconds_within_10_percent_of_its_mean": round(mean(abs(one - middle) <= 0.1 * middle for one in tail), 3),
            "inside_to_capacity": round(mean(inside), 3),
            "most_inside_to_capacity": round(max(inside), 3),
            "inside_above_a_tenth": round(mean(one > 1.1 + 1e-9 for one in inside), 4),
            "most_inside_to_limit": round(max(to_limit(seen, settled)), 3),
            "most_inside_on_the_way": round(
                max(max(seen.inside.get(at, [0])) for at in range(begin, end)) / capacity, 3
            ),
            "goodput_to_capacity": round(mean(seen.good[at] for at in settled) / (capacity / took), 3),
            "refused_per_good": round(
                sum(seen.refused[at] for at in settled) / max(1, sum(seen.good[at] for at in settled)), 3
            ),
            "p99_ms": round(quantiles(times, n=100)[98] * 1000) if len(times) > 100 else None,
        }
    return found


async def contender(kind: str, sessions: int, queue: int, options: argparse.Namespace) -> Seen:
    service, seconds = Service(options.slots, queue, options.took), options.seconds
    most = MOST * options.slots
    if kind == "each for itself":
        own = [Own(most) for _ in range(sessions)]

        async def total() -> float:
            return sum(one.limit for one in own)

        return await drive(service, [one.enter for one in own], seconds, total)
    adapts = {"min": FLOOR, "max": most, "adapt": kind}
    async with headgate.connect(namespace="bench") as client:
        at_once: Any = adapts if kind in ("aimd", "gradient") else options.slots
        await client.apply("service", kind="limiter", limits={"calls": {"at_once": at_once}})
        held = [client.session(f"c{number}") for number in range(sessions)]
        limiters = [await one.limiter("service", in_hand=False) for one in held]

        async def limit() -> float:
            return (await limiters[0].state())["calls"].limit

        def entering(limiter: headgate.Limiter) -> Enter:
            def rule(error: BaseException) -> Any:
                return "overload" if isinstance(error, Refused) else "ignore"

            return lambda: limiter.admit(calls=1, timeout=60, outcome_of=rule)

        try:
            return await drive(service, [entering(one) for one in limiters], seconds, limit)
        finally:
            for one in held:
                await one.close()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for sessions in options.sessions:
        for kind in options.kinds:
            queue = 7 * options.slots if kind == "gradient" else 0
            name = f"{kind}, {sessions} sessions, queue of {queue}"
            seen = await contender(kind, sessions, queue, options)
            found[name] = figures(seen, options.seconds, options.slots, options.took)
            print(name, json.dumps(found[name]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=40, help="of each phase")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--slots", type=int, default=SLOTS, help="calls that the service does at a time")
    parser.add_argument("--took", type=float, default=TOOK, help="seconds that one takes, on average")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = asyncio.run(run(options))
    if options.out:
        command = "python -m bench.beside.adapting " + " ".join(sys.argv[1:])
        result = {"command": command, "load": os.getloadavg()[0], "found": found}
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

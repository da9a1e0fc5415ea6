"""Bands under overload: how long the first one waits alone and beside others, and what the last one gets still."""

import asyncio
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from time import perf_counter
from typing import Final

import headgate
from bench.harness import Figure, percentile, private_client

SLOTS: Final = 20
TOOK: Final = 0.5
"""Seconds that a call takes; with all slots it is 40 calls a second."""
CAPACITY: Final = SLOTS / TOOK
OFFERED: Final = {0: 0.05, 3: 1.5, 7: 1.45}
"""Calls of each band as parts of the capacity: three times as many as are served."""
RESERVE: Final = {"0": 0.4}
AGING: Final = 0.5
PATIENCE: Final = 6.0
ROUNDS: Final = 4
STARTING: Final = 3.0
"""Seconds until the process of the others has begun, and the line is full."""


@dataclass
class Seen:
    """Calls that ended: seconds that those of the first band waited, and how many of each band were admitted."""

    waits: list[float] = field(default_factory=list)
    admitted: Counter[int] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)


async def _call(limiter: headgate.Limiter, band: int, seen: Seen) -> None:
    began = perf_counter()
    try:
        hold = await limiter.admit(slots=1, band=band, timeout=PATIENCE)
    except headgate.CreditTimeout:
        seen.late[band] += 1
        return
    if band == 0:
        seen.waits.append(perf_counter() - began)
    seen.admitted[band] += 1
    await asyncio.sleep(TOOK)
    hold.release()


async def _offer(limiters: dict[int, headgate.Limiter], seconds: float, seen: Seen) -> None:
    """Have calls come at random moments, as many as each band offers, whatever becomes of them."""
    ends = perf_counter() + seconds

    async def come(band: int) -> None:
        chance, calls = random.Random(band), set[asyncio.Task[None]]()
        while perf_counter() < ends:
            await asyncio.sleep(chance.expovariate(OFFERED[band] * CAPACITY))
            task = asyncio.create_task(_call(limiters[band], band, seen))
            calls.add(task)
            task.add_done_callback(calls.discard)
        await asyncio.gather(*calls)

    await asyncio.gather(*(come(band) for band in limiters))


async def _overload(url: str, name: str, seconds: float) -> Seen:
    seen = Seen()
    async with headgate.connect(url) as client:
        sessions = {band: client.session(f"band-{band}") for band in OFFERED if band}
        limiters = {band: await session.limiter(name, in_hand=False) for band, session in sessions.items()}
        try:
            await _offer(limiters, seconds, seen)
        finally:
            for session in sessions.values():
                await session.close()
    return seen


def _others(url: str, name: str, seconds: float) -> Seen:
    return asyncio.run(_overload(url, name, seconds))


async def _beside(
    client: headgate.Client, url: str, name: str, seconds: float, **settings: object
) -> tuple[Seen, Seen]:
    """Return what was seen of the first band alone and of all, in turns; the others are in a process of their own."""
    await client.apply(name, kind="limiter", limits={"slots": {"at_once": SLOTS}}, aging=AGING, **settings)  # type: ignore[arg-type]  # settings by name
    alone, beside = Seen(), Seen()
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        async with client.session("band-0") as session:
            first = {0: await session.limiter(name, in_hand=False)}
            for _ in range(ROUNDS):
                await _offer(first, seconds, alone)
                others = loop.run_in_executor(apart, _others, url, name, seconds + STARTING)
                await asyncio.sleep(STARTING)
                await _offer(first, seconds, beside)
                found = await others
                beside.admitted += found.admitted
                beside.late += found.late
    return alone, beside


def _figures(kind: str, alone: Seen, beside: Seen) -> list[Figure]:
    before, after = percentile(alone.waits, 0.99), percentile(beside.waits, 0.99)
    total = sum(beside.admitted.values())
    owed = 1 / (7 * AGING * SLOTS + 8)  # a turn for so many calls that pass it, and one of each band
    share = beside.admitted[7] / total
    middle = percentile(beside.waits, 0.5) / percentile(alone.waits, 0.5)
    return [
        Figure(f"{kind}: the first band alone waits at p99", before * 1000, "ms"),
        Figure(f"{kind}: beside three times as much, at p99", after * 1000, "ms"),
        Figure(f"{kind}: that to the first", after / before, "times", "<= 1.2", after <= 1.2 * before),
        Figure(f"{kind}: the same of the middle", middle, "times"),
        Figure(f"{kind}: calls of the first band", len(beside.waits), ""),
        Figure(f"{kind}: of the first band not in time", beside.late[0], ""),
        Figure(f"{kind}: share of the last band to what aging owes it", share / owed, "times", ">= 1", share >= owed),
    ]  # fmt: skip


async def measure(*, quick: bool) -> list[Figure]:
    """Return how a band goes first at three times the capacity, with a part kept for it and without."""
    seconds = 5 if quick else 20
    async with private_client() as (client, server):
        kept = _figures("a part is kept", *await _beside(client, server.url, "kept", seconds, reserve=RESERVE))
        strict = _figures("order alone", *await _beside(client, server.url, "strict", seconds))
    return kept + strict

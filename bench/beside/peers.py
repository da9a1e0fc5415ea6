"""One limit of a thousand a second, shared by eight processes: what we and others admit, and what a decision costs.

Those that are not installed are left out: `pip install limits throttled-py pyrate-limiter`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from redis import Redis

import headgate
from bench.harness import Figure, at_most, private_client

RATE: Final = 1000
"""Admissions a second."""
BURST: Final = 100
"""Of those that have one; others say that no second has more than the rate."""
PROCESSES: Final = 8
NAME: Final = "peers"
Decide = Callable[[], bool]


def _limits_fixed(url: str) -> Decide:
    from limits import RateLimitItemPerSecond, storage, strategies

    limiter = strategies.FixedWindowRateLimiter(storage.RedisStorage(f"redis+unix://{urlsplit(url).path}"))
    return lambda: bool(limiter.hit(RateLimitItemPerSecond(RATE), NAME))


def _limits_moving(url: str) -> Decide:
    from limits import RateLimitItemPerSecond, storage, strategies

    limiter = strategies.MovingWindowRateLimiter(storage.RedisStorage(f"redis+unix://{urlsplit(url).path}"))
    return lambda: bool(limiter.hit(RateLimitItemPerSecond(RATE), NAME))


def _throttled(url: str) -> Decide:
    import throttled

    store: Any = throttled.RedisStore(server=f"unix://{urlsplit(url).path}")
    quota = throttled.rate_limiter.per_sec(RATE, burst=BURST)
    limiter: Any = throttled.Throttled(key=NAME, using="gcra", quota=quota, store=store)
    return lambda: not limiter.limit().limited


def _pyrate(url: str) -> Decide:
    pyrate: Any = import_module("pyrate_limiter")
    store = pyrate.RedisStateStore(Redis.from_url(url), NAME)
    bucket = pyrate.StateBucket([pyrate.Rate(RATE, pyrate.Duration.SECOND, BURST)], pyrate.GCRA(), store)
    limiter = pyrate.Limiter(bucket)
    return lambda: bool(limiter.try_acquire(NAME, blocking=False))


PEERS: Final[dict[str, tuple[str, Callable[[str], Decide], int]]] = {
    "limits, fixed window": ("limits", _limits_fixed, RATE),
    "limits, moving window": ("limits", _limits_moving, RATE),
    "throttled-py, GCRA": ("throttled", _throttled, RATE + BURST),
    "pyrate-limiter, GCRA": ("pyrate_limiter", _pyrate, RATE + BURST),
}
"""The module that has to be there, and the most that it admits in a second by its own rule."""
OURS: Final = {"Headgate": 1, "Headgate, 64 at a time": 64}


def _wait_for_begin() -> float:
    """Say that all is open, and wait for the moment at which everybody begins."""
    print("ready", flush=True)
    begins = float(sys.stdin.readline())
    time.sleep(max(0.0, begins - monotonic()))
    return begins


async def _ours(url: str, beside: int, seconds: float) -> None:
    """Have so many attempts made beside one another."""
    admitted: list[tuple[float, float]] = []
    decisions = 0
    async with headgate.connect(url) as client, client.session("s") as session:
        limiter = await session.limiter(NAME, in_hand=False)
        ends = _wait_for_begin() + seconds
        spent = time.process_time()

        async def go_on() -> None:
            nonlocal decisions
            while monotonic() < ends:
                asked = monotonic()
                hold = await limiter.attempt(calls=1)
                decisions += 1
                if isinstance(hold, headgate.Hold):
                    admitted.append((asked, monotonic()))
                    hold.release()

        await asyncio.gather(*(go_on() for _ in range(beside)))
        spent = time.process_time() - spent
    print(json.dumps([decisions, spent, admitted]))


def _theirs(decide: Decide, seconds: float) -> None:
    """Make one decision after the other."""
    admitted: list[tuple[float, float]] = []
    decisions = 0
    ends = _wait_for_begin() + seconds
    spent = time.process_time()
    while monotonic() < ends:
        asked = monotonic()
        decisions += 1
        if decide():
            admitted.append((asked, monotonic()))
    print(json.dumps([decisions, time.process_time() - spent, admitted]))


def work(name: str, url: str, seconds: float) -> None:
    """Decide for so long, and print how many decisions there were, what they cost, and what was admitted when."""
    if name in OURS:
        asyncio.run(_ours(url, OURS[name], seconds))
    else:
        _theirs(PEERS[name][1](url), seconds)


def _of_redis(redis: Any) -> float:
    """Return the seconds of a processor that Redis has used."""
    info = redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def most_in_a_second(admitted: list[tuple[float, float]]) -> int:
    """Return the most that surely was admitted within any one second."""
    asked, heard = np.array(sorted(admitted, key=lambda pair: pair[1])).T
    return max(int(np.sum((asked >= begin) & (heard <= begin + 1))) for begin in asked)


def _run(name: str, url: str, redis: Any, seconds: float) -> tuple[float, float, int]:
    """Return decisions a second of a client's processor, microseconds of Redis for each, and the most in a second."""
    command = [sys.executable, "-m", "bench.beside.peers", name, url, str(seconds)]
    processes = [Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(PROCESSES)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    before = _of_redis(redis)
    begins = f"{monotonic() + 0.2}\n"
    with ThreadPoolExecutor(PROCESSES) as pool:
        outputs = [json.loads(text) for text, _ in pool.map(lambda process: process.communicate(begins), processes)]
    decisions = sum(output[0] for output in outputs)
    spent = 1e6 * (_of_redis(redis) - before)
    admitted = [tuple(pair) for output in outputs for pair in output[2]]
    return decisions / sum(output[1] for output in outputs), spent / decisions, most_in_a_second(admitted)


async def measure(*, quick: bool) -> list[Figure]:
    """Return for each what a decision costs, and by how much the busiest second exceeds what it allows."""
    figures = []
    async with private_client() as (client, _):
        await client.apply(NAME, kind="limiter", limits={"calls": {"rate": f"{RATE}/s", "burst": BURST}})
        with Redis.from_url(client.redis_url) as redis:
            for name, most in [*((one, RATE + BURST) for one in OURS), *((one, PEERS[one][2]) for one in PEERS)]:
                if name in PEERS and find_spec(PEERS[name][0]) is None:
                    print(f"{name} is left out: it is not installed")
                    continue
                pace, cost, busiest = await asyncio.to_thread(_run, name, client.redis_url, redis, 2 if quick else 5)
                busy = f"{name}: in the busiest second, of what it allows"
                figures += [
                    Figure(f"{name}: decisions", pace, "/s of a client's processor"),
                    Figure(f"{name}: a decision", cost, "us of Redis' processor"),
                    at_most(busy, [busiest / most], "times", 1.0)
                    if name in OURS
                    else Figure(busy, busiest / most, "times"),
                ]
    return figures


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], float(sys.argv[3]))

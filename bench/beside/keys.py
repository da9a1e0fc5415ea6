"""A limiter whose keys lie in slices beside the same in one slot: what a decision costs.

    python -m bench.beside.keys [--seconds 5] [--tasks 64] [--keys 1000] [--rounds 3] [--out FILE]

Tasks of one session admit and release, each for the next key in turn, at a private server; nothing is short. Each round
has every form once; of each it prints medians: decisions a second, the time of one, and, for each, calls of scripts and
processor time of Redis.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import headgate
from bench.beside.slices import cpu
from tests.support.servers import RedisServer, newest_server

FREE = {"slots": {"at_once": "unlimited"}, "requests": {"rate": "unlimited"}}
OF_ALL = {"slots": {"at_once": 100_000}, "requests": {"rate": "1000000/s"}}
OF_KEY = {"slots": {"at_once": 1000}, "requests": {"rate": "100000/s"}}
FORMS: dict[str, tuple[dict[str, Any], int, bool]] = {
    "one slot": (OF_ALL, 1, False),
    "6 slices, limits of keys": (FREE, 6, False),
    "6 slices, of all too": (OF_ALL, 6, False),
    "one slot, in hand": (OF_ALL, 1, True),
    "6 slices, of all too, in hand": (OF_ALL, 6, True),
}


async def calls(client: headgate.Client) -> int:
    """Return how many scripts the server has run."""
    stats = await client.store.server.everywhere("INFO", "commandstats")
    text = b"".join(one for one in stats if isinstance(one, bytes)).decode()
    rows = (line.split(":", 1) for line in text.splitlines() if line.startswith(("cmdstat_evalsha:", "cmdstat_fcall:")))
    return sum(int(words.split("calls=")[1].split(",")[0]) for _, words in rows)


async def decide(url: str, form: str, options: argparse.Namespace) -> dict[str, float]:
    """Admit for some seconds."""
    limits, slices, in_hand = FORMS[form]
    async with headgate.connect(url, namespace=f"keys-{time.time_ns()}") as client, client.session() as session:
        await client.apply("api", kind="limiter", limits=limits, key_limits=OF_KEY, slices=slices)
        limiter = await session.limiter("api", in_hand=in_hand)
        names, took = itertools.cycle([f"tenant-{number}" for number in range(options.keys)]), []
        until = time.perf_counter() + 1

        async def work() -> None:
            while (begun := time.perf_counter()) < until:
                async with limiter.admit(key=next(names), slots=1, requests=1):
                    took.append(time.perf_counter() - begun)

        await asyncio.gather(*(work() for _ in range(options.tasks)))  # once, for what is new
        took.clear()
        used, called, began = sum(await cpu([url])), await calls(client), time.perf_counter()
        until = began + options.seconds
        await asyncio.gather(*(work() for _ in range(options.tasks)))
        count = len(took)
        return {
            "decisions_per_s": count / (time.perf_counter() - began), "p50_ms": 1000 * statistics.median(took),
            "calls": (await calls(client) - called) / count, "redis_us": 1e6 * (sum(await cpu([url])) - used) / count,
        }  # fmt: skip


async def measure(url: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return medians of all forms, each of which comes once in each round."""
    found: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    for _ in range(options.rounds):
        for form, rounds in found.items():
            rounds.append(await decide(url, form, options))
    return {
        form: {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}
        for form, rounds in found.items()
    }


def main(options: argparse.Namespace) -> None:
    """Measure, print, and keep it."""
    load = Path("/proc/loadavg").read_text().split()[0]
    with RedisServer.start(newest_server(), persist=False) as server:
        medians = asyncio.run(measure(server.url, options))
    for form, figures in medians.items():
        print(f"{form:32}", "  ".join(f"{name} {number:,.2f}" for name, number in figures.items()))
    if options.out:
        conditions = {name: value for name, value in vars(options).items() if name != "out"} | {"load": load}
        what = {"command": "python -m bench.beside.keys", "conditions": conditions, "medians": medians}
        Path(options.out).write_text(json.dumps(what, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("seconds", 5.0), ("tasks", 64), ("keys", 1000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--out")
    main(parser.parse_args())

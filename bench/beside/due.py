"""Messages that are due at the same moment, beside as many that wait for nobody: how fast one consumer gets each.

    python -m bench.beside.due [--messages 10000] [--rounds 5]

Both are taken by one consumer with a window of 1,000, in one process with the sender; Redis is a private one. Rounds
take turns.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import headgate

PAYLOAD: Final = b"x" * 100


async def _now(client: headgate.Client) -> float:
    seconds, microseconds = await client.store.server.command(b"{bench}", "TIME")
    return int(seconds) + int(microseconds) / 1e6


async def _take(client: headgate.Client, name: str, messages: int, due: float | None) -> dict[str, float]:
    """Send, then receive all; with ``due`` the sender names a moment so many seconds from now."""
    async with client.session("sends") as session:
        producer = await session.producer(name)
        at = None if due is None else await _now(client) + due
        await asyncio.gather(*(producer.send(PAYLOAD, at=at) for _ in range(messages)))
    async with client.session("takes") as session:
        begun, first, early = perf_counter(), 0.0, 0
        if at is not None:
            left = at - await _now(client)
            assert left > 0, "they were due before all were sent: name a later moment"
            begun += left
        consumer, last, gap, number = await session.consumer(name, window=1000), 0.0, 0.0, 0
        async for message in consumer:
            now = perf_counter()
            early += now < begun - 0.002  # what a clock of another process may be off by
            if not number:
                first, begun = now - begun, begun if at is not None else now  # opening a consumer is not what is asked
            gap, last, number = max(gap, now - last) if last else 0.0, now, number + 1
            await message.accept()
            if number == messages:
                break
        return {
            "a_second": messages / (perf_counter() - begun),
            "first_ms": first * 1000,
            "gap_ms": gap * 1000,
            "early": early,
        }


async def run(messages: int, rounds: int, due: float) -> dict[str, Any]:
    ordinary, later = [], []
    async with headgate.connect(namespace="bench") as client:
        for number in range(rounds):
            ordinary.append(await _take(client, f"ordinary.{number}", messages, None))
            later.append(await _take(client, f"later.{number}", messages, due))
            print(json.dumps({"ordinary": ordinary[-1], "due": later[-1]}), flush=True)
    ratios = [one["a_second"] / other["a_second"] for one, other in zip(later, ordinary, strict=True)]
    return {
        "to_the_ordinary": round(median(ratios), 3),
        "least": round(min(ratios), 3),
        "ordinary_a_second": round(median(one["a_second"] for one in ordinary)),
        "due_a_second": round(median(one["a_second"] for one in later)),
        "first_ms": round(median(one["first_ms"] for one in later), 1),
        "longest_gap_ms": round(max(one["gap_ms"] for one in later)),
        "early": sum(one["early"] for one in later),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--due", type=float, default=20, help="seconds after which they are due, longer than sending takes"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = asyncio.run(run(options.messages, options.rounds, options.due))
    print(json.dumps(found))
    if options.out:
        result = {"command": "python -m bench.beside.due", "load": os.getloadavg(), "found": found}
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

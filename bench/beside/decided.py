"""Admissions that Redis decides, through the SDK: processes with 500 callers, which ask, are admitted, and release."""

import asyncio
import json
import sys
import time
from subprocess import PIPE, Popen
from typing import Final

import headgate
from bench.harness import Figure, at_least, private_client

NAME: Final = "decided"
CALLERS: Final = 500
"""Callers of one process that each ask for the next admission when the one before is over."""


async def _work(url: str, seconds: float) -> None:
    """Be a process with callers; print admissions a second, and a second of its processor."""
    async with headgate.connect(url) as client, client.session("s") as session:
        limiter, done = await session.limiter(NAME, in_hand=False), 0

        async def come_and_go(until: float) -> None:
            nonlocal done
            while time.perf_counter() < until:
                async with limiter.admit(slots=1):
                    done += 1

        async def all_of_them(seconds: float) -> None:
            until = time.perf_counter() + seconds
            await asyncio.gather(*(come_and_go(until) for _ in range(CALLERS)))

        await all_of_them(0.3)
        print("ready", flush=True)
        sys.stdin.readline()
        done, began, spent = 0, time.perf_counter(), time.process_time()
        await all_of_them(seconds)
        print(json.dumps([done / (time.perf_counter() - began), done / (time.process_time() - spent)]))


def _run(url: str, processes: int, seconds: float) -> tuple[float, float]:
    """Return admissions a second of all processes, and a second of the processor of one."""
    command = [sys.executable, "-m", "bench.beside.decided", url, str(seconds)]
    workers = [Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(processes)]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    found = [json.loads(worker.communicate()[0]) for worker in workers]
    return sum(pace for pace, _ in found), sum(pace for _, pace in found) / processes


async def measure(*, quick: bool) -> list[Figure]:
    """Return what one and two processes have decided in a second, and in a second of their processor."""
    figures = []
    async with private_client() as (client, _):
        await client.apply(NAME, kind="limiter", limits={"slots": {"at_once": 1_000_000}})
        for processes, wanted in ((1, None), (2, 100_000)):
            rounds = [
                await asyncio.to_thread(_run, client.redis_url, processes, 1 if quick else 2)
                for _ in range(2 if quick else 4)
            ]
            several = "a process" if processes == 1 else f"{processes} processes"
            figures += [
                at_least(f"admissions and releases, {several}", [pace for pace, _ in rounds], "/s", wanted),
                at_least(f"the same, {several}, of a processor", [pace for _, pace in rounds], "/s"),
            ]
    return figures


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], float(sys.argv[2])))

"""How a figure is taken: on a private Redis, several rounds, the best of them quoted and all of them kept."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import headgate
from headgate.redis.embedded import EmbeddedRedis


@dataclass(slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: what was measured.
        value: the best round's number, the middle one where it is :meth:`typical`, or the only one.
        unit: of the number.
        target: what is asked for, as text; empty when nothing is.
        met: whether it was reached; None when nothing is asked for.
        rounds: every round's number.
    """

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    rounds: list[float] = field(default_factory=list)

    @classmethod
    def typical(
        cls, name: str, rounds: list[float], unit: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> "Figure":
        """Return the median of the rounds, for work of several processes, whose best round owes much to luck."""
        value = statistics.median(rounds)
        if at_least is not None:
            return cls(name, value, unit, f">= {at_least:g}", value >= at_least, rounds)
        if at_most is not None:
            return cls(name, value, unit, f"<= {at_most:g}", value <= at_most, rounds)
        return cls(name, value, unit, rounds=rounds)


def at_least(name: str, rounds: list[float], unit: str, target: float | None = None) -> Figure:
    """Return a figure where more is better."""
    best = max(rounds)
    return Figure(
        name,
        best,
        unit,
        f">= {target:g}" if target is not None else "",
        best >= target if target is not None else None,
        rounds,
    )


def at_most(name: str, rounds: list[float], unit: str, target: float | None = None) -> Figure:
    """Return a figure where less is better."""
    best = min(rounds)
    return Figure(
        name,
        best,
        unit,
        f"<= {target:g}" if target is not None else "",
        best <= target if target is not None else None,
        rounds,
    )


def median(values: list[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def percentile(values: list[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def rounds(times: int, work: Callable[[], Awaitable[float]]) -> list[float]:
    """Return the numbers of so many rounds, after one that does not count."""
    await work()
    return [await work() for _ in range(times)]


@asynccontextmanager
async def private_client() -> AsyncIterator[tuple[headgate.Client, EmbeddedRedis]]:
    """Yield a client of a Redis of its own, and that Redis."""
    server = await asyncio.to_thread(EmbeddedRedis.start)
    try:
        async with headgate.connect(server.url) as client:
            yield client, server
    finally:
        await asyncio.to_thread(server.stop)


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def machine_seconds() -> float:
    """Return the processor time that all processes together have used."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / 100  # but for idling and waiting for disks


class Stopwatch:
    """Measures a ``with`` block in seconds."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began

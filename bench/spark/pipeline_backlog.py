"""Whether what an ingest needs of memory depends on how much there is to read: a backlog beside one of a tenth of it.

Run: python -m bench pipeline_backlog, or python -m bench.spark.pipeline_backlog [--entries 10000000] [--label WORD]
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Figure, at_most
from bench.spark.ledgers import NAMESPACE, fill
from headgate.redis.embedded import EmbeddedRedis

WHOLE, QUICK = 2_000_000, 1_000_000
PART = 10
"""The other backlog has this part of the entries."""
ROWS = 500_000
"""Entries a batch takes: both backlogs are longer, or memory would be bounded by what there is."""
RATIO = 1.3
LOOK = 0.1
"""Seconds between two looks at memory."""
MIB = 1 << 20


@dataclass
class Taken:
    """The cost of an ingest.

    Attributes:
        java: the most that the JVM had in memory, in bytes.
        python: the most that the driver, sources and workers had, all together; what they share counts for each.
        both: the most of both at one time.
        seconds: from its start to its end, Spark's start included.
    """

    java: int = 0
    python: int = 0
    both: int = 0
    seconds: float = 0.0


def _below(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    for one in found:  # it grows on the way
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            found += _children(file)
    return found


def _children(file: Path) -> list[int]:
    try:
        return [int(pid) for pid in file.read_text().split()]
    except OSError:  # it ended meanwhile
        return []


def _memory(pid: int) -> tuple[int, int]:
    """Return the bytes that the JVM and others below a process have in memory.

    There is one JVM. A second one in the list is the first that is about to start a program: it has the same memory.
    """
    java, others = 0, 0
    for one in _below(pid):
        try:
            size = int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            if b"java" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[0]:
                java = max(java, size)
            else:
                others += size
        except OSError:
            continue
    return java, others


def _ingest(url: str, count: int) -> Taken:
    """Ingest all there is in a process of its own, and look at its memory meanwhile."""
    folder = tempfile.mkdtemp(prefix="hg-bench-")
    command = [sys.executable, "-m", "headgate_pipeline", "ingest", "--master", "local[2]", "--max-rows", str(ROWS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    taken, began = Taken(), time.perf_counter()
    try:
        with subprocess.Popen(
            [*command, "--redis", url, "--namespace", NAMESPACE, "--output", folder],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as job:  # fmt: skip
            while job.poll() is None:
                java, python = _memory(job.pid)
                taken.java, taken.python = max(taken.java, java), max(taken.python, python)
                taken.both = max(taken.both, java + python)
                time.sleep(LOOK)
            assert job.stdout is not None
            told = job.stdout.read()
        taken.seconds = time.perf_counter() - began
        assert f"{count} rows written" in told, told
    finally:
        shutil.rmtree(folder)
    return taken


def _backlog(count: int) -> tuple[Taken, int]:
    """Write a backlog, ingest it; returns what that took, and the bytes that Redis had."""
    server = EmbeddedRedis.start()
    try:
        fill(server.url, count)
        redis = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
        return _ingest(server.url, count), int(redis) * os.sysconf("SC_PAGE_SIZE")
    finally:
        server.stop()


async def measure(*, quick: bool) -> list[Figure]:
    """Ingest a backlog and a tenth of it."""
    return await asyncio.to_thread(measured, QUICK if quick else WHOLE)


def measured(entries: int) -> list[Figure]:
    """Return the most memory of both, and the ratio."""
    small, redis = _backlog(max(entries // PART, ROWS))
    large, redis = _backlog(entries)
    shown = f"{entries:,}"
    return [
        at_most("memory of an ingest, JVM and Python, the most", [large.both / small.both], "times", RATIO),
        *_figures(f"  {max(entries // PART, ROWS):,} entries", small),
        *_figures(f"  {shown} entries", large),
        at_most(f"  Redis, {shown} entries", [redis / MIB], "MiB"),
    ]


def _figures(name: str, taken: Taken) -> list[Figure]:
    return [
        at_most(f"{name}, JVM", [taken.java / MIB], "MiB"),
        at_most(f"{name}, Python", [taken.python / MIB], "MiB"),
        at_most(f"{name}, both", [taken.both / MIB], "MiB"),
        at_most(f"{name}, time with Spark's start", [taken.seconds], "s"),
    ]


def main() -> None:
    """Measure with another number of entries."""
    from bench.__main__ import keep, show

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=WHOLE)
    parser.add_argument("--label", default="", help="keep the numbers in bench/results/DATE-LABEL.json")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    figures = {"pipeline_backlog": measured(chosen.entries)}
    show("pipeline_backlog", figures["pipeline_backlog"])
    if chosen.label:
        command = f"python -m bench.spark.pipeline_backlog --entries {chosen.entries}"
        keep(figures, command=command, label=chosen.label, load=load)


if __name__ == "__main__":
    main()

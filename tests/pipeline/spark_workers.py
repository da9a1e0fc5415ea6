"""Spark's Python workers below this process."""

import os
from pathlib import Path


def python_workers() -> list[int]:
    """Return the ids of the workers that Spark forked, and of its sources, of all JVMs of this process."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    sources: set[int] = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            pid, line = int(folder.name), (folder / "cmdline").read_bytes()
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        if b"tests.pipeline.spark_daemon" in line:
            daemons.add(pid)
        elif b"python_streaming_source_runner" in line:
            sources.add(pid)

    def ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    workers = {pid for pid in daemons if parents[pid] in daemons}
    return sorted(pid for pid in workers | sources if ours(pid))

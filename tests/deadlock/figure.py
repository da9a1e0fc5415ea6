"""Figure 14 of the TIBCO EMS document with real programs: each consumes what the other one sends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import headgate
from headgate.message import encode

COUNT = 4
"""Messages in each of the two queues, which are full with them."""


def bodies(name: str) -> list[bytes]:
    return [b"%s-%04d" % (name.encode(), number) for number in range(COUNT)]


async def fill(client: headgate.Client, *, deadlock: str | None) -> None:
    """Make the two queues, full of messages."""
    limit = COUNT * len(encode(b" " + bodies("x")[0], None))
    for name in ("x", "y"):
        await client.apply(name, kind="queue", limit=limit, deadlock=deadlock)
        async with client.session("before") as session:
            producer = await session.producer(name)
            for body in bodies(name):
                await producer.send(b" " + body)
            await producer.close()


@contextmanager
def program(url: str, namespace: str, reads: str, writes: str, *more: str) -> Iterator[str]:
    """Run one program; yields the id of its session."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.deadlock.program", url, namespace, reads, writes, *more],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

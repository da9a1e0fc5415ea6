"""Figure 14 of the TIBCO EMS document with real programs: each consumes what the other one sends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import headgate
from headgate.message import encode
from tests.support.forked import PIPE, Forked

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
    process = Forked(
        "tests.deadlock.program", url, namespace, reads, writes, *more, environment=os.environ, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

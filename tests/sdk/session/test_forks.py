"""A client of before a fork refuses in the child, at once and with a reason, and the parent does not notice."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headgate
from tests.sdk.observing import GUARD
from tests.support.extent import share_of

pytestmark = pytest.mark.one_server

COMMON = """
import asyncio, os, sys, time, traceback
import headgate, headgate.sync
url, namespace = sys.argv[1:]

def in_children(work, count=4):
    pids = []
    for _ in range(count):
        if not (pid := os.fork()):
            try:
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        pids.append(pid)
    deadline = time.monotonic() + 30
    for pid in pids:
        while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        if not ended[0]:
            os.kill(pid, 9)
            sys.exit("a child hangs")
        if ended[1]:
            sys.exit("a child failed")

def refused(call, *args, **named):
    try:
        result = call(*args, **named)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
    except headgate.Closed as error:
        assert "before this process was forked" in str(error), error
    else:
        raise AssertionError(f"{call} did {result}")
"""

THREADS = """
with headgate.sync.connect(url, namespace=namespace) as client, client.session("s") as session:
    client.apply("gate", kind="gate", limit=10)
    gate, producer, consumer = session.gate("gate", window=10), session.producer("orders"), session.consumer("orders")
    bucket = session.bucket("bucket")
    producer.send(b"1")
    producer.send(b"2")
    message = consumer.receive(timeout=10)
    deadline = time.monotonic() + 30
    while not (held := gate.try_admit(1)):  # its credit is in hand a moment after the gate is open
        assert time.monotonic() < deadline
        time.sleep(0.01)

    def work():
        assert gate.try_admit() is None
        refused(lambda: gate.admit(timeout=1).__enter__())
        refused(producer.send, b"x")
        refused(consumer.receive, timeout=1)
        refused(lambda: next(consumer))
        refused(message.accept, confirm=True)
        refused(bucket.take)
        refused(client.explain, "orders")
        refused(client.session, "another")
        held.release()
        session.close()
        client.close()
        with headgate.sync.connect(url, namespace=namespace) as own, own.session("own") as mine:
            mine.producer("fresh").send(b"of the child", timeout=10)

    in_children(work)
    assert gate.in_use == 1
    with gate.admit(9, timeout=10):
        assert gate.try_admit() is None
    message.accept(confirm=True)
    assert consumer.receive(timeout=10).body == b"2"
    producer.send(b"3")
    assert client.explain("fresh").fields["pending_messages"] == "4"
    client.remove("fresh")
print("done")
"""

TASKS = """
async def main():
    async with headgate.connect(url, namespace=namespace) as client, client.session("s") as session:
        await client.apply("gate", kind="gate", limit=10)
        gate, producer = await session.gate("gate", window=10), await session.producer("orders")
        consumer, bucket = await session.consumer("orders"), await session.bucket("bucket")
        await producer.send(b"1")
        await producer.send(b"2")
        message = await consumer.receive(timeout=10)

        def work():
            assert gate.try_admit() is None
            refused(lambda: gate.admit(timeout=1).__aenter__())
            refused(producer.send, b"x")
            refused(producer.post, b"x")
            refused(consumer.receive, timeout=1)
            refused(consumer.__anext__)
            refused(message.accept)
            refused(message.accept, confirm=True)
            refused(client.explain, "orders")
            refused(client.apply, "orders", limit=5)
            refused(client.session, "another")
            asyncio.run(session.close())
            asyncio.run(client.close())

            async def own():
                async with headgate.connect(url, namespace=namespace) as client, client.session("own") as session:
                    await (await session.producer("fresh")).send(b"of the child", timeout=10)

            asyncio.run(own())

        in_children(work)
        async with gate.admit(10, timeout=10):
            pass
        await message.accept(confirm=True)
        assert (await consumer.receive(timeout=10)).body == b"2"
        await producer.send(b"3")
        assert (await client.explain("fresh")).fields["pending_messages"] == "4"
        await client.remove("fresh")
asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("program", share_of([THREADS, TASKS], 2), ids=share_of(["threads", "tasks"], 2))
def test_a_forked_child_is_refused_and_the_parent_goes_on(redis_url: str, cleanup_namespace: str, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMMON + program), redis_url, cleanup_namespace],
        env=os.environ | {"PYTHONPATH": str(Path(headgate.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=4 * GUARD,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr

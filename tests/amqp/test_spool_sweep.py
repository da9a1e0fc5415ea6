"""Nodes delete segments that nobody else does."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from headgate.amqp.link import Outcome
from headgate.amqp.peer import Disconnected
from headgate.core.segment import Reference
from headgate.redis.keys import Address
from headgate_coordinator.service import spool_sweep
from headgate_coordinator.service.spool_sweep import LEASE, SpoolSweep
from tests.amqp.client import Peer
from tests.amqp.conftest import StartNode
from tests.sdk.observing import drain, look
from tests.support.spooled import body, fill, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def left_alone(redis_url: str, namespace: str, folder: Path, *, take: int = 60) -> None:
    """Spool, and settle so many of 60 messages, by clients that are gone before they sweep."""
    for count in (60, 0):
        async with headgate.connect(redis_url, namespace=namespace) as client:
            client.parts.registry.spooling.sweeper._watched = Nothing()
            if count:
                await spooling(client, folder)
                await fill(client, count)
            else:
                async with client.session("taker") as session:
                    await drain(await session.consumer("orders"), take)
    assert segments(folder)


class Nothing(dict):  # type: ignore[type-arg]
    """Keeps nothing: what a sweeper that has no time has to watch."""

    def __setitem__(self, key: object, value: object) -> None:
        pass


async def orders() -> list[str]:
    return ["orders"]


async def test_spent_segments_of_what_nobody_uses_are_deleted(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, tmp_path: Path
) -> None:
    """And no others. Breaks when a round does not look at what is spooled, or deletes what is not spent."""
    await left_alone(redis_url, cleanup_namespace, tmp_path, take=40)
    before = segments(tmp_path)
    await SpoolSweep(client, "n", orders).spent()
    needed = {Reference.parse(stored).name for stored in await references(client)}
    assert {path.name for path in segments(tmp_path)} == needed
    assert 0 < len(needed) < len(before)
    assert [message.body async for message in client.browse("orders")] == [body(n) for n in range(40, 60)]
    async with client.session("t") as session:
        await drain(await session.consumer("orders"), 20)
    await SpoolSweep(client, "n", orders).spent()
    assert segments(tmp_path) == []
    assert (await look(client, "orders")).fields.get("spooled_bytes", "0") == "0"


async def test_segments_that_belong_to_nobody_are_deleted(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when no node looks for orphans."""
    await left_alone(redis_url, cleanup_namespace, tmp_path, take=10)
    await client.remove("orders")
    await SpoolSweep(client, "n", orders).orphans()
    assert segments(tmp_path) == []
    store = client.parts.registry.spooling.spools.address("disk")
    count = await client.store.recount(store)
    assert (count.equal, count.stored[0]) == (True, 0)


async def test_one_node_at_a_time_looks_for_orphans(client: headgate.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when each does, or none goes on for one that stopped."""
    monkeypatch.setattr(spool_sweep, "EVERY", 0.05)
    sweeps = [SpoolSweep(client, f"node{n}", orders) for n in range(3)]
    tasks = [asyncio.create_task(sweep.run()) for sweep in sweeps]
    try:
        for _ in range(2):
            await wait_until(lambda: any(sweep.leads for sweep in sweeps))
            leading = [n for n, sweep in enumerate(sweeps) if sweep.leads]
            assert len(leading) == 1
            tasks[leading[0]].cancel()
            await asyncio.gather(tasks[leading[0]], return_exceptions=True)
            sweeps[leading[0]].leads = False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert LEASE == "!spool"


async def test_a_store_that_fails_does_not_hold_up_others(
    client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a destination whose store does not answer ends the round."""
    asked: list[str] = []

    async def sweep(address: Address) -> int:
        asked.append(address.name)
        raise headgate.SpoolUnavailable("file://here", "delete", "x", "no answer")

    async def both() -> list[str]:
        return ["one", "two"]

    for name in ("one", "two"):
        await spooling(client, tmp_path, name)
        await fill(client, 60, name)
    monkeypatch.setattr(client.parts.registry.spooling.sweeper, "sweep", sweep)
    await SpoolSweep(client, "n", both).spent()
    assert asked == ["one", "two"]


async def test_a_node_does_so(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, start_node: StartNode, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    await left_alone(redis_url, cleanup_namespace, folder)
    start_node()
    await swept(folder)


DYING = """
from tests.sdk.spool_crash import STEPS
STEPS["{step}"](3)
from headgate_coordinator.cli.entry import main
main()
"""
COUNT = 100


@contextmanager
def dying_node(redis_url: str, namespace: str, step: str) -> Iterator[int]:
    """A node that kills itself at a step of its third segment; yields its port."""
    options = ("--json", "--no-admin", "--port", "0", "--ttl", "2", "--redis", redis_url, "--namespace", namespace)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "HEADGATE_STORE_ROOTS": f"file://{tempfile.gettempdir()}",
    }
    command = [sys.executable, "-c", DYING.format(step=step), "node", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline())["amqp"].rpartition(":")[2])
            assert process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()


async def send_until_it_dies(port: int) -> set[str]:
    """Send over AMQP, and return the bodies that were accepted."""
    peer = await Peer.connect(port, "sender")
    accepted, waits = set(), dict[str, asyncio.Future[tuple[Outcome, str]]]()
    with contextlib.suppress(Disconnected):
        link = await peer.sender("orders")
        for number in range(COUNT):
            waits[f"{number:0900}"] = await peer.put(link, f"{number:0900}")
    for sent, wait in waits.items():
        with contextlib.suppress(Disconnected, TimeoutError):
            async with asyncio.timeout(60):
                outcome, reason = await wait
            assert outcome == "accepted", reason
            accepted.add(sent)
    await peer.close()
    return accepted


@pytest.mark.soak
@pytest.mark.parametrize("step", ["after-write", "after-publish"])
async def test_a_node_that_is_killed_as_it_pages_for_amqp_clients_loses_nothing_it_accepted(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, start_node: StartNode, tmp_path: Path, step: str
) -> None:
    """Between the segment and the call that refers to it, and between that call and its answer: `kill -9` itself.

    Breaks when a message is accepted before the call, or when nobody sweeps the segment that was left.
    """
    folder = tmp_path / "store"
    await spooling(client, folder)
    with dying_node(redis_url, cleanup_namespace, step) as port:
        accepted = await send_until_it_dies(port)
    assert len(accepted) < COUNT
    assert segments(folder), "of its third segment, too"
    later = await Peer.connect(start_node("--ttl", "2").port, "sender")
    link = await later.sender("orders")
    again = [f"{number:0900}" for number in range(COUNT) if f"{number:0900}" not in accepted]
    answers = [await later.put(link, sent) for sent in again]
    assert {outcome for outcome, _ in await asyncio.gather(*answers)} == {"accepted"}
    await later.close()
    held = int((await look(client, "orders")).fields["pending_messages"])
    assert held == COUNT if step == "after-write" else COUNT < held <= COUNT + len(again)
    async with client.session("taker") as session:
        consumer = await session.consumer("orders")
        bodies = {message.body for message in await drain(consumer, held)}
    assert bodies == {f"{number:0900}".encode() for number in range(COUNT)}

    async def empty() -> bool:
        await SpoolSweep(client, "n", orders).orphans()
        return not segments(folder)

    await wait_until(empty, timeout=60, description="the store has nothing that is nobody's")

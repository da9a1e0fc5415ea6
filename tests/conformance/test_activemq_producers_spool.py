"""ActiveMQ Classic, producers: file cursors, and the store and temp usage of the system."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

import headgate
from headgate.policy import loads
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.conformance.story import body
from tests.sdk.observing import GUARD, drain, field, goes

pytestmark = pytest.mark.one_server
GiB = 1 << 30


async def send(client: headgate.Client, session: headgate.Session, name: str, count: int, size: int = 1000) -> int:
    """Send messages of so many bytes until one finds no room; returns how many went."""
    producer = await session.producer(name)
    for sent in range(count):
        if not await goes(client, producer, body(size)):
            return sent
    return count


async def held(client: headgate.Client) -> dict[str, int]:
    return {store.name: store.held for store in await client.stores()}


async def test_c02_memory_store_and_temp_limits_all_count(client: headgate.Client, tmp_path: Path) -> None:
    """Mutants: a store's limit does not bind; one store takes what another is for."""
    for name in ("store", "temp"):
        await client.set_store(name, f"file://{tmp_path}/{name}", limit="20KB", segment="4KiB")
    await client.apply("persistent", limit="10KB", when_full="spool", store="store")
    await client.apply("temporary", limit="10KB", when_full="spool", store="temp")
    await client.apply("memory", limit="10KB")
    async with client.session("s") as session:
        sent = {name: await send(client, session, name, 60) for name in ("memory", "persistent", "temporary")}
        assert sent["memory"] <= 10
        for name in ("persistent", "temporary"):
            assert 22 <= sent[name] <= 30, sent
            assert await field(client, name, "pending_bytes") <= 10_000
        found = await held(client)
        assert all(15_000 < found[name] <= 20_000 for name in ("store", "temp")), found
        await drain(await session.consumer("persistent"), sent["persistent"])
        assert await send(client, session, "persistent", 5) == 5, "the store has room again"
        assert await send(client, session, "temporary", 1) == 0, "the other has none"


async def test_c08_a_file_cursor_spools_and_the_memory_limit_is_never_reached(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Mutant: `spool` blocks."""
    await client.set_store("store", f"file://{tmp_path}", limit="1MB")
    await client.apply("orders", limit="20KB", when_full="spool", store="store")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(producer.send(f"{number:04}" + "x" * 996) for number in range(100)))
        told = await client.explain("orders")
        assert told.blocked == 0
        assert await field(client, "orders", "pending_messages") == 100
        assert await field(client, "orders", "pending_bytes") <= 20_000
        received = await drain(await session.consumer("orders"), 100)
        assert [str(one.body[:4]) for one in received] == [f"{number:04}" for number in range(100)]


async def test_c13_with_flow_control_off_dispatch_goes_on_until_the_disk_is_used_up(
    client: headgate.Client, tmp_path: Path
) -> None:
    """What Classic calls flow control off is to spool instead of to block. Mutant: nothing stops at the store."""
    await client.set_store("disk", f"file://{tmp_path}", limit="40KB", segment="4KiB")
    await client.apply("orders", limit="10KB", when_full="spool", store="disk")
    async with client.session("s") as session:
        sent = await send(client, session, "orders", 100)
        assert 40 <= sent <= 50
        assert (await held(client))["disk"] <= 40_000
        await client.set_store("disk", f"file://{tmp_path}", limit="80KB", segment="4KiB")
        assert await send(client, session, "orders", 20) == 20


async def test_c14_persistent_messages_have_the_store_and_temporary_ones_the_temp_store(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Mutants: the preset gives no limits; every destination has one store."""
    await client.apply_policy(
        loads(f"""
        preset = "activemq"
        [[destination]]
        match = "#"
        limit = "10KB"
        [[destination]]
        match = "temporary.#"
        store = "temp"
        [[store]]
        name = "store"
        url = "file://{tmp_path}/store"
        [[store]]
        name = "temp"
        url = "file://{tmp_path}/temp"
        """)
    )
    assert {store.name: store.limit for store in await client.stores()} == {"store": 100 * GiB, "temp": 10 * GiB}
    async with client.session("s") as session:
        assert await send(client, session, "persistent.a", 30) == 30
        found = await held(client)
        assert (found["store"] >= 20_000, found["temp"]) == (True, 0)
        assert await send(client, session, "temporary.a", 30) == 30
        after = await held(client)
        assert (after["store"] <= found["store"], after["temp"] >= 20_000) == (True, True)  # room not used goes back


async def test_c14_what_finds_no_room_in_memory_goes_to_the_store_without_any_rule(
    client: headgate.Client, tmp_path: Path
) -> None:
    store = f"[[store]]\nname = 'store'\nurl = 'file://{tmp_path}/store'\n"
    await client.apply_policy(loads(f"preset = 'activemq'\n{store}"))
    async with client.session("s") as session:
        for name in ("one", "two"):
            assert await send(client, session, name, 70, size=1 << 20) == 70
            assert await field(client, name, "pending_bytes") <= 64 << 20
        assert (await held(client))["store"] > 2 * (6 << 20)
        for name in ("one", "two"):
            await drain(await session.consumer(name), 70)


async def test_c15_a_store_in_percent_of_a_stated_total(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: the total is the limit."""
    await client.set_store("store", f"file://{tmp_path}", percent=50, total="40KB", segment="4KiB")
    await client.set_store("vast", f"file://{tmp_path}/vast", percent=50, total="200TB")  # more than any disk has
    limits = {store.name: store.limit for store in await client.stores()}
    assert limits == {"store": 20_000, "vast": 100 * 10**12}
    await client.apply("orders", limit="10KB", when_full="spool", store="store")
    async with client.session("s") as session:
        assert 22 <= await send(client, session, "orders", 60) <= 30
        assert (await held(client))["store"] <= 20_000


@pytest.fixture
def spooling_node(start_node: StartNode, tmp_path: Path) -> NodeProcess:
    return start_node("--store-root", f"file://{tmp_path}")


def send_and_receive(url: str, modes: Sequence[bool]) -> list[tuple[str, bool]]:
    """Send a message of each delivery mode, wait for each to be accepted, and return what comes back."""
    connection = BlockingConnection(url, timeout=GUARD)
    try:
        sender = connection.create_sender("orders")
        for number, durable in enumerate(modes):
            sender.send(Message(f"{number:06}".ljust(1000, "x"), durable=durable))
        receiver, found = connection.create_receiver("orders", credit=10), []
        for _ in modes:
            message = receiver.receive()
            receiver.accept()
            found.append((str(message.body)[:6], message.durable))
        return found
    finally:
        connection.close()


async def test_c14_by_the_delivery_mode_of_each_message(
    client: headgate.Client, spooling_node: NodeProcess, tmp_path: Path
) -> None:
    """Mutants: a node does not read AMQP's header; all that is spooled goes to the store."""
    await client.apply_policy(
        loads(f"""
        preset = "activemq"
        [[destination]]
        match = "#"
        limit = "10KB"
        store_nonpersistent = "temp"
        [[store]]
        name = "store"
        url = "file://{tmp_path}/store"
        [[store]]
        name = "temp"
        url = "file://{tmp_path}/temp"
        """)
    )
    modes = [number % 3 > 0 for number in range(30)]
    spooled: dict[str, int] = {}

    async def watch() -> None:
        while True:
            for name, bytes_held in (await held(client)).items():
                spooled[name] = max(spooled.get(name, 0), bytes_held)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    try:
        found = await asyncio.to_thread(send_and_receive, spooling_node.url, modes)
    finally:
        watching.cancel()
    assert found == [(f"{number:06}", durable) for number, durable in enumerate(modes)], "in one order"
    assert spooled["store"] > spooled["temp"] > 5_000, "two of three are durable"

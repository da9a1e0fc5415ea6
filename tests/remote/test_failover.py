"""Nodes that die, freeze and stop while clients work: nothing is lost, nothing is stored twice, and the order stays."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import headgate
from headgate import CoordinatorUnavailable
from headgate.amqp.remote import NodeBackend
from tests.remote.node_process import NodeProcess
from tests.sdk.observing import GUARD, counts, drain, stored_bodies
from tests.support.extent import share_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
def nodes(redis_url: str, cleanup_namespace: str) -> Iterator[dict[str, NodeProcess]]:
    """Two of them, by address."""
    with NodeProcess(redis_url, cleanup_namespace) as one, NodeProcess(redis_url, cleanup_namespace) as two:
        yield {one.address: one, two.address: two}


@pytest.fixture
async def client(nodes: dict[str, NodeProcess], cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(f"amqp://{','.join(nodes)}", namespace=cleanup_namespace) as client:
        yield client


def backend(client: headgate.Client) -> NodeBackend:
    server = client.store.server
    assert isinstance(server, NodeBackend)
    return server


@pytest.mark.parametrize("end", share_of([NodeProcess.kill9, NodeProcess.sigstop, NodeProcess.drain], 2))
async def test_under_load_a_client_goes_on_at_another_node(
    client: headgate.Client,
    nodes: dict[str, NodeProcess],
    redis_url: str,
    cleanup_namespace: str,
    end: Callable[[NodeProcess], None],
) -> None:
    """Mutant: calls under way are not made again on the next connection."""
    await client.apply("orders", limit="100KB")
    receipts: list[int] = []
    received: list[int] = []
    stop = asyncio.Event()
    longest = 0.0
    async with client.session("p") as senders, client.session("c") as takers:
        producer = await senders.producer("orders")
        consumer = await takers.consumer("orders", window=100)

        async def produce() -> int:
            nonlocal longest
            number, last = 0, time.monotonic()
            while not stop.is_set():
                batch = range(number, number + 10)
                told = await asyncio.gather(*(producer.send(str(n).zfill(50), timeout=GUARD) for n in batch))
                receipts.extend(receipt.seq for receipt in told)
                number, now = number + 10, time.monotonic()
                longest, last = max(longest, now - last), now
            return number

        async def consume() -> None:
            async for message in consumer:
                received.append(int(message.body))
                await message.accept()

        producing, consuming = asyncio.create_task(produce()), asyncio.create_task(consume())
        await wait_until(lambda: len(received) > 200)
        gone = nodes[backend(client).node]
        await asyncio.to_thread(end, gone)
        before = len(received)
        await wait_until(lambda: len(received) > before + 500, timeout=GUARD)
        stop.set()
        sent = await producing
        await wait_until(lambda: len(set(received)) == sent, timeout=GUARD)
        consuming.cancel()
        await asyncio.wait([consuming])
        await consumer.flush(timeout=GUARD)
        assert backend(client).node != gone.address
    if end is NodeProcess.sigstop:
        gone.sigcont()
    assert receipts == list(range(1, sent + 1))  # each stored once, in order
    assert received == sorted(received)
    assert longest < 5  # a bound against hanging, not a figure
    assert stored_bodies(redis_url, cleanup_namespace, "orders") == []
    assert await counts(client, "orders") == (0, 0)  # nobody holds credit of a session that is closed


async def test_blocked_senders_are_told_by_hints_of_the_next_node(
    client: headgate.Client, nodes: dict[str, NodeProcess]
) -> None:
    """Mutant: channels are not subscribed again."""
    await client.apply("small", limit=100)
    async with client.session("s") as session:
        producer, consumer = await session.producer("small"), await session.consumer("small", window="pull")
        await producer.send("x" * 90)
        nodes[backend(client).node].kill9()
        blocked = asyncio.create_task(producer.send("y" * 90, timeout=GUARD))
        await drain(consumer, 1)
        assert (await blocked).seq == 2
        await drain(consumer, 1)


async def test_when_no_node_answers_the_error_names_them_and_no_secret(
    nodes: dict[str, NodeProcess], cleanup_namespace: str
) -> None:
    for node in nodes.values():
        node.kill9()
    url = f"amqp://someone:secret@{','.join(nodes)}"
    with pytest.raises(CoordinatorUnavailable) as caught:
        await headgate.connect(url, namespace=cleanup_namespace)
    assert all(address in str(caught.value) for address in nodes)
    assert "secret" not in str(caught.value)


async def test_calls_fail_while_no_node_is_there_and_work_again_when_one_is(
    redis_url: str, cleanup_namespace: str
) -> None:
    with NodeProcess(redis_url, cleanup_namespace) as node:
        port = int(node.address.rpartition(":")[2])
        async with headgate.connect(f"amqp://{node.address}", namespace=cleanup_namespace) as client:
            await client.apply("orders", limit=1000)
            async with client.session("s") as session:
                producer = await session.producer("orders")
                node.kill9()
                with pytest.raises(CoordinatorUnavailable, match=node.address):
                    await client.explain("orders")
                waiting = asyncio.create_task(producer.send(b"late", timeout=GUARD))
                with NodeProcess(redis_url, cleanup_namespace, port=port):
                    assert (await waiting).seq == 1
                    assert (await counts(client, "orders"))[0] > 0

"""Receipts of messages to topics of channels: they wait until the channel has sent, and never for ever."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.policy import loads
from tests.amqp.client import Peer
from tests.amqp.node_processes import nodes
from tests.links.channels import Group, collecting, fields, opened, released, sending
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
LINK = "prices>>quotes"


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
async def halted(client: headgate.Client, group: Group) -> Group:
    """A channel that was opened, and on which nobody works any more."""
    await client.apply_policy(loads(group.channel("prices")))
    async with sending(client):
        await opened(client)
    return group


async def waits(producer: headgate.Producer, reason: str) -> None:
    await wait_until(lambda: producer.reason == reason, timeout=80, description=reason)


async def test_a_send_is_confirmed_once_the_channel_has_sent_it(client: headgate.Client, halted: Group) -> None:
    """Breaks when a receipt is given as soon as its message is stored."""
    async with client.session() as session:
        producer = await session.producer("prices")
        sends = [asyncio.ensure_future(producer.send(b"%d" % n, timeout=GUARD)) for n in range(3)]
        await waits(producer, "waits for channel quotes: backlog 3 messages")
        assert not any(send.done() for send in sends)
        told = await client.explain("prices")
        assert (told.cause, told.reason) == ("channel", "waits for channel quotes: backlog 3 messages")
        assert told.rule == "prices (policy.toml:1)"
        async with collecting(halted.reader()) as got, sending(client):
            assert [(await send).seq for send in sends] == [1, 2, 3]
            await wait_until(lambda: got.bodies == [b"0", b"1", b"2"], timeout=80)
        assert producer.reason == ""


async def test_no_receipt_is_given_before_the_channel_has_sent_its_message(
    client: headgate.Client, group: Group
) -> None:
    await client.apply_policy(loads(group.channel("prices", maxrate=100_000)))
    async with sending(client), client.session() as session:
        await opened(client)
        producer = await session.producer("prices")

        async def send() -> None:
            receipt = await producer.send(b"x" * 1000, timeout=GUARD)
            assert await released(client, LINK) >= receipt.seq

        await asyncio.gather(*(send() for _ in range(100)))


async def test_a_lost_hint_costs_a_look(client: headgate.Client, halted: Group) -> None:
    async with client.session() as session:
        producer = await session.producer("prices")
        first = asyncio.ensure_future(producer.send(b"one", timeout=GUARD))
        await waits(producer, "waits for channel quotes: backlog 1 message")
        await producer._account._wake_ups.unsubscribe(
            producer._account.address.channels(producer._account.session),
            producer._account._hear,
        )
        async with sending(client):
            assert (await first).seq == 1


async def test_a_send_whose_time_is_over_gets_its_receipt_for_it_is_stored(
    client: headgate.Client, halted: Group
) -> None:
    async with client.session() as session:
        producer = await session.producer("prices")
        late = asyncio.ensure_future(producer.send(b"late", timeout=GUARD))
        await waits(producer, "waits for channel quotes: backlog 1 message")
        assert (await producer.send(b"short", timeout=0.3)).seq == 2
        assert not late.done()
        late.cancel()
    assert (await fields(client, "prices"))["pending_messages"] == "2"


async def test_listeners_are_told_of_the_wait_and_of_its_end(client: headgate.Client, halted: Group) -> None:
    events: list[headgate.Blocked | headgate.Unblocked] = []
    async with client.session() as session:
        session.on_blocked(events.append, notify_after=0.01)
        producer = await session.producer("prices")
        send = asyncio.ensure_future(producer.send(b"one", timeout=GUARD))
        await wait_until(lambda: events, timeout=80)
        (told,) = events
        assert isinstance(told, headgate.Blocked)
        assert told.reason == "waits for channel quotes: backlog 1 message"
        assert told.explanation is not None
        assert told.explanation.cause == "channel"
        async with sending(client):
            await send
        await wait_until(lambda: len(events) == 2, timeout=80)
        assert isinstance(events[1], headgate.Unblocked)


async def test_close_waits_for_no_channel(client: headgate.Client, halted: Group) -> None:
    async with client.session() as session:
        producer = await session.producer("prices")
        send = asyncio.ensure_future(producer.send(b"one", timeout=GUARD))
        await waits(producer, "waits for channel quotes: backlog 1 message")
        await producer.close()
        assert (await send).seq == 1


@pytest.mark.parametrize("change", ["flow_control off", "no channel", "removed"])
async def test_whoever_waits_is_told_when_there_is_nothing_to_wait_for_any_more(
    client: headgate.Client, halted: Group, change: str
) -> None:
    async with client.session() as session:
        producer = await session.producer("prices")
        send = asyncio.ensure_future(producer.send(b"one", timeout=GUARD))
        await waits(producer, "waits for channel quotes: backlog 1 message")
        if change == "flow_control off":
            await client.apply_policy(loads('flow_control = "off"\n' + halted.channel("prices")))
        elif change == "no channel":
            await client.apply_policy(loads("destination = []"))
        else:
            await client.remove("prices")
        assert (await send).seq == 1
        assert producer.reason == ""


async def test_without_a_subscription_of_the_channel_there_is_nothing_to_wait_for(
    client: headgate.Client, group: Group
) -> None:
    await client.apply_policy(loads(group.channel("prices")))
    async with client.session() as session:
        producer = await session.producer("prices")
        assert (await producer.send(b"nobody", timeout=GUARD)).seq == 1


async def test_post_does_not_wait(client: headgate.Client, halted: Group) -> None:
    async with client.session() as session:
        producer = await session.producer("prices")
        receipts = [asyncio.ensure_future(await producer.post(b"x", timeout=GUARD)) for _ in range(500)]
        await waits(producer, "waits for channel quotes: backlog 500 messages")
        assert not any(receipt.done() for receipt in receipts)
        async with sending(client):
            assert (await receipts[-1]).seq == 500


async def stored(client: headgate.Client, count: int) -> None:
    """Wait until so many messages are pending."""

    async def there() -> bool:
        return (await fields(client, "prices")).get("pending_messages") == str(count)

    await wait_until(there, timeout=80)


async def test_clients_of_nodes_wait_too_and_not_when_the_node_stops(
    client: headgate.Client, redis_url: str, halted: Group
) -> None:
    """Breaks when a node that stops leaves clients in doubt: they would send again what is stored."""
    with nodes(redis_url, client.namespace, 1, "--ttl", 2, "--no-forwarding") as (node,):
        peer = await Peer.connect(node.port)
        link = await peer.sender("prices")
        answers = [await peer.put(link, f"{n}") for n in range(2)]
        await stored(client, 2)
        url = f"amqp://127.0.0.1:{node.port}"
        async with headgate.connect(url, namespace=client.namespace) as remote, remote.session() as session:
            producer = await session.producer("prices")
            send = asyncio.ensure_future(producer.send(b"remote", timeout=GUARD))
            await waits(producer, "waits for channel quotes: backlog 3 messages")
            assert not send.done()
            assert not any(answer.done() for answer in answers)
            async with sending(client):
                assert [(await answer)[0] for answer in answers] == ["accepted"] * 2
                assert (await send).seq == 3
        last = await peer.put(link, "last")
        await stored(client, 1)
        assert not last.done()
        node.signal(signal.SIGTERM)
        assert (await last)[0] == "accepted"
        await asyncio.to_thread(node.ended)


async def test_a_client_of_a_node_that_waits_for_nothing_is_held_up_too(
    client: headgate.Client, redis_url: str, halted: Group
) -> None:
    """Breaks when a node gives credit for more while its link has as much unconfirmed as it may send at once."""
    options = ("--ttl", 2, "--no-forwarding", "--credit", 20, "--low-credit", 5)
    with nodes(redis_url, client.namespace, 1, *options) as (node,):
        peer = await Peer.connect(node.port)
        link = await peer.sender("prices")
        answers = []

        async def flood() -> None:
            while True:
                answers.append(await peer.put(link, "more"))

        flooding = asyncio.create_task(flood())
        await wait_until(lambda: len(answers) >= 20, timeout=80)

        async def stands_still() -> bool:  # before the first is stored, the node does not know yet that it will wait
            before = len(answers)
            for _ in range(100):
                await fields(client, "prices")
            return len(answers) == before

        await wait_until(stands_still, timeout=80)
        held = len(answers)
        async with sending(client):
            await wait_until(lambda: len(answers) > held + 100, timeout=80)
        flooding.cancel()
        await peer.close()

"""Clients that misbehave at a real node: it stays, the others do not notice, and each is told what it did."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

import headgate
from headgate.amqp.sasl import HEADER
from headgate.redis.keys import Address
from tests.amqp.client import Peer, Pulse, Rude, rude, written
from tests.amqp.node_processes import NodeProcess, nodes
from tests.amqp.raw import attach, begin, detach, end, flow, nothings, transfer
from tests.sdk.observing import field, look
from tests.support.extent import each
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

OPTIONS = (
    *("--handshake", 1, "--slow-reader", 1, "--idle", 3, "--connections", 30, "--sessions", 8, "--links", 20),
    *("--max-message", 200_000, "--held", 1_000_000, "--ttl", 2),
)
GROWTH = 60 << 20
"""Bytes that a node may grow by while it is abused."""


@pytest.fixture
def node(redis_url: str, cleanup_namespace: str) -> Iterator[NodeProcess]:
    with nodes(redis_url, cleanup_namespace, 1, *OPTIONS) as started:
        yield started[0]
        assert started[0].is_alive


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def pulse(node: NodeProcess) -> AsyncIterator[Pulse]:
    """Clients that behave, before, during and after; and the node's memory."""
    async with Pulse(node.port) as pulse:
        before = node.resident
        yield pulse
        grown = node.resident - before
        assert grown < GROWTH, f"{grown >> 20} MiB"


async def test_a_client_that_ignores_credit_loses_its_link(
    node: NodeProcess, pulse: Pulse, client: headgate.Client
) -> None:
    await client.apply("orders", limit=20_000)
    async with rude(node.port) as guest:
        await guest.greet(attach("s", 0))
        await guest.granted()
        for number in range(250):
            await guest.say(transfer(0, number, written("x" * 500)))
        await guest.until(b"transfer-limit-exceeded")
        fields = (await look(client, "orders")).fields
        assert int(fields["peak_bytes"]) <= 20_000
        await pulse.beats()


@pytest.mark.parametrize("settled", [True, False])
async def test_however_many_ignore_credit_the_limit_holds(
    node: NodeProcess, pulse: Pulse, client: headgate.Client, settled: bool
) -> None:
    await client.apply("orders", limit=20_000)

    async def push(guest: Rude) -> None:
        for number in range(400):
            await guest.say(transfer(0, number, written("x" * 3000), settled=settled))
        await guest.end()

    async with rude(node.port) as one, rude(node.port) as two, rude(node.port) as three:
        for name, guest in (("1", one), ("2", two), ("3", three)):  # before there is no room
            await guest.greet(attach(name, 0))
            await guest.granted()
        await asyncio.gather(*(push(guest) for guest in (one, two, three)))
        await pulse.beats()
        pending, leased, peak = [
            await field(client, "orders", name) for name in ("pending_bytes", "leased_bytes", "peak_bytes")
        ]
        assert pending + leased <= 20_000
        assert 10_000 < peak <= 20_000


async def test_a_message_that_is_too_large_ends_its_link_only(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet(attach("s", 0), attach("other", 1))
        await guest.granted()
        for number in range(8):
            await guest.say(transfer(0, 0, b"x" * 60_000, more=number < 7))
        await guest.until(b"message-size-exceeded")
        await guest.say(transfer(1, 1, written("fits")))
        await guest.until(b"\x00\x53\x24")


async def test_what_is_no_message_is_rejected_and_the_link_goes_on(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet(attach("s", 0))
        await guest.granted()
        await guest.say(transfer(0, 0, b"\x93garbage"))
        assert b"amqp:decode-error" in await guest.until(b"\x00\x53\x25")
        await guest.say(transfer(0, 1, written("good")))
        await guest.until(b"\x00\x53\x24")


@each(
    ("said", "told"),
    [
        (b"\xff" * 5000, "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0) * 3, "amqp:connection:framing-error"),
        (struct.pack(">IBBH", 3, 2, 0, 0) * 3, "amqp:connection:framing-error"),
        (begin(channel=9), "amqp:connection:framing-error"),
        (attach("s", 0) + transfer(0, 0, b"x") + flow(7), ""),
        (b"", "amqp:resource-limit-exceeded"),  # silence: the library's word for it
    ],
)
async def test_whoever_speaks_no_amqp_is_told_so_and_hung_up_on(
    node: NodeProcess, pulse: Pulse, said: bytes, told: str
) -> None:
    async with rude(node.port) as guest:
        await guest.greet()
        await guest.until(b"\x00\x53\x11")
        await guest.say(said)
        assert (await guest.end()) == told or not told


@each(
    "said",
    [b"", b"AMQP", HEADER, HEADER + b"\x00\x00\x00\x20", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00AMQP"],
)
async def test_a_handshake_that_does_not_end_is_ended(node: NodeProcess, pulse: Pulse, said: bytes) -> None:
    async with rude(node.port) as guest:
        await guest.say(said)
        await guest.end()


async def test_half_a_frame_keeps_nobody_waiting(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet()
        await guest.say(struct.pack(">IBBH", 60_000, 2, 0, 0) + b"x" * 50_000)
        await pulse.beats(50)
        await guest.end()


async def test_connections_above_the_limit_are_told_so(node: NodeProcess, pulse: Pulse) -> None:
    peers = [await Peer.connect(node.port, f"c{number}") for number in range(28)]
    async with rude(node.port) as guest:
        await guest.greet()
        assert await guest.end() == "amqp:resource-limit-exceeded"
    await pulse.beats()
    await peers.pop().close()

    async def there_is_room() -> bool:
        async with rude(node.port) as guest:
            await guest.greet()
            await guest.until(b"\x00\x53\x10")
            return b"resource-limit" not in guest.heard and not guest.reader.at_eof()

    await wait_until(there_is_room)
    for peer in peers:
        await peer.close()


@pytest.mark.whole
async def test_a_crowd_that_never_says_a_word_is_cut_off(node: NodeProcess, pulse: Pulse) -> None:
    sockets = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(300)]
    await pulse.beats(50)
    for reader, _ in sockets:
        async with asyncio.timeout(20):
            try:
                while await reader.read(100):
                    pass
            except ConnectionError:
                pass
    for _, writer in sockets:
        writer.transport.abort()


async def test_links_above_the_limit_are_refused(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet(*(attach(f"s{number}", number) for number in range(30)))
        assert b"20 links are open" in await guest.until(b"resource-limit-exceeded")
        await guest.say(b"".join(attach(f"more{number}", 100 + number) for number in range(30)))
        assert await guest.end() == "amqp:resource-limit-exceeded"


@pytest.mark.whole  # as that of links
async def test_a_flood_of_sessions_is_borne(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet()
        reading = asyncio.create_task(guest.end())
        for _ in range(100):
            await guest.say((begin(1) + attach("s", 0, channel=1) + end(1)) * 50)
        await pulse.beats(50)
        guest.writer.transport.abort()
        await reading


@pytest.mark.parametrize("receives", [True, False], ids=["receivers", "senders"])
async def test_a_flood_of_links_is_borne(
    node: NodeProcess, pulse: Pulse, client: headgate.Client, receives: bool
) -> None:
    async with rude(node.port) as guest:
        await guest.greet()
        reading = asyncio.create_task(guest.end())
        for _ in range(50):
            await guest.say((attach("l", 0, receives=receives) + detach(0)) * 50)
        await pulse.beats(20)
        guest.writer.transport.abort()
        await reading

    async def nobody_is_left() -> bool:
        snapshot = await client.store.snapshot(Address.of(client.namespace, "orders"))
        return snapshot is None or snapshot.sessions <= 1

    await wait_until(nobody_is_left, timeout=80)


async def test_a_flood_of_flow_frames_is_borne(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet(attach("r", 0, receives=True))
        reading = asyncio.create_task(guest.end())
        for credit in range(300):
            await guest.say(flow(0, credit % 7, echo=True) * 200)
        await pulse.beats(50)
        guest.writer.transport.abort()
        await reading


async def test_a_receiver_that_never_reads_is_hung_up_on_and_its_messages_go_to_others(
    node: NodeProcess, pulse: Pulse, client: headgate.Client
) -> None:
    async with client.session("sdk") as session:
        producer = await session.producer("orders")
        for number in range(60):
            await producer.send(f"{number:05}" + "x" * 100_000)
        async with rude(node.port) as guest:
            await guest.greet(attach("r", 0, receives=True))
            guest.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await guest.say(flow(0, 1000))
            await wait_until(lambda: "has not read for" in node.log, timeout=120)
        consumer = await session.consumer("orders")
        got: set[str] = set()
        async with asyncio.timeout(20):
            while len(got) < 60:
                message = await consumer.receive(timeout=20)
                assert message is not None
                got.add(str(message.body)[:5])
                await message.accept()


async def test_a_receiver_that_never_settles_holds_no_more_than_its_window(
    node: NodeProcess, pulse: Pulse, client: headgate.Client
) -> None:
    await client.apply("orders", consumer_window=10)
    async with client.session("sdk") as session:
        producer = await session.producer("orders")
        for number in range(30):
            await producer.send(f"{number}")
        async with rude(node.port) as guest:
            await guest.greet(attach("r", 0, receives=True))
            await guest.say(flow(0, 1000))
            reading = asyncio.create_task(guest.end())
            await wait_until(lambda: guest.heard.count(b"\x00\x53\x14") >= 10)
            await pulse.beats()
            assert guest.heard.count(b"\x00\x53\x14") == 10
            guest.writer.transport.abort()
            await reading
        consumer = await session.consumer("orders", window=100)
        bodies: set[object] = set()
        async with asyncio.timeout(20):
            while len(bodies) < 30:
                message = await consumer.receive(timeout=20)
                assert message is not None
                bodies.add(message.body)
                await message.accept()


async def test_filters_that_would_fill_the_memory_are_not_borne(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet()
        await guest.until(b"\x00\x53\x11")
        for number in range(15):
            await guest.say(attach(f"r{number}", number, receives=True, filters=nothings(60_000)))
        assert await guest.end() == "amqp:resource-limit-exceeded"


async def test_messages_begun_and_never_finished_are_bounded(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as one, rude(node.port) as two:
        for guest in (one, two):
            await guest.greet(*(attach(f"s{number}", number) for number in range(20)))
            await guest.granted()
            for number in range(20):
                for _ in range(3):
                    await guest.say(transfer(number, number, b"x" * 60_000, more=True))
        await pulse.beats()


async def test_a_transfer_from_a_receiver_does_not_end_the_node(node: NodeProcess, pulse: Pulse) -> None:
    async with rude(node.port) as guest:
        await guest.greet(attach("r", 0, receives=True))
        await guest.until(b"\x00\x53\x12")
        await guest.say(flow(0, 3) + b"".join(transfer(0, number, written("x")) for number in range(5)))
        assert await guest.end() == "amqp:illegal-state"

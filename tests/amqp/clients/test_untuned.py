"""What clients do that nobody tuned to Headgate, frame by frame, at a node with all defaults."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import headgate
from headgate.core.amqp.message import AmqpMessage, encode
from tests.amqp.client import Rude, rude, written
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.raw import FALSE, HEADER, NULL, TRUE, begin, described, detach, end, flow, frame, number, text, transfer
from tests.amqp.raw import attach as attach_raw
from tests.sdk.observing import GUARD, drain, field
from tests.support.extent import each, share_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

ACCEPTED, REJECTED, DETACH = b"\x00S\x24", b"\x00S\x25", b"\x00S\x16"
CLOSE = frame(0x18, [])


@asynccontextmanager
async def guest(node: NodeProcess, *frames: bytes) -> AsyncIterator[Rude]:
    """A client that has opened its connection and a session, and said that."""
    async with rude(node.port) as guest:
        yield await guest.greet(*frames)


@asynccontextmanager
async def sender(node: NodeProcess, address: str = "orders", name: str = "s") -> AsyncIterator[Rude]:
    """A client whose link 0 has credit to send to a queue; an empty address: to any, by a relay."""
    attach = attach_raw(name, 0, address=address)
    if not address:
        attach = frame(0x12, [text("s"), number(0), FALSE, NULL, NULL, described(0x28, []), described(0x29, []), NULL,
                              NULL, number(0)])  # fmt: skip
    async with guest(node, attach) as sends:
        await sends.granted()
        yield sends


def receiver(name: str = "r", handle: int = 0, *, most: int | None = None, modes: bytes = NULL + NULL) -> bytes:
    fields = [text(name), number(handle), TRUE, modes[:-1] or NULL, modes[-1:], described(0x28, [text("orders")])]
    if modes != NULL + NULL:
        fields[3:5] = [modes[:2], modes[2:]]
    fields += [described(0x29, []), NULL, NULL, NULL]
    if most is not None:
        fields.append(b"\x80" + most.to_bytes(8, "big"))
    return frame(0x12, fields)


def drained(credit: int, *, count: int = 0, handle: int = 0) -> bytes:
    """A flow that gives credit, to be used up at once."""
    session = [number(0), number(1 << 14)] * 2
    fields = [*session, number(handle), number(count), number(credit), NULL, TRUE]
    return frame(0x13, fields)


async def until_drained(guest: Rude) -> bytes:
    """Read until a flow comes that says that there is no credit left, and ``drain``."""
    async with asyncio.timeout(GUARD):
        while not re.search(rb"\x00S\x13\xc0.\x09.{,60}C@A", guest.heard, re.DOTALL):
            assert await guest._read(), guest.heard[-300:]
    return guest.heard


async def stored(client: headgate.Client, count: int, name: str = "orders") -> None:
    async def there() -> bool:
        return await field(client, name, "pending_messages") == count

    await wait_until(there, description=f"{count} messages in {name}")


async def fill(client: headgate.Client, *bodies: str | bytes) -> None:
    async with client.session("fills") as session:
        producer = await session.producer("orders")
        for body in bodies:
            await producer.send(body, timeout=GUARD)


@pytest.mark.parametrize("goodbye", share_of(["close", "detach", "end", "connection"], 3))
@pytest.mark.parametrize("address", ["orders", ""], ids=["link", "relay"])
async def test_messages_followed_at_once_by_the_end_of_their_link_are_stored(
    node: NodeProcess, client: headgate.Client, goodbye: str, address: str
) -> None:
    last = {
        "close": detach(0),
        "detach": frame(0x16, [number(0), FALSE]),
        "end": end(),
        "connection": CLOSE,
    }[goodbye]
    message = encode(AmqpMessage(kind="data", body=b"x")) if address else to("orders")
    await client.apply("orders")
    async with sender(node, address) as sends:
        await sends.say(b"".join(transfer(0, n, message) for n in range(5)) + last)
        await stored(client, 5)
        if goodbye in ("close", "detach"):
            heard = await sends.until(DETACH)
            assert ACCEPTED in heard[: heard.index(DETACH)], "its client hears of them before the end"


def to(address: str) -> bytes:
    """A message that says where it goes."""
    return described(0x73, [NULL, NULL, text(address)]) + written("x")


async def test_a_message_into_a_full_queue_is_stored_when_there_is_room_though_its_link_has_ended(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders", limit_messages=1)
    async with sender(node) as sends:
        await sends.say(transfer(0, 0, written("1")) + transfer(0, 1, written("2")) + detach(0))
        await sends.until(DETACH)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=1)
        for body in (b"1", b"2"):
            (message,) = await drain(consumer, 1)
            assert message.body == body


async def test_what_had_no_outcome_when_the_connection_broke_is_not_stored_later(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders", limit_messages=1)
    async with sender(node) as sends:
        await sends.say(transfer(0, 0, written("1")))
        await sends.until(ACCEPTED)
        await sends.say(transfer(0, 1, written("2")))
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        (message,) = await drain(consumer, 1)
        assert message.body == b"1"
        assert await consumer.receive(timeout=0.5) is None


async def test_what_ended_links_left_to_wait_is_bounded(start_node: StartNode, client: headgate.Client) -> None:
    node = start_node("--held", "100000")
    await client.apply("orders", limit_messages=1)
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(sender(node, name=f"s{n}")) for n in range(4)]
        for sends in senders:
            await sends.say(b"".join(transfer(0, n, written("x" * 10_000)) for n in range(5)) + CLOSE)
            await sends.end()
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        count = 0
        while (message := await consumer.receive(timeout=GUARD if count < 5 else 1)) is not None:
            await message.accept(confirm=True)
            count += 1
    assert 5 <= count <= 11
    assert "that it left behind" in node.errors


async def test_a_receiver_for_which_a_message_is_too_large_loses_its_link_and_nobody_the_message(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders", dead_letter="dead")
    await fill(client, "x" * 1000)
    for _ in range(2):
        async with guest(node, receiver(most=500) + flow(0, 10)) as receives:
            heard = await receives.until(b"amqp:link:message-size-exceeded")
            assert b"this receiver takes 500" in heard
    async with client.session("s") as session:
        (message,) = await drain(await session.consumer("orders"), 1)
        assert (message.body, message.delivery_count) == ("x" * 1000, 0)


async def test_a_browser_for_which_a_message_is_too_large_loses_its_link(
    node: NodeProcess, client: headgate.Client
) -> None:
    await fill(client, "x" * 1000)
    source = described(0x28, [text("orders"), NULL, NULL, NULL, NULL, NULL, b"\xa3\x04copy"])
    fields = [text("b"), number(0), TRUE, NULL, NULL, source, described(0x29, []), NULL, NULL, NULL, number(500)]
    fields[10] = b"\x80" + (500).to_bytes(8, "big")
    async with guest(node, frame(0x12, fields) + flow(0, 10)) as browses:
        await browses.until(b"amqp:link:message-size-exceeded")


async def test_a_drain_is_answered_after_the_large_messages_that_are_there(
    node: NodeProcess, client: headgate.Client
) -> None:
    await fill(client, *["x" * 300_000] * 3)
    async with guest(node, receiver() + drained(10)) as receives:
        heard = await until_drained(receives)
        assert heard.count(b"x") >= 900_000, "all three before the answer"


async def test_a_drain_without_credit_is_answered(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("orders")
    async with guest(node, receiver()) as receives:
        await receives.until(b"\x00S\x12")
        await receives.say(drained(0))
        await until_drained(receives)
        await fill(client, "x")  # and its credit is what it was
        await receives.say(flow(0, 1))
        await receives.until(b"\xa1\x01x")


async def test_a_drain_without_credit_is_answered_behind_messages_that_are_on_their_way(
    node: NodeProcess, client: headgate.Client
) -> None:
    """As go-amqp drains: its flow says what it has seen so far."""
    await fill(client, *"abcdef")
    async with guest(node, receiver() + flow(0, 3)) as receives:
        await receives.until(b"\xa1\x01c")
        await receives.say(drained(0, count=1))
        await until_drained(receives)
        await receives.say(frame(0x13, [*[number(0), number(1 << 14)] * 2, number(0), number(3), number(2)]))
        await receives.until(b"\xa1\x01e")
        await receives.say(drained(0, count=5))
        assert b"\xa1\x01f" not in receives.heard


@pytest.mark.parametrize("credit", share_of([0xFFFFFFFF, 0x80000000, 0x7FFFFFFF], 3))
async def test_any_credit_that_can_be_said_is_credit(node: NodeProcess, client: headgate.Client, credit: int) -> None:
    await fill(client, *map(str, range(50)))
    async with guest(node, receiver() + flow(0, credit)) as receives:
        await receives.until(b"\xa1\x0249")


@each(
    ("address", "wrong"),
    [(text("nul\0byte"), b"no NUL"), (b"\xa0\x01q", b"is text"), (number(7), b"is text"), (b"\xa1\x03a\0b", b"no NUL")],
)
async def test_an_address_that_is_no_text_is_refused(node: NodeProcess, address: bytes, wrong: bytes) -> None:
    fields = [text("l"), number(0), FALSE, NULL, NULL, described(0x28, []), described(0x29, [address]), NULL, NULL]
    async with guest(node, frame(0x12, [*fields, number(0)])) as sends:
        assert wrong in await sends.until(b"amqp:invalid-field")


BAD = b"\xc3\x28"
"""Two bytes that are no UTF-8."""


def mapping(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xc1" + bytes((len(body) + 1, len(items))) + body


def symbol(raw: bytes) -> bytes:
    return b"\xa3" + bytes((len(raw),)) + raw


@each("part", ["name", "address", "capability", "filter", "selector", "property"])
async def test_what_is_not_utf_8_is_refused_with_one_clear_error(node: NodeProcess, part: str) -> None:
    raw = {part: BAD}
    asked = b"\x00" + b"\x80" + (0x468C00000004).to_bytes(8, "big") + b"\xa1\x02" + raw.get("selector", b"1 ")
    source = [text("events"), *[NULL] * 6, mapping(symbol(raw.get("filter", b"f1")), asked), NULL, NULL,
              symbol(raw.get("capability", b"topic"))]  # fmt: skip
    if part == "address":
        source[0] = b"\xa1\x02" + BAD
    name = b"\xa1\x02" + raw.get("name", b"l1")
    fields = [name, number(0), TRUE, NULL, NULL, described(0x28, source), described(0x29, []), NULL, NULL, NULL, NULL]
    properties = mapping(symbol(b"p1"), b"\xa1\x02" + raw.get("property", b"ok"))
    async with guest(node, frame(0x12, [*fields, NULL, NULL, properties])) as receives:
        assert b"is not UTF-8" in await receives.until(b"amqp:decode-error")


async def test_a_container_id_that_is_not_utf_8_is_refused(node: NodeProcess) -> None:
    async with rude(node.port) as guest:
        await guest.say(HEADER + frame(0x10, [b"\xa1\x02" + BAD]))
        assert b"container id is not UTF-8" in await guest.until(b"amqp:decode-error")


async def test_an_address_may_be_a_url_and_services_of_others_are_no_queues(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders")
    async with sender(node, "amqps://localhost/orders") as sends:
        await sends.say(transfer(0, 0, written("1")))
        await sends.until(ACCEPTED)
    async with sender(node, "") as sends:
        await sends.say(transfer(0, 0, to("amqp://localhost:5672/orders")) + transfer(0, 1, to("$cbs")))
        await sends.until(ACCEPTED)
        assert b"sign in by SASL" in await sends.until(REJECTED)
    await stored(client, 2)
    for receives in (True, False):
        spelled = ("$CBS", "$cbs\u202e", "\uff04cbs", "$cbs/", " $Cbs ", "AMQPS://localhost/$Management")
        for address in ("$cbs", "orders/$management", "amqp://localhost/$coordinator", *spelled):
            async with guest(node, attach_raw("l", 0, address=address, receives=receives)) as refused:
                await refused.until(b"amqp:not-implemented")
    assert await client.destinations() == ["orders"]


async def test_an_echo_is_answered(node: NodeProcess) -> None:
    async with sender(node) as sends:
        sends.heard = b""
        await sends.say(frame(0x13, [*[number(0), number(1 << 14)] * 2, *[NULL] * 5, TRUE]))
        await sends.until(b"\x00S\x13")


async def test_a_message_expires_by_its_properties(node: NodeProcess, client: headgate.Client) -> None:
    past, future = (b"\x83" + int((time.time() + s) * 1000).to_bytes(8, "big") for s in (0.2, 3600))
    async with sender(node) as sends:
        for number_, moment in enumerate((past, future)):
            await sends.say(transfer(0, number_, described(0x73, [*[NULL] * 8, moment]) + written(f"{number_}")))
        await sends.until(ACCEPTED)
        await stored(client, 2)
        over = time.time() + 0.2
        await wait_until(lambda: time.time() > over)
        async with client.session("s") as session:
            (message,) = await drain(await session.consumer("orders"), 1)
            assert message.body == b"1"


@each("receives", [True, False])
async def test_a_refused_link_is_answered_with_ends_that_are_null(node: NodeProcess, receives: bool) -> None:
    address = "$cbs" if receives else "a.*"
    async with guest(node, attach_raw("l", 0, receives=receives, address=address)) as refused:
        heard = await refused.until(b"amqp:not-implemented" if receives else b"amqp:invalid-field")
        answer = heard.partition(b"\x00S\x12")[2].partition(DETACH)[0]
        assert b"\x00S\x28" not in answer
        assert b"\x00S\x29" not in answer


@each("modes", [b"\x50\x00\x50\x00", b"\x50\x00\x50\x01", b"\x50\x01\x50\x01", b"\x50\x02\x50\x00"])
async def test_settle_modes_are_answered_as_they_were_asked_for(node: NodeProcess, modes: bytes) -> None:
    async with guest(node, receiver(modes=modes)) as receives:
        heard = await receives.until(b"\x00S\x12")
        await receives.say(CLOSE)
        await receives.end()
        answer = (heard + receives.heard).partition(b"\x00S\x12")[2]
        assert modes in answer[:30]


async def test_aborted_deliveries_use_no_credit_up(node: NodeProcess) -> None:
    async with sender(node) as sends:
        for n in range(150):  # as much credit as there is, and half of it once more
            await sends.say(transfer(0, n, b"begun", more=True))
            await sends.say(aborted(0, n))
            if n == 99:
                sends.heard = b""
                await sends.granted()
        await sends.say(transfer(0, 150, written("x")))
        await sends.until(ACCEPTED)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_link_that_is_attached_anew_ends_where_it_was_before(
    node: NodeProcess, client: headgate.Client, durable: bool
) -> None:
    source = described(0x28, [text("news" if durable else "orders"), b"\x52\x02" if durable else NULL])
    attach = frame(0x12, [text("sub"), number(0), TRUE, NULL, NULL, source, described(0x29, [])])
    async with guest(node, attach + flow(0, 10)) as first:
        await first.until(b"\x00S\x12")
        async with guest(node, attach + flow(0, 10)) as second:
            await first.until(b"amqp:link:stolen")
            await second.until(b"\x00S\x12")
            async with client.session("fills") as session:
                producer = await session.producer("news" if durable else "orders", kind="topic" if durable else "queue")
                for n in range(6):
                    await producer.send(f"news {n}", timeout=GUARD)
            for n in range(6):
                await second.until(b"news %d" % n)
            await second.say(begin(1) + attach_on(1, "sub"))
            await second.until(b"amqp:link:stolen")
            await second.say(begin(2))
            await second.until(b"\x00S\x11\xc0\x14\x05`\x00\x02")  # the connection stays
        assert b"news 0" not in first.heard


async def test_a_name_that_is_attached_twice_on_one_session_ends_the_connection_and_loses_nothing(
    node: NodeProcess, client: headgate.Client
) -> None:
    """The library refuses it by itself. The specification has no error for it, and the client comes back with all."""
    source = described(0x28, [text("news"), b"\x52\x02"])

    def attach(handle: int) -> bytes:
        return frame(0x12, [text("sub"), number(handle), TRUE, NULL, NULL, source, described(0x29, [])])

    async with guest(node, attach(0) + flow(0, 10)) as twice:
        await twice.until(b"\x00S\x12")
        async with client.session("fills") as session:
            producer = await session.producer("news")
            await producer.send("held", timeout=GUARD)
            await twice.until(b"held")
            await twice.say(attach(1))
            heard = await twice.until(b"link name already attached: sub")
            assert b"amqp:invalid-field" in heard
            await twice.end()
            await producer.send("later", timeout=GUARD)
    async with guest(node, attach(0) + flow(0, 10)) as again:
        await again.until(b"held")
        await again.until(b"later")


async def test_a_durable_subscription_that_comes_back_at_another_node_ends_where_it_was(
    start_node: StartNode, client: headgate.Client
) -> None:
    """And no other link does. Mutants: the older one stays; both go."""
    await client.apply("news", kind="topic")
    source = described(0x28, [text("news"), b"\x52\x02"])
    attach = frame(0x12, [text("sub"), number(0), TRUE, NULL, NULL, source, described(0x29, [])])
    plain = receiver("plain", 1)
    nodes = [start_node("--name", name) for name in ("first", "second")]
    async with guest(nodes[0], attach + flow(0, 10) + plain) as first:
        await first.until(b"\x00S\x12")
        async with guest(nodes[1], attach + flow(0, 10) + plain) as second:
            heard = await first.until(b"to another node")
            assert heard.count(b"amqp:link:stolen") == 1
            async with client.session("fills") as session:
                await (await session.producer("news")).send("after", timeout=GUARD)
            await second.until(b"after")
            assert b"stolen" not in second.heard


def attach_on(channel: int, name: str) -> bytes:
    source = described(0x28, [text("orders")])
    return frame(0x12, [text(name), number(0), TRUE, NULL, NULL, source, described(0x29, [])], channel=channel)


async def test_a_durable_subscription_is_no_browser_and_ends_without_its_topic_being_said(
    node: NodeProcess, client: headgate.Client
) -> None:
    """As JMS subscribes and unsubscribes."""
    source = described(0x28, [text("news"), b"\x52\x02", *[NULL] * 4, b"\xa3\x04copy", *[NULL] * 3, b"\xa3\x05topic"])
    attach = frame(0x12, [text("sub"), number(0), TRUE, NULL, NULL, source, described(0x29, [])])
    async with guest(node, attach + flow(0, 10)) as receives:
        await receives.until(b"\x00S\x12")
        await receives.say(frame(0x16, [number(0), FALSE]))
        await receives.until(DETACH)
    async with client.session("fills") as session:
        producer = await session.producer("news")
        await producer.send("missed", timeout=GUARD)
    assert await field(client, "news", "pending_messages") == 1
    nameless = frame(0x12, [text("sub"), number(0), TRUE, NULL, NULL, NULL, described(0x29, [])])
    async with guest(node, nameless + detach(0)) as ends:
        await ends.until(DETACH)
        await stored(client, 0, "news")
        ends.heard = b""
        await ends.say(nameless)
        await ends.until(b"amqp:not-found")


async def test_two_users_of_a_name_and_two_that_share_keep_their_links(node: NodeProcess) -> None:
    shared = described(0x28, [text("news"), *[NULL] * 9, b"\xa3\x06shared"])
    attach = frame(0x12, [text("sub"), number(0), TRUE, NULL, NULL, shared, described(0x29, [])])
    async with guest(node, attach) as first, guest(node, attach) as second:
        for each in (first, second):
            await each.until(b"\x00S\x12")
        await first.say(CLOSE)
        await first.end()
        assert b"stolen" not in first.heard + second.heard


def aborted(handle: int, delivery: int) -> bytes:
    tag = b"\xa0\x04" + delivery.to_bytes(4, "big")
    fields = [number(handle), number(delivery), tag, number(0), FALSE, FALSE, NULL, NULL, NULL, TRUE]
    return frame(0x14, fields)


DATA = b"\x00Su\xa0\x03abc"
PROPERTIES = b"\x00Ss\x45"


@each(
    "message",
    [
        DATA[:-1],
        b"\x00Su\xb0\x00\x00\xff\xffabc",
        DATA + DATA[:2],
        b"\x00St\xa1\x01x" + DATA,
        b"\x00Ss\xc1\x01\x00" + DATA,
        b"\x00Sp\xa0\x00" + DATA,
        DATA + PROPERTIES,
        PROPERTIES + PROPERTIES + DATA,
        b"\x00Su\xa1\x01x",
        b"\x00Sw",
        b"\x00Sy\x40",
        b"",
    ],
)
async def test_what_is_no_message_is_rejected_on_arrival(node: NodeProcess, message: bytes) -> None:
    async with sender(node) as sends:
        await sends.say(transfer(0, 0, message))
        assert b"amqp:decode-error" in await sends.until(REJECTED)
        await sends.say(transfer(0, 1, PROPERTIES + DATA + DATA + b"\x00Sx\xc1\x01\x00"))
        await sends.until(ACCEPTED)


async def test_what_was_only_prefetched_when_a_client_closes_its_connection_comes_again_untried(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders")
    await fill(client, "a")
    for _ in range(3):
        async with guest(node, receiver() + flow(0, 10)) as receives:
            await receives.until(b"\xa1\x01a")
            await receives.say(CLOSE)
            await receives.end()
    async with client.session("s") as session:
        (message,) = await drain(await session.consumer("orders"), 1)
        assert message.delivery_count == 0

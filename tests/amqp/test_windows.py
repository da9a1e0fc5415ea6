"""Sessions that take no more than they said: what their window leaves out stays where others can have it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from tests.amqp.client import PATIENCE, Peer, Rude, read, rude
from tests.amqp.nodes import NodeProcess
from tests.amqp.raw import attach, detach, flow
from tests.sdk.observing import field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TOPICS = ("news.eu", "news.us")


async def send(client: headgate.Client, address: str, *bodies: str) -> None:
    async with client.session("out") as session:
        producer = await session.producer(address)
        await asyncio.gather(*(producer.send(body, timeout=PATIENCE) for body in bodies))


def named(what: str, count: int) -> list[str]:
    return [f"<{what} {number}>" for number in range(count)]


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    """A client that calls itself as a `Rude` one does, so that both can share a subscription."""
    peer = await Peer.connect(port, "raw")
    try:
        yield peer
    finally:
        await peer.close()


async def gets(guest: Rude, *bodies: str) -> None:
    """Read until all of these have come."""
    for body in bodies:
        await guest.until(body.encode())


def got(guest: Rude) -> set[str]:
    return {body.decode() for body in re.findall(rb"<[^<>]+>", guest.heard)}


@pytest.mark.parametrize(
    ("capability", "leaves"),
    [("", False), ("shared", False), ("", True)],
    ids=["queue", "shared topic", "queue, a link closed with its messages unsettled"],
)
async def test_what_a_shut_session_leaves_is_given_to_others(
    node: NodeProcess, client: headgate.Client, capability: str, leaves: bool
) -> None:
    await client.apply("orders", kind="topic" if capability else "queue")
    bodies = named("message", 20)
    came: list[str] = []

    def take(link: Link, message: bytes, delivery: Any) -> None:
        came.append(read(message))
        link.settle(delivery)

    async with rude(node.port) as guest, peer(node.port) as other:
        receives = attach("r", 0, receives=True, capability=capability)
        await guest.greet(receives, flow(0, 50, window=2), window=2)
        await guest.until(b"\0S\x12")
        await send(client, "orders", *bodies[:2])
        await gets(guest, *bodies[:2])
        if leaves:  # some clients keep a place for each of these for ever
            await guest.say(detach(0))
            await guest.until(b"\0S\x16")
            await guest.say(attach("another", 1, receives=True) + flow(1, 50, window=2))
        await send(client, "orders", *bodies[2:])
        words = (capability,) if capability else ()
        link = await other.receiver("orders", take, name="r" if words else "other", capabilities=words)
        expected = set(bodies) if leaves else set(bodies[2:])
        await wait_until(
            lambda: set(came) >= expected, timeout=PATIENCE, description="what there is, at the one who takes it"
        )
        assert len(came) == len(expected), "each once"
        assert got(guest) == set(bodies[:2])

        link.close()
        other.flush_soon()
        await guest.say(flow())  # of the session alone: no link is named
        await send(client, "orders", "<late>")
        await gets(guest, "<late>")


async def test_what_a_shut_session_was_not_sent_is_not_settled_and_comes_when_it_opens(
    node: NodeProcess, client: headgate.Client
) -> None:
    for topic in TOPICS:
        await client.apply(topic, kind="topic")
    bodies = [*named("eu", 5), *named("us", 5)]

    async def held() -> int:
        return sum([await field(client, topic, "pending_messages") for topic in TOPICS])

    async def stays() -> bool:
        return await held() <= 8  # two are settled as they are sent

    async with rude(node.port) as guest:
        receives = attach("r", 0, receives=True, address="news.*", presettled=True)
        await guest.greet(receives, flow(0, 50, window=2), window=2)
        await guest.until(b"\0S\x12")
        for topic, part in zip(TOPICS, (bodies[:5], bodies[5:]), strict=True):
            await send(client, topic, *part)
        async with asyncio.timeout(PATIENCE):
            while len(got(guest)) < 2:
                assert await guest._read()
        await wait_until(stays, timeout=PATIENCE)
        assert await held() == 8
        await guest.say(flow())
        await gets(guest, *bodies)


async def test_a_drain_is_answered_after_what_a_shut_session_could_not_take(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders", kind="queue")
    bodies = named("message", 3)
    await send(client, "orders", *bodies)
    async with rude(node.port) as guest:
        await guest.greet(attach("r", 0, receives=True), flow(0, 50, window=1, drain=True), window=1)
        await gets(guest, bodies[0])
        await guest.say(flow(0, 50, drain=True))
        await gets(guest, *bodies)
        drained = rb"\0S\x13\xc0.\x09.{,60}C@A"
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(drained, guest.heard, re.DOTALL)):
                assert await guest._read()
        assert found.start() > guest.heard.index(bodies[2].encode())

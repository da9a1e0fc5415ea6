"""A grant that is taken away ends at once what was begun under it, whatever it is; the rest of the connection stays."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate import AccessDenied
from headgate.amqp.peer import Disconnected
from headgate.core.amqp.message import AmqpMessage, Properties, encode
from headgate.redis.keys import Address, session_prefix
from headgate.redis.replies import Account
from headgate_coordinator.node.node import Node
from headgate_coordinator.security import Action
from tests.amqp.client import Peer, read
from tests.remote.grants import B, C, M, P
from tests.remote.people import Taken, node_with, peer_as, people_of, sdk_as
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

OTHER: dict[str, set[Action]] = {"other": {P, C, B}}
ALL = {"orders": {P, C, B}, "news.#": {P, C}} | OTHER


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = {"ann": ALL, "boss": {"#": {P, C, B, M}}, "none": {}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        yield node


async def stored(node: Node, name: str = "orders") -> int:
    snapshot = await node.client.store.snapshot(Address.of(node.client.namespace, name))
    return int(snapshot.fields["pending_messages"]) if snapshot else 0


async def ended(peer: Peer, link: Any) -> tuple[str, str]:
    """Wait until the node ends a link, and see that the connection's other links go on."""
    await wait_until(lambda: link in peer.gone, timeout=GUARD, description="the end of a link")
    assert not peer.lost
    other = await peer.sender("other", "still")
    assert (await peer.send(other, "x"))[0] == "accepted"
    condition: tuple[str, str] = link.user
    return condition


async def test_of_a_sender(node: Node) -> None:
    """Mutant: `look_again` does nothing."""
    async with peer_as(node, "ann") as ann:
        link = await ann.sender("orders?producer_window=64KiB")
        assert (await ann.send(link, "before"))[0] == "accepted"
        people_of(node).may("ann", OTHER)
        condition, reason = await ended(ann, link)
        assert condition == "amqp:unauthorized-access"
        assert "'ann' may not produce at 'orders'" in reason
        with pytest.raises(Disconnected, match="may not produce"):
            await ann.sender("orders", "again")
    assert await stored(node) == 1


async def test_of_a_sender_whose_message_waits_for_room(node: Node) -> None:
    """Mutant: what is not stored yet is stored once there is room."""
    await node.client.apply("orders", kind="queue", limit=100)
    async with peer_as(node, "ann") as ann:
        link = await ann.sender("orders", presettled=True)
        for _ in range(3):
            link.send(encode(AmqpMessage(kind="data", body=b"x" * 60)), settled=True)
        ann.flush()
        await wait_until(lambda: any(c.held for c in node.connections))
        people_of(node).may("ann", OTHER)
        await ended(ann, link)
        assert not any(c.held for c in node.connections)
        before = await stored(node)
        await node.client.apply("orders", limit="unlimited")
        async with node.client.session("direct") as session:
            await (await session.producer("orders")).send("after")
        assert await stored(node) == before + 1


async def test_of_a_receiver_whose_messages_go_back_untried(node: Node) -> None:
    kept: list[Any] = []
    async with node.client.session("direct") as session:
        producer = await session.producer("orders")
        await producer.send("one")
        async with peer_as(node, "ann") as ann:
            link = await ann.receiver("orders", lambda *seen: kept.append(seen))
            await wait_until(lambda: len(kept) == 1)
            people_of(node).may("ann", OTHER)
            assert "may not consume" in (await ended(ann, link))[1]
            await producer.send("two: secret")
            consumer = await session.consumer("orders")
            messages = [await consumer.receive(timeout=GUARD) for _ in range(2)]
            assert sorted((m.body, m.delivery_count) for m in messages if m) == [("one", 0), ("two: secret", 0)]
            assert len(kept) == 1


async def test_of_a_durable_subscription_which_stays(node: Node) -> None:
    """Mutant: the client's answer to the end of its link counts as its own wish to end the subscription."""
    taken = Taken()
    await node.client.apply("news.uk", kind="topic")
    async with peer_as(node, "ann") as ann:
        link = await ann.receiver("news.uk", taken, name="mine", durable=True)
        await wait_until(lambda: any(end.link.is_open for c in node.connections for end in c.ends.values()))
        people_of(node).may("ann", OTHER)
        await ended(ann, link)
        async with node.client.session("direct") as session:
            await (await session.producer("news.uk", kind="topic")).send("kept")
        people_of(node).may("ann", ALL)
        await ann.receiver("news.uk", taken, name="mine", durable=True)
        await wait_until(lambda: [read(raw) for raw in taken.raw] == ["kept"])


async def test_of_a_browser(node: Node) -> None:
    taken = Taken()
    async with peer_as(node, "ann") as ann, node.client.session("direct") as session:
        await (await session.producer("orders")).send("one")
        link = await ann.receiver("orders", taken, browse=True)
        await wait_until(lambda: len(taken.raw) == 1)
        people_of(node).may("ann", OTHER)
        assert "may not browse" in (await ended(ann, link))[1]


async def test_of_a_relay_for_each_message_also_for_those_that_wait(node: Node) -> None:
    """Mutant: `Relay.look_again` leaves them in line."""
    await node.client.apply("orders", kind="queue", limit=100)
    async with peer_as(node, "ann") as ann:
        relay = await ann.sender(None)
        waits = []
        for _ in range(3):
            wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            ann.waits[
                relay.send(encode(AmqpMessage(kind="data", body=b"x" * 60, properties=Properties(to="orders"))))
            ] = wait
            waits.append(wait)
        ann.flush()
        await wait_until(lambda: any(c.held for c in node.connections))
        people_of(node).may("ann", OTHER)
        outcomes = await asyncio.wait_for(asyncio.gather(*waits), GUARD)
        assert [outcome for outcome, _ in outcomes].count("rejected") >= 1
        assert not any(c.held for c in node.connections)
        late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ann.waits[relay.send(encode(AmqpMessage(kind="data", body=b"y", properties=Properties(to="orders"))))] = late
        fine: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ann.waits[relay.send(encode(AmqpMessage(kind="data", body=b"y", properties=Properties(to="other"))))] = fine
        ann.flush()
        assert (await asyncio.wait_for(late, GUARD))[0] == "rejected"
        assert (await asyncio.wait_for(fine, GUARD))[0] == "accepted"


async def test_of_a_user_who_is_gone_with_what_waited(node: Node) -> None:
    await node.client.apply("orders", kind="queue", limit=100)
    async with peer_as(node, "ann") as ann:
        relay = await ann.sender(None, "relay")
        for _ in range(3):
            relay.send(
                encode(AmqpMessage(kind="data", body=b"x" * 60, properties=Properties(to="orders"))), settled=True
            )
        ann.flush()
        await wait_until(lambda: any(c.held for c in node.connections))
        people_of(node).may("ann", None)
        await wait_until(lambda: ann.over or ann.lost)
        before = await stored(node)
        await node.client.apply("orders", limit="unlimited")
        async with node.client.session("direct") as session:
            await (await session.producer("orders")).send("after")
        assert await stored(node) == before + 1


async def test_of_calls_of_an_sdk_its_consumers_are_told_and_go_on_when_it_is_given_back(node: Node) -> None:
    """Mutant: a consumer that is denied waits without a word."""
    async with sdk_as(node, "ann") as ann, ann.session("s", ttl=1) as session, node.client.session("direct") as direct:
        producer, consumer = await session.producer("orders"), await session.consumer("orders", window=1)
        await producer.send("one")
        message = await consumer.receive(timeout=GUARD)
        assert message
        people_of(node).may("ann", OTHER)
        with pytest.raises(AccessDenied, match="consume at 'orders'"):
            await asyncio.wait_for(message.accept(confirm=True), GUARD)
        with pytest.raises(AccessDenied, match="consume at 'orders'"):
            await consumer.receive(timeout=GUARD)
        with pytest.raises(AccessDenied, match="produce"):
            await producer.send("two", timeout=1)
        assert await stored(node) == 1
        people_of(node).may("ann", ALL)
        await (await direct.producer("orders")).send("three")

        async def receives() -> bool:
            try:
                got = await consumer.receive(timeout=1)
            except AccessDenied:
                return False
            return got is not None

        await wait_until(receives, timeout=GUARD)


async def test_of_a_producer_of_an_sdk_without_credit_in_hand(node: Node) -> None:
    """Breaks when its wait is taken for one for room, or for an outage of Redis."""
    async with sdk_as(node, "ann") as ann, ann.session("s") as session:
        events: list[Any] = []
        session.on_blocked(events.append, notify_after="200ms")
        producer = await session.producer("orders", window=1000)
        people_of(node).may("ann", OTHER)
        with pytest.raises(AccessDenied, match="produce"):
            await producer.send("x" * 5000, timeout=2)
    explained = [str(event.explanation) for event in events if getattr(event, "explanation", None)]
    assert all("reachable" not in text for text in explained), explained
    assert any("refused" in text for text in explained), events


async def test_of_a_consumer_by_pattern_of_an_sdk(node: Node) -> None:
    async with sdk_as(node, "ann") as ann, ann.session("s", ttl=1) as session:
        consumer = await session.consumer("news.#")
        people_of(node).may("ann", OTHER)
        with pytest.raises(AccessDenied, match=r"consume at 'news\.#'"):
            await consumer.receive(timeout=GUARD)


async def test_of_channels_that_are_listened_to(node: Node) -> None:
    """Mutant: `Gateway.look_again` does nothing."""
    heard: list[Any] = []
    address = Address.of(node.client.namespace, "orders")
    await node.client.apply("orders", kind="queue")
    async with sdk_as(node, "ann") as ann:
        await ann.store.server.wake_ups().subscribe((address.channels("")[1],), heard.append)
        await node.client.apply("orders", limit=1000)
        await wait_until(lambda: heard == [["settings"]])
        people_of(node).may("ann", OTHER)
        listeners = node.client.parts.wake_ups._listeners  # type: ignore[attr-defined]
        await wait_until(lambda: address.channels("")[1] not in listeners)
        await node.client.apply("orders", limit=2000)
        await ann.destinations()
        assert heard == [["settings"]]


async def test_of_acting_for_the_sessions_of_others(node: Node) -> None:
    """Mutant: whether a user manages the namespace is asked when it connects."""
    address = Address.of(node.client.namespace, "orders")
    async with sdk_as(node, "ann") as ann, sdk_as(node, "boss") as boss, ann.session("c") as takes:
        consumer = await takes.consumer("orders")
        await boss.store.settle(address, takes.id, consumer.id, ttl_ms=1000)
        people_of(node).may("boss", {"#": {P, C, B}})
        with pytest.raises(AccessDenied, match="is not yours"):
            await boss.store.settle(address, takes.id, consumer.id, ttl_ms=1000)
        with pytest.raises(AccessDenied, match="is not yours"):
            await boss.store.acquire(address, Account(takes.id, 1, 0), ttl_ms=1000, leave=True)
        async with boss.session("own") as session:  # what it may still do, it does under its own name
            assert session.id.startswith(session_prefix("boss"))
            await (await session.producer("orders")).send("x")

"""With the grants that docs/security.md asks for things work, and nothing of somebody else's is seen or touched."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate import AccessDenied, HeadgateError, InvalidValue
from headgate.core.amqp.message import AmqpMessage, Properties, encode
from headgate.core.policy import Policy
from headgate.namespace.topics import WildcardSubscription
from headgate.policy import loads
from headgate.redis.keys import Address, index_keys, namespace_channel, policy_key
from headgate.redis.replies import Account
from headgate.redis.scripts import script
from headgate.redis.stores.policies import PolicyStore
from headgate_coordinator.node.node import Node
from headgate_coordinator.security import Action, creation_quota
from headgate_coordinator.security.access import Access
from tests.amqp.client import Peer, read
from tests.remote.grants import B, C, M, P
from tests.remote.people import Taken, node_with, peer_as, people_of, sdk_as
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

PEOPLE: dict[str, dict[str, set[Action]]] = {
    "seller": {"orders": {P}, "inbox.#": {P}, "public.#": {P}},
    "buyer": {"orders": {C}, "inbox.#": {C}, "news.#": {C}},
    "ann": {"orders": {P, C}, "news.#": {P, C}},
    "boss": {"#": {P, C, B, M}},
}


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    async with node_with(redis_url, cleanup_namespace, PEOPLE, held=1 << 20) as node:
        yield node


def to(name: str, size: int = 1) -> bytes:
    return encode(AmqpMessage(kind="data", body=b"x" * size, properties=Properties(to=name)))


async def outcomes(peer: Peer, link: Any, *messages: bytes) -> list[str]:
    waits = []
    for message in messages:
        await peer.until(lambda: link.credit > 0, link)
        wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        peer.waits[link.send(message)] = wait
        waits.append(wait)
    peer.flush()
    return [outcome for outcome, _ in await asyncio.wait_for(asyncio.gather(*waits), GUARD)]


async def test_a_relay_asks_for_the_very_name_that_it_sends_to(node: Node) -> None:
    """Mutant: what follows a `?` is part of the name that is asked for, and not of the one that is sent to."""
    people_of(node).may("seller", {"public.*.*": {P}})
    async with peer_as(node, "seller") as seller:
        relay = await seller.sender(None)
        tried = ["public.admin?producer_window=1.5KiB", "public.admin", "public.a.b?x=1.2", "public.a.b"]
        assert await outcomes(seller, relay, *map(to, tried)) == ["rejected"] * 3 + ["accepted"]
    assert await node.client.destinations() == ["public.a.b"]


async def test_a_relay_holds_no_more_than_a_connection_may(node: Node) -> None:
    """Mutant: `Relay.received` takes what comes. The same for what waits for its line."""
    await node.client.apply("orders", kind="queue", limit=150_000)  # one of them, and the others wait
    async with peer_as(node, "seller") as seller:
        relay = await seller.sender(None)
        for _ in range(40):
            wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            seller.waits[relay.send(to("orders", 100_000))] = wait
        seller.flush()
        await wait_until(lambda: node.counters.rejected.get("held", 0) > 20, timeout=GUARD)
        assert all(connection.held <= 1 << 20 for connection in node.connections)


@pytest.mark.parametrize("by_value", [{}, {"slices": 3, "order_by": "header:n"}], ids=["alone", "by value"])
async def test_dead_letters_arrive_with_consume_alone(node: Node, by_value: dict[str, Any]) -> None:
    """Mutants: a message's own session is nobody's; who may consume may not send dead letters where they go."""
    await node.client.apply("dlq", kind="queue", **by_value)
    await node.client.apply("orders", kind="queue", dead_letter="dlq", max_attempts=2)
    async with sdk_as(node, "buyer") as buyer, buyer.session("c") as session, node.client.session("d") as direct:
        producer = await direct.producer("orders")
        for number in range(8):
            await producer.send(f"{number}", headers={"n": number})
        consumer = await session.consumer("orders", window=5)
        for _ in range(8):
            message = await consumer.receive(timeout=GUARD)
            assert message
            await asyncio.wait_for(message.reject("bad", confirm=True), GUARD)
        found = [seen async for seen in node.client.browse("dlq")]
        assert len({seen.id.rpartition(":")[0] for seen in found}) == (3 if by_value else 1)
        bodies = [str(seen.body) for seen in found]
        assert (sorted(bodies) if by_value else bodies) == [f"{number}" for number in range(8)]
        with pytest.raises(AccessDenied):
            _ = [seen async for seen in buyer.browse("dlq")]
        people_of(node).may("buyer", {"inbox.#": {C}})
        dead = Account("buyer~dead~00000000", 1, 0, want=10, want_m=1)
        with pytest.raises(AccessDenied):
            await buyer.store.acquire(Address.of(node.client.namespace, "dlq"), dead, ttl_ms=1000)


async def test_dead_letters_of_one_queue_after_those_of_another_arrive_at_once(node: Node) -> None:
    """Mutant: where dead letters go is looked for no more for a second, and the caller is told to ask for a grant."""
    for queue in ("orders", "shipments"):
        await node.client.apply(queue, kind="queue", dead_letter=f"dlq-of-{queue}", slices=3)
        async with node.client.session("in") as direct:
            await (await direct.producer(queue)).send("1")
    people_of(node).may("buyer", {"orders": {C}, "shipments": {C}})
    async with sdk_as(node, "buyer") as buyer, buyer.session("c") as session:
        for queue in ("orders", "shipments"):
            message = await (await session.consumer(queue)).receive(timeout=GUARD)
            assert message
            await asyncio.wait_for(message.reject("bad", confirm=True), GUARD)
            assert [seen.body async for seen in node.client.browse(f"dlq-of-{queue}")] == ["1"]


async def test_dead_letters_that_may_go_nowhere_say_so(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """A setting that the node has not seen: what cannot go out is told, and others pass. Mutant: it waits for ever."""
    await node.client.apply("orders", kind="queue", dead_letter="reply~x", max_attempts=2)
    async with sdk_as(node, "ann") as ann, ann.session("c") as session:
        await (await session.producer("orders")).send("1")
        message = await (await session.consumer("orders")).receive(timeout=GUARD)
        assert message
        with pytest.raises(HeadgateError, match="reply~x"):
            await asyncio.wait_for(message.reject("bad", confirm=True), GUARD)
    assert "is held: " in caplog.text


async def test_nobody_has_dead_letters_sent_to_where_they_may_not_send(node: Node) -> None:
    """Mutant: who manages a destination names any other for its dead letters."""
    people_of(node).may("ann", {"orders": {P, C, M}, "graves": {P}})
    async with sdk_as(node, "ann") as ann:
        await ann.apply("orders", kind="queue", dead_letter="graves")
        with pytest.raises(AccessDenied, match="produce or manage at 'payroll'"):
            await ann.apply("orders", dead_letter="payroll")
        await ann.apply("orders", max_attempts=3)
        await node.client.apply_policy(loads('[[destination]]\nmatch = "orders"\ndead_letter = "payroll"\n'))
        async with ann.session("s") as session:  # what the policy says is not their own word
            await (await session.producer("orders")).send("x")
        await node.client.remove("orders")
        async with ann.session("s") as session:
            await (await session.producer("orders")).send("x")


async def test_a_session_that_is_resumed_over_a_node_is_its_user_s_own(node: Node) -> None:
    """Mutant: the id of a session that can be resumed is nobody's."""
    for behind in (0, 1):
        async with sdk_as(node, "ann") as ann, ann.session("etl", resume="batch 7") as session:
            producer = await session.producer("orders")
            assert producer.resumed == behind
            await producer.send("x")
    async with sdk_as(node, "seller") as seller, seller.session("etl", resume="batch 7") as session:
        assert (await session.producer("orders")).resumed == 0, "another user's is another"


async def test_who_may_only_produce_makes_no_subscription(node: Node) -> None:
    """Mutant: the paused consumer that holds a new subscription of a pattern is anybody's to make."""
    address = Address.of(node.client.namespace, "inbox.a")
    async with sdk_as(node, "seller") as seller, seller.session("s") as session:
        producer = await session.producer("inbox.a", kind="topic")
        await seller.store.attach(
            address,
            "wildcard~0123456789abcdef",
            number=1,
            subscription="leech",
            durable=True,
            window="paused",
            ttl_ms=1000,
        )
        for number in range(9):
            await producer.send(f"{number}")
        snapshot = await node.client.store.snapshot(address)
        assert snapshot is not None
        assert (snapshot.fields["subscriptions"], snapshot.fields["pending_messages"]) == ("0", "0")
        with pytest.raises(AccessDenied):
            await seller.store.detach(address, "wildcard~0123456789abcdef", "wildcard~0123456789abcdef.1", failed=False)


async def test_a_pattern_gets_what_who_may_only_produce_sends_to_a_new_topic(node: Node) -> None:
    async with (
        sdk_as(node, "seller") as seller,
        sdk_as(node, "buyer") as buyer,
        buyer.session("c") as takes,
        seller.session("s") as sends,
    ):
        consumer = await takes.consumer("inbox.#", subscription="audit", durable=True)
        await (await sends.producer("inbox.new", kind="topic")).send("first")
        assert [message.body for message in await drain(consumer, 1)] == ["first"]


@pytest.mark.parametrize("name", ["inbox.a%7B", "inbox.a secret", "inbox.%61", "inbox.a%2A", "inbox.", "reply~x"])
async def test_the_index_takes_no_topic_that_is_spelled_otherwise(node: Node, name: str) -> None:
    """Mutant: the gateway decodes a name, and asks for what that comes to."""
    keys, op = index_keys(node.client.namespace), script("topic")
    async with sdk_as(node, "seller") as seller, sdk_as(node, "buyer") as buyer, buyer.session("c") as session:
        consumer = await session.consumer("inbox.#")
        if name != "inbox.":
            with pytest.raises(InvalidValue):
                await seller.store.server.call(op, keys, op.argv({"name": name, "present": 1}))
            assert await node.client.store.server.command(keys[2], "SCARD", keys[2]) == 0
        await (await node.client.session("d").producer("inbox.b", kind="topic")).send("x")
        assert [message.body for message in await drain(consumer, 1)] == ["x"]


@pytest.mark.parametrize("name", ["inbox..x s", "inbox.* s t", "inbox.%2A s", "inbox.*", "inbox.# s%7B", "inbox.#.a s"])
async def test_the_index_takes_no_pattern_that_is_spelled_otherwise(node: Node, name: str) -> None:
    """And everybody goes on making topics."""
    keys, op = index_keys(node.client.namespace), script("wildcard")
    async with sdk_as(node, "buyer") as buyer, sdk_as(node, "seller") as seller, seller.session("s") as session:
        values = {"mode": "keep", "name": name, "holder": "buyer~s~00000000~0000", "durable": 1, "ttl_ms": 1000}
        with pytest.raises(InvalidValue):
            await buyer.store.server.call(op, keys, op.argv(values))
        with pytest.raises(InvalidValue, match="ttl"):
            await buyer.store.server.call(op, keys, op.argv(values | {"name": "inbox.* s", "ttl_ms": 1 << 50}))
        await (await session.producer("inbox.c", kind="topic")).send("x")


async def test_the_index_takes_no_topic_that_is_not_there(node: Node) -> None:
    """Else one user names any number of them, and no consumer of a pattern gets through all."""
    keys, op = index_keys(node.client.namespace), script("topic")
    async with sdk_as(node, "seller") as seller, seller.session("s") as session:
        await session.producer("inbox.there", kind="topic")
        await session.producer("inbox.queue")
        for name in ("inbox.there", "inbox.queue", "inbox.none"):
            await seller.store.server.call(op, keys, op.argv({"name": name, "present": 1}))
    assert await node.client.store.server.command(keys[2], "SMEMBERS", keys[2]) == [b"inbox.there"]


async def test_a_user_makes_so_many_subscriptions_by_pattern_and_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever opens a topic reads any number of them. Mutants: calls, or links, are not counted."""
    monkeypatch.setattr(creation_quota, "PATTERNS", 3)
    async with (
        sdk_as(node, "buyer") as buyer, buyer.session("s") as session, peer_as(node, "buyer") as peer,
        node.client.session("direct") as direct,
    ):  # fmt: skip
        await session.consumer("inbox.*", subscription="a", durable=True)
        going = await session.consumer("inbox.*", subscription="b")
        await peer.receiver("news.*", Taken(), name="kept", durable=True)
        await wait_until(
            lambda: (
                [
                    end.link.is_open
                    for end in (end for one in node.connections for end in one.ends.values())
                    if end.destination == "news.*"
                ]
                == [True]
            )
        )
        with pytest.raises(HeadgateError, match="3 subscriptions by pattern, the most allowed, so"):
            await session.consumer("inbox.*", subscription="c")
        refused = await peer.receiver("news.*", Taken(), name="one-more", durable=True)
        await wait_until(lambda: refused in peer.gone)
        await session.consumer("inbox.*", subscription="a", durable=True)  # it is there
        await direct.consumer("inbox.*", subscription="others")  # and others have their own
        await going.close()
        await session.consumer("inbox.*", subscription="c")


async def test_what_is_told_of_the_namespace_is_what_a_grant_is_for(node: Node) -> None:
    """Mutants: hints, wildcard subscriptions, the policy, or topics are passed on whole."""
    client = node.client
    await client.apply_policy(
        loads(
            '[[destination]]\nmatch = "orders"\nlimit = 100\n[[destination]]\nmatch = "secret.merger"\nlimit = 77\n'
            '[[pool]]\nname = "hidden"\nlimit = 5\n[[bridge]]\nname = "b"\nfrom = "secret.merger"\nto = "secret.acme"\n'
        )
    )
    heard: list[list[str]] = []
    async with sdk_as(node, "buyer") as buyer, sdk_as(node, "boss") as boss, client.session("d") as direct:
        await buyer.store.server.wake_ups().subscribe((namespace_channel(client.namespace),), heard.append)
        await direct.consumer("secret.#", subscription="spies")
        await direct.consumer("news.*", subscription="readers")
        for name in ("secret.acme.plan", "news.uk"):
            await direct.producer(name, kind="topic")
        await wait_until(lambda: heard == [["created", "news.uk"]])
        keys = index_keys(client.namespace)
        flat = await buyer.store.server.command(keys[0], "HGETALL", keys[0])
        assert flat[::2] == [b"news.* readers"]
        _, topics = await buyer.store.server.command(keys[2], "SSCAN", keys[2], b"0", "COUNT", 100)
        assert topics == [b"news.uk"]
        told = await PolicyStore(buyer.store.server, client.namespace).read()
        assert "orders" in told.document
        assert "secret" not in told.document
        assert "hidden" not in told.document
        assert Policy.from_json(told.document).version == told.version
        assert "secret.merger" in (await PolicyStore(boss.store.server, client.namespace).read()).document
        key = policy_key(client.namespace).encode()
        with pytest.raises(InvalidValue):
            await buyer.store.server.command(key, "HMGET", key, "version", "source")


async def test_a_policy_that_redis_lost_is_put_back_whole_by_the_node(node: Node) -> None:
    """Mutant: what a client knows of it is put back, who may have seen a part of it when it managed nothing."""
    await node.client.apply_policy(loads('[[destination]]\nmatch = "secret"\nlimit = 77\n'))
    people_of(node).may("boss", {"orders": {P}})
    async with sdk_as(node, "boss") as boss, boss.session("s") as session:
        await session.producer("orders")
        people_of(node).may("boss", PEOPLE["boss"])
        key = policy_key(node.client.namespace).encode()
        await node.client.store.server.command(key, "DEL", key)
        await boss.parts.registry.policies.look()
        assert "secret" in (await PolicyStore(node.client.store.server, node.client.namespace).read()).document


@pytest.mark.parametrize("users", [True, False])
def test_no_two_links_containers_or_users_have_one_subscription(*, users: bool) -> None:
    """Mutant: the names are put together as they are."""
    texts = ["a", "b.c", "a.b", "c", "a%2Eb", "%", ".", "", "ID:x-1"]
    names = {Access().subscription(container, link, users=users) for container in texts for link in texts}
    assert len(names) == len(texts) ** 2
    assert Access().subscription("app", "news", users=False) == "app.news", "as it was, where nothing is to be escaped"


async def test_a_durable_subscription_is_its_user_s_own(node: Node) -> None:
    """Mutants: it is not bound to the user; the SDK may take it all the same."""
    await node.client.apply("news.uk", kind="topic")
    ann, buyer = Taken(), Taken()
    async with peer_as(node, "ann", "app") as one, peer_as(node, "buyer", "app") as other:
        await one.receiver("news.uk", ann, name="mine", durable=True)
        await other.receiver("news.uk", buyer, name="mine", durable=True)

        async def two() -> bool:
            snapshot = await node.client.store.snapshot(Address.of(node.client.namespace, "news.uk"))
            return snapshot is not None and snapshot.fields["subscriptions"] == "2"

        await wait_until(two, timeout=GUARD)
        async with node.client.session("d") as session:
            producer = await session.producer("news.uk", kind="topic")
            for number in range(10):
                await producer.send(f"{number}")
        await wait_until(lambda: len(ann.raw) == len(buyer.raw) == 10, timeout=GUARD)
        assert [read(raw) for raw in ann.raw] == [f"{number}" for number in range(10)]
    own = Access()
    own.identity = node.users._people["ann"]  # type: ignore[attr-defined]
    name = own.subscription("app", "mine", users=True)
    async with sdk_as(node, "buyer") as thief, thief.session("s") as session:
        with pytest.raises(AccessDenied, match="kept for AMQP clients of another user"):
            await session.consumer("news.uk", subscription=name)
        with pytest.raises(AccessDenied, match="kept for AMQP clients of another user"):
            await thief.unsubscribe("news.uk", name)
        with pytest.raises(AccessDenied, match="kept for AMQP clients of another user"):
            await session.consumer("news.#", subscription=name)


async def test_a_larger_share_than_the_settings_give_needs_manage(node: Node) -> None:
    """Mutant: the weight is the client's word."""
    async with sdk_as(node, "seller") as seller, seller.session("s") as session, sdk_as(node, "boss") as boss:
        await session.producer("orders")
        mine = Account(session.id, 1, 0, want=10, want_m=1, weight=50)
        with pytest.raises(AccessDenied, match="weight 50 is more than the producer_weight of 'orders', 1"):
            await seller.store.acquire(Address.of(node.client.namespace, "orders"), mine, ttl_ms=1000)
        await node.client.apply("orders", producer_weight=60)
        mine = Account("seller~t~00000000", 1, 0, want=10, want_m=1, weight=50)
        assert (await seller.store.acquire(Address.of(node.client.namespace, "orders"), mine, ttl_ms=1000)).code == "OK"
        async with boss.session("b") as heavy:
            await (await heavy.producer("inbox.q", weight=900)).send("x")


def test_an_entry_of_the_index_is_read_as_it_is_written() -> None:
    for name in ("news.* s", "# a%20b", "a%20b.> s"):
        entry = WildcardSubscription.read(name, durable=True, ttl_ms=1)
        assert entry is not None
        assert entry.name == name

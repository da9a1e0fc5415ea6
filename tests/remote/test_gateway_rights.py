"""Who may do what through a node, by honest clients and by forged calls."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import AccessDenied, CreditTimeout, InvalidValue
from headgate.amqp.calls import MAX_CALL, MAX_CALLS, message, pack
from headgate.amqp.remote import NodeBackend
from headgate.core.policy import Policy, Rule
from headgate.message import MAX_MESSAGE
from headgate.policy import loads
from headgate.redis.keys import Address, PoolAddress, index_keys, is_session_of, policy_key, session_id, session_prefix
from headgate.redis.replies import Account
from headgate.redis.scripts import script_names
from headgate.redis.stores.pools import PoolStore, Share
from headgate.redis.stores.rates import RateStore, Sender
from headgate_coordinator.node.gateway.required_grants import INDEX_SCRIPTS, POOL_SCRIPTS, RIGHTS
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from tests.links.policy.test_explain_links import overfill, worker
from tests.links.site import work
from tests.remote.grants import B, C, M, P, users
from tests.sdk.observing import GUARD, drain, field
from tests.support.spooled import spooling
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

PEOPLE = {
    "seller": {"orders": {P}, "news.#": {P}},
    "buyer": {"orders": {C}, "news.#": {C}},
    "looker": {"orders": {B}},
    "boss": {"#": {P, C, B, M}},
    "stranger": {"elsewhere": {P, C, B}},
}


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        node = Node(behind, NodeOptions(port=0, plain_without_tls=True), users(**PEOPLE))
        await node.start()
        try:
            yield node
        finally:
            await node.close()


@asynccontextmanager
async def as_user(node: Node, name: str, password: str = "secret") -> AsyncIterator[headgate.Client]:
    url = f"amqp://{name}:{password}@{node.address}"
    async with headgate.connect(url, namespace=node.client.namespace) as client:
        yield client


def backend(client: headgate.Client) -> NodeBackend:
    server = client.store.server
    assert isinstance(server, NodeBackend)
    return server


def orders(node: Node, name: str = "orders") -> Address:
    return Address.of(node.client.namespace, name)


def test_the_rights_of_every_script_are_settled() -> None:
    assert set(RIGHTS) == set(script_names())
    assert {*POOL_SCRIPTS, *INDEX_SCRIPTS, "policy"} < set(RIGHTS)


def test_a_call_has_room_for_the_largest_message() -> None:
    assert MAX_CALL == MAX_MESSAGE + (1 << 20)


async def test_who_may_produce_sends_and_who_may_consume_receives(node: Node) -> None:
    async with (
        as_user(node, "seller") as seller,
        as_user(node, "buyer") as buyer,
        seller.session("s") as sends,
        buyer.session("c") as takes,
    ):
        assert sends.id.startswith("seller~s~")
        producer, consumer = await sends.producer("orders"), await takes.consumer("orders")
        await producer.send("one")
        assert [message.body for message in await drain(consumer, 1)] == ["one"]
        with pytest.raises(AccessDenied, match=r"'seller'.*consume at 'orders'") as caught:
            await sends.consumer("orders")
        facts = (caught.value.user, caught.value.action, caught.value.destination)
        assert facts == ("seller", "consume", "orders")
        with pytest.raises(AccessDenied, match="credit needs produce"):
            await takes.producer("orders")
        with pytest.raises(AccessDenied):
            await sends.producer("elsewhere")


async def test_who_waits_for_a_store_is_told_how_full_it_is_and_not_where_it_is(node: Node, tmp_path: Path) -> None:
    """Breaks when users without manage cannot use what spools, or read a store's URL."""
    await spooling(node.client, tmp_path)
    key = node.client.parts.registry.spooling.spools.address("disk").shared[0]
    async with as_user(node, "seller") as seller, seller.session("s") as session:
        await (await session.producer("orders")).send("one")
        assert (await seller.explain("orders")).state == "open"
        server = backend(seller)
        assert (await server.command(key, "HMGET", key, "limit_bytes"))[0] == str(64 << 20).encode()
        for words in (("HMGET", key, "url"), ("HMGET", key, "limit_bytes", "url"), ("HGETALL", key)):
            with pytest.raises(AccessDenied):
                await server.command(key, *words)


async def test_who_may_only_browse_reads_and_takes_nothing(node: Node) -> None:
    async with as_user(node, "seller") as seller, as_user(node, "looker") as looker:
        async with seller.session("s") as session:
            await (await session.producer("orders")).send("one")
        assert [seen.body async for seen in looker.browse("orders")] == ["one"]
        assert (await looker.explain("orders")).state == "open"
        with pytest.raises(AccessDenied, match="browse"):
            _ = [seen async for seen in seller.browse("orders")]
        for call in (looker.purge("orders"), looker.remove("orders"), looker.recount("orders", repair=True)):
            with pytest.raises(AccessDenied, match="manage"):
                await call


async def test_links_are_followed_only_to_what_the_user_may_see(node: Node) -> None:
    """Mutant: `Links` lets the refusal out; and a read of links that the gateway does not do."""
    client = node.client
    limits = "".join(f'[[destination]]\nmatch = "{name}"\nlimit = 100\n' for name in ("orders", "billing"))
    await client.apply_policy(loads(f'{limits}[[bridge]]\nname = "one"\nfrom = "orders"\nto = "billing"\n'))
    for name in ("orders", "billing"):
        await client.apply(name, kind="queue")
        await overfill(client, name)
    await work(worker(client, "orders", "billing"))
    async with as_user(node, "boss") as boss, as_user(node, "looker") as looker:
        for _ in range(2):
            told = await boss.explain("orders")
            assert [(hop.target, hop.cause) for hop in told.chain] == [("billing", "no-consumer")]
            view = (await boss.explain(link="one")).link
            assert view is not None
            assert (view.side, view.backlog, view.mark, view.owner) == ("target", 10, None, None)
            told = await looker.explain("orders")
            assert (told.cause, told.chain, told.downstream[0].target) == ("slow-consumers", (), "billing")
        with pytest.raises(AccessDenied, match="'billing'"):
            await looker.explain("billing")
    assert node.counters.rejected["gateway"] == 6, "who may not read what nodes say, asks for it once"


async def test_who_has_no_right_at_a_destination_learns_nothing_of_it(node: Node) -> None:
    async with as_user(node, "boss") as boss, as_user(node, "stranger") as stranger, stranger.session("s") as session:
        await boss.apply("orders", limit=1000)
        for call in (
            stranger.explain("orders"),
            anext(aiter(stranger.browse("orders"))),
            session.producer("orders"),
            session.consumer("orders"),
            session.gate("orders"),
            session.bucket("orders"),
            stranger.apply("orders", limit=7),
        ):
            with pytest.raises(AccessDenied, match="'orders'"):
                await call
        assert await stranger.destinations() == []
        assert await boss.destinations() == ["orders"]


async def test_only_who_manages_changes_settings_policies_and_pools(node: Node) -> None:
    async with as_user(node, "seller") as seller, as_user(node, "boss") as boss:
        async with seller.session("s") as session:
            await session.producer("orders")
        assert await seller.pools() == []  # there are none, so there is nothing to hide
        for call in (
            seller.apply("orders", limit="unlimited", limit_messages=1),
            seller.block("orders", "mine"),
            seller.apply_policy(_policy("orders", limit_bytes="1")),
            seller.set_pool("memory", limit=10),
            seller.set_store("disk", "file:///spool", limit=10),
            seller.stores(),
            seller.remove_store("disk"),
        ):
            with pytest.raises(AccessDenied, match="manage"):
                await call
        await boss.apply("orders", limit=1000)
        await boss.set_pool("memory", limit=10)
        assert await field(boss, "orders", "limit_bytes") == 1000
        await boss.set_store("disk", "file:///spool", limit="1MB")
        assert [store.limit for store in await boss.stores()] == [1_000_000]
        await boss.remove_store("disk")
        assert await boss.stores() == []


async def test_a_new_destination_is_what_the_policy_says_whatever_its_first_user_asks_for(node: Node) -> None:
    """Mutant: settings are passed on as they come."""
    address = orders(node)
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller:
        await boss.apply_policy(_policy("orders", limit_bytes="5000"))
        await seller.store.apply(address, {"kind": "queue", "limit_bytes": "unlimited"}, mode="ensure", ttl_ms=1000)
        assert await field(boss, "orders", "limit_bytes") == 5000
        with pytest.raises(AccessDenied, match="changing limit_bytes"):
            await seller.store.apply(address, {"limit_bytes": "unlimited"}, mode="change", ttl_ms=1000)
        async with seller.session("s") as session:
            producer = await session.producer("orders")
            await boss.apply_policy(_policy("orders", limit_bytes="6000"))
            await producer.send("x" * 5500, timeout=GUARD)
        assert await field(boss, "orders", "limit_bytes") == 6000


async def test_limits_of_a_limiter_are_those_of_the_policy_and_only_who_manages_changes_them(node: Node) -> None:
    """Mutant: whoever opens a limiter says its limits, or makes one that nothing limits."""
    slots = '[[limiter]]\nmatch = "orders"\n[[limiter.limit]]\nname = "slots"\nat_once = 5\n'
    address = orders(node)
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller:
        await boss.apply_policy(loads(slots))
        more = {"limits": "slots at_once 99"}
        await seller.store.apply(address, {"kind": "limiter", **more}, mode="ensure", ttl_ms=1000)
        with pytest.raises(AccessDenied, match="changing limits"):
            await seller.store.apply(address, more, mode="change", ttl_ms=1000)
        for call in (
            seller.apply("orders", limits={"slots": {"at_once": 99}}),
            seller.apply_policy(loads(slots.replace("5", "99"))),
        ):
            with pytest.raises(AccessDenied, match="manage"):
                await call
        news = Address.of(address.namespace, "news.all")
        with pytest.raises(headgate.PolicyError, match=r"no destination 'news\.all'"):
            await seller.store.apply(news, {"kind": "limiter"}, mode="ensure", ttl_ms=1000)
        snapshot = await boss.store.snapshot(address)
        assert snapshot is not None
        assert snapshot.fields["limits"] == "slots at_once 5"
        assert await boss.destinations() == ["orders"]


def _policy(name: str, **fields: str) -> Policy:
    return Policy(0, [Rule(name, None, fields, dict.fromkeys(fields, "test:1"))], [], "test")


async def test_a_pool_lends_to_who_may_only_produce(node: Node) -> None:
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller, as_user(node, "buyer") as buyer:
        await boss.set_pool("memory", limit=1000)
        await boss.apply("orders", pools="memory")
        async with seller.session("s") as sends, buyer.session("c") as takes:
            producer, consumer = await sends.producer("orders", window=100), await takes.consumer("orders")
            for number in range(20):
                await producer.send(f"{number:090}", timeout=GUARD)
                await drain(consumer, 1)
            (pool,) = await boss.pools()
            assert pool.granted <= 1000
        slices = await seller.store.server.command(orders(node).shared[0], "HKEYS", f"{orders(node).key}:slices")
        assert slices == [b"memory"]
        address = PoolAddress.of(node.client.namespace, "memory")
        with pytest.raises(AccessDenied, match="manage"):
            await seller.store.server.command(address.keys[0], "HSCAN", address.keys[1], b"0", "COUNT", 10)


async def test_nobody_grants_himself_the_bytes_of_a_pool(node: Node) -> None:
    """Mutants: a slice, or a draw, is passed on as it comes."""
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller:
        await boss.set_pool("memory", limit=1000)
        await boss.apply("orders", pools="memory")
        pools, address = PoolStore(seller.store.server), orders(node)
        pool = PoolAddress.of(node.client.namespace, "memory")
        held = await pools.slice(address, "memory")
        much = Share("orders", held.epoch, 1 << 40, 0)
        told = await pools.slice(address, "memory", share=much, pool_epoch=held.pool_epoch)
        assert told.granted <= 1000
        drawn = await pools.draw(pool, "orders", replace(held, granted=1 << 40, need=1 << 41))
        assert drawn.granted <= 1000
        with pytest.raises(AccessDenied, match="produce"):
            await pools.draw(pool, "elsewhere", held)
        await boss.set_pool("other", limit=1000)
        assert (await pools.draw(PoolAddress.of(pool.namespace, "other"), "orders", held)).code == "UNKNOWN"
        assert {state.name: state.granted for state in await boss.pools()} == {"memory": drawn.granted, "other": 0}


async def test_nobody_tells_a_slice_that_its_pool_is_full(node: Node) -> None:
    """Mutant: what a pool answers of being full is passed on as it comes, and who only produces stops all others."""
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller:
        await boss.apply("orders", kind="queue", limit=1000, slices=3, resume_at="50%")
        pools, address = PoolStore(seller.store.server), orders(node)
        held = await pools.slice(address, "orders%.0")
        own = Share("orders", held.epoch, held.granted, held.returned)
        await pools.slice(address, "orders%.0", share=own, pool_epoch=held.pool_epoch, full=99)
        assert (await PoolStore(boss.store.server).slice(address, "orders%.0")).full == 0
        drawn = replace(held, pending=10**6, full=0)
        await pools.draw(PoolAddress.of(node.client.namespace, "orders#0"), "orders", drawn, short=True)
        async with seller.session() as session:
            await (await session.producer("orders")).send(b"x", timeout=GUARD)


async def test_slices_are_lent_their_rate_for_who_may_only_produce_and_believed_alone(node: Node) -> None:
    """Mutant: a report of what is in hand is passed on as it comes."""
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller:
        await boss.apply("orders", kind="queue", slices=3, send_rate="1/min", send_burst=4)
        async with seller.session("a") as a, seller.session("b") as b:
            producers = [await one.producer("orders") for one in (a, b)]
            for producer in producers * 2:
                await producer.send(b"x", timeout=GUARD)
            rates, address = RateStore(seller.store.server), orders(node)
            hand = await rates.take(address, "send")
            lent = await rates.take(address, "send", home=hand.home + 9, epoch=hand.epoch, granted=1 << 40)
            assert lent == hand
            loan = await rates.lend(address, "send", 0, replace(hand, home=hand.home + 9, back=1 << 40), 1, 1)
            assert loan.code == "SHORT"
            with pytest.raises(CreditTimeout):
                await producers[0].send(b"x", timeout=0.5)
            with pytest.raises(AccessDenied, match="produce"):
                await rates.lend(Address.of(address.namespace, "elsewhere"), "send", 0, hand, 1, 1)


async def test_nobody_stands_in_the_line_of_a_rate_for_others_or_with_more_weight(node: Node) -> None:
    """Mutants: any session may be named; its weight is taken as it comes."""
    async with as_user(node, "boss") as boss, as_user(node, "seller") as seller, seller.session("a") as session:
        await boss.apply("orders", kind="queue", slices=3, send_rate="1/min", send_burst=4)
        rates, address = RateStore(seller.store.server), orders(node)
        hand = await rates.take(address, "send", sender=Sender(session.id))
        assert (await rates.lend(address, "send", 0, hand, 1, 1, sender=Sender(session.id))).code == "OK"
        theirs = Sender("boss~00000000")
        with pytest.raises(AccessDenied, match="is not yours"):
            await rates.take(address, "send", sender=theirs, lent=1)
        with pytest.raises(AccessDenied, match="is not yours"):
            await rates.lend(address, "send", 0, hand, 1, 1, sender=theirs)
        with pytest.raises(AccessDenied, match="weight"):
            await rates.lend(address, "send", 0, hand, 1, 1, sender=Sender(session.id, 9))


async def test_consumers_stand_in_the_line_of_a_rate_as_many_as_they_are_in_a_session_of_theirs(node: Node) -> None:
    """Mutants: any session may be named; the weight of a producer is all that several of them have."""
    async with as_user(node, "boss") as boss, as_user(node, "buyer") as buyer, buyer.session("b") as session:
        await boss.apply("orders", kind="queue", slices=3, delivery_rate="1/min", delivery_burst=4)
        rates, address = RateStore(buyer.store.server), orders(node)
        hand = await rates.take(address, "delivery", sender=Sender(session.id))
        assert (await rates.lend(address, "delivery", 0, hand, 1, 1, sender=Sender(session.id, 9))).code == "OK"
        with pytest.raises(AccessDenied, match="is not yours"):
            await rates.lend(address, "delivery", 0, hand, 1, 1, sender=Sender("boss~00000000"))


async def test_patterns_match_only_what_the_user_may_consume(node: Node) -> None:
    async with as_user(node, "boss") as boss, as_user(node, "buyer") as buyer, as_user(node, "seller") as seller:
        await boss.apply("news.uk", kind="topic")
        await boss.apply("secret.uk", kind="topic")
        async with buyer.session("c") as takes, seller.session("s") as sends:
            with pytest.raises(AccessDenied):
                await takes.consumer("*.uk")
            consumer = await takes.consumer("news.#")
            await (await sends.producer("news.uk", kind="topic")).send("here")
            await (await sends.producer("news.fr", kind="topic")).send("there")
            assert {message.body for message in await drain(consumer, 2)} == {"here", "there"}
        assert await buyer.destinations() == ["news.fr", "news.uk"]
        assert await boss.destinations() == ["news.fr", "news.uk", "secret.uk"]


@pytest.mark.parametrize(("name", "password"), [("seller", "wrong"), ("nobody", "secret")])
async def test_a_wrong_password_is_told_at_once_and_not_repeated(node: Node, name: str, password: str) -> None:
    with pytest.raises(AccessDenied) as caught:
        async with as_user(node, name, password):
            pass
    assert password not in str(caught.value)


async def test_who_names_no_user_is_asked_for_one(node: Node) -> None:
    with pytest.raises(AccessDenied, match="name a user"):
        await headgate.connect(f"amqp://{node.address}", namespace=node.client.namespace)


async def test_another_namespace_than_the_node_s_is_refused(node: Node) -> None:
    async with headgate.connect(f"amqp://boss:secret@{node.address}", namespace="not-this-one") as client:
        with pytest.raises(AccessDenied, match="serves namespace"):
            await client.explain("orders")
        with pytest.raises(AccessDenied):
            await client.destinations()
        hint = f"serves namespace '{node.client.namespace}', not 'not-this-one'; connect with namespace="
        with pytest.raises(AccessDenied, match=hint):  # the policy is what a session reads first of all
            await client.session("shop").producer("orders")


def test_no_user_owns_the_sessions_of_another() -> None:
    names = ["a", "a-b", "a.b", "a b", "~a", "a~b", "wildcard", "x" * 21, "x" * 22, "é"]
    prefixes = {name: session_prefix(name) for name in names}
    for name, prefix in prefixes.items():
        mine = session_id("web server", prefix)
        assert [other for other in names if is_session_of(mine, prefixes[other])] == [name]
        assert not is_session_of(session_id(name), prefix)  # of a client on Redis with the name of a user
    assert not is_session_of("wildcard~0123456789abcdef", prefixes["wildcard"])


async def test_a_session_of_another_user_cannot_be_acted_for(node: Node) -> None:
    address = orders(node)
    async with as_user(node, "seller") as seller, as_user(node, "boss") as boss, as_user(node, "buyer") as buyer:
        theirs = ["buyer~c~00000000", "boss~00000000", "seller~00000000", "seller", "-", "wildcard~0123456789abcdef"]
        for session in theirs:
            with pytest.raises(AccessDenied, match="is not yours"):
                await seller.store.acquire(address, Account(session, 1, 0, want=10), ttl_ms=1000)
        async with buyer.session("c") as takes:
            consumer = await takes.consumer("orders")
            for session, member in ((takes.id, consumer.id), ("buyer~x~00000000", consumer.id)):
                if session == takes.id:
                    continue
                with pytest.raises(AccessDenied, match="is not of session"):
                    await buyer.store.detach(address, session, member, failed=False)
            with pytest.raises(AccessDenied, match="is not yours"):
                await buyer.store.settle(address, "boss~00000000", "boss~00000000.1", ttl_ms=1000)
            await boss.store.detach(address, takes.id, consumer.id, failed=False)  # who manages may


async def test_hints_for_other_sessions_are_not_heard(node: Node) -> None:
    heard: list[Any] = []
    async with as_user(node, "seller") as seller, as_user(node, "boss") as boss, seller.session("s") as mine:
        await mine.producer("orders")
        address = orders(node)
        channels = (*address.channels("boss~00000000"), *orders(node, "elsewhere").channels("-"))
        await backend(seller).wake_ups().subscribe(channels, heard.append)
        direct = node.client.parts.wake_ups
        assert channels[0] not in direct._listeners  # type: ignore[attr-defined]
        assert channels[2] not in direct._listeners  # type: ignore[attr-defined]
        await boss.apply("orders", limit=77)
        await wait_until(lambda: ["settings"] in heard)


def forged(node: Node) -> dict[str, list[Any]]:
    """Calls that no client of ours makes."""
    address, pool = orders(node), PoolAddress.of(node.client.namespace, "memory")
    foreign = Address.of("foreign", "orders").shared[0]
    store = Address.of_store(node.client.namespace, "disk")
    look = [0, "", 0, 0]
    return {
        "a key of another namespace": ["call", "snapshot", foreign, look],
        "a key of no namespace": ["call", "snapshot", b"other:data", look],
        "a part instead of the destination": ["call", "snapshot", address.shared[1], look],
        "a pool instead of a destination": ["call", "snapshot", pool.keys[0], look],
        "a destination instead of a pool": ["call", "pool_forget", address.shared[0], [None, "orders", 0]],
        "an index instead of a policy": ["call", "policy", index_keys(node.client.namespace)[0], [0, 1, "{}", ""]],
        "an unknown script": ["call", "flushall", address.shared[0], []],
        "a script by path": ["call", "../lua/lib/keys", address.shared[0], []],
        "too few values": ["call", "snapshot", address.shared[0], [0]],
        "text for a number": ["call", "snapshot", address.shared[0], ["1 2", "", 0, 0]],
        "a number below 0": ["call", "snapshot", address.shared[0], [-1, "", 0, 0]],
        "a number that is huge": ["call", "snapshot", address.shared[0], [1 << 60, "", 0, 0]],
        "nothing for a number": ["call", "snapshot", address.shared[0], [None, "", 0, 0]],
        "a map for text": ["call", "snapshot", address.shared[0], [0, {"a": 1}, 0, 0]],
        "a record in a name": [
            "call", "attach", address.shared[0], [None, "boss~a~00000000", 1, 1000, "q granted=9", 0, "1/1"],
        ],
        "more consumers than a session has": [
            "call", "attach", address.shared[0], [None, "boss~a~00000000", 1 << 53, 1000, "queue", 0, "1/1"],
        ],
        "more ids than are said": [
            "call", "settle", address.shared[0],
            [None, "boss~a~00000000", "boss~a~00000000.1", 1000, 0, 0, 0, "0", 1 << 40, 0, 0, 0],
        ],
        "no body": [
            "call", "publish", address.shared[0], [None, "boss~a~00000000", 1, 0, 1000, 1, 0, 0, 0, 0, "hard", 0],
        ],
        "what is in a store": [
            "call", "publish", address.shared[0],
            [None, "boss~a~00000000", 1, 0, 1000, 1, 0, 0, 0, 0, "spool", 0, "disk/a 9", b"\xc1disk/a 0 9 00000000"],
        ],
        "a segment with what is not": [
            "call", "publish", address.shared[0],
            [None, "boss~a~00000000", 1, 0, 1000, 1, 0, 0, 0, 0, "refuse", 0, "disk/a 9", b"\x91a"],
        ],
        "a segment of a store": [
            "call", "hold", store.shared[0], [None, "boss~a~00000000", 1, 0, 1000, "orders/a", 9],
        ],
        "the end of a segment": ["call", "free", store.shared[0], [None, "orders/a"]],
        "the segments that are spent": ["call", "spent", address.shared[0], [0, 9]],
        "a destination without its segments": ["call", "unspool", address.shared[0], [None, "disk/a"]],
        "credit of a store": ["call", "acquire", store.shared[0], [None, "boss~a~00000000", *[0] * 18]],
        "what a store holds": ["command", store.shared[0], ["HGETALL", store.shared[0]]],
        "a write": ["command", address.shared[0], ["DEL", address.shared[0]]],
        "an unbounded read": ["command", address.shared[4], ["XRANGE", address.shared[4], "-", "+"]],
        "more than a page of what a consumer holds": [
            "command", address.shared[4], ["XPENDING", address.shared[4], "queue", "-", "+", 257, "boss~a~00000000.1"],
        ],
        "all that consumers hold": ["command", address.shared[4], ["XPENDING", address.shared[4], "queue"]],
        "a read of a foreign key": ["command", address.shared[0], ["HGETALL", "other:data"]],
        "a read of a foreign namespace": ["command", foreign, ["HGET", foreign, "kind"]],
        "a read past its key": ["command", address.shared[0], ["HGET", policy_key(node.client.namespace), "document"]],
        "a command without words": ["command", address.shared[0], []],
        "all keys": ["scan", "*"],
        "keys of a number": ["scan", 7],
        "a command everywhere": ["everywhere", ["CONFIG", "SET", "maxmemory", "1"]],
        "nothing known": ["obey"],
        "a number instead of a word": [7, 8],
    }  # fmt: skip


async def test_forged_calls_are_refused_one_by_one_and_harm_nobody(node: Node) -> None:
    async with as_user(node, "boss") as boss:
        await boss.apply("orders", limit=1000)
        for what, words in forged(node).items():
            try:
                await backend(boss)._ask(*words)
            except (AccessDenied, InvalidValue):
                continue
            pytest.fail(f"{what} was done")
        assert (await boss.explain("orders")).state == "open"
    assert node.counters.rejected["gateway"] == len(forged(node))


GARBAGE = [
    b"",
    b"\0\x53\x75\xb0\0\0\0\x01\xc1",
    b"\0\x53\x77\xa1\x02hi",
    b"\0\x53\x75\xb0\0\0\0\x04\xdd\xff\xff\xff",
    message([pack(7)]),
    message([pack([])]),
    message([pack(["call", 1])]),
    message([b"\x91" * 2000]),
    message([pack((1, "ping"))] * (MAX_CALLS + 1)),
]


@pytest.mark.parametrize("raw", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_ends_the_link_and_others_do_not_notice(node: Node, raw: bytes) -> None:
    async with as_user(node, "boss") as boss, as_user(node, "boss") as other:
        link = backend(boss)._link
        assert link
        link._calls.send(raw, settled=True)
        link.flush()
        async with asyncio.timeout(GUARD):
            await link.over
        assert re.match("amqp:(decode-error|resource-limit-exceeded)", str(link.reason))
        assert await other.destinations() == []
        assert await boss.destinations() == []  # over a new connection

"""Bridges of a policy, forwarded by real nodes: within both limits, once and in order, whoever dies."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address, owned_keys
from headgate_coordinator.links.listing import list_links
from tests.amqp.node_processes import NodeProcess, nodes
from tests.support.forked import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL = 2
LINK = "orders>billing"


def bridges(*ends: tuple[str, str], more: str = "") -> str:
    """Return a policy of bridges; ``more`` are tables after them."""
    told = (f'[[bridge]]\nname = "{one} to {to}"\nfrom = "{one}"\nto = "{to}"\n' for one, to in ends)
    return "destination = []\n" * (not more) + "".join(told) + more


def rule(match: str, text: str) -> str:
    return f'[[destination]]\nmatch = "{match}"\n{text}\n'


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def pair(redis_url: str, cleanup_namespace: str) -> AsyncIterator[list[NodeProcess]]:
    """Two nodes."""
    with nodes(redis_url, cleanup_namespace, 2, "--ttl", TTL) as started:
        yield started


async def stored(client: headgate.Client, name: str) -> list[bytes | str]:
    return [browsed.body async for browsed in client.browse(name)]


async def send(client: headgate.Client, name: str, *bodies: bytes, kind: str = "queue") -> None:
    async with client.session() as session:
        producer = await session.producer(name, kind=kind)
        for body in bodies:
            await producer.send(body)
        await producer.close()


async def owner(client: headgate.Client, link: str = LINK) -> str:
    """Return who has the lease on a link; nothing where nobody has."""
    key = owned_keys(client.namespace)[0]
    record = await client.store.server.command(key, "HGET", key, link)
    told = dict(word.split("=") for word in record.decode().split()) if record else {"owner": "-"}
    return "" if told["owner"] == "-" else told["owner"]


async def fields(client: headgate.Client, name: str) -> dict[str, str]:
    seen = await client.store.snapshot(Address.of(client.namespace, name))
    return seen.fields if seen else {}


async def settled(client: headgate.Client, *names: str) -> None:
    """Wait until nothing is leased or pending, and look whether the counters are true."""
    for name in names:

        async def empty(name: str = name) -> bool:
            now = await fields(client, name)
            counters = ("pending_bytes", "pending_messages", "leased_bytes", "leased_messages")
            return all(now.get(counter) == "0" for counter in counters)

        await wait_until(empty, timeout=80, description=f"nothing is left in {name}")
        count = await client.recount(name)
        assert count.equal, (name, count)


BODIES = [b"%04d" % number for number in range(300)]


async def test_a_bridge_forwards_all_in_order(client: headgate.Client, pair: list[NodeProcess]) -> None:
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    await send(client, "orders", *BODIES)

    async def there() -> bool:
        return await stored(client, "billing") == BODIES

    await wait_until(there, timeout=80)
    await wait_until(lambda: gone(client, "orders"))
    assert await owner(client)


async def gone(client: headgate.Client, name: str) -> bool:
    return await stored(client, name) == []


async def test_each_target_of_a_queue_gets_a_copy_beside_its_consumers(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    every = '[[bridge]]\nname = "all"\nfrom = "orders"\nto = ["audit", "news"]\ncopies = true\n'
    some = '[[bridge]]\nname = "few"\nfrom = "orders"\nto = "few"\ncopies = true\nselector = "urgent = TRUE"\n'
    await client.apply_policy(loads(rule("news", 'kind = "topic"') + every + some))

    async def open_links() -> bool:
        return (await fields(client, "orders")).get("subscriptions") == "4"

    await wait_until(open_links, timeout=80)
    async with client.session() as session:
        subscriber = await session.consumer("news", subscription="all", kind="topic")
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        for number, body in enumerate(BODIES):
            await producer.send(body, headers={"urgent": number % 100 == 0})
        for name in (consumer, subscriber):
            got = [await name.receive(timeout=80) for _ in BODIES]
            assert [message.body for message in got if message] == BODIES
            for message in got:
                await message.accept()  # type: ignore[union-attr]  # it came
            await name.flush()

    async def copied(name: str, bodies: list[bytes]) -> bool:
        return await stored(client, name) == bodies

    await wait_until(lambda: copied("audit", BODIES), timeout=80)
    await wait_until(lambda: copied("few", BODIES[::100]), timeout=80)
    await settled(client, "orders", "news")
    assert {one.link for one in await list_links(client)} == {"orders>>audit", "orders>>few", "orders>>news"}
    await client.apply_policy(loads(rule("news", 'kind = "topic"')))

    async def ended() -> bool:
        return (await fields(client, "orders")).get("subscriptions") == "1" and not await list_links(client)

    await wait_until(ended, timeout=80)


@pytest.mark.whole  # as those of a queue
async def test_each_target_of_a_topic_gets_all(client: headgate.Client, pair: list[NodeProcess]) -> None:
    policy = bridges(("events", "audit"), ("events", "reports"), more=rule("events", 'kind = "topic"'))
    await client.apply_policy(loads(policy))

    async def subscribed() -> bool:
        return (await fields(client, "events")).get("subscriptions") == "2"

    await wait_until(subscribed, timeout=80)
    await send(client, "events", *BODIES, kind="topic")
    for name in ("audit", "reports"):

        async def there(name: str = name) -> bool:
            return await stored(client, name) == BODIES

        await wait_until(there, timeout=80)
    await wait_until(lambda: gone(client, "events"))


async def consume(client: headgate.Client, name: str, count: int) -> list[bytes | str]:
    """Return the next so many messages of a queue; each is accepted."""
    got: list[bytes | str] = []
    async with client.session() as session:
        consumer = await session.consumer(name)
        while len(got) < count:
            message = await consumer.receive(timeout=30)
            assert message is not None, f"{len(got)} of {count} came"
            got.append(message.body)
            await message.accept()
        await consumer.close()
    return got


@pytest.mark.whole  # tests/conformance/test_tibco_ems_links.py has it
async def test_a_limit_at_the_target_only_is_not_felt_by_producers_of_the_source(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    await client.apply_policy(loads(bridges(("orders", "billing"), more=rule("billing", "limit = 400"))))
    await send(client, "orders", *BODIES)

    async def full() -> bool:
        return int((await fields(client, "billing")).get("pending_bytes", 0)) > 350

    await wait_until(full, timeout=80)
    peak = int((await fields(client, "billing"))["peak_bytes"])
    assert peak <= 400
    assert await consume(client, "billing", len(BODIES)) == BODIES
    await settled(client, "orders", "billing")


async def test_a_link_fetches_what_its_target_lacks_of_a_pool(client: headgate.Client, pair: list[NodeProcess]) -> None:
    rules = rule("billing", 'pools = ["shared"]') + '[[pool]]\nname = "shared"\nlimit = 600\n'
    await client.apply_policy(loads(bridges(("orders", "billing"), more=rules)))
    await send(client, "orders", *BODIES)
    assert await consume(client, "billing", len(BODIES)) == BODIES
    assert int((await fields(client, "billing"))["peak_bytes"]) <= 600
    await settled(client, "orders", "billing")


async def listed(client: headgate.Client, redis_url: str) -> list[dict[str, Any]]:
    """Return what `headgate links --json` prints."""
    command = ("links", "--json", "--redis", redis_url, "--namespace", client.namespace)
    done = await asyncio.to_thread(run, "headgate_coordinator", *command, environment=os.environ, timeout=120)
    assert done.returncode == 0, done.stderr
    links: list[dict[str, Any]] = json.loads(done.stdout)
    return links


async def test_operators_see_who_works_on_a_link_and_why_nothing_moves(
    client: headgate.Client, redis_url: str, pair: list[NodeProcess]
) -> None:
    rules = rule("billing", "limit = 400") + rule("events", 'kind = "topic"')
    await client.apply_policy(loads(bridges(("orders", "billing"), ("events", "audit"), more=rules), "shop.toml"))
    await send(client, "orders", *BODIES)

    async def stalled() -> bool:
        links = await list_links(client)
        return [(one.state, one.trouble) for one in links] == [("stalled", "the target has no room"), ("works", "")]

    await wait_until(stalled, timeout=80)
    one, other = await listed(client, redis_url)
    assert one["trouble"] == "the target has no room"
    assert one["owner"] == await owner(client)
    assert (one["name"], one["source"], one["target"], one["origin"]) == (
        "orders to billing", "orders", "billing", "shop.toml:1"
    )  # fmt: skip
    assert one["mark"] + one["backlog"] == len(BODIES)
    assert (other["mark"], other["backlog"], other["trouble"]) == (None, 0, "")
    for node in pair:
        node.kill9()

    async def nobody() -> bool:
        return [one.state for one in await list_links(client)] == ["nobody", "nobody"]

    await wait_until(nobody, timeout=80)
    await client.apply_policy(loads(rules))
    assert [one["state"] for one in await listed(client, redis_url)] == ["ending", "ending"]


async def test_limits_at_both_sides_stop_producers_of_the_source_until_the_target_has_room(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    rules = rule("billing", "limit = 400") + rule("orders", "limit = 400")
    await client.apply_policy(loads(bridges(("orders", "billing"), more=rules)))
    sending = asyncio.create_task(send(client, "orders", *BODIES))

    async def stuck() -> bool:
        source, target = await fields(client, "orders"), await fields(client, "billing")
        return source.get("blocked") == target.get("blocked") == "1"

    await wait_until(stuck, timeout=80)
    assert not sending.done()
    got = await consume(client, "billing", len(BODIES))
    await sending
    assert got == BODIES
    for name in ("orders", "billing"):
        assert int((await fields(client, name))["peak_bytes"]) <= 400
    await settled(client, "orders", "billing")


async def test_a_bridge_that_leaves_the_policy_gives_back_what_it_held(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    limited = rule("billing", "limit = 400")
    await client.apply_policy(loads(bridges(("orders", "billing"), more=limited)))
    await send(client, "orders", *BODIES)

    async def stuck() -> bool:
        return (await fields(client, "billing")).get("blocked") == "1"

    await wait_until(stuck, timeout=80)
    await client.apply_policy(loads(limited))
    await wait_until(lambda: forgotten(client, LINK), timeout=80)
    source, target = await fields(client, "orders"), await fields(client, "billing")
    assert (source["consumers"], target["leased_bytes"], target["blocked"]) == ("0", "0", "0")
    forwarded = await stored(client, "billing")
    assert forwarded == BODIES[: len(forwarded)]
    rest = BODIES[len(forwarded) :]
    assert sorted(await consume(client, "orders", len(rest)), key=bytes_of) == rest
    assert await consume(client, "billing", len(forwarded)) == forwarded
    await settled(client, "orders", "billing")


def bytes_of(body: bytes | str) -> bytes:
    return body if isinstance(body, bytes) else body.encode()


async def forgotten(client: headgate.Client, link: str) -> bool:
    key = owned_keys(client.namespace)[0]
    return await client.store.server.command(key, "HGET", key, link) is None


@pytest.mark.whole
async def test_a_bridge_of_a_topic_that_leaves_the_policy_leaves_no_subscription(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    rules = rule("events", 'kind = "topic"') + rule("audit", "limit = 400")
    await client.apply_policy(loads(bridges(("events", "audit"), more=rules)))

    async def subscribed() -> bool:
        return (await fields(client, "events")).get("subscriptions") == "1"

    await wait_until(subscribed, timeout=80)
    await send(client, "events", *BODIES, kind="topic")
    await client.apply_policy(loads(rules))
    await wait_until(lambda: forgotten(client, "events>audit"), timeout=80)
    now = await fields(client, "events")
    assert (now["subscriptions"], now["consumers"], now["pending_messages"]) == ("0", "0", "0")
    forwarded = await stored(client, "audit")
    assert forwarded == BODIES[: len(forwarded)]


@pytest.mark.whole
async def test_a_bridge_that_left_while_no_node_ran_is_ended_by_the_next_one(
    client: headgate.Client, redis_url: str
) -> None:
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    with nodes(redis_url, client.namespace, 1, "--ttl", TTL) as (node,):
        await send(client, "orders", b"one")
        await wait_until(lambda: holds(client, "billing", b"one"), timeout=80)
        node.kill9()
        node.process.wait()
    await client.apply_policy(loads("destination = []"))
    assert (await fields(client, "orders"))["consumers"] == "1"
    with nodes(redis_url, client.namespace, 1, "--ttl", TTL):
        await wait_until(lambda: forgotten(client, LINK), timeout=80)
    assert (await fields(client, "orders"))["consumers"] == "0"
    assert await stored(client, "billing") == [b"one"]
    assert await stored(client, "orders") == []


async def holds(client: headgate.Client, name: str, *bodies: bytes) -> bool:
    return await stored(client, name) == list(bodies)


async def test_links_are_shared_out_evenly_and_move_to_who_is_left(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    links = [f"from{number}>to{number}" for number in range(6)]
    await client.apply_policy(loads(bridges(*((f"from{number}", f"to{number}") for number in range(6)))))

    async def owners() -> list[str]:
        return [(await owner(client, link)).partition("~")[0] for link in links]

    async def even() -> bool:
        return sorted(await owners()) == ["node-0"] * 3 + ["node-1"] * 3

    await wait_until(even, timeout=80)
    pair[0].kill9()

    async def moved() -> bool:
        return await owners() == ["node-1"] * 6

    await wait_until(moved, timeout=80)


async def test_a_node_that_stops_lets_others_go_on_at_once(client: headgate.Client, pair: list[NodeProcess]) -> None:
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    await send(client, "orders", b"one")
    await wait_until(lambda: holds(client, "billing", b"one"), timeout=80)
    name = await owner(client)
    leaving = next(node for node in pair if name.startswith(f"{node.name}~"))
    leaving.signal(signal.SIGTERM)
    await asyncio.to_thread(leaving.ended)
    assert await owner(client) != name, "it gave its lease back"
    assert (await fields(client, "billing"))["leased_bytes"] == "0", "and its credit"
    await send(client, "orders", b"two")
    await wait_until(lambda: holds(client, "billing", b"one", b"two"), timeout=80)


async def bombard(client: headgate.Client, pair: list[NodeProcess], *, count: int, kills: int) -> None:
    """Send, forward and consume, while the node that works on the link is killed again and again."""
    rules = rule("orders", 'limit = "8KiB"') + rule("billing", 'limit = "2KiB"')
    await client.apply_policy(loads(bridges(("orders", "billing"), more=rules)))
    bodies = [b"%06d" % number for number in range(count)]
    consuming = asyncio.create_task(consume(client, "billing", count))
    progress: list[int] = []

    async def produce() -> None:
        async with client.session() as session:
            producer = await session.producer("orders")
            for first in range(0, count, 20):
                await asyncio.gather(*(producer.send(body) for body in bodies[first : first + 20]))
                progress.append(first)
            await producer.close()

    async def another(than: str) -> str:
        name = await owner(client)
        return name if name != than else ""

    sending, name = asyncio.create_task(produce()), ""
    for number in range(kills):
        reached = (number + 1) * count / (kills + 2) / 20
        await wait_until(lambda: len(progress) >= reached, timeout=240)  # noqa: B023 -- used before it changes
        name = await wait_until(lambda: another(name), timeout=80)  # noqa: B023 -- likewise
        victim = next(node for node in pair if name.startswith(f"{node.name}~"))
        victim.kill9()
        victim.start()
    await sending
    assert await asyncio.wait_for(consuming, 60) == bodies
    await settled(client, "orders", "billing")


async def test_a_node_that_is_killed_under_load_loses_and_doubles_nothing(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    await bombard(client, pair, count=3000, kills=1)


@pytest.mark.soak
async def test_nodes_that_are_killed_again_and_again_lose_and_double_nothing(
    client: headgate.Client, pair: list[NodeProcess]
) -> None:
    await bombard(client, pair, count=100_000, kills=20)

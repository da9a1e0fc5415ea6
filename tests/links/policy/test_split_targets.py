"""Links into a queue whose values say the slice: each message comes to its own, once, and values keep their order."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Collection
from itertools import pairwise
from typing import Any

import pytest
import redis
from redis.crc import key_slot

import headgate
from headgate.core.limits.spread import Spread
from headgate.core.links.calls import Committed
from headgate.core.names import slice_name, slices_pool
from headgate.errors import CoordinatorUnavailable
from headgate.message import encode
from headgate.policy import loads
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.spreads import SpreadStore
from headgate_coordinator.links.forwarder import LOOK_AGAIN
from headgate_coordinator.links.lanes.lane_store import LaneStore
from headgate_coordinator.links.lanes.split_worker import SplitWorker
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.worker import LinkWorker
from tests.amqp.node_processes import nodes
from tests.links.policy.test_bridges import bridges, fields, rule, settled
from tests.links.policy.test_sliced_sources import working
from tests.links.sites import SiteOf, reach_of, route
from tests.support.cluster import RedisCluster3
from tests.support.leaks import delete_namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
VALUES = 8
BY_VALUE: dict[str, Any] = {"kind": "queue", "limit": "64kB", "slices": 4, "order_by": "header:customer"}
LINK = bridges(("orders", "billing"), more=" ")


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


async def send(client: headgate.Client, name: str, numbers: range) -> None:
    """Send messages with a value each, in turn."""
    async with client.session() as session:
        producer = await session.producer(name)
        for number in numbers:
            await producer.send(str(number), headers={"customer": number % VALUES}, timeout=20)


async def where(client: headgate.Client, name: str) -> dict[int, dict[str, list[int]]]:
    """Return for each value the messages at each slice, in order."""
    found: dict[int, dict[str, list[int]]] = {}
    async for one in client.browse(name):
        at = one.id.rpartition(":")[0] or "0"
        found.setdefault(int(one.headers["customer"]), {}).setdefault(at, []).append(int(str(one.body)))
    return found


async def came(client: headgate.Client, name: str, count: int) -> dict[int, dict[str, list[int]]]:
    async def there() -> bool:
        found = await where(client, name)
        return sum(len(one) for at in found.values() for one in at.values()) >= count

    await wait_until(there, timeout=20, description=f"{count} messages in {name}")
    return await where(client, name)


async def drained(client: headgate.Client, name: str, count: int) -> dict[int, list[int]]:
    """Consume so many messages; return those of each value as they came."""
    found: dict[int, list[int]] = {}
    async with client.session() as session:
        consumer = await session.consumer(name, window=20)
        for _ in range(count):
            message = await consumer.receive(timeout=20)
            assert message is not None
            found.setdefault(int(message.headers["customer"]), []).append(int(str(message.body)))
            await message.accept()
        await consumer.close()
    return found


@contextlib.contextmanager
def shut(monkeypatch: pytest.MonkeyPatch, numbers: Collection[int]) -> Any:
    """Have these slices of targets take nothing."""
    commit = LaneStore.commit

    async def refused(store: LaneStore, target: Address, link: str, entries: Any = (), **more: Any) -> Committed:
        is_shut = int(target.name.rpartition("#")[2] if "#" in target.name else 0) in numbers
        return await commit(store, target, link, () if is_shut else entries, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LaneStore, "commit", refused)
        yield


async def in_force(client: headgate.Client, name: str, slices: int) -> None:
    async def changed() -> bool:
        now, to = await SpreadStore(client.store.server).in_force(Address.of(client.namespace, name))
        return now is not None and now.slices == slices and not to

    await wait_until(changed, timeout=20, description=f"{name} is spread over {slices}")


async def test_a_link_brings_each_value_where_others_send_it(client: headgate.Client) -> None:
    """Mutant: all goes to the first slice."""
    await client.apply("billing", **BY_VALUE)
    await client.apply_policy(loads(LINK))
    async with working(client):
        await send(client, "orders", range(40))
        linked = await came(client, "billing", 40)
        await settled(client, "orders")
        await send(client, "billing", range(40, 80))
    both = await where(client, "billing")
    assert all(len(at) == 1 for at in both.values())
    assert {value: list(at) for value, at in linked.items()} == {value: list(at) for value, at in both.items()}
    for value, at in both.items():
        (numbers,) = at.values()
        assert numbers == list(range(value, 80, VALUES))
    assert len({next(iter(at)) for at in both.values()}) > 1
    (one,) = await list_links(client)
    assert (one.backlog, one.mark) == (0, 40)


async def test_a_slice_without_room_does_not_hold_up_other_values_and_none_comes_twice(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored ahead of others is known to whoever goes on, though values have other slices by then.

    Mutants: the mark of a slice counts for all; an earlier worker's numbers count for nothing; a lane takes what is
    there already.
    """
    await client.apply("billing", **BY_VALUE)
    await client.apply_policy(loads(LINK))
    await send(client, "billing", range(VALUES))
    slices = {value: next(iter(at)) for value, at in (await where(client, "billing")).items()}
    await drained(client, "billing", VALUES)
    stuck = {value for value, at in slices.items() if at == slices[0]}
    assert 0 < len(stuck) < VALUES
    await send(client, "orders", range(80))
    with shut(monkeypatch, {int(slices[0])}):
        async with working(client):
            first = await came(client, "billing", 10 * (VALUES - len(stuck)))
            assert set(first) == set(slices) - stuck
    await client.apply("billing", slices=7)
    got = await drained(client, "billing", 10 * (VALUES - len(stuck)))
    async with working(client, 2):
        await in_force(client, "billing", 7)
        rest = await drained(client, "billing", 10 * len(stuck))
        await settled(client, "orders", "billing")
    assert got | rest == {value: list(range(value, 80, VALUES)) for value in range(VALUES)}


async def test_a_link_that_ends_lets_go_of_what_slices_have_and_of_nothing_else(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: it ends at the first slice alone; what lies above the mark goes back, and comes twice."""
    await client.apply("billing", **BY_VALUE)
    await client.apply_policy(loads(LINK))
    await send(client, "orders", range(40))
    with shut(monkeypatch, {1, 3}):
        async with working(client):
            await wait_until(lambda: taken(client, "billing"), timeout=20)
            await client.apply_policy(loads(rule("orders", 'kind = "queue"')))

            async def ended() -> bool:
                return not await list_links(client)

            await wait_until(ended, timeout=20)
    there = [int(str(one.body)) async for one in client.browse("billing")]
    left = [int(str(one.body)) async for one in client.browse("orders")]
    assert sorted(there + left) == list(range(40))
    assert there
    assert left
    assert (await fields(client, "billing"))["leased_bytes"] == "0"


async def taken(client: headgate.Client, name: str) -> bool:
    """Return whether a link took there all that it can: nothing came for a while that is longer than its steps."""
    before = len(await where(client, name))
    await asyncio.sleep(0.3)
    return before > 0 and before == len(await where(client, name))


async def test_values_are_set_and_set_anew_while_a_link_is_at_work_and_loses_answers(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one slice to values, and on. Mutants: a link keeps its credit; it goes on as it was spread before."""
    commit, dice = LinkStore.commit, random.Random(1)

    async def loses(store: LinkStore, *of: Any, **how: Any) -> Committed:
        answer = await commit(store, *of, **how)
        if dice.random() < 0.05:
            raise CoordinatorUnavailable("no answer")
        return answer

    monkeypatch.setattr(LinkStore, "commit", loses)
    monkeypatch.setattr("headgate_coordinator.links.forwarder.LOOK_AGAIN", 0.05)
    await client.apply("billing", kind="queue", limit="2kB")
    await client.apply_policy(loads(LINK))
    settings: list[dict[str, Any]] = [{"slices": 3, "order_by": "header:customer"}, {"slices": 5}, {"slices": 2}]
    async with working(client):
        draining = asyncio.create_task(drained(client, "billing", 400))
        for at, one in enumerate(settings):
            await send(client, "orders", range(100 * at, 100 * at + 100))
            await client.apply("billing", **one)
        await send(client, "orders", range(300, 400))
        got = await asyncio.wait_for(draining, 60)
        await in_force(client, "billing", 2)
        await settled(client, "orders", "billing")
    assert got == {value: list(range(value, 400, VALUES)) for value in range(VALUES)}


async def test_dead_letters_of_a_link_go_to_the_slices_of_their_values_once(client: headgate.Client) -> None:
    """Mutants: they all go to the first slice; they share a mark, as if they came in order."""
    link = LINK.replace('to = "billing"\n', 'to = "billing"\ndead_letters = "dead"\n')
    small = BY_VALUE | {"limit": 200}
    await client.apply("dead", **BY_VALUE)
    await client.apply_policy(loads(link))
    await client.apply("orders", kind="queue")
    async with client.session() as session:
        producer = await session.producer("orders")
        for number in range(32):
            more = {"large": "x" * 300} if number % 16 < VALUES else {}
            await producer.send(str(number), headers={"customer": number % VALUES, **more})
    await client.apply("billing", **small)
    async with working(client):
        good = await drained(client, "billing", 16)
        await settled(client, "orders")
    await send(client, "dead", range(100, 100 + VALUES))
    assert good == {value: [VALUES + value, 24 + value] for value in range(VALUES)}
    for value, at in (await where(client, "dead")).items():
        assert list(at.values()) == [[value, 16 + value, 96 + value + VALUES * (value < 4)]]


async def test_a_queue_with_slices_is_linked_to_values_at_another_site(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    async with headgate.connect(redis_url, namespace=f"{cleanup_namespace}-b") as berlin:
        await berlin.apply("orders", **BY_VALUE)
        paris = SiteOf("paris", client, redis_url, reach=reach_of(redis_url))
        await paris.govern(
            rule("orders", 'kind = "queue"\nslices = 3') + route("berlin", 'queues = ["orders"]'),
            SiteOf("berlin", berlin, redis_url),
        )
        async with paris.working():
            for value in range(VALUES):  # each over a session, and so a slice
                await send(client, "orders", range(value, 80, VALUES))
            linked = await came(berlin, "orders", 80)
            await settled(client, "orders")
        for value, at in linked.items():
            assert list(at.values()) == [list(range(value, 80, VALUES))]
    delete_namespace(redis_url, f"{cleanup_namespace}-b")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 12))])
async def test_no_kill_of_nodes_while_slices_change_breaks_the_order_or_doubles_anything(
    cluster_url: str, cleanup_namespace: str, seed: int
) -> None:
    """Over three masters; nodes that forward are killed with -9 at any moment."""
    dice, counts, got = random.Random(seed), (1, 2, 4, 6), dict[int, list[int]]()
    policy = rule("orders", 'kind = "queue"\nslices = 2') + bridges(("orders", "billing"), more=" ")
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        await client.apply("billing", **BY_VALUE | {"limit": 4000})

        async def drain() -> None:
            async with client.session() as session:
                async for message in await session.consumer("billing", window=20):
                    got.setdefault(int(message.headers["customer"]), []).append(int(str(message.body)))
                    await message.accept()

        with nodes(cluster_url, cleanup_namespace, 3, "--ttl", 2) as alive:
            await client.apply_policy(loads(policy))
            draining = asyncio.create_task(drain())
            for part in range(3):
                await asyncio.gather(
                    *(send_value(client, value, range(40 * part, 40 * part + 40)) for value in range(VALUES))
                )
                if part < 2:
                    await client.apply("billing", slices=dice.choice(counts))
                    await asyncio.sleep(dice.random())
                    alive[part].kill9()
            await wait_until(lambda: sum(map(len, got.values())) >= 120 * VALUES, timeout=120)
            await settled(client, "orders", "billing")
            draining.cancel()
    assert all(before < after for numbers in got.values() for before, after in pairwise(numbers))
    assert all(len(numbers) == 120 for numbers in got.values())


async def send_value(client: headgate.Client, value: int, numbers: range) -> None:
    async with client.session(f"v{value}", resume=f"v{value}") as session:  # all of a value from one slice
        producer = await session.producer("orders")
        for number in numbers:
            await producer.send(str(number), headers={"customer": value}, timeout=60)


async def test_a_link_does_not_wait_at_one_slice_for_what_it_holds_at_another(client: headgate.Client) -> None:
    """Small messages leave credit at each slice; then each needs more than half the limit. Mutant: lanes keep it."""
    await client.apply("billing", **BY_VALUE | {"limit": 1000})
    await client.apply_policy(loads(LINK))
    async with working(client), client.session() as session:
        producer = await session.producer("orders")
        draining = asyncio.create_task(drained(client, "billing", 12 * VALUES))
        await asyncio.gather(
            *(
                producer.send(
                    str(number), headers={"customer": number % VALUES, "large": "x" * 540 * (number // VALUES % 2)}
                )
                for number in range(12 * VALUES)
            )
        )
        got = await draining
    assert got == {value: list(range(value, 12 * VALUES, VALUES)) for value in range(VALUES)}


@pytest.mark.soak
async def test_others_go_on_while_the_master_of_one_slice_is_away(cleanup_namespace: str) -> None:
    """It is killed with -9 while the link is at work, and comes back with what it had."""
    with RedisCluster3.start(persist=True) as cluster:
        for node in cluster.nodes:
            with redis.Redis.from_url(node.url) as direct:
                direct.execute_command("CONFIG", "SET", "cluster-require-full-coverage", "no")
                direct.execute_command("CONFIG", "SET", "cluster-node-timeout", "600000")
        async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client:
            name, away, live, lost = lies_apart(client.namespace)
            await client.apply(name, **BY_VALUE | {"slices": 12})
            await client.apply_policy(loads(bridges(("orders", name), more=" ")))

            async def others_came() -> bool:
                command = client.store.server.command
                found = [int(await command(key.encode(), "HGET", key, "pending_messages") or 0) for key in live]
                return sum(found) == 20 * (VALUES - len(lost))

            async with working(client):
                await send(client, "orders", range(80))
                await came(client, name, 80)
                cluster.nodes[away].kill9()
                await send(client, "orders", range(80, 160))
                await wait_until(others_came, timeout=40)
                cluster.nodes[away].restart()
                got = await drained(client, name, 160)
                await settled(client, "orders", name)
    assert got == {value: list(range(value, 160, VALUES)) for value in range(VALUES)}


def lies_apart(namespace: str) -> tuple[str, int, list[str], set[int]]:
    """Return a name for a target, a master that has some of its slices alone, keys of the others, and lost values."""
    spread = Spread(1, 12, "header:customer")
    at = {value: spread.slice_of_stored(encode(b"", {"customer": value}), "") for value in range(VALUES)}
    for name in map("billing-{}".format, range(1000)):
        keys = [Address.of(namespace, slice_name(name, number)).key for number in range(12)]
        needed = [keys[0], Address.of(namespace, "orders").key, PoolAddress.of(namespace, slices_pool(name)).key]
        for away in {0, 1, 2} - set(map(master_of, needed)):
            lost = {value for value, number in at.items() if master_of(keys[number]) == away}
            if 0 < len(lost) < VALUES:
                return name, away, [key for key in keys if master_of(key) != away], lost
    raise AssertionError("none lies so")


def master_of(key: str) -> int:
    return key_slot(key.encode()) * 3 // 16384


async def test_people_see_one_link_that_waits_for_room(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: pools are asked for the first slice alone; trouble of a lane is told to nobody."""
    await client.apply("billing", **BY_VALUE | {"limit": 300})
    await client.apply_policy(loads(LINK))
    await send(client, "orders", range(40))
    with nodes(redis_url, cleanup_namespace, 1, "--ttl", 2):

        async def waits() -> bool:
            return [(one.state, one.trouble) for one in await list_links(client)] == [
                ("stalled", "the target has no room")
            ]

        await wait_until(waits, timeout=20)

        async def told() -> bool:
            explained = await client.explain(link="orders to billing")
            return explained.cause == "link-waits" and explained.chain[0].cause == "no-consumer"

        await wait_until(told, timeout=20)
        there = len([one async for one in client.browse("billing")])
        assert there > 8
        (one,) = await list_links(client)
        assert one.backlog == 40 - (one.mark or 0)
        got = await drained(client, "billing", 40)
        await settled(client, "orders", "billing")
    assert got == {value: list(range(value, 40, VALUES)) for value in range(VALUES)}


async def test_a_link_goes_into_a_queue_of_values_that_has_one_slice_yet(client: headgate.Client) -> None:
    """Mutant: it takes that for another spread than its own, again and again."""
    await client.apply("billing", **BY_VALUE | {"slices": 1})
    await client.apply_policy(loads(LINK))
    async with working(client):
        await send(client, "orders", range(40))
        assert set(next(iter((await came(client, "billing", 40)).values()))) == {"0"}
        await client.apply("billing", slices=4)
        got = await drained(client, "billing", 40)
        await in_force(client, "billing", 4)
        await send(client, "orders", range(40, 80))
        await came(client, "billing", 40)
        rest = await drained(client, "billing", 40)
    assert {value: got[value] + rest[value] for value in got} == {v: list(range(v, 80, VALUES)) for v in range(VALUES)}


async def test_lanes_that_have_nothing_to_bring_look_ever_more_rarely(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has many of them. Mutant: each looks once a second, as if it might not be told."""
    lanes, begin = list[LinkWorker](), SplitWorker._begin_lane

    def begun(split: SplitWorker, number: int) -> None:
        begin(split, number)
        lanes[:] = split

    monkeypatch.setattr(SplitWorker, "_begin_lane", begun)
    await client.apply("billing", **BY_VALUE)
    await client.apply_policy(loads(LINK))
    async with working(client):
        now = asyncio.get_running_loop().time
        await wait_until(lambda: len(lanes) == 4 and all(one.forwarder.wake_at > now() + LOOK_AGAIN for one in lanes))
        await send(client, "orders", range(VALUES))
        await came(client, "billing", VALUES)

"""Links from a queue over several slots: each slice's messages go over in order, and people see one link."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.operate.status import LinkState
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.policy.test_bridges import bridges, fields, rule, settled, stored
from tests.links.sites import SiteOf, reach_of, route
from tests.sdk.namespace.test_shared_deliveries import delivered
from tests.sdk.namespace.test_shared_rates import stored as entries
from tests.sdk.namespace.test_shared_rates import within
from tests.support.leaks import delete_namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SLICED = rule("orders", 'kind = "queue"\nlimit = "64kB"\nslices = 3')
COPIES = '[[bridge]]\nname = "all"\nfrom = "orders"\nto = "audit"\ncopies = true\n'


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def worked(client: headgate.Client) -> AsyncIterator[headgate.Client]:
    """A client beside whom a node's links work."""
    async with working(client):
        yield client


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[NodeProcess]:
    with nodes(redis_url, cleanup_namespace, 1, "--ttl", 2) as (started,):
        yield started


@contextlib.asynccontextmanager
async def working(client: headgate.Client, number: int = 1) -> AsyncIterator[None]:
    supervisor = Supervisor(client, f"node~{number:08x}", ttl=2.0)
    await supervisor.start()
    try:
        yield
    finally:
        await supervisor.close()


async def send(client: headgate.Client, sessions: int, each: int = 20, *, name: str = "s") -> set[int]:
    """Send over several sessions, each at its slice; returns the slices."""
    slices = set()
    for number in range(sessions):
        async with client.session() as session:
            producer = await session.producer("orders")
            for at in range(each):
                slices.add((await producer.send(f"{name}{number} {at}".encode(), timeout=20)).slice)
    return slices


async def came(client: headgate.Client, name: str, count: int) -> dict[str, list[int]]:
    """Return what came there of each sender, once it is that much."""

    async def there() -> bool:
        return len(await stored(client, name)) >= count

    await wait_until(there, timeout=20, description=f"{count} messages in {name}")
    numbers: dict[str, list[int]] = {}
    for body in await stored(client, name):
        sender, _, number = bytes(body).decode().partition(" ")  # type: ignore[arg-type]  # all are bytes
        numbers.setdefault(sender, []).append(int(number))
    return numbers


async def consume(client: headgate.Client, count: int) -> None:
    async with client.session() as session:
        consumer = await session.consumer("orders")
        for _ in range(count):
            message = await consumer.receive(timeout=20)
            assert message is not None
            await message.accept()
        await consumer.flush()


async def works(client: headgate.Client) -> LinkState:
    async def begun() -> bool:
        return [one.state for one in await list_links(client)] == ["works"]

    await wait_until(begun, timeout=20, description="the link works")
    return (await list_links(client))[0]


async def test_what_each_session_sent_goes_over_in_order_from_all_slices(
    client: headgate.Client, node: NodeProcess
) -> None:
    """Mutants: the slices share a mark at the target; only the first slice is read."""
    await client.apply_policy(loads(SLICED + bridges(("orders", "billing"), more=" ")))
    assert await send(client, 6) == {0, 1, 2}
    numbers = await came(client, "billing", 120)
    assert numbers == {f"s{number}": list(range(20)) for number in range(6)}
    await settled(client, "orders")
    one = await works(client)
    assert (one.source, one.backlog, one.mark) == ("orders", 0, 120)
    told = await client.explain(link="orders to billing")
    assert (told.cause, told.link and told.link.mark) == ("link-empty", 120)
    assert len((await client.explain("orders")).consumers) == 1


async def test_slices_that_come_while_it_works_are_read_too_and_those_that_are_left_drain(
    worked: headgate.Client,
) -> None:
    await worked.apply_policy(loads(rule("billing", 'limit = "64kB"') + bridges(("orders", "billing"), more=" ")))
    for number, slices in enumerate((1, 4, 2)):
        await worked.apply("orders", kind="queue", slices=slices)
        assert await send(worked, 4, name=f"s{slices}-") == set(range(slices))
        numbers = await came(worked, "billing", 80 * (number + 1))
        assert all(one == list(range(20)) for one in numbers.values())
    await settled(worked, "orders")


async def test_a_copying_link_has_a_copy_of_all_that_comes_to_a_slice_that_is_new(client: headgate.Client) -> None:
    """Mutant: a slice is made without the link, which begins there after the first messages."""
    await client.apply_policy(loads(COPIES + rule("audit", 'limit = "64kB"')))
    await client.apply("orders", kind="queue")

    async def begun() -> bool:
        return (await fields(client, "orders")).get("subscriptions") == "2"

    async with working(client):
        await wait_until(begun, timeout=20)
    # What is stored before somebody works on it again is to be copied too.
    await client.apply("orders", slices=3)
    assert await send(client, 3) == {0, 1, 2}
    await client.apply_policy(loads(COPIES + rule("audit", 'limit = "64kB"') + rule("orders", "slices = 5")))
    assert await send(client, 5, name="t") == set(range(5))
    async with working(client, 2):
        numbers = await came(client, "audit", 160)
        assert len(numbers) == 8
        assert all(one == list(range(20)) for one in numbers.values())
        await consume(client, 160)
        await settled(client, "orders")


async def test_a_topic_with_slices_is_forwarded_as_one(worked: headgate.Client) -> None:
    """Its link is a subscription like others: a slice that is new has it before its first message."""
    await worked.apply("orders", kind="topic", slices=2)  # else the link makes a queue
    await worked.apply_policy(loads(rule("billing", 'limit = "64kB"') + bridges(("orders", "billing"), more=" ")))
    await wait_until(lambda: begun(worked), timeout=20)
    for number, slices in enumerate((2, 5, 1)):
        await worked.apply("orders", kind="topic", slices=slices)
        assert await send(worked, 5, name=f"s{slices}-") == set(range(slices))
        numbers = await came(worked, "billing", 100 * (number + 1))
        assert all(one == list(range(20)) for one in numbers.values())
    await settled(worked, "orders")


async def begun(client: headgate.Client) -> bool:
    """Return whether a link has begun at the topic."""
    return (await fields(client, "orders")).get("subscriptions") == "1"


async def test_it_waits_for_room_as_one_link_and_ends_at_all_slices(client: headgate.Client, node: NodeProcess) -> None:
    """Mutants: who is first in line is looked for by the link's own id; it is ended at the first slice alone."""
    policy = SLICED + rule("billing", "limit = 100")
    await client.apply_policy(loads(policy + bridges(("orders", "billing"), more=" ")))
    await send(client, 3, each=30)

    async def stalls() -> bool:
        told = await client.explain(link="orders to billing")
        return told.cause == "link-waits" and told.chain[0].cause == "no-consumer"

    await wait_until(stalls, timeout=20)

    async def says_so() -> bool:
        return [one.trouble for one in await list_links(client)] == ["the target has no room"]

    await wait_until(says_so, timeout=20)
    assert (await client.explain("billing")).upstream[0].place == 1
    await client.apply_policy(loads(policy))

    async def ended() -> bool:
        return not await list_links(client)

    await wait_until(ended, timeout=20)
    there = len(await stored(client, "billing"))
    assert int((await fields(client, "orders"))["pending_messages"]) == 90 - there, "what it had in hand went back"
    for number in range(3):
        part = Address.of(client.namespace, slice_name("orders", number))
        seen = await client.store.snapshot(part, alone=True)
        assert seen is not None
        assert seen.consumers == {}
    await consume(client, 90 - there)
    await settled(client, "orders")


async def test_a_slice_that_is_lost_is_made_again_while_the_others_go_on(worked: headgate.Client) -> None:
    await worked.apply_policy(loads(SLICED + bridges(("orders", "billing"), more=" ")))
    await send(worked, 3, each=5)
    await came(worked, "billing", 15)
    lost = Address.of(worked.namespace, slice_name("orders", 1))
    await worked.store.server.command(lost.shared[0], "DEL", *lost.every_key)
    await asyncio.gather(*(send(worked, 1, each=5, name=f"t{number}-") for number in range(6)))
    numbers = await came(worked, "billing", 45)
    assert all(one == list(range(5)) for one in numbers.values())


async def test_a_routed_queue_with_slices_goes_to_its_home(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: a route, which passes over the limit at its source, is refused beside slices."""
    async with headgate.connect(redis_url, namespace=f"{cleanup_namespace}-b") as berlin:
        paris = SiteOf("paris", client, redis_url, reach=reach_of(redis_url))
        home = SiteOf("berlin", berlin, redis_url)
        await paris.govern(SLICED + route("berlin", 'queues = ["orders"]'), home)
        async with paris.working():
            assert await send(client, 3) == {0, 1, 2}
            numbers = await came(berlin, "orders", 60)
            assert numbers == {f"s{number}": list(range(20)) for number in range(3)}
            await settled(client, "orders")
    delete_namespace(redis_url, f"{cleanup_namespace}-b")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
async def test_nodes_that_are_killed_while_slices_change_lose_and_double_nothing(
    client: headgate.Client, redis_url: str, cleanup_namespace: str, seed: int
) -> None:
    dice, counts, jobs = random.Random(seed), (2, 5, 6), list[asyncio.Task[set[int]]]()
    policy = SLICED + rule("billing", 'limit = "4kB"') + bridges(("orders", "billing"), more=" ")
    got = dict[str, list[int]]()

    async def drain() -> None:
        async with client.session() as session:
            async for message in await session.consumer("billing", window=20):
                sender, _, number = bytes(message.body).decode().partition(" ")  # type: ignore[arg-type]  # as sent
                got.setdefault(sender, []).append(int(number))
                await message.accept()

    with nodes(redis_url, cleanup_namespace, 3, "--ttl", 2) as alive:
        await client.apply_policy(loads(policy))
        draining = asyncio.create_task(drain())
        for part in range(3):
            jobs += [asyncio.create_task(send(client, 1, 150, name=f"p{part}-{at}-")) for at in range(6)]
            await asyncio.sleep(3 * dice.random())
            if part < 2:
                alive[part].kill9()
                await client.apply("orders", slices=dice.choice(counts))
        await asyncio.gather(*jobs)
        await wait_until(lambda: sum(map(len, got.values())) >= 18 * 150, timeout=120)
        await settled(client, "orders", "billing")
        draining.cancel()
    assert all(numbers == list(range(150)) for numbers in got.values())


async def test_a_target_with_slices_and_a_rate_takes_what_that_allows(worked: headgate.Client) -> None:
    """Mutant: who works on a link has nothing in hand of the rate, ever."""
    target = rule("billing", 'limit = "64kB"\nslices = 3\nrate.messages = "100/s"\nrate.burst = 5')
    await worked.apply_policy(loads(target + bridges(("orders", "billing"), more=" ")))
    await worked.apply("orders", kind="queue")
    await send(worked, 2)
    numbers = await came(worked, "billing", 40)
    assert all(one == list(range(20)) for one in numbers.values())
    assert within(await entries(worked, 1, "billing"), 100, 5)


async def test_a_link_keeps_to_the_rate_of_deliveries_of_all_slices(worked: headgate.Client) -> None:
    """Mutant: nobody lends a link what its slice may deliver."""
    await worked.apply("orders", kind="queue", slices=3, delivery_rate="200/s", delivery_burst=5)
    await worked.apply_policy(loads(rule("billing", 'limit = "64kB"') + bridges(("orders", "billing"), more=" ")))
    await send(worked, 3)
    numbers = await came(worked, "billing", 60)
    assert all(one == list(range(20)) for one in numbers.values())
    assert within(await delivered(worked, 3), 200, 5)

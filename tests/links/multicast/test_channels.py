"""Channels of a policy, sent by real nodes over real multicast, on the loopback interface."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.core.links.channel import HEADERS
from headgate.multicast import Loss
from headgate.policy import loads
from headgate.redis.keys import Address, owned_keys
from headgate_coordinator.links.channel_job import ChannelJob
from headgate_coordinator.links.listing import list_links
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.channels import Group, Stamped, collecting, fields, opened, sending
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL = 2
LINK = "prices>>quotes"
BODIES = [b"%04d" % number * (1 + number % 5) for number in range(300)]


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def pair(redis_url: str, cleanup_namespace: str) -> AsyncIterator[list[NodeProcess]]:
    """Two nodes."""
    with nodes(redis_url, cleanup_namespace, 2, "--ttl", TTL) as started:
        yield started


@pytest.fixture
def group() -> Group:
    return Group()


async def send(client: headgate.Client, name: str, *bodies: bytes) -> None:
    async with client.session() as session:
        producer = await session.producer(name, kind="topic")
        receipts = [await producer.post(body) for body in bodies]
        for receipt in receipts:
            await receipt
        await producer.close()


async def test_each_reader_gets_all_messages_in_order(
    client: headgate.Client, pair: list[NodeProcess], group: Group
) -> None:
    await client.apply_policy(loads(group.channel("prices")))
    await opened(client)
    large = b"large" * 5000
    async with collecting(group.reader()) as one, collecting(group.reader()) as other:
        await send(client, "prices", *BODIES, large)
        for got in (one, other):
            await wait_until(lambda: len(got.bodies) == len(BODIES) + 1, timeout=80)  # noqa: B023 -- used at once
            assert got.bodies == [*BODIES, large]
            assert (got.reader.lost.total(), got.reader.refused) == (0, 0)
            assert [message.topic for message in got.messages] == ["prices"] * len(got.messages)
            assert [message.seq for message in got.messages] == list(range(1, len(got.messages) + 1))
    assert await settled(client)


async def settled(client: headgate.Client) -> bool:
    async def empty() -> bool:
        return (await fields(client, "prices"))["pending_messages"] == "0"

    return bool(await wait_until(empty, timeout=80))


async def owner(client: headgate.Client, link: str = LINK) -> str:
    """Return who has the lease on a link; nothing where nobody has."""
    key = owned_keys(client.namespace)[0]
    record = await client.store.server.command(key, "HGET", key, link)
    told = dict(word.split("=") for word in record.decode().split()) if record else {"owner": "-"}
    return "" if told["owner"] == "-" else told["owner"]


@pytest.mark.whole  # test_a_new_rate_holds_at_once
async def test_all_nodes_and_topics_of_a_channel_share_its_rate(
    client: headgate.Client, pair: list[NodeProcess], group: Group
) -> None:
    """In any span of time, by the kernel's stamps, no more leaves than the rate and what is allowed at once.

    Breaks when each topic has a bucket of its own, or when headers do not count.
    """
    policy = loads('flow_control = "off"\n' + group.channel("prices", "news", maxrate=150_000))
    await client.apply_policy(policy)
    await opened(client, "prices", "news")

    async def apart() -> bool:
        owners = {(await owner(client, f"{topic}>>quotes")).partition("~")[0] for topic in ("prices", "news")}
        return owners == {"node-0", "node-1"}

    await wait_until(apart, timeout=80)
    stamped = Stamped(group)
    async with collecting(group.reader()) as got:
        await asyncio.gather(*(send(client, topic, *[b"x" * 1000] * 250) for topic in ("prices", "news")))
        await wait_until(lambda: len(got.of("prices")) == len(got.of("news")) == 250, timeout=240)
        assert got.reader.lost.total() == 0
    stamped.close()
    channel = policy.channels[0]
    total = sum(len(data) + HEADERS for _, data in stamped.packets)
    assert total > 500 * 1000 > 3 * channel.most_at_once
    bucket = Address.of_channel(client.namespace, "quotes").shared[0]
    assert int(await client.store.server.command(bucket, "HGET", bucket, "taken")) >= total
    assert stamped.most_above(channel.maxrate) <= channel.most_at_once


async def test_when_a_node_is_killed_midway_another_goes_on_and_readers_get_all_once(
    client: headgate.Client, pair: list[NodeProcess], group: Group
) -> None:
    """Breaks when a worker begins after what it has read, or readers take what they had."""
    await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices", maxrate=100_000)))
    await opened(client)
    bodies = [b"%04d" % number * 100 for number in range(700)]
    async with collecting(group.reader()) as got:
        await send(client, "prices", *bodies)
        for share in (1, 3):
            await wait_until(lambda: len(got.bodies) > len(bodies) * share / 5, timeout=160)  # noqa: B023 -- used at once
            name = await wait_until(lambda: owner(client), timeout=80)
            victim = next(node for node in pair if name.startswith(f"{node.name}~"))
            victim.kill9()
            victim.start()
        await wait_until(lambda: len(got.bodies) >= len(bodies), timeout=240)
        assert got.bodies == bodies
        assert got.reader.lost.total() == 0
    assert await settled(client)


async def test_a_topic_that_leaves_its_channel_leaves_no_subscription_and_the_last_one_no_bucket(
    client: headgate.Client, group: Group
) -> None:
    bucket = Address.of_channel(client.namespace, "quotes").shared[0]
    await client.apply_policy(loads(group.channel("prices", "news")))

    async def ended(*left: str) -> bool:
        key = owned_keys(client.namespace)[0]
        links = {link.decode() for link in await client.store.server.command(key, "HKEYS", key)}
        return links == {f"{topic}>>quotes" for topic in left}

    async with sending(client):
        await opened(client, "prices", "news")
        await wait_until(lambda: ended("prices", "news"), timeout=80)
        await client.apply_policy(loads(group.channel("news")))
        await wait_until(lambda: ended("news"), timeout=80)
        assert await client.store.server.command(bucket, "EXISTS", bucket) == 1
        await client.apply_policy(loads("destination = []"))
        await wait_until(ended, timeout=80)
        assert await client.store.server.command(bucket, "EXISTS", bucket) == 0
    for topic in ("prices", "news"):
        now = await fields(client, topic)
        assert (now["subscriptions"], now["consumers"]) == ("0", "0")
        assert (now.get("enforce", ""), now.get("confirm", "")) == ("", "")


async def test_nobody_can_name_a_destination_that_is_a_channels_bucket(client: headgate.Client, group: Group) -> None:
    await client.apply_policy(loads(group.channel("prices")))
    async with sending(client):
        await opened(client)
    assert await client.destinations() == ["prices"]
    own = Address.of_channel(client.namespace, "quotes")
    for name in ("channel:quotes", "quotes", "%channel:quotes"):
        assert Address.of(client.namespace, name).key != own.key


async def test_a_new_rate_holds_at_once(client: headgate.Client, group: Group) -> None:
    await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices", maxrate=2000)))
    async with sending(client), collecting(group.reader()) as got:
        await opened(client)
        await send(client, "prices", *[b"x" * 1000] * 500)  # for more than four minutes
        await client.apply_policy(loads(group.channel("prices", maxrate="100MB")))
        await wait_until(lambda: len(got.bodies) == 500, timeout=80)


async def test_operators_see_what_a_channel_has_to_send_and_what_is_wrong_with_it(
    client: headgate.Client, group: Group
) -> None:
    policy = 'flow_control = "off"\n' + group.channel("prices")
    await client.apply_policy(loads(policy, "shop.toml"))
    async with sending(client) as sender:
        await opened(client)
    await send(client, "prices", *BODIES)
    (one,) = await list_links(client)
    told = (one.kind, one.name, one.source, one.target, one.state, one.mark, one.backlog, one.origin)
    assert told == ("channel", "quotes", "prices", f"{group.address}:{group.port}", "nobody", None, 300, "shop.toml:2")
    assert one.backlog_bytes == int((await fields(client, "prices"))["pending_bytes"])
    await client.apply_policy(loads(policy.replace("127.0.0.1", "192.0.2.77")))
    async with sending(client) as sender:
        await wait_until(lambda: any("cannot send to" in str(one.trouble) for one in sender.facts()), timeout=80)
        await client.apply_policy(loads(policy))
        await wait_until(lambda: sum(one.messages for one in sender.facts()) == 300, timeout=80)
        (facts,) = sender.facts()
        assert (facts.works, facts.trouble, facts.bytes) == (True, None, one.backlog_bytes)
        assert facts.packets >= 300
        await wait_until(lambda: sender.facts()[0].backlog == 0, timeout=80)


async def test_a_reader_counts_what_it_is_too_slow_for(client: headgate.Client, group: Group) -> None:
    """What waits to be received is bounded; what the kernel drops meanwhile is missing, and told."""
    losses: list[Loss] = []
    await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices", maxrate="1GB")))
    reader = group.reader(memory=100_000, on_loss=losses.append)
    async with sending(client), reader:
        await opened(client)
        await send(client, "prices", *[b"x" * 40_000] * 500)
        assert await settled(client)
        async with collecting(reader) as got:
            await wait_until(lambda: len(got.messages) + reader.lost["prices"] == 500, timeout=80)
    seqs = [message.seq for message in got.messages]
    assert seqs == sorted(set(seqs))
    missing = {seq for loss in losses for seq in range(loss.first, loss.last + 1)}
    assert sorted([*seqs, *missing]) == list(range(1, 501))
    assert reader.lost["prices"] == len(missing) > 0


async def test_a_worker_that_is_stopped_leaves_nothing_to_be_sent_again(client: headgate.Client, group: Group) -> None:
    """Breaks when a worker that ends in the midst of a batch does not say what it sent."""
    await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices", maxrate=50_000)))
    async with sending(client):
        await opened(client)
    await send(client, "prices", *[b"x" * 100] * 300)
    async with collecting(group.reader()) as got:
        for least in (1, 30, 100):
            async with sending(client):
                await wait_until(lambda: len(got.messages) > least, timeout=80)  # noqa: B023 -- used at once
        await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices")))
        async with sending(client):
            await wait_until(lambda: len(got.messages) == 300, timeout=80)
        assert (got.reader.duplicates.total(), got.reader.lost.total()) == (0, 0)


async def test_of_two_workers_the_one_with_the_earlier_lease_ends_and_readers_get_all_once(
    client: headgate.Client, group: Group
) -> None:
    policy = loads('flow_control = "off"\n' + group.channel("prices", maxrate=500_000))
    await client.apply_policy(policy)
    (feed,) = policy.channels[0].feeds
    async with collecting(group.reader()) as got:
        earlier = ChannelJob(client, feed, 1)
        await opened(client)
        bodies = [b"%04d" % number * 50 for number in range(1000)]
        await send(client, "prices", *bodies)
        await wait_until(lambda: len(got.bodies) > 50, timeout=80)
        later = ChannelJob(client, feed, 2)
        await wait_until(lambda: bool(earlier.later), timeout=80)
        assert (earlier.later, later.later) == (2, 0)
        await wait_until(lambda: len(got.bodies) == len(bodies), timeout=80)
        assert got.bodies == bodies
        await later.stop()
        await earlier.stop()

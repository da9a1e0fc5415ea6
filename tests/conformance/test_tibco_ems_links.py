"""TIBCO EMS on routes, with limits of two sites, each with a Redis and workers of its own, and on bridges."""

import asyncio
from functools import partial

import pytest

import headgate
from headgate import CreditTimeout
from headgate.policy import loads
from tests.amqp.node_processes import nodes
from tests.conformance.story import fill
from tests.links.sites import SiteOf, next_of, route, send_all, stalls
from tests.sdk.observing import drain, field, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
BODIES = [b"%04d" % number for number in range(100)]
STORED = 7
"""Bytes that each takes: it, and what says what it is."""
LIMIT = 20 * STORED


async def test_e12_a_routed_topic_is_at_the_other_site_in_order(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await berlin.client.apply("news", kind="topic")
    await paris.govern(route("berlin", "topics = 'news'"), berlin)
    async with berlin.client.session() as session, paris.working():
        consumer = await session.consumer("news")
        await paris.routed("news")
        await paris.send("news", *BODIES)
        assert [(await next_of(consumer)).body for _ in BODIES] == BODIES
        link = await paris.link()
        assert (link.kind, link.name, link.source, link.target) == ("route", "to berlin", "news", "berlin:news")
        await paris.has("news", 0)


async def test_e14_publishers_block_at_the_limit_of_the_sender_when_the_route_is_held_up(
    three_sites: list[SiteOf],
) -> None:
    """Limits on both sides: 20 messages fit there, what the link has in hand and 20 more here."""
    paris, berlin, _ = three_sites
    await berlin.client.apply("news", kind="topic", limit=LIMIT)
    await paris.govern("[[destination]]\nmatch = 'news'\nlimit = 140\n" + route("berlin", "topics = 'news'"), berlin)
    async with berlin.client.session() as there, paris.client.session() as here, paris.working():
        consumer = await there.consumer("news", window=headgate.Window.pull)
        await paris.routed("news")
        producer = await here.producer("news")
        for body in BODIES[:40]:
            await producer.send(body, timeout=5)
        with pytest.raises(CreditTimeout):
            await producer.send(BODIES[40], timeout=0.5)
        assert await berlin.pending("news") == 20
        await wait_until(lambda: stalls(paris, "no room"), timeout=60, description="it says that the target is full")
        got: list[bytes | str] = []
        rest = asyncio.create_task(send_all(producer, BODIES[40:]))
        while len(got) < len(BODIES):
            message = await next_of(consumer)
            got.append(message.body)
            await message.accept()
        await rest
        assert got == BODIES


async def test_e13_a_full_receiver_gets_nothing_until_its_subscriber_has_made_room(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await berlin.client.apply("news", kind="topic", limit=LIMIT)
    await paris.govern(route("berlin", "topics = 'news'"), berlin)
    async with berlin.client.session() as there, paris.working():
        consumer = await there.consumer("news", window=headgate.Window.paused)
        await paris.routed("news")
        await paris.send("news", *BODIES, timeout=1)
        await berlin.has("news", 20)
        assert await paris.pending("news") == 80
        await consumer.configure(window=headgate.Window(messages=10))
        got: list[bytes | str] = []
        while len(got) < len(BODIES):
            message = await next_of(consumer)
            got.append(message.body)
            await message.accept()
        assert got == BODIES


async def test_e12_a_routed_queue_is_not_flow_controlled(three_sites: list[SiteOf]) -> None:
    """Its limit here is passed over, as the destination says; the limit of its home there holds to the byte."""
    paris, berlin, _ = three_sites
    await berlin.client.apply("orders", limit=LIMIT)
    await paris.govern("[[destination]]\nmatch = 'orders'\nlimit = 40\n" + route("berlin", "queues = 'orders'"), berlin)
    async with paris.working():
        await paris.send("orders", *BODIES, timeout=1)
        await berlin.has("orders", 20)
        assert await paris.pending("orders") == 80
        assert await paris.field("orders", "enforce") == "off"
        assert "enforce=orders@paris" in await paris.field("orders", "policy")


async def test_e15_a_bridge_slows_its_source_down_only_if_both_sides_have_a_limit(
    client: headgate.Client, redis_url: str
) -> None:
    """Each has a bridge of its own, and no consumer behind it. Mutant: a link lets go of what it has read."""
    combinations = {"none": (), "source": ("from",), "target": ("to",), "both": ("from", "to")}
    ends = {f"{name}.{end}": end in limited for name, limited in combinations.items() for end in ("from", "to")}
    policy = "".join(f'[[destination]]\nmatch = "{name}"\nlimit = 500\n' for name, has in ends.items() if has)
    policy += "".join(f'[[bridge]]\nname = "{n}"\nfrom = "{n}.from"\nto = "{n}.to"\n' for n in combinations)
    await client.apply_policy(loads(policy))

    async def number(name: str) -> int:
        return await field(client, name, "pending_messages")

    with nodes(redis_url, client.namespace, 1, "--ttl", 2):
        sends = {name: asyncio.ensure_future(fill(client, f"{name}.from", 20)) for name in combinations}
        await asyncio.gather(*(sends[name] for name in ("none", "source", "target")))
        for name in ("none", "source"):
            await wait_until(partial(_holds, client, f"{name}.to", 20), description=f"all over the bridge {name}")
        for name in ("target.to", "both.to", "both.from"):
            await wait_until(partial(waiting, client, name), description=f"somebody waits at {name}")
        assert not sends["both"].done(), "its source waits with it"
        assert (await number("target.from"), await number("target.to")) == (15, 5), "its source took all there was"
        assert await number("both.from") == await number("both.to") == 5
        for name in ("target.to", "both.to"):
            async with client.session("late") as session:
                assert len(await drain(await session.consumer(name), 20)) == 20
        await sends["both"]
    for name, limited in ends.items():
        assert not limited or 0 < await field(client, name, "peak_bytes") <= 500, name


async def _holds(client: headgate.Client, name: str, messages: int) -> bool:
    return await field(client, name, "pending_messages") == messages

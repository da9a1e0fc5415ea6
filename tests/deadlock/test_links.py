"""Links that wait for one another, found by the nodes that work on them."""

import asyncio
from functools import partial

import pytest

import headgate
from headgate.message import encode
from headgate.namespace.deadlocks import FoundDeadlock
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.deadlock.detector import Detector
from tests.amqp.node_processes import nodes
from tests.sdk.observing import counts, field, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
FIT = 1
"""Messages that each queue has room for."""
BODY = b"0123456789"


def policy(queues: str, *, deadlock: str, linked: bool, slices: int = 1, fit: int = FIT) -> str:
    """Return a policy of queues with room for a few messages, bridged in a ring."""
    limit = fit * len(encode(BODY, None))
    rest = f'limit = {limit}\nslices = {slices}\ndeadlock = "{deadlock}"\n'
    told = "".join(f'[[destination]]\nmatch = "{name}"\n{rest}' for name in queues)
    for here, there in zip(queues, queues[1:] + queues[0], strict=True) if linked else ():
        told += f'[[bridge]]\nname = "{here} to {there}"\nfrom = "{here}"\nto = "{there}"\nmax_hops = 8\n'
    return told


async def ring(client: headgate.Client, queues: str, deadlock: str, slices: int = 1, fit: int = FIT) -> None:
    """Fill the queues, and then bridge them."""
    await client.apply_policy(loads(policy(queues, deadlock=deadlock, linked=False, slices=slices, fit=fit)))
    async with client.session("before") as session:
        for name in queues:
            producer = await session.producer(name)
            for _ in range(fit):
                await producer.send(BODY)
            await producer.close()
    await client.apply_policy(loads(policy(queues, deadlock=deadlock, linked=True, slices=slices, fit=fit)))


async def current(client: headgate.Client) -> list[FoundDeadlock]:
    return [one for one in await client.deadlocks() if one.is_current]


@pytest.mark.longest
@pytest.mark.parametrize(
    ("queues", "slices"),
    [("abcd", 1), *(pytest.param("ab", slices, marks=pytest.mark.whole) for slices in (1, 3))],
)
async def test_links_in_a_ring_with_all_queues_full(
    client: headgate.Client, redis_url: str, queues: str, slices: int
) -> None:
    """Two, and the four of AMQ-4138, whose bridges would never have recovered."""
    with nodes(redis_url, client.namespace, 2, "--ttl", 2) as pair:
        await ring(client, queues, "alert", slices)
        async with client.session("sender") as session:
            producer = await session.producer("a")
            send = asyncio.ensure_future(producer.send(BODY, timeout=600))
            (found,) = await wait_until(lambda: current(client), timeout=120)
            links = [f"{here}>{there}" for here, there in zip(queues, queues[1:] + queues[0], strict=True)]
            assert {party.name for party in found.deadlock.parties} == {*queues, *links}
            assert len(found.deadlock.steps) == 2 * len(queues)
            assert "link a>b waits for room in queue b; queue b waits for link b>" in str(found.deadlock)
            assert sum("a deadlock (alert)" in node.log for node in pair) == 1, "one node looks"
            assert await waiting(client, "a")
            assert not send.done()
            await client.apply_policy(loads(policy(queues, deadlock="ticket", linked=True, slices=slices)))
            await asyncio.wait_for(send, 60)
        await wait_until(lambda: ended(client), timeout=120)
    size = len(encode(BODY, None))
    for name in queues:
        assert await field(client, name, "peak_bytes") <= (FIT + 1) * size
        await counts(client, name)
    assert max([await field(client, name, "peak_bytes") for name in queues]) == (FIT + 1) * size
    assert await tickets(client, queues)


async def ended(client: headgate.Client) -> bool:
    return not await current(client)


async def tickets(client: headgate.Client, queues: str) -> int:
    """Return how many of them the ledgers have."""
    found = 0
    for name in queues:
        snapshot = await client.store.snapshot(Address.of(client.namespace, name), entries=100)
        assert snapshot is not None
        found += sum(entry.split(",")[2] == "ticket" for entry in snapshot.ledger)
    return found


async def test_a_link_whose_target_is_consumed_is_in_none(client: headgate.Client, redis_url: str) -> None:
    """Both queues are full and both links wait, but somebody has a message of one of them, and may settle it."""
    with nodes(redis_url, client.namespace, 1) as (node,):
        async with client.session("slow") as slow:
            await client.apply_policy(loads(policy("ab", deadlock="alert", linked=False, fit=2)))
            consumer = await slow.consumer("b", window=1)
            taking = asyncio.create_task(consumer.receive(timeout=80))
            await ring(client, "ab", "alert", fit=2)
            assert await taking is not None
            for name in "ab":
                await wait_until(partial(waiting, client, name), timeout=80)
            detector = Detector(client, "beside", ttl=5.0)

            async def tied() -> bool:
                return len(await detector._notes.ties()) == 2

            await wait_until(tied, timeout=80)
            for _ in range(3):
                assert await detector.round() == ()
        assert "a deadlock" not in node.log


async def test_another_node_goes_on_when_the_one_that_looks_is_killed(client: headgate.Client, redis_url: str) -> None:
    with nodes(redis_url, client.namespace, 2, "--ttl", 2) as pair:
        await ring(client, "ab", "alert")
        (found,) = await wait_until(lambda: current(client), timeout=120)
        leader = next(node for node in pair if "a deadlock (alert)" in node.log)
        leader.kill9()
        await wait_until(lambda: ended(client), timeout=120)
        (again,) = await wait_until(lambda: current(client), timeout=120)
        assert again.id == found.id

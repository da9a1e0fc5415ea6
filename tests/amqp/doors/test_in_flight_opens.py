"""What a node has of a quota in flight is counted once, however many calls come as it begins or ends to count."""

import asyncio
from typing import Any

import pytest

from headgate import Client
from headgate.limiting.limiter import Limiter
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate_coordinator.node.credit.counting import counted
from headgate_coordinator.node.credit.quotas import Quotas
from tests.amqp.doors.test_in_flight import fill, taken
from tests.amqp.doors.test_user_limits import quota
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
PLACE, SESSION = "q", "ann~x"


async def attach(client: Client, consumers: int) -> Address:
    place = Address.of(client.namespace, PLACE)
    for number in range(1, consumers + 1):
        values: list[Any] = [None, SESSION, number, 60_000, "queue", 1, "100", "="]
        assert (await client.store.server.call(script("attach"), place.keys(SESSION), values))[0] == b"OK"
    return place


async def fetch(client: Client, quotas: Quotas, number: int) -> int:
    """Fetch as a node does for an SDK; returns how many messages came."""
    place = Address.of(client.namespace, PLACE)
    values: list[Any] = [None, SESSION, f"{SESSION}.{number}", 60_000, 1, 100, 10_000, "0", 0, 0, 0, 0, 0]
    in_flight = await quotas.in_flight("ann")
    reply = await counted(in_flight, client.store.server, script("settle"), place.keys(SESSION), values)
    return len(reply[3]) // 2


async def free_in_the_end(client: Client, held: int) -> None:
    async def as_many() -> bool:
        return await taken(client) == held

    await wait_until(as_many, timeout=60)


async def test_consumers_that_come_first_at_the_same_time_leave_nothing_counted_for_nobody(client: Client) -> None:
    """Mutant: each finds that nothing is counted, and counts anew. All of the quota was lost until the node ended."""
    await quota(client, "in_flight = 3")
    await fill(client, PLACE, 12)
    place, quotas = await attach(client, 4), Quotas(client, 10.0)
    assert sum(await asyncio.gather(*(fetch(client, quotas, number) for number in range(1, 5)))) == 3
    assert await taken(client) == 3
    in_flight = await quotas.in_flight("ann")
    for number in range(1, 5):
        values = [None, SESSION, f"{SESSION}.{number}", 0]
        await counted(in_flight, client.store.server, script("detach"), place.keys(SESSION), values)
    await free_in_the_end(client, 0)
    await quotas.close()


async def test_what_is_admitted_for_a_quota_that_ended_meanwhile_goes_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota changes while a call waits for its limiter. Mutant: what it takes is nobody's, and is held for ever."""
    await quota(client, "in_flight = 3")
    await fill(client, PLACE, 12)
    await attach(client, 1)
    quotas, asked, goes, attempt = Quotas(client, 10.0), asyncio.Event(), asyncio.Event(), Limiter.attempt

    async def waits(limiter: Limiter, **amounts: Any) -> Any:
        asked.set()
        await goes.wait()
        return await attempt(limiter, **amounts)

    monkeypatch.setattr(Limiter, "attempt", waits)
    fetching = asyncio.create_task(fetch(client, quotas, 1))
    await asked.wait()
    before = await quotas.in_flight("ann")
    await quota(client, "in_flight = 5")
    await client.parts.registry.policies.look()
    changed = await quotas.in_flight("ann")
    goes.set()
    assert await fetching == 0
    assert changed is not before
    await free_in_the_end(client, 0)
    await quotas.close()

"""Ends of a link that are removed or lost while it works: they are made again, as the policy says, and it goes on."""

from typing import Any

import pytest

import headgate
from headgate.core.links.calls import Committed
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links.supervisor import Supervisor
from tests.links.chaos import look
from tests.links.sites import TTL
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
POLICY = """
[[bridge]]
name = "to billing"
from = "orders"
to = "billing"
dead_letters = "DLQ"

[[destination]]
match = "billing"
limit = 4000
"""
LARGE = "x" * 5000
"""What never fits into `billing`."""


async def send(client: headgate.Client, *bodies: str) -> None:
    async with client.session() as session:
        producer = await session.producer("orders")
        for body in bodies:
            await producer.send(body)


async def holds(client: headgate.Client, name: str, *bodies: str) -> bool:
    there = await client.store.snapshot(Address.of(client.namespace, name))
    return there is not None and [browsed.body async for browsed in client.browse(name)] == list(bodies)


@pytest.mark.parametrize("end", ["orders", "billing", "DLQ"])
async def test_an_end_that_is_removed_is_made_again(redis_url: str, cleanup_namespace: str, end: str) -> None:
    """Mutants: `LinkJob.look_after` that does not look after one of the three."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        client.parts.registry._ttl_ms = 500  # for which what is made again learns who holds what
        await client.apply_policy(loads(POLICY))
        supervisor = Supervisor(client, "node~1", ttl=TTL)
        await supervisor.start()
        await send(client, "one")
        await wait_until(lambda: holds(client, "billing", "one"), timeout=80)
        await client.store.remove(Address.of(client.namespace, end), everything=True)
        if end == "orders":  # a worker that has nothing to forward, or to copy, does not miss the others
            await wait_until(lambda: holds(client, end), timeout=80)
        await send(client, "two", LARGE)
        before = ("one",) if end != "billing" else ()
        await wait_until(lambda: holds(client, "billing", *before, "two"), timeout=80)
        await wait_until(lambda: holds(client, "DLQ", LARGE), timeout=80)
        assert (await look(client, "billing"))["limit_bytes"] == "4000"
        await supervisor.close()


async def test_a_call_that_fails_for_no_want_of_an_answer_is_told_and_the_work_begins_anew(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when the failure of a call is not looked at: the link waits for its answer, and says nothing."""
    commit, failed = LinkStore.commit, 0

    async def fails(store: LinkStore, *of: Any, **how: Any) -> Committed:
        nonlocal failed
        if of[2] and failed < 2:
            failed += 1
            raise headgate.PolicyError("a script that is of another version")
        return await commit(store, *of, **how)

    monkeypatch.setattr(LinkStore, "commit", fails)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(loads(POLICY))
        supervisor = Supervisor(client, "node~1", ttl=TTL)
        await supervisor.start()
        await send(client, "one", "two")

        def told() -> bool:
            return any(fact.trouble and "of another version" in fact.trouble.text for fact in supervisor.facts())

        await wait_until(told, timeout=80)
        await wait_until(lambda: holds(client, "billing", "one", "two"), timeout=80)
        assert failed == 2
        await supervisor.close()

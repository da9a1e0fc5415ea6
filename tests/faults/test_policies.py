"""Policies that are applied while a master hands over, or dies: wholly in force or wholly not, and followed by all."""

import asyncio
from contextlib import AsyncExitStack

import pytest
import redis

import headgate
from headgate.core.policy import Policy
from headgate.policy import loads
from headgate.redis.keys import Address, policy_key
from tests.faults.deployments import ask, at, is_linked, is_master
from tests.faults.failovers import put_in_front
from tests.faults.traffic import GUARD, Sender
from tests.links.forwarding.test_failovers import Pair
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
MANY = 40


def limited(limit: int) -> Policy:
    """Return a policy with one rule for all destinations of the tests."""
    return loads(f'[[destination]]\nmatch = "#"\nlimit = {limit}\n', name=f"{limit}.toml")


def version_at(server: RedisServer, namespace: str) -> int:
    with redis.Redis.from_url(server.url, socket_timeout=5) as client:
        return int(client.hget(policy_key(namespace), "version") or 0)


async def limits(client: headgate.Client) -> set[str]:
    """Return the limits of all destinations there are."""
    named = sorted(await client.destinations())
    found = [(await client.store.snapshot(address_of(client, name))) for name in named]
    return {one.fields["limit_bytes"] for one in found if one is not None}


async def all_have(client: headgate.Client, limit: int) -> None:
    async def have() -> bool:
        try:
            return await limits(client) == {str(limit)}
        except headgate.CoordinatorUnavailable:
            return False

    await wait_until(have, timeout=GUARD, description=f"every destination has the limit {limit}")


async def knows(client: headgate.Client, limit: int) -> None:
    """Wait until a client with a session goes by the limit."""
    address = address_of(client, "orders")
    fields = client.parts.registry.fields
    await wait_until(lambda: fields(address).get("limit_bytes") == str(limit), timeout=GUARD, description="followed")
    assert (await client.policy()).resolve("orders", "queue").fields["limit_bytes"] == str(limit)


def address_of(client: headgate.Client, name: str) -> Address:
    return Address.of(client.namespace, name)


async def made(client: headgate.Client) -> None:
    await client.apply_policy(limited(1000))
    for number in range(MANY):
        await client.apply(f"d{number}", kind="queue")


async def test_a_policy_that_is_applied_while_a_master_hands_over_is_wholly_in_force(
    pair: Pair, cleanup_namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        one, other = [await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace)) for _ in range(2)]
        await made(one)
        sender = await enter(Sender(await (await enter(other.session("s", ttl=3.0))).producer("orders")))
        await sender.goes_on()
        for before, after, limit in ((pair.primary, pair.replica, 2000), (pair.replica, pair.primary, 3000)):
            applying = asyncio.create_task(apply(one, limited(limit)))
            ask(before, "FAILOVER", "TO", *at(after))
            await wait_until(lambda: is_master(after), timeout=GUARD)  # noqa: B023 -- awaited in this turn
            put_in_front(pair, after)
            await applying
            await all_have(one, limit)
            await knows(other, limit)
            await wait_until(lambda: is_linked(before), timeout=GUARD)  # noqa: B023
        await sender.goes_on()


async def apply(client: headgate.Client, policy: Policy) -> int:
    """Apply a policy, again where no answer came; returns its version."""
    while True:
        try:
            return await client.apply_policy(policy)
        except headgate.CoordinatorUnavailable:
            await asyncio.sleep(0.05)


async def test_a_policy_that_a_failover_lost_is_put_back_whole_by_whoever_knew_it(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutants: only the policy is put back; only what the client itself uses follows it."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        one, other = [await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace)) for _ in range(2)]
        await made(one)
        sender = await enter(Sender(await (await enter(other.session("s", ttl=2.0))).producer("orders")))
        await sender.goes_on()
        pair.part()
        assert await one.apply_policy(limited(2000)) == 2
        await knows(other, 2000)
        assert version_at(pair.replica, cleanup_namespace) == 1
        pair.fail_over()
        await all_have(one, 2000)
        await knows(other, 2000)
        assert version_at(pair.replica, cleanup_namespace) == 2
        await sender.goes_on()


async def test_a_policy_that_nobody_is_left_to_know_of_is_wholly_gone_and_can_be_applied_again(
    pair: Pair, cleanup_namespace: str
) -> None:
    async with pair.proxy:
        async with headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as one:
            await made(one)
            pair.part()
            await one.apply_policy(limited(2000))
        pair.fail_over()
        async with headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as two:
            assert (await two.policy()).version == 1
            await all_have(two, 1000)
            assert await two.apply_policy(limited(2000)) == 2
            await all_have(two, 2000)


async def half_applied(pair: Pair, namespace: str) -> None:
    """Leave some destinations under a policy that nobody knows any more: whoever applied it was killed on its way.

    The master of a cluster that had the policy failed over, those of the destinations did not.
    """
    key = policy_key(namespace)
    async with headgate.connect(pair.primary.url, namespace=namespace) as one:
        await made(one)
        replicas = ask(pair.primary, "DUMP", key)
        conform, batches = one.parts.registry.conform, [1, 1]

        async def killed(addresses: list[Address]) -> None:
            if not batches:
                raise headgate.CoordinatorUnavailable("killed")
            batches.pop()
            await conform(addresses)

        one.parts.registry.conform = killed  # type: ignore[method-assign, assignment]
        with pytest.raises(headgate.CoordinatorUnavailable):
            await one.apply_policy(limited(2000))
        assert await limits(one) == {"1000", "2000"}
    ask(pair.primary, "RESTORE", key, 0, replicas, "REPLACE")


async def test_what_a_lost_policy_left_half_applied_follows_the_one_in_force(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: a destination under a number above that in force is left as it is."""
    await half_applied(pair, cleanup_namespace)
    async with headgate.connect(pair.primary.url, namespace=cleanup_namespace) as two:
        assert (await two.policy()).version == 1
        async with two.session() as session:
            for number in range(MANY):
                await session.producer(f"d{number}")
        await all_have(two, 1000)
        assert (await two.policy()).version == 3


async def test_a_policy_that_is_applied_after_one_was_lost_gets_a_number_above_it(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: it gets the number of the lost one; then destinations that have that are taken for its own."""
    await half_applied(pair, cleanup_namespace)
    async with headgate.connect(pair.primary.url, namespace=cleanup_namespace) as two:
        assert await two.apply_policy(limited(3000)) == 3
        assert await limits(two) == {"3000"}


async def test_a_policy_that_came_after_a_loss_is_followed_although_its_number_is_lower(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: whatever has a lower number is what Redis had before."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        one, other = [await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace)) for _ in range(2)]
        await made(one)
        await enter(other.session("s", ttl=2.0))
        pair.part()
        for limit in (2000, 2500):
            await one.apply_policy(limited(limit))
        async with headgate.connect(pair.replica.url, namespace=cleanup_namespace) as third:
            assert await third.apply_policy(limited(3000)) == 2
        pair.fail_over()
        await wait_until(lambda: version_at(pair.replica, cleanup_namespace) >= 3, timeout=GUARD)
        await all_have(one, 3000)
        assert {(await client.policy()).source for client in (one, other)} == {"3000.toml"}
        assert version_at(pair.replica, cleanup_namespace) == 4


async def test_of_two_policies_with_one_number_the_one_that_survived_is_followed_by_all(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: a version says which policy it is; then each client follows the one that it read first, for good."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        one, other = [await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace)) for _ in range(2)]
        await made(one)
        sender = await enter(Sender(await (await enter(other.session("s", ttl=2.0))).producer("orders")))
        await sender.goes_on()
        pair.part()
        assert await one.apply_policy(limited(2000)) == 2
        await knows(other, 2000)
        async with headgate.connect(pair.replica.url, namespace=cleanup_namespace) as third:
            assert await third.apply_policy(limited(3000)) == 2
        pair.fail_over()
        await all_have(one, 3000)
        assert (await one.policy()).source == "3000.toml"
        await knows(other, 3000)
        assert version_at(pair.replica, cleanup_namespace) == 3
        await sender.goes_on()


async def test_who_applies_a_policy_is_told_that_a_failover_lost_it_to_another(
    pair: Pair, cleanup_namespace: str
) -> None:
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as one:
        await made(one)
        pair.part()
        async with headgate.connect(pair.replica.url, namespace=cleanup_namespace) as third:
            await third.apply_policy(limited(3000))
        conform = one.parts.registry.conform

        async def late(addresses: list[Address]) -> None:
            """Have the failover between the switch and the first destination."""
            if pair.proxy._upstream.port != at(pair.replica)[1]:
                assert version_at(pair.primary, cleanup_namespace) == 2
                pair.fail_over()
            await conform(addresses)

        one.parts.registry.conform = late  # type: ignore[method-assign, assignment]
        with pytest.raises((headgate.PolicyConflict, headgate.CoordinatorUnavailable)):
            await one.apply_policy(limited(2000))
        await all_have(one, 3000)
        assert await apply(one, limited(2000)) == 4
        await all_have(one, 2000)

"""A link is removed while it works: whoever dies meanwhile, what it reserved is given back, none lost or doubled."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address, owned_keys
from headgate.redis.scripts import Script
from headgate.redis.server import Server
from headgate_coordinator.links import supervisor
from headgate_coordinator.links.endpoints import LinkEndpoint
from headgate_coordinator.links.removal import end_link
from tests.amqp.node_processes import nodes
from tests.links.chaos import Breeder, Gone, Load, at_rest, linked, look
from tests.links.site import Dead
from tests.links.worker_process import LINK, Plan
from tests.support.waiting import wait_until

Ends = tuple[headgate.Client, headgate.Client]
TTL = 1.0
TTL_MS = 60_000
"""Nothing that is given back here is given back because a lease ended."""


def places(ends: Ends) -> tuple[LinkEndpoint, LinkEndpoint]:
    here, there = (LinkEndpoint(client, Address.of(client.namespace, "orders")) for client in ends)
    return here, there


async def ended(ends: Ends) -> None:
    """Look whether the link has left nothing at either end."""
    source, target = await look(ends[0]), await look(ends[1])
    assert (source["consumers"], source["orphans"]) == ("0", "0")
    assert (target["leased_bytes"], target["leased_messages"], target["blocked"]) == ("0", "0", "0")


async def rest_of(client: headgate.Client, load: Load) -> list[str]:
    """Consume at the source until all producers have stopped, and nothing is left; returns what was there."""
    rest: list[str] = []

    async def consume() -> None:
        async with client.session() as session:
            consumer = await session.consumer("orders")
            while True:
                message = await consumer.receive(timeout=60)
                assert message is not None
                rest.append(str(message.body))
                await message.accept()

    consuming = asyncio.create_task(consume())
    await load.enough()
    await at_rest(client)
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    return rest


async def test_a_link_that_is_removed_while_its_workers_die_gives_back_what_it_reserved(ends: Ends) -> None:
    """Workers of the lease before it come on and on, and die. Mutants: no last call; a fence not above theirs."""
    here, there = ends
    await here.apply("dead", kind="queue")
    plan = Plan(
        here.redis_url, there.redis_url, here.namespace, kills=1000, seed=6, fence=7, fenced=False, ttl=TTL_MS / 1000
    )
    async with Breeder(plan) as breeder, Load(here, there) as load:
        await load.moves(50)
        load.reads.clear()

        async def waits() -> bool:
            return breeder.kills > 2 and (await look(there))["blocked"] == "1"

        await wait_until(waits, timeout=120)
        await end_link(LINK, *places(ends), fence=8, ttl_ms=TTL_MS)
        fenced = breeder.census["ended", "0"]
        await wait_until(lambda: breeder.census["ended", "0"] >= fenced + 5, timeout=120)
        await ended(ends)
        load.reads.set()
        rest = await rest_of(here, load)
        await at_rest(there)
    assert sorted([*load.got, *rest]) == sorted(set(load.got) | set(rest)), "nothing is at both"
    assert [sorted(numbers) for numbers in load.numbers([*load.got, *rest])] == load.expected()
    assert load.numbers() == [
        numbers[: len(came)] for numbers, came in zip(load.expected(), load.numbers(), strict=True)
    ]


@dataclass
class Mortal:
    """Makes the task that it was made in die at one of its calls: when it was done, or before."""

    calls: int
    answered: bool

    def __post_init__(self) -> None:
        self._task = asyncio.current_task()
        self._call = Server.call

    async def call(self, server: Server, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        if asyncio.current_task() is not self._task:
            return await self._call(server, script, keys, argv)
        self.calls -= 1
        if self.calls == 0 and not self.answered:
            raise Dead
        reply = await self._call(server, script, keys, argv)
        if self.calls == 0:
            raise Dead
        return reply


@pytest.mark.parametrize("answered", [True, pytest.param(False, marks=pytest.mark.whole)])
async def test_who_ends_a_link_may_die_at_any_call(ends: Ends, answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on between the one who died and the next. Mutant: an end that does not let go up to the mark."""
    here, there = ends
    source, target = places(ends)
    fences = itertools.count(1)
    for calls in itertools.count(1):
        sent = [f"{calls} {number}" for number in range(20)]
        async with here.session() as session:
            producer = await session.producer("orders")
            for body in sent:
                await producer.send(body)
        async with linked(here, there.redis_url, fence=next(fences)) as worker:
            await wait_until(lambda: worker.forwarder.committed >= 5)
            with monkeypatch.context() as patch, contextlib.suppress(Dead):
                mortal = Mortal(calls, answered)
                patch.setattr(Server, "call", lambda *call, mortal=mortal: mortal.call(*call))
                await end_link(LINK, source, target, fence=next(fences), ttl_ms=TTL_MS)
            await end_link(LINK, source, target, fence=next(fences), ttl_ms=TTL_MS)
            await ended(ends)
        forwarded, rest = [await taken(client) for client in ends]
        assert sorted([*forwarded, *rest]) == sorted(sent), calls
        if mortal.calls > 0:
            break
    assert calls > 6


async def taken(client: headgate.Client, name: str = "orders") -> list[str]:
    """Consume what is there."""
    bodies: list[str] = []
    async with client.session() as session:
        consumer = await session.consumer(name)
        while (await look(client, name))["pending_messages"] != "0":
            if message := await consumer.receive(timeout=0.1):
                bodies.append(str(message.body))
                await message.accept()
    return bodies


async def remove_and_kill(url: str, namespace: str, *, rounds: int) -> None:
    """Remove a bridge whose target is full, and kill its nodes, at any moment of that; so many times."""
    limit = '[[destination]]\nmatch = "billing"\nlimit = 400\n'
    dice = random.Random(rounds)
    async with headgate.connect(url, namespace=namespace) as client:
        with nodes(url, namespace, 2, "--ttl", 1) as pair:
            for number in range(rounds):
                sent = [f"{number} {position}" for position in range(100)]
                await client.apply_policy(loads(limit + BRIDGE))
                async with client.session() as session:
                    producer = await session.producer("orders")
                    for body in sent:
                        await producer.send(body)

                async def waits() -> bool:
                    return (await look(client, "billing"))["blocked"] == "1"

                await wait_until(waits, timeout=120)
                await client.apply_policy(loads(limit))
                await asyncio.sleep(dice.random() / 20)  # any moment will do
                for node in pair:
                    node.kill9()
                    node.start()
                await wait_until(lambda: gone(client), timeout=120)
                source, target = await look(client, "orders"), await look(client, "billing")
                assert (source["consumers"], target["leased_bytes"], target["blocked"]) == ("0", "0", "0")
                forwarded, rest = [await taken(client, name) for name in ("billing", "orders")]
                assert forwarded == sent[: len(forwarded)]
                assert sorted(rest) == sorted(sent[len(forwarded) :])


BRIDGE = '[[bridge]]\nname = "one"\nfrom = "orders"\nto = "billing"\n'


@pytest.mark.one_server
async def test_a_bridge_whose_end_takes_longer_than_a_round_is_ended(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to a site that is far away. Mutant: what a round does not finish is begun anew in the next."""

    async def slowly(*ends: Any, **how: Any) -> None:
        await asyncio.sleep(2 * TTL / 4)
        await end_link(*ends, **how)

    monkeypatch.setattr(supervisor, "end_link", slowly)
    async with supervised(redis_url, cleanup_namespace) as client:
        await client.apply_policy(loads("destination = []"))
        await wait_until(lambda: gone(client), timeout=60)
        assert (await look(client))["consumers"] == "0"


@pytest.mark.one_server
async def test_a_bridge_that_another_node_has_just_ended_is_not_begun_again(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: what was known before the policy was read is claimed, although it was forgotten since."""
    async with supervised(redis_url, cleanup_namespace) as client:
        await client.apply_policy(loads("destination = []"))
        await wait_until(lambda: gone(client), timeout=60)
        other = supervisor.Supervisor(client, "node~2", ttl=TTL)
        begun = dict[str, int]()

        async def late() -> set[str]:
            return {"orders>billing"}

        async def end_each(fences: dict[str, int], _: object) -> None:
            begun.update(fences)

        monkeypatch.setattr(other, "_known", late)
        monkeypatch.setattr(other, "_end_each", end_each)
        await other.round()
        assert not begun
        assert await gone(client)
        await other.close()


@asynccontextmanager
async def supervised(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    """A bridge, on which a node works."""
    async with headgate.connect(url, namespace=namespace) as client:
        await client.apply_policy(loads(BRIDGE))
        node = supervisor.Supervisor(client, "node~1", ttl=TTL)
        await node.start()

        async def works() -> bool:
            with contextlib.suppress(Gone):
                return not await gone(client) and (await look(client))["consumers"] == "1"
            return False

        try:
            await wait_until(works, timeout=60)
            yield client
        finally:
            await node.close()


async def gone(client: headgate.Client) -> bool:
    key = owned_keys(client.namespace)[0]
    return await client.store.server.command(key, "HGET", key, "orders>billing") is None


@pytest.mark.whole
@pytest.mark.one_server
async def test_a_bridge_is_ended_though_the_nodes_that_end_it_are_killed(
    redis_url: str, cleanup_namespace: str
) -> None:
    await remove_and_kill(redis_url, cleanup_namespace, rounds=1)


@pytest.mark.soak
@pytest.mark.one_server
@pytest.mark.timeout(600)
async def test_a_bridge_is_ended_each_time_though_the_nodes_that_end_it_are_killed(
    redis_url: str, cleanup_namespace: str
) -> None:
    await remove_and_kill(redis_url, cleanup_namespace, rounds=20)

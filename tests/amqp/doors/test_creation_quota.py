"""The bound on destinations that a user makes: by whatever it opens, over all nodes, while they are there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from proton import Message
from proton.utils import LinkDetached, SendException

import headgate
from headgate import Client, HeadgateError
from headgate.redis.keys import made_key
from headgate_coordinator.security.document import GrantTable, User
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_users import call, there
from tests.amqp.nodes import NodeProcess

__all__ = ["call"]
pytestmark = pytest.mark.one_server
P, C, M = Action.PRODUCE, Action.CONSUME, Action.MANAGE


async def may_make(client: Client, most: int | None, *actions: Action, match: str = "#") -> None:
    """Let ann do that, and make so many destinations; her password is ANN."""
    user = User(
        password_hash=hashed("ANN"), grants=[GrantTable(actions=list(actions), match=match)], max_destinations=most
    )
    await UserStore(client.store.server, client.namespace).change(lambda users: users.update(ann=user))


async def refused(work: Callable[..., object], *args: object, **options: object) -> None:
    with pytest.raises(LinkDetached, match=r"resource-limit-exceeded.*the most allowed"):
        await there(work, *args, **options)


def through(node: NodeProcess, namespace: str) -> Client:
    return headgate.connect(f"amqp://ann:ANN@127.0.0.1:{node.port}", namespace=namespace)


async def test_a_user_makes_so_many_destinations_and_no_more(
    client: Client, start_node: StartNode, call: Callable[..., object]
) -> None:
    """Mutant: any of the four places does not count."""
    one, two = start_node("--plain-without-tls"), start_node("--plain-without-tls")
    await client.apply("is.there")
    await may_make(client, 4, P, C, M, match="*.*")
    ann: Any = await there(call, one, "ann")
    again: Any = await there(call, two, "ann")
    await there(ann.create_sender, "is.there")  # counts for nobody
    await there(ann.create_sender, "ann.1")
    await there(again.create_receiver, "ann.2")
    relay = await there(ann.create_sender, None)
    await there(relay.send, Message(address="ann.3", body="x"))
    async with through(two, client.namespace) as sdk, sdk.session("s") as session:
        await session.gate("ann.4")

        await refused(ann.create_sender, "ann.5")
        await refused(again.create_receiver, "ann.5")
        with pytest.raises(SendException):
            await there(relay.send, Message(address="ann.5", body="x"))
        with pytest.raises(HeadgateError, match="the most allowed"):
            await session.producer("ann.5")
        with pytest.raises(HeadgateError, match="the most allowed"):
            await sdk.apply("ann.5", kind="queue", limit="1MiB")
        assert sorted(await client.destinations()) == ["ann.1", "ann.2", "ann.3", "ann.4", "is.there"]

        await there(again.create_sender, "ann.1")  # what is there is open to her as before
        await there(ann.create_receiver, None, dynamic=True)  # queues for replies have their own bound
        await client.remove("ann.3")
        await session.producer("ann.5")
        await refused(ann.create_sender, "ann.6")
    await may_make(client, 5, P, C, M, match="*.*")
    fresh: Any = await there(call, one, "ann")
    await there(fresh.create_sender, "ann.6")


async def test_many_at_once_at_two_nodes_make_no_more_than_the_bound(
    client: Client, start_node: StartNode, call: Callable[..., object]
) -> None:
    await may_make(client, 10, P)  # first, for a node that does not know it yet lets everybody in as nobody
    nodes = [start_node("--plain-without-tls") for _ in range(2)]

    async def flood(at: NodeProcess, first: int) -> None:
        async with through(at, client.namespace) as sdk, sdk.session("s") as session:
            opened = await asyncio.gather(
                *(session.producer(f"q{number}") for number in range(first, first + 30)), return_exceptions=True
            )
            assert any(isinstance(one, HeadgateError) for one in opened)

    await asyncio.gather(flood(nodes[0], 0), flood(nodes[1], 100))
    assert 0 < len(await client.destinations()) <= 10


async def test_who_manages_the_namespace_has_no_bound_and_others_have_a_thousand(
    client: Client, start_node: StartNode, call: Callable[..., object]
) -> None:
    node = start_node("--plain-without-tls")
    await may_make(client, 0, P, M)
    boss: Any = await there(call, node, "ann")
    await there(boss.create_sender, "made.by.boss")

    await may_make(client, None, P)
    key = made_key(client.namespace, "ann")
    names = [f"q{number}" for number in range(999)]
    for name in ("q0", "q1"):
        await client.apply(name)
    for at in range(0, 999, 100):
        await client.store.server.command(key, "ZADD", key, *(x for n in names[at : at + 100] for x in (0, n)))
    ann: Any = await there(call, node, "ann")
    await there(ann.create_sender, "the.thousandth")
    assert await client.store.server.command(key, "ZCARD", key) == 1000
    await there(ann.create_sender, "one.more")  # most of them are not there
    assert await client.store.server.command(key, "ZCARD", key) == 4

"""Quotas of users over all nodes: the messages that they were sent and have not settled, and their holds over HTTP."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from proton import Timeout
from proton.utils import BlockingConnection

import headgate
from headgate import Client
from headgate_coordinator.security.grants import Action
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_user_limits import quota
from tests.amqp.doors.test_users import call, grant, there
from tests.support.waiting import wait_until

__all__ = ["call"]
pytestmark = pytest.mark.one_server
EVERY = (Action.PRODUCE, Action.CONSUME, Action.MANAGE)


async def taken(client: Client) -> int:
    async with client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        return (await limiter.state(key="ann")).key_limits["in_flight"].taken


async def all_that_come(receiver: Any) -> int:
    """Return how many messages come to a receiver until nothing more does for half a second."""
    number = 0
    while True:
        try:
            await there(receiver.receive, timeout=0.5)
        except Timeout:
            return number
        number += 1


async def fill(client: Client, name: str, number: int) -> None:
    async with client.session("fill") as session:
        producer = await session.producer(name)
        for at in range(number):
            await producer.send(b"%d" % at)


async def test_messages_of_a_user_are_counted_over_all_nodes_and_those_of_a_killed_one_come_back(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutants: each node has the quota; what is settled is counted still; a dead node's count stays."""
    for user in ("ann", "bob"):
        await grant(client, user, *EVERY)
    await quota(client, "in_flight = 5")
    await fill(client, "q", 40)
    await fill(client, "p", 8)
    one, two = (start_node("--plain-without-tls", "--ttl", "3") for _ in range(2))
    login: dict[str, Any] = {"user": "ann", "password": "ANN", "allow_insecure_mechs": True, "reconnect": False}
    dies = await there(BlockingConnection, f"127.0.0.1:{one.port}", timeout=60, **login)
    first, second = [
        await there(each.create_receiver, "q", credit=30) for each in (dies, await there(call, two, "ann"))
    ]
    assert await all_that_come(first) + await all_that_come(second) == 5
    assert await taken(client) == 5
    other = await there((await there(call, two, "bob")).create_receiver, "p", credit=7)
    assert await all_that_come(other) == 8, "nothing bounds bob"
    await there(first.accept)
    assert await all_that_come(first) + await all_that_come(second) == 1
    one.kill9()
    del first, dies

    async def is_back() -> bool:
        return await all_that_come(second) > 0 and await taken(client) == 5

    await wait_until(is_back, timeout=60)


async def test_consumers_of_an_sdk_have_no_more_than_the_quota_and_get_all_in_the_end(
    client: Client, start_node: StartNode
) -> None:
    """Mutant: calls of an SDK are not counted."""
    await grant(client, "ann", *EVERY)
    await quota(client, "in_flight = 3")
    await fill(client, "q", 12)
    node = start_node("--plain-without-tls")
    url = f"amqp://ann:ANN@127.0.0.1:{node.port}"
    async with headgate.connect(url, namespace=client.namespace) as sdk, sdk.session("s") as session:
        consumers = [await session.consumer("q", window=100) for _ in range(2)]
        had: list[headgate.Message] = []

        async def work(consumer: headgate.Consumer) -> None:
            while True:
                message = await consumer.receive(timeout="unlimited")
                assert message is not None
                had.append(message)

        tasks = [asyncio.create_task(work(consumer)) for consumer in consumers]
        seen = 0
        while seen < 12:
            await wait_until(lambda: len(had) > 0, timeout=60)
            await asyncio.sleep(0.05)
            assert len(had) <= 3, "as many as may be"
            message = had.pop(0)
            await message.accept()
            seen += 1
        for task in tasks:
            task.cancel()

    async def is_none() -> bool:
        return await taken(client) == 0

    await wait_until(is_none, timeout=60)


async def test_a_link_that_waits_names_the_quota_and_so_does_its_limiter(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutant: the list of links says that nothing waits."""
    await grant(client, "ann", *EVERY)
    await quota(client, "in_flight = 1")
    await fill(client, "q", 3)
    node = start_node("--plain-without-tls", "--admin")
    receiver = await there((await there(call, node, "ann")).create_receiver, "q", credit=2)
    assert await all_that_come(receiver) == 1
    async with httpx.AsyncClient(base_url=node.admin, auth=("ann", "ANN"), timeout=60) as http:

        async def says_why() -> bool:
            text = (await http.get("/api/v1/overview")).text
            return "as many messages as the quota 'tenants' allows over all nodes" in text

        await wait_until(says_why, timeout=60)
    found = await client.explain("user-limits.tenants", key="ann")
    assert "1 of in_flight of key ann: 1 of 1 held at once" in found.reason


async def test_holds_over_http_are_in_flight_to_their_user_until_they_end(
    client: Client, start_node: StartNode
) -> None:
    """Mutants: they take nothing of the quota; a hold that ended, or was refused elsewhere, keeps its part."""
    await grant(client, "ann", *EVERY)
    await client.apply("llm", kind="limiter", limits={"calls": {"at_once": 3}})
    await client.apply("few", kind="limiter", limits={"calls": {"at_once": 1}})
    await quota(client, "in_flight = 2")
    nodes = [start_node("--plain-without-tls", "--admin") for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=node.admin, auth=("ann", "ANN"), timeout=60))
            for node in nodes
        ]

        async def ask(http: httpx.AsyncClient, name: str = "llm") -> httpx.Response:
            return await http.post(f"/v1/limits/{name}/admit", json={"amounts": {"calls": 1}})

        first = await ask(one, "few")
        assert [first.status_code, (await ask(two, "few")).status_code] == [200, 429]
        assert await taken(client) == 1, "what was refused counts for nothing"
        assert (await ask(two)).status_code == 200
        third = await ask(one)
        assert third.status_code == 429
        assert third.json()["limiter"] == "user-limits.tenants"
        assert third.json()["limit"] == "in_flight"
        assert (await two.post("/v1/limits/few/release", json={"hold": first.json()["hold"]})).json()["held"]
        assert (await ask(one)).status_code == 200

"""Quotas of users over all nodes: the messages that they were sent and have not settled, and their holds over HTTP."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from proton import Timeout
from proton.utils import BlockingConnection

import headgate
from headgate import Client
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate_coordinator.security.grants import Action
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_user_limits import quota
from tests.amqp.doors.test_users import call, grant, there
from tests.support.extent import each
from tests.support.spooled import fill as fill_spooled
from tests.support.spooled import spooling
from tests.support.waiting import wait_until

__all__ = ["call"]
pytestmark = pytest.mark.one_server
EVERY = (Action.PRODUCE, Action.CONSUME, Action.MANAGE)


async def taken(client: Client, limit: str = "in_flight") -> int:
    async with client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        return (await limiter.state(key="ann")).key_limits[limit].taken


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
    await fill_with(client, name, [b"%d" % at for at in range(number)])


async def fill_with(client: Client, name: str, bodies: Iterable[bytes]) -> None:
    async with client.session("fill") as session:
        producer = await session.producer(name)
        for body in bodies:
            await producer.send(body)


def stored(size: int) -> bytes:
    """Return the body of a message that takes so many bytes."""
    return b"x" * (size - 4 if size > 260 else size - 3)


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


async def test_bytes_in_flight_are_counted_over_all_nodes_and_those_of_a_killed_one_come_back(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutants: each message is one byte; what is settled is counted still; a link waits for messages."""
    await grant(client, "ann", *EVERY)
    await quota(client, 'in_flight = "2kB"')
    await fill_with(client, "q", [stored(400)] * 20)
    one, two = (start_node("--plain-without-tls", "--ttl", "3", "--admin") for _ in range(2))
    login: dict[str, Any] = {"user": "ann", "password": "ANN", "allow_insecure_mechs": True, "reconnect": False}
    dies = await there(BlockingConnection, f"127.0.0.1:{one.port}", timeout=60, **login)
    first, second = [
        await there(each.create_receiver, "q", credit=30) for each in (dies, await there(call, two, "ann"))
    ]
    assert await all_that_come(first) + await all_that_come(second) == 5
    assert await taken(client, "in_flight_bytes") == 2000
    async with httpx.AsyncClient(base_url=two.admin, auth=("ann", "ANN"), timeout=60) as http:

        async def says_why() -> bool:
            text = (await http.get("/api/v1/overview")).text
            return "holds as many bytes of messages as the quota 'tenants' allows over all nodes" in text

        await wait_until(says_why, timeout=60)
    found = await client.explain("user-limits.tenants", key="ann")
    assert "400 of in_flight_bytes of key ann: 2000 of 2000 held at once" in found.reason
    await there(first.accept)
    assert await all_that_come(first) + await all_that_come(second) == 1
    one.kill9()
    del first, dies

    async def is_back() -> bool:
        return await all_that_come(second) > 0 and await taken(client, "in_flight_bytes") == 2000

    await wait_until(is_back, timeout=60)


async def test_messages_and_bytes_in_flight_hold_together_and_a_larger_message_comes_alone(
    client: Client, start_node: StartNode
) -> None:
    """Mutants: a large message waits for ever; it comes beside others; one limit has the other's count."""
    await grant(client, "ann", *EVERY)
    await quota(client, "in_flight = 3", 'in_flight_bytes = "1kB"')
    chance = random.Random(7)
    sizes = [chance.choice((20, 100, 300)) for _ in range(40)]
    await fill_with(client, "q", map(stored, sizes))
    await fill_with(client, "large", [stored(5000)] * 3)
    nodes = [start_node("--plain-without-tls") for _ in range(2)]
    had: list[headgate.Message] = []
    most = [0, 0]
    async with contextlib.AsyncExitStack() as stack:

        async def work(consumer: headgate.Consumer) -> None:
            while True:
                message = await consumer.receive(timeout="unlimited")
                assert message is not None
                had.append(message)
                loads = [min(1000, len(message.body) + 3) for message in had]
                most[:] = max(most[0], len(had)), max(most[1], sum(loads))
                assert len(had) <= 3
                assert sum(loads) <= 1000

        tasks = []
        for node in nodes:
            url = f"amqp://ann:ANN@127.0.0.1:{node.port}"
            sdk = await stack.enter_async_context(headgate.connect(url, namespace=client.namespace))
            session = await stack.enter_async_context(sdk.session("s"))
            consumers = [await session.consumer(name, window=100) for name in ("q", "large")]
            tasks += [asyncio.create_task(work(consumer)) for consumer in consumers]
        for _ in range(43):
            await wait_until(lambda: len(had) > 0 or any(task.done() for task in tasks), timeout=60)
            await asyncio.sleep(0.01)
            for task in tasks:
                assert not task.done(), task.exception()
            await had.pop(chance.randrange(len(had))).accept()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert most[0] >= 2, "several at a time, where they fit"

    async def is_none() -> bool:
        return await taken(client) == await taken(client, "in_flight_bytes") == 0

    await wait_until(is_none, timeout=60)


async def test_bytes_of_what_is_spooled_and_was_brought_along_from_another_node_count(
    client: Client, start_node: StartNode, tmp_path: Path
) -> None:
    """Mutants: what is spooled counts as what refers to it; or for nothing, at a node that did not give it."""
    await grant(client, "ann", *EVERY)
    await quota(client, 'in_flight = "1MB"')
    await spooling(client, tmp_path)
    sent = await fill_spooled(client, 60)
    assert sent > 30
    nodes = [start_node("--plain-without-tls", "--ttl", "5") for _ in range(2)]
    place, session = Address.of(client.namespace, "orders"), "ann~x"
    first, second = [f"amqp://ann:ANN@127.0.0.1:{node.port}" for node in nodes]
    async with headgate.connect(first, namespace=client.namespace) as sdk:
        values: list[Any] = [None, session, 1, 60_000, "queue", 1, "100", "="]
        assert (await sdk.store.server.call(script("attach"), place.keys(session), values))[0] == b"OK"
        asked: dict[str, Any] = {"ttl_ms": 60_000, "max_messages": 60, "max_bytes": 1_000_000}
        messages = (await sdk.store.settle(place, session, f"{session}.1", fetch=1, **asked)).messages
        payloads = sum(len(stored) for _, stored, _ in messages)
        assert len(messages) == 60
        assert await taken(client, "in_flight_bytes") == payloads
        async with headgate.connect(second, namespace=client.namespace) as elsewhere:
            await elsewhere.store.settle(place, session, f"{session}.1", fetch=2, **asked)

            async def is_twice() -> bool:
                return await taken(client, "in_flight_bytes") == 2 * payloads

            await wait_until(is_twice, timeout=60)


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

    async def stands_in_line() -> bool:  # a moment after the link says that it waits
        found = await client.explain("user-limits.tenants", key="ann")
        return "needs 1 of in_flight of key ann: 1 of 1 held at once" in found.reason

    await wait_until(stands_in_line, timeout=60)


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


async def test_a_consumer_that_keeps_its_lease_by_other_calls_is_counted(client: Client, start_node: StartNode) -> None:
    """Mutant: what it has counts for as long as the lease of its last fetch. So a client had all that there was."""
    await grant(client, "ann", *EVERY)
    await quota(client, "in_flight = 3")
    await fill(client, "q", 6)
    node = start_node("--plain-without-tls")
    async with headgate.connect(f"amqp://ann:ANN@127.0.0.1:{node.port}", namespace=client.namespace) as sdk:
        place, session = Address.of(client.namespace, "q"), "ann~x"
        consumers = [f"{session}.{number}" for number in (1, 2)]

        async def attach(number: int) -> None:
            values: list[Any] = [None, session, number, 60_000, "queue", 1, "100", "="]
            reply = await sdk.store.server.call(script("attach"), place.keys(session), values)
            assert reply[0] == b"OK"

        async def fetch(number: int) -> int:
            asked: dict[str, Any] = {"ttl_ms": 1000, "fetch": 1, "max_messages": 6, "max_bytes": 1000}
            return len((await sdk.store.settle(place, session, consumers[number - 1], **asked)).messages)

        await attach(1)
        assert await fetch(1) == 3
        for _ in range(5):
            await asyncio.sleep(0.5)
            await attach(1)
        await attach(2)
        assert (await fetch(2), await taken(client)) == (0, 3)
        await sdk.store.detach(place, session, consumers[0], failed=False)

        async def is_none() -> bool:
            return await taken(client) == 0

        await wait_until(is_none, timeout=60)


@each("way", ["released elsewhere", "asked for again", "asked for again and hung up"])
async def test_a_hold_over_http_does_not_outlive_what_counts_for_it(
    client: Client, start_node: StartNode, way: str
) -> None:
    """Mutants: any release of an id ends its part of the quota; the same request asked for again renews the hold alone.

    Each way let a user have as many holds as it liked.
    """
    await grant(client, "ann", *EVERY)
    for name in ("llm", "few"):
        await client.apply(name, kind="limiter", limits={"calls": {"at_once": 10}})
    await quota(client, "in_flight = 1")
    node = start_node("--plain-without-tls", "--admin")
    async with httpx.AsyncClient(base_url=node.admin, auth=("ann", "ANN"), timeout=60) as http:

        async def ask(word: str, ttl: float = 3600) -> int:
            body = {"amounts": {"calls": 1}, "ttl": ttl}
            answer = await http.post("/v1/limits/llm/admit", json=body, headers={"Idempotency-Key": word})
            ids.extend([answer.json()["hold"]] if answer.status_code == 200 else [])
            return answer.status_code

        ids: list[str] = []
        assert await ask("one", 1 if way == "asked for again" else 3600) == 200
        if way == "released elsewhere":
            answer = await http.post("/v1/limits/few/release", json={"hold": ids[0]})
            assert not answer.json()["held"]
        elif way == "asked for again":
            assert await ask("one") == 200
            await asyncio.sleep(2.5)
        else:
            for late in range(20):
                with contextlib.suppress(httpx.TimeoutException):
                    body = {"amounts": {"calls": 1}, "ttl": 3600}
                    headers = {"Idempotency-Key": "one"}
                    await http.post("/v1/limits/llm/admit", json=body, headers=headers, timeout=0.0005 * (1 + late))
        async with client.session("look") as session:
            llm = await session.limiter("llm", in_hand=False)

            async def agree() -> bool:
                return (await llm.state())["calls"].taken == await taken(client)

            await wait_until(agree, timeout=30)
            if way != "asked for again and hung up":
                assert await taken(client) == 1
                assert await ask("two") == 429

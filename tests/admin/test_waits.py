"""The histogram of waits: of AMQP clients at a node, of callers over HTTP, and bounded however many destinations."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate
from headgate.waits import Wait
from headgate_coordinator.fleet.waits import BOUNDS, OTHERS, WaitTimes
from headgate_coordinator.node.gateway.executor import waits_of
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.amqp.client import Peer
from tests.support.extent import each
from tests.support.waiting import wait_until

Http = httpx.AsyncClient
OpenHttp = Callable[..., Awaitable[Http]]


async def counts(http: Http) -> dict[tuple[str, str, str], float]:
    """How many waits were counted, by destination, kind and outcome."""
    return {
        (sample.labels["destination"], sample.labels["kind"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families((await http.get("/metrics")).text)
        for sample in family.samples
        if sample.name == "headgate_wait_seconds_count"
    }


async def test_a_message_of_an_amqp_client_that_waits_for_room(client: headgate.Client, open_http: OpenHttp) -> None:
    """A mutant that counts what is paid at once fails: the first message waits for nobody."""
    http = await open_http(client)
    await client.apply("orders", limit_messages=1)
    node = Node(client, NodeOptions(port=0), Users.from_redis(client))
    await node.start()
    peer = await Peer.connect(node.port)
    try:
        link = await peer.sender("orders")
        assert await peer.send(link, "one") == ("accepted", "")
        waiting = [asyncio.ensure_future(peer.send(link, f"{number}")) for number in range(2)]
        await wait_until(lambda: any(end.waiting_seconds for end in node.facts().links), timeout=60)
        assert ("orders", "credit", "admitted") not in await counts(http)
        consumer = await client.session("bob").consumer("orders")
        for _ in range(3):
            await (await anext(consumer)).accept()
        assert [outcome for outcome, _ in await asyncio.gather(*waiting)] == ["accepted"] * 2
        assert (await counts(http))["orders", "credit", "admitted"] >= 1
    finally:
        await peer.close()
        await node.close()


async def test_a_sender_that_hangs_up_while_its_message_waits(client: headgate.Client, open_http: OpenHttp) -> None:
    """Mutant: what has no outcome is forgotten, and that it waited."""
    http = await open_http(client)
    await client.apply("orders", limit_messages=1)
    node = Node(client, NodeOptions(port=0), Users.from_redis(client))
    await node.start()
    try:
        peer = await Peer.connect(node.port)
        link = await peer.sender("orders")
        assert await peer.send(link, "one") == ("accepted", "")
        waiting = [asyncio.ensure_future(peer.send(link, "two")) for _ in range(2)]
        await wait_until(lambda: any(end.waiting_seconds for end in node.facts().links), timeout=60)
        peer.abort()
        await asyncio.gather(*waiting, return_exceptions=True)

        async def counted() -> bool:
            return (await counts(http)).get(("orders", "credit", "cancelled"), 0) >= 1

        await wait_until(counted)
    finally:
        await node.close()


async def test_a_send_of_an_sdk_over_the_node(client: headgate.Client, open_http: OpenHttp) -> None:
    """Mutants: the node counts nothing that it did not see; the last waits are lost as the client closes."""
    http = await open_http(client)
    await client.apply("orders", limit_messages=1)
    node = Node(client, NodeOptions(port=0), Users.from_redis(client))
    await node.start()
    try:
        async with headgate.connect(f"amqp://127.0.0.1:{node.port}", namespace=client.namespace) as sdk:
            producer = await sdk.session("ann").producer("orders")
            await producer.send(b"one")
            with pytest.raises(headgate.CreditTimeout):
                await producer.send(b"two", timeout=0.2)

        async def counted() -> bool:
            return (await counts(http)).get(("orders", "credit", "timeout")) == 1

        await wait_until(counted)
    finally:
        await node.close()


@each(
    "rows",
    [
        ("credit",),
        ([["credit", "orders", 0.1]],),
        ([["hunger", "orders", 0.1, "admitted"]],),
        ([["credit", "orders", -0.1, "admitted"]],),
        ([["credit", "orders", float("nan"), "admitted"]],),
        ([["credit", "orders", float("inf"), "admitted"]],),
        ([["credit", "orders", 0.1, "won"]],),
        ([["credit", "", 0.1, "admitted"]],),
        ([["credit", "x" * 1000, 0.1, "admitted"]],),
        ([["credit", "orders", 0.1, "admitted"]] * 257,),
    ],
)
def test_waits_that_no_client_has(rows: Any) -> None:
    """Mutant: what a client says is counted as it stands."""
    with pytest.raises((headgate.InvalidValue, headgate.InvalidName)):
        waits_of(rows)


async def test_callers_over_http_who_are_admitted_and_who_are_not(client: headgate.Client, open_http: OpenHttp) -> None:
    http = await open_http(client)
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}})
    ask = {"amounts": {"slots": 1}, "key": "tenant-7"}
    assert (await http.post("/v1/limits/llm/admit", json=ask)).status_code == 200
    assert (await http.post("/v1/limits/llm/admit", json=ask | {"wait": 0.2})).status_code == 429
    found = await counts(http)
    assert found["llm", "limiter", "admitted"] == 1
    assert found["llm", "limiter", "timeout"] == 1
    text = (await http.get("/metrics")).text
    assert "tenant-7" not in text, "no label is a key"
    late = re.search(r'wait_seconds_sum\{[^}]*outcome="timeout"\} ([\d.]+)', text)
    assert late
    assert float(late[1]) >= 0.1


async def test_gates_buckets_and_turns_of_keys(client: headgate.Client, open_http: OpenHttp) -> None:
    http = await open_http(client)
    await client.apply("db", kind="gate", limit=1)
    await client.apply("sms", kind="bucket", rate="1/h", burst=1)
    session = client.session("ann")
    gate, bucket = await session.gate("db", window=1), await session.bucket("sms")
    await bucket.take(1)
    with pytest.raises(headgate.CreditTimeout):
        await bucket.take(1, timeout=0)
    async with gate.admit(1, key="a"):
        waiting = asyncio.create_task(gate.admit(1, key="b", timeout=60).__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
    (await waiting).release()
    left = asyncio.create_task(gate.admit(2, timeout=60).__aenter__())
    with pytest.raises(headgate.MessageTooLarge):
        await left
    found = await counts(http)
    assert (found["sms", "bucket", "admitted"], found["sms", "bucket", "timeout"]) == (1, 1)
    assert found["db", "turn", "admitted"] == 2
    assert found["db", "gate", "refused"] == 1


def test_names_beyond_the_bound_are_counted_together() -> None:
    times = WaitTimes(2)
    for number in range(100):
        times.hear(Wait("limiter", f"d{number}", 0.003, "admitted"))
    times.hear(Wait("limiter", "d1", 1000.0, "admitted"))
    found = {name: numbers for (_, name, _, _), numbers in times.counts().items()}
    assert set(found) == {"d0", "d1", OTHERS}
    assert sum(found[OTHERS][:-1]) == 98
    assert found["d1"][-1] == pytest.approx(1000.003)
    assert found["d1"][-2] == 1, "what lasts longer is in the last bucket only"
    assert [found["d0"][BOUNDS.index(edge)] for edge in (0.0025, 0.005)] == [0, 1]

"""Quotas of users over all nodes: connections, what they send, and what they make."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from proton import Message
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached

import headgate
from headgate import AccessDenied, Client
from headgate.limiting.limiter import Limiter
from headgate.namespace.policy_follower import PolicyFollower
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.node.credit.quotas import Quotas
from headgate_coordinator.security.grants import Action, Identity
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_users import call, grant, there
from tests.lua.place import Place, Producer
from tests.support.waiting import wait_until

__all__ = ["call"]
pytestmark = pytest.mark.one_server
EVERY = (Action.PRODUCE, Action.CONSUME, Action.MANAGE)


async def quota(client: Client, *lines: str, users: str = '["ann", "eu-*"]') -> None:
    await client.apply_policy(loads("\n".join(["[[user_limit]]", 'name = "tenants"', f"users = {users}", *lines])))


async def counted(client: Client, user: str = "ann") -> int:
    async with client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        return (await limiter.state(key=user)).key_limits["connections"].taken


async def test_connections_are_counted_over_all_nodes_and_those_of_a_killed_one_come_back(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutants: each node counts its own; what is closed is counted still; another user's count too."""
    for user in ("ann", "bob"):
        await grant(client, user, *EVERY)
    await quota(client, "connections = 2")
    one, two = start_node("--plain-without-tls"), start_node("--plain-without-tls")
    login: dict[str, Any] = {"user": "ann", "password": "ANN", "allow_insecure_mechs": True, "reconnect": False}
    dies = await there(BlockingConnection, f"127.0.0.1:{one.port}", timeout=60, **login)
    await there(call, two, "ann")
    assert await counted(client) == 2
    for node in (one, two):
        with pytest.raises(ConnectionClosed, match=r"resource-limit-exceeded.*'ann' has 2 connections over all nodes"):
            await there(call, node, "ann")
    await there(call, two, "bob")
    with pytest.raises(headgate.HeadgateError, match="2 connections over all nodes"):
        async with headgate.connect(f"amqp://ann:ANN@127.0.0.1:{two.port}", namespace=client.namespace) as sdk:
            await sdk.destinations()
    one.kill9()
    del dies

    async def is_back() -> bool:
        return await counted(client) == 1

    await wait_until(is_back, timeout=60)
    again: Any = await there(call, two, "ann")
    await there(again.create_sender, "q")
    with pytest.raises(ConnectionClosed):
        await there(call, two, "ann")
    await there(again.close)
    await wait_until(is_back, timeout=60)
    await there(call, two, "ann")


class OfAnn:
    """A connection that has logged in as ann."""

    def __init__(self) -> None:
        self.identity, self.ends = Identity("ann", ()), dict[Any, Any]()


@pytest.mark.parametrize("meanwhile", [(PolicyFollower, "current"), (Limiter, "attempt")], ids=["policy", "quota"])
async def test_a_connection_that_is_being_counted_is_not_counted_by_the_watch_too(
    client: Client, monkeypatch: pytest.MonkeyPatch, meanwhile: tuple[type, str]
) -> None:
    """The watch sees a new quota while its first connection comes. Mutants: it counts whoever is not held, or asks."""
    await quota(client, "connections = 2")
    quotas, connection = Quotas(client, 10.0), OfAnn()
    looked, asks, look = asyncio.Event(), getattr(*meanwhile), quotas._look_at

    def looks(*about: Any) -> None:
        look(*about)
        looked.set()

    async def asks_late(*about: Any, **asked: Any) -> Any:
        await looked.wait()
        return await asks(*about, **asked)

    monkeypatch.setattr(quotas, "_look_at", looks)
    monkeypatch.setattr(*meanwhile, asks_late)
    watch = asyncio.create_task(quotas.watch({connection}))
    await quotas.enter(connection, "ann")
    assert not quotas._joining
    assert await counted(client) == 1
    quotas.leave(connection)
    watch.cancel()
    await quotas.close()


async def test_while_connections_are_counted_anew_a_new_one_is_told_so(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutant: it is told that there are as many as may be."""
    await grant(client, "ann", *EVERY)
    await quota(client, "connections = 2")
    node = start_node("--plain-without-tls")
    await there(call, node, "ann")
    key = Address.of(client.namespace, "user-limits.tenants").shared[0]
    until = str(int(time.time() * 1000) + 3_600_000)
    await client.store.server.command(key, "HSET", key, "learning_until", until)
    with pytest.raises(ConnectionClosed, match=r"its last writes: .* 'tenants' are being recounted for \d+\.\d s"):
        await there(call, node, "ann")


async def test_what_a_user_sends_is_bounded_over_all_nodes_and_a_link_says_why_it_waits(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutants: each node has the rate; another user waits; a changed quota reaches nobody who waits."""
    one, two = start_node("--plain-without-tls"), start_node("--plain-without-tls")
    for user in ("ann", "bob"):
        await grant(client, user, *EVERY)
    await quota(client, 'rate = "20/s"')
    senders = [
        await there((await there(call, node, "ann")).create_sender, f"q{i}") for i, node in enumerate((one, two))
    ]
    began = time.monotonic()
    for sender in senders:
        for _ in range(30):
            await there(sender.send, Message(body="x"))
    assert time.monotonic() - began > 1.5, "60, of which 20 at once and 20 a second"
    await quota(client, 'rate = "1/h"')
    other: Any = await there((await there(call, one, "bob")).create_sender, "q2")
    for _ in range(30):
        await there(other.send, Message(body="x"))

    async def is_dry() -> bool:
        await there(senders[0].send, Message(body="x"), timeout=1)
        return False

    with pytest.raises(Exception, match=r"(?i)timed? ?out"):
        await wait_until(is_dry, timeout=60)
    found = await client.explain("user-limits.tenants", key="ann")
    assert found.limiter is not None
    assert any("messages" in row for row in found.limiter.rows())
    await quota(client, "connections = 100")
    await there(senders[1].send, Message(body="y"), timeout=60)


async def test_a_quota_says_how_many_destinations_a_user_makes_and_nobody_opens_its_limiter(
    client: Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    """Mutants: the user's own bound holds; a user holds a quota off."""
    await grant(client, "eu-1", Action.PRODUCE, Action.CONSUME, Action.BROWSE)
    await quota(client, "destinations = 1", "connections = 5")
    node = start_node("--plain-without-tls")
    eu: Any = await there(call, node, "eu-1", "EU-1")
    await there(eu.create_sender, "a")
    with pytest.raises(LinkDetached, match=r"resource-limit-exceeded.*the most allowed"):
        await there(eu.create_sender, "b")
    url = f"amqp://eu-1:EU-1@127.0.0.1:{node.port}"
    async with headgate.connect(url, namespace=client.namespace) as sdk, sdk.session("s") as session:
        with pytest.raises(AccessDenied):
            await session.limiter("user-limits.tenants")


async def test_a_user_of_the_sdk_is_slowed_down_and_loses_nothing(client: Client, start_node: StartNode) -> None:
    """Mutant: batches of an SDK are not counted."""
    await grant(client, "ann", *EVERY)
    await quota(client, 'byte_rate = "2kB/s"')
    node = start_node("--plain-without-tls")
    url = f"amqp://ann:ANN@127.0.0.1:{node.port}"
    async with headgate.connect(url, namespace=client.namespace) as sdk, sdk.session("s") as session:
        producer = await session.producer("q", window=1024)
        began = time.monotonic()
        for _ in range(7):
            await producer.send(b"x" * 700, timeout=60)
        assert time.monotonic() - began > 0.9, "4.9 kB and more, of which 2 kB at once"
    async with client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        assert (await limiter.state(key="ann")).key_limits["bytes"].taken >= 0


async def test_as_many_sessions_as_a_user_likes_send_no_more_than_its_quota(
    client: Client, start_node: StartNode
) -> None:
    """Mutant: a batch of each session goes after a second, whatever is owed."""
    await grant(client, "ann", *EVERY)
    await quota(client, 'rate = "2/h"')
    node = start_node("--plain-without-tls")
    url = f"amqp://ann:ANN@127.0.0.1:{node.port}"
    async with headgate.connect(url, namespace=client.namespace) as sdk:
        sessions = [sdk.session(f"s{number}") for number in range(8)]
        producers = [await session.producer(f"q.{at}") for at, session in enumerate(sessions)]
        sent = await asyncio.gather(*(each.send(b"x", timeout=4) for each in producers), return_exceptions=True)
        refused = [error for error in sent if isinstance(error, headgate.HeadgateError)]
        assert all("the rate of the quota 'tenants' of user 'ann' is used up" in str(error) for error in refused)
        assert len(sent) - len(refused) in (1, 2, 3), "two, and what one of them was ahead"


async def test_what_is_refused_or_was_stored_before_is_not_counted(client: Client, start_node: StartNode) -> None:
    """Mutants: a repeated batch is counted twice; one that was refused for the destination's sake is counted."""
    await grant(client, "ann", *EVERY)
    await quota(client, 'rate = "10/h"')
    node = start_node("--plain-without-tls")
    url = f"amqp://ann:ANN@127.0.0.1:{node.port}"
    async with headgate.connect(url, namespace=client.namespace) as sdk, sdk.session("s") as session:
        await sdk.apply("q", kind="queue", limit=1000)
        sender = Producer(Place(sdk.parts.store.server, Address.of(client.namespace, "q")), session.id)  # type: ignore[arg-type]  # over a node
        await sender.send(100)
        for _ in range(20):
            assert (await sender.publish_as(sender.account(), 1, 100)).code == "DUPLICATE"
            assert (await sender.publish_as(sender.account(), 2, 900)).code == "OVERUSE"
        await sender.send(10)
    async with client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        taken = (await limiter.state(key="ann")).key_limits["messages"].taken
        assert 2 <= taken <= 4, "two were stored, and a slice of one may be in hand"


async def test_requests_over_http_count_as_messages(client: Client, start_node: StartNode) -> None:
    """Mutant: they take nothing of the quota."""
    await grant(client, "ann", *EVERY)
    await client.apply("llm", kind="limiter", limits={"calls": {"at_once": 100}})
    await quota(client, 'rate = "2/h"')
    node = start_node("--plain-without-tls", "--admin")
    async with httpx.AsyncClient(base_url=node.admin, auth=("ann", "ANN"), timeout=60) as http:
        body = {"amounts": {"calls": 1}}
        answers = [await http.post("/v1/limits/llm/admit", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "quota 'tenants' of user 'ann'" in answers[2].text

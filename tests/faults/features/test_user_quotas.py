"""Quotas of users over nodes whose Redis fails over: never too many connections, and whoever waits is told why."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

import pytest

import headgate
from headgate.amqp.peer import Disconnected
from headgate.policy import loads
from headgate_coordinator.security.document import GrantTable, User
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.store import UserStore
from tests.amqp.client import Peer
from tests.amqp.node_processes import NodeProcess, nodes
from tests.faults.failovers import as_user, each_failover, hands_over, violated
from tests.faults.test_users import HASH
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
LIMITER: Final = "user-limits.tenants"
QUOTA: Final = '[[user_limit]]\nname = "tenants"\nusers = ["ann"]\nconnections = 2\nrate = "50/s"\n'
FULL: Final = "has 2 connections over all nodes"
ANEW: Final = "Redis may have lost its last writes: connections under the quota 'tenants' are being recounted for "


async def grant(client: headgate.Client) -> None:
    """Let ann send and receive."""
    table = GrantTable(actions=[Action.PRODUCE, Action.CONSUME], match="#")
    ann = User(password_hash=HASH, grants=[table])
    await UserStore(client.store.server, client.namespace).change(lambda users: users.update(ann=ann))


async def comes(node: NodeProcess) -> Peer | str:
    """Return ann's connection to a node, or why she has none."""
    try:
        peer = await Peer.connect(node.port, user="ann")
        await peer.sender("q")
    except Disconnected as error:
        return str(error)
    return peer


@pytest.mark.whole
@each_failover
async def test_connections_of_a_user_are_counted_over_a_failover(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any]
) -> None:
    """Those that are there stay, and are counted again; one that goes makes room for one, at any node.

    Mutant: whoever comes while they are counted anew is let in.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await grant(admin)
        await admin.apply_policy(loads(QUOTA))
        url, started = as_user(pair, cleanup_namespace, "node"), ExitStack()
        stack.push_async_callback(asyncio.to_thread, started.close)
        options = ("--ttl", 3, "--plain-without-tls")
        both = await asyncio.to_thread(started.enter_context, nodes(url, cleanup_namespace, 2, *options))
        peers: list[Peer] = []

        async def refused(node: NodeProcess, *reasons: str) -> bool:
            told = await comes(node)
            assert isinstance(told, str), "one too many"
            return any(reason in told for reason in reasons)

        async def another(node: NodeProcess, *reasons: str) -> None:
            """Wait until there is room for one more; until then it hears one of these reasons."""

            async def is_in() -> bool:
                peer = await comes(node)
                if isinstance(peer, Peer):
                    peers.append(peer)
                    return True
                assert any(reason in peer for reason in ("does not answer", *reasons)), peer
                return False

            await wait_until(is_in, timeout=GUARD, description="there is room for one")

        await another(both[0])
        await fault(pair, lambda: another(both[1], ANEW))
        assert await refused(both[0], FULL, *([] if fault is hands_over else [ANEW]))
        for peer in peers:
            await peer.send(await peer.sender("q", "again"), "x")
        for node in both:
            await wait_until(lambda: refused(node, FULL), timeout=GUARD)  # noqa: B023 -- awaited
        pair.proxy.refuse()
        pair.proxy.reset()
        assert not await refused(both[0], FULL), "nobody knows, and the node logs no traceback"
        pair.proxy.pass_through()
        await peers.pop().close()
        await another(both[0], FULL)
        await wait_until(lambda: refused(both[1], FULL), timeout=GUARD)
        for peer in peers:
            await peer.close()
        assert violated(pair, cleanup_namespace, LIMITER) == []


@pytest.mark.whole
@pytest.mark.parametrize("most", ["3", '"300B"'], ids=["messages", "bytes"])
@each_failover
async def test_messages_in_flight_to_a_user_stay_within_the_quota_over_a_failover(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any], most: str
) -> None:
    """SDKs at two nodes take and settle all the while, and never have more unsettled than the quota allows.

    Mutant: a node fetches without asking the limiter of the quota.
    """
    held: dict[int, set[str]] = {0: set(), 1: set()}
    settled: set[str] = set()
    had: list[int] = []

    async def work(number: int, node: NodeProcess) -> None:
        url = f"amqp://ann:secret@127.0.0.1:{node.port}"
        async with headgate.connect(url, namespace=cleanup_namespace) as client, client.session("w") as session:
            consumer = await session.consumer("q", window=8)
            async for message in consumer:
                held[number].add(str(message.body))
                had.append(sum(map(len, held.values())))
                await asyncio.sleep(0.1)
                held[number].discard(str(message.body))
                with contextlib.suppress(headgate.HeadgateError):
                    await message.accept()
                settled.add(str(message.body))

    async def goes_on(count: int) -> None:
        before = len(settled)
        await wait_until(
            lambda: any(task.done() for task in tasks) or len(settled) >= before + count,
            timeout=GUARD, description="messages go on",
        )  # fmt: skip
        for task in tasks:
            assert not task.done(), task.exception()

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await grant(admin)
        await admin.apply_policy(loads(f'[[user_limit]]\nname = "tenants"\nusers = ["ann"]\nin_flight = {most}\n'))
        producer = await (await enter(admin.session("fills"))).producer("q")
        for number in range(400):
            await producer.send(f"{number:097}")  # 100 bytes
        url, started = as_user(pair, cleanup_namespace, "node"), ExitStack()
        stack.push_async_callback(asyncio.to_thread, started.close)
        both = await asyncio.to_thread(
            started.enter_context, nodes(url, cleanup_namespace, 2, "--ttl", 3, "--plain-without-tls")
        )
        tasks = [asyncio.create_task(work(number, node)) for number, node in enumerate(both)]
        await goes_on(10)
        await fault(pair, lambda: goes_on(5))
        await goes_on(30)
        assert max(had) <= 3, "over all nodes"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert violated(pair, cleanup_namespace, LIMITER) == []

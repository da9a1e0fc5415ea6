"""Failovers of a Redis whose hot scripts are functions: the next master may lack them, and somebody may forget them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import pytest
import redis

import headgate
from headgate_coordinator.security.acl import Role
from tests.faults.deployments import ask
from tests.faults.failovers import as_user, comes_back, dies, hands_over, violated
from tests.faults.traffic import GUARD, Receiver, Sender
from tests.links.forwarding.test_failovers import Pair
from tests.support.servers import newest_server
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.one_server,
    pytest.mark.skipif(newest_server().version < (7,), reason="6.2 has no functions"),
]
FAULTS: Final = (dies, hands_over, comes_back)
USERS: Final[tuple[tuple[Role, bool], ...]] = (("node", True), ("sdk", True), ("sdk", False))
"""Who loads functions, who may only call them, and who may do neither."""
HOW: Final = ("there", "missing", "flushed")
"""Whether the next master has the functions, lacks them, or loses them again and again, as the master before does."""
SLICE: Final = {(dies, USERS[at], how) for at, how in enumerate(HOW)} | {(dies, USERS[0], "missing")}


def forget(*servers: Any) -> None:
    """Flush the functions of those that are masters and alive."""
    for server in servers:
        with suppress(redis.RedisError):
            ask(server, "FUNCTION", "FLUSH")


async def forget_always(pair: Pair) -> None:
    while True:
        await asyncio.to_thread(forget, pair.primary, pair.replica)
        await asyncio.sleep(0.02)


def called(pair: Pair) -> int:
    """Return how many functions were called at the server in charge."""
    with redis.Redis.from_url(pair.proxy._upstream.geturl()) as server:
        told: Any = server.info("commandstats")
    return int(told.get("cmdstat_fcall", {"calls": 0})["calls"])


def named(part: Any) -> str:
    if isinstance(part, tuple):
        return f"{part[0]} {'with' if part[1] else 'without'}"
    return str(getattr(part, "__name__", part))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("fault", "user", "how"),
    [
        pytest.param(*each, marks=() if each in SLICE else pytest.mark.soak)
        for each in itertools.product(FAULTS, USERS, HOW)
    ],
    ids=named,
)
async def test_work_goes_on_whether_or_not_a_next_master_has_the_functions(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Awaitable[None]], user: tuple[Role, bool], how: str
) -> None:
    """Nobody is refused anything that Redis would log, and nothing is lost untold."""
    told: list[headgate.StateLoss] = []
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await admin.apply("orders", kind="queue")
        if how == "there":  # who may do all has loaded them
            async with admin.session("first", ttl=2.0) as session:
                await (await session.producer("orders")).send("0")
        url = as_user(pair, cleanup_namespace, user[0], functions=user[1])
        client = await enter(headgate.connect(url, namespace=cleanup_namespace))
        client.on_state_loss(told.append)
        session = await enter(client.session("s", ttl=2.0))
        sender = await enter(Sender(await session.producer("orders")))
        receiver = await enter(Receiver(await session.consumer("orders")))
        flushing = asyncio.create_task(forget_always(pair)) if how == "flushed" else None

        async def work() -> None:
            await sender.goes_on()
            await receiver.goes_on()
            if how == "missing":
                forget(pair.primary, pair.replica)

        await fault(pair, work)
        before = called(pair)
        await work()
        await sender.goes_on()
        await sender.end()
        if flushing is not None:
            flushing.cancel()
        if user[0] == "node" or how == "there" or not user[1]:  # else they go by scripts for a minute at a time
            assert (called(pair) > before) == user[1]

        async def drained() -> bool:
            return (await admin.recount("orders")).stored[1] == 0

        await wait_until(drained, timeout=GUARD, description="all was received")
        lost = set(sender.sent) - set(receiver.got)
        assert len(lost) <= sum(loss.lost for loss in told)
        assert fault is not hands_over or not told
        with redis.Redis.from_url(pair.proxy._upstream.geturl()) as server:
            assert {entry["object"] for entry in server.acl_log()} <= {"client|setinfo"}, "of redis-py itself"
        assert not violated(pair, cleanup_namespace, "orders")
        await admin.remove("orders")

"""Queues that deliver by priority, over failovers and a consumer's death: the highest first, and none starves."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

import headgate
from headgate.redis.keys import Address
from tests.faults.failovers import as_user, each_failover, hands_over, violated
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL: Final = 2.0


class Alarms:
    """Sends numbered messages of a priority, and takes them; ``got`` has number and priority, as they came."""

    def __init__(self, session: headgate.Session, producer: headgate.Producer) -> None:
        self._session, self._producer = session, producer
        self._sent = 0
        self.got: list[tuple[int, int]] = []

    async def send(self, *priorities: int) -> range:
        """Send one of each; returns their numbers."""
        first = self._sent
        for priority in priorities:
            await self._producer.send(str(self._sent), priority=priority, timeout=GUARD)
            self._sent += 1
        return range(first, self._sent)

    async def take(self, count: int) -> list[tuple[int, int]]:
        """Take so many, one at a time."""
        consumer = await self._session.consumer("alarms", window=1)
        for _ in range(count):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            self.got.append((int(message.body), message.priority))
            await message.accept(confirm=True, timeout=GUARD)
        await consumer.close()
        return self.got[-count:]


@each_failover
async def test_the_highest_comes_first_before_and_after_a_failover(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any]
) -> None:
    """What the dead master gave out comes again, first in its band. Ledgers prove who may be first, and who was."""
    dice = random.Random(7)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await admin.apply("alarms", kind="queue", fair_by="priority", max_overtaken=16)
        url = as_user(pair, cleanup_namespace, "sdk")
        session = await enter((await enter(headgate.connect(url, namespace=cleanup_namespace))).session(ttl=TTL))
        alarms = Alarms(session, await session.producer("alarms"))
        kept = [*await alarms.send(*(dice.randrange(10) for _ in range(60)))]
        await alarms.take(20)

        async def work() -> None:
            sent = await alarms.send(*(dice.randrange(10) for _ in range(20)))
            await alarms.take(15)
            if fault is hands_over:
                kept.extend(sent)

        await fault(pair, work)
        kept += await alarms.send(0, 9, 4, 9)

        async def left() -> int:
            return (await admin.recount("alarms")).stored[1]

        await alarms.take(await wait_until(left, timeout=GUARD))
        assert await wait_until(lambda: is_empty(left), timeout=GUARD)
        numbers = [number for number, _ in alarms.got]
        assert set(kept) <= set(numbers)
        if fault is hands_over:
            assert len(numbers) == len(set(numbers))
        assert (await admin.recount("alarms")).equal
        assert violated(pair, cleanup_namespace, "alarms") == []


async def is_empty(left: Callable[[], Any]) -> bool:
    return int(await left()) == 0


async def test_what_a_killed_consumer_held_is_first_in_its_band_again(redis_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client, client.session(ttl=TTL) as session:
        await client.apply("alarms", kind="queue", fair_by="priority")
        alarms = Alarms(session, await session.producer("alarms"))
        await alarms.send(4, 4, 0, 4, 0)
        with Worker("consumer", redis_url, cleanup_namespace, "alarms", 1, 4) as worker:
            assert await asyncio.to_thread(worker.ready) == ["0", "1", "3", "2"]
            await alarms.send(4, 0, 9)
            worker.kill9()

        async def back() -> bool:
            await client.store.reap(Address.of(client.namespace, "alarms"))
            turns = (await client.explain("alarms")).turns
            return turns is not None and sum(one.waiting for one in turns.first) == 8

        await wait_until(back, timeout=GUARD, description="what it held is back")
        assert [number for number, _ in await alarms.take(8)] == [7, 0, 1, 3, 5, 2, 4, 6]

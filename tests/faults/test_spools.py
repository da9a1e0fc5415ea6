"""A producer that spools while a master hands over, is away or is lost: nothing lost untold, doubled or reordered."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import headgate
from headgate_coordinator.operate.audit_stores import audit_stores
from tests.faults.deployments import ask, at, is_linked, is_master
from tests.faults.failovers import put_in_front
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.support.spooled import body, number_of, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
MEMORY = 20_000


class Spooler:
    """Sends numbered messages in parallel, and remembers which have their receipt; most find no room in memory."""

    def __init__(self, client: headgate.Client, producer: headgate.Producer) -> None:
        self.client, self.producer = client, producer
        self.sent: list[int] = []
        self._next = 0

    async def send(self, count: int) -> None:
        numbers = range(self._next, self._next + count)
        self._next += count
        posted = [await self.producer.post(body(number), timeout=GUARD) for number in numbers]
        done = await asyncio.gather(*posted, return_exceptions=True)
        for number, said in zip(numbers, done, strict=True):
            if not isinstance(said, headgate.CoordinatorUnavailable):
                assert not isinstance(said, BaseException), said
                self.sent.append(number)

    async def within_the_limits(self) -> None:
        (store,) = await self.client.stores()
        assert store.held <= (store.limit or 0)
        assert (await self.client.recount("orders")).equal
        assert len(await references(self.client)) > 0


async def drained(client: headgate.Client) -> list[int]:
    """Take all that is there, in the order in which it comes."""
    got: list[int] = []
    async with client.session("taker", ttl=2.0) as session:
        consumer = await session.consumer("orders")

        async def empty() -> bool:
            while (message := await consumer.receive(timeout=0.2)) is not None:
                got.append(number_of(message.body))
                await message.accept()
            await consumer.flush(timeout=GUARD)
            return (await client.recount("orders")).stored[1] == 0

        await wait_until(empty, timeout=GUARD, description="all was received")
    return got


async def test_what_is_spooled_while_a_master_is_away_and_hands_over_comes_once_and_in_order(
    pair: Pair, cleanup_namespace: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        client = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await spooling(client, tmp_path, memory=MEMORY)
        spooler = Spooler(client, await (await enter(client.session("s", ttl=3.0))).producer("orders"))
        await spooler.send(40)
        for before, after in ((pair.primary, pair.replica), (pair.replica, pair.primary)):
            sending = asyncio.create_task(spooler.send(40))
            await wait_until(lambda: len(spooler.producer._account.outbox) > 0, timeout=GUARD)
            pair.proxy.refuse()
            pair.proxy.reset()
            ask(before, "FAILOVER", "TO", *at(after))
            await wait_until(lambda: is_master(after) and is_linked(before), timeout=GUARD)  # noqa: B023 -- awaited
            pair.proxy.pass_through()
            put_in_front(pair, after)
            await sending
            await spooler.within_the_limits()
        assert await drained(client) == spooler.sent == [*range(120)]
        await swept(tmp_path)


async def test_what_is_spooled_before_and_after_a_lossy_failover_comes_once_and_in_order(
    pair: Pair, cleanup_namespace: str, tmp_path: Path
) -> None:
    """What the replica did not hear of is lost, and told; its segments are orphans, which a sweep deletes."""
    lost: list[int] = []
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        client = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        client.on_state_loss(lambda loss: lost.append(loss.lost if loss.destination == "orders" else 0))
        await spooling(client, tmp_path, memory=MEMORY)
        spooler = Spooler(client, await (await enter(client.session("s", ttl=2.0))).producer("orders"))
        await spooler.send(40)
        pair.part()
        await spooler.send(40)
        pair.fail_over()
        await spooler.send(40)
        await spooler.within_the_limits()
        got = await drained(client)
        assert got == [*range(40), *range(80, 120)], "each once, and in order"
        assert sum(lost) == 40 == len(spooler.sent) - len(got), "what is lost is told"

        async def clean() -> bool:
            await audit_stores(client, repair=True)
            return not segments(tmp_path)

        await wait_until(clean, timeout=GUARD, description="the orphans are deleted")
        (store,) = await client.stores()
        assert store.held == 0

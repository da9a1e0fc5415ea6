"""A store for durable messages and one for all others: each goes to its own, in one line, and either may be full."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull
from headgate.core.segment import Reference, is_reference
from headgate.message import is_durable
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, outcomes
from tests.sdk.spooling import Depot, body, received
from tests.support.faultyfs import FaultyStorage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
DURABLE = {"amqp.durable": True}


@pytest.fixture
async def depot(client: headgate.Client, namespace: str) -> AsyncIterator[Depot]:
    """The queue ``orders``, whose durable messages go to ``disk`` and the others to ``temp``."""
    storage = FaultyStorage(namespace)
    depot = Depot(client, storage)
    await temp(depot)
    await depot.make("32KiB", store_nonpersistent="temp")
    yield depot
    storage.close()


async def temp(depot: Depot, **settings: Any) -> None:
    await depot.client.set_store("temp", f"{depot.storage.url}/temp", **{"limit": "10MB", "segment": "4KiB"} | settings)


def lasts(number: int) -> bool:
    """Return whether a message of that number is durable: some in a row, some in turn, and some of each beside."""
    return number % 7 in (0, 2, 5, 6)


async def send(producer: headgate.Producer, number: int, timeout: float = 600) -> headgate.Receipt:
    headers = DURABLE if lasts(number) else None
    return await producer.send(body(number), headers=headers, timeout=timeout)


async def where(depot: Depot) -> dict[int, str]:
    """Return which store each spooled message is in, by its number in the queue."""
    address = Address.of(depot.client.namespace, "orders")
    entries = await depot.client.store.browse(address, after=None, count=100_000)
    return {
        int(entry.decode().split("-")[0]): Reference.parse(stored).store
        for entry, stored, *_ in entries
        if is_reference(stored)
    }


async def held(depot: Depot) -> dict[str, int]:
    return {store.name: store.held for store in await depot.client.stores()}


async def test_each_goes_to_the_store_of_its_delivery_mode_and_order_holds(depot: Depot) -> None:
    """Mutants: one store takes all; a segment takes what is behind a message of the other store; modes overtake."""
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(send(producer, number) for number in range(91)))
        found = await where(depot)
        assert len(found) > 50, "the first found room in memory"
        assert found == {seq: "disk" if lasts(seq - 1) else "temp" for seq in found}
        count = await depot.client.store.recount(Address.of_store(depot.client.namespace, "temp"))
        assert count.equal, count
        assert await received(await out.consumer("orders", window=20), 91) == list(range(91))
        await depot.empty()
        assert set((await held(depot)).values()) == {0}


async def test_a_store_that_is_full_stops_messages_of_its_mode_alone_and_says_which(depot: Depot) -> None:
    """Mutants: whoever waits is told of the other store; what one store was found to be is thought of the other."""
    await temp(depot, limit=12_000)
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")

        async def until_full() -> None:
            while True:
                await producer.send(body(len(receipts)), timeout=2)
                receipts.append(1)

        receipts: list[int] = []
        with pytest.raises(CreditTimeout) as caught:
            await until_full()
        sent = len(receipts)
        assert 10_000 < (await held(depot))["temp"] <= 12_000
        assert "spool store 'temp' has no room either" in str(caught.value)
        assert caught.value.explanation is not None
        assert caught.value.explanation.cause == "store-full"
        assert "spool store temp: " in caught.value.explanation.reason
        seen = str(await depot.client.explain("orders"))
        assert "store disk: for what is durable" in seen
        assert "store temp: for what is not durable" in seen
        async with asyncio.timeout(GUARD):
            for number in range(10):
                await producer.send(body(sent + number), headers=DURABLE, timeout=600)
        assert (await held(depot))["disk"] > 9_000
        waits = asyncio.ensure_future(producer.send(body(sent + 10), timeout=600))
        assert await received(await out.consumer("orders", window=1), sent + 10) == list(range(sent + 10))
        await asyncio.wait_for(waits, GUARD)


async def test_each_store_says_what_becomes_of_what_finds_no_room(depot: Depot) -> None:
    """Mutant: `Waiters.how` asks the store of the first in line for all of them."""
    await temp(depot, limit=12_000, when_full="fail")
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        told = await outcomes([producer.send(body(number), timeout=600) for number in range(60)])
        failed = [one for one in told if isinstance(one, DestinationFull)]
        assert failed
        assert "temp" in str(failed[0])
        sends = [producer.send(body(number), headers=DURABLE, timeout=600) for number in range(20)]
        assert all(isinstance(one, headgate.Receipt) for one in await outcomes(sends))
        assert (await held(depot))["disk"] > 19_000


async def test_messages_that_wait_follow_a_change_of_their_store(depot: Depot) -> None:
    """Mutant: a writer waits for the store that it began with."""
    await temp(depot, limit=4_500)
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        waits = [asyncio.ensure_future(producer.send(body(number), timeout=600)) for number in range(40)]

        async def blocked() -> bool:
            return (await depot.client.explain("orders")).blocked > 0

        await wait_until(blocked)
        assert (await held(depot))["disk"] == 0
        await depot.client.apply("orders", store_nonpersistent="default")
        receipts = await asyncio.wait_for(asyncio.gather(*waits), GUARD)
        assert [receipt.seq for receipt in receipts] == list(range(1, 41))
        assert (await held(depot))["disk"] > 0


def test_what_is_durable_is_what_amqp_clients_see() -> None:
    stored = headgate.message.encode
    assert is_durable(stored(b"x", DURABLE))
    assert not is_durable(stored(b"x", None))
    assert not is_durable(stored("x", {"amqp.durable": False, "amqp.priority": 7}))
    assert is_durable(headgate.message.to_amqp(stored(b"x", DURABLE)))
    assert not is_durable(headgate.message.to_amqp(stored(b"x", {"a": 1})))
    assert is_durable(b"\xff"), "nobody can read it"

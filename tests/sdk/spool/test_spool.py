"""Spooling as a program sees it: nobody waits, order holds, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from unittest.mock import MagicMock

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull, MessageTooLarge
from headgate.message import encode
from headgate.redis.keys import Address
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.sweep import Sweeper
from tests.sdk.observing import GUARD, outcomes
from tests.sdk.spooling import Depot, body, number_of, received, sent
from tests.support.faultyfs import FaultyStorage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def depot(client: headgate.Client, namespace: str) -> AsyncIterator[Depot]:
    storage = FaultyStorage(namespace)
    yield Depot(client, storage)
    storage.close()


async def test_order_holds_across_memory_and_store(depot: Depot) -> None:
    """Mutant: `Outbox.add` does not look at what is being spooled."""
    await depot.make("64KiB")
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 200)
        assert 120 < await depot.spooled() < 200, "the first found room in memory"
        memory, store = await depot.usage()
        assert memory <= 64 << 10
        assert store > 120_000
        consumer = await session.consumer("orders")
        assert await received(consumer, 100) == list(range(100))
        await sent(producer, 100, first=200)
        assert await received(consumer, 200) == list(range(100, 300))
        await depot.empty()


async def test_senders_that_go_on_spool_without_asking_for_memory_again(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to their references says that memory is full. Mutant: `Account.come` asks whoever comes first."""
    await depot.make()
    asked: list[str] = []
    acquire = depot.client.store.acquire

    async def counted(address: Address, *args: object, **kwargs: object) -> object:
        asked.append(address.name)
        return await acquire(address, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(depot.client.store, "acquire", counted)
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 20)

        async def one(first: int) -> None:
            for n in range(30):
                await producer.send(body(first + n), timeout=600)

        asked.clear()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(one(1000 * sender) for sender in range(1, 9)))
        assert asked.count("orders") < 15, "half as often as they went on"
        consumer = await session.consumer("orders")
        assert len(await received(consumer, 260)) == 260
        await sent(producer, 5)
        assert await depot.spooled() == 0, "there is room in memory again"
        await received(consumer, 5)
        await depot.empty()


async def test_senders_one_after_the_other_keep_order_while_it_is_drained(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("in") as into, depot.client.session("out") as out:
        producer, consumer = await into.producer("orders"), await out.consumer("orders", window=10)
        sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(400)]
        assert await received(consumer, 400) == list(range(400))
        receipts = await asyncio.gather(*sending)
        assert [receipt.seq for receipt in receipts] == list(range(1, 401))
        await depot.empty()


async def test_two_producers_and_competing_consumers(depot: Depot) -> None:
    """Each message is delivered once. One that was given back to a consumer that waited may come after later ones."""
    await depot.make("64KiB")
    async with depot.client.session("a") as a, depot.client.session("b") as b, depot.client.session("c") as c:
        one, two = await a.producer("orders"), await b.producer("orders")
        await asyncio.gather(sent(one, 150), sent(two, 150, first=1000))
        consumers = [await c.consumer("orders", window=5) for _ in range(3)]
        got: list[int] = []

        async def take(consumer: headgate.Consumer) -> None:
            while len(got) < 300:
                if message := await consumer.receive(timeout=0.1):
                    got.append(number_of(message))
                    await message.accept()

        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(take(consumer) for consumer in consumers))
        assert sorted(got) == [*range(150), *range(1000, 1150)]
        await asyncio.gather(*(consumer.flush() for consumer in consumers))
        await depot.empty()


async def test_what_is_given_back_comes_again_with_its_payload(depot: Depot) -> None:
    await depot.make(max_attempts=3)
    async with depot.client.session("s") as session:
        await sent(await session.producer("orders"), 60)
        consumer = await session.consumer("orders", window=60)
        held = [await consumer.receive(timeout=GUARD) for _ in range(60)]
        for message in held:
            assert message is not None
            await message.release()
        await consumer.flush()
        assert await received(consumer, 60) == list(range(60))
        await depot.empty()


@pytest.mark.parametrize("limit", ["16KiB", "unlimited"])
async def test_a_message_larger_than_the_window_stays_in_memory_while_there_is_room(depot: Depot, limit: str) -> None:
    await depot.make(limit)
    async with depot.client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        for number in range(3):
            await producer.send(body(number, 3000))
        assert await depot.spooled() == 0
        if limit != "unlimited":
            for number in range(3, 6):
                await producer.send(body(number, 3000))
            assert await depot.spooled() > 0, "no room for it is left"
        consumer = await session.consumer("orders")
        count = 3 if limit == "unlimited" else 6
        assert await received(consumer, count) == list(range(count))
        await depot.empty()


async def test_an_inherited_store_takes_nothing_of_the_limit_where_senders_block(depot: Depot) -> None:
    await depot.make(10_000)
    await depot.client.apply("orders", when_full="block")
    async with depot.client.session("s") as session:
        producer = await session.producer("orders", window=100)
        await producer.send(body(0, 9_900))
        assert await depot.spooled() == 0
        told = await depot.client.explain("orders")
        assert told.limits[0].kept == 0
        await received(await session.consumer("orders"), 1)
        await depot.empty()


# What there is no room for in the store either.


async def filled(depot: Depot, producer: headgate.Producer) -> int:
    """Send until neither has room; returns how many went."""
    count = waited = 0
    while waited < 4:  # a busy machine may keep one waiting
        try:
            await producer.send(body(count), timeout=0.3)
        except (CreditTimeout, DestinationFull):
            waited += 1
        else:
            count, waited = count + 1, 0
    return count


async def test_a_full_store_blocks_until_either_has_room(depot: Depot) -> None:
    """Mutant: only the store is waited for, or only memory."""
    await depot.make(store={"limit": 20_000})
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        count = await filled(depot, producer)
        assert (await depot.usage())[1] > 15_000
        waits = asyncio.ensure_future(producer.send(body(count), timeout=600))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waits), 0.2)
        consumer = await out.consumer("orders", window=1)
        assert await received(consumer, 4) == list(range(4)), "memory has room now"
        assert (await asyncio.wait_for(waits, GUARD)).seq == count + 1
        assert await received(consumer, count + 1 - 4) == list(range(4, count + 1))
        await depot.empty()


async def test_room_in_the_store_alone_is_enough(depot: Depot) -> None:
    await depot.make(store={"limit": 20_000})
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        count = await filled(depot, producer)
        waits = asyncio.ensure_future(producer.send(body(count), timeout=600))
        await depot.client.set_store("disk", depot.storage.url, limit=40_000, segment="4KiB")
        assert (await asyncio.wait_for(waits, GUARD)).seq == count + 1
        assert 20_000 < (await depot.usage())[1] < 40_000
        assert await received(await session.consumer("orders"), count + 1) == list(range(count + 1))
        await depot.empty()


@pytest.mark.parametrize("when_full", ["fail", "fail-after 0.3s", "drop"])
async def test_a_full_store_does_what_it_says(depot: Depot, when_full: str) -> None:
    """Mutant: `Waiters.how` says what memory says."""
    await depot.make(store={"limit": 20_000, "when_full": when_full})
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        told = await outcomes([producer.send(body(n), timeout=600) for n in range(60)])
        went = [one for one in told if isinstance(one, headgate.Receipt) and not one.dropped]
        others = [one for one in told if one not in went]
        assert 24 <= len(went) < 40, "those that fit went"
        assert told[: len(went)] == went, "and they are the first"
        if when_full == "drop":
            assert all(isinstance(one, headgate.Receipt) and one.dropped for one in others)
        else:
            assert {type(one) for one in others} == {DestinationFull}
            assert "disk" in str(others[0]), "it says what has no room"
        assert (await depot.usage())[1] <= 20_000
        assert await received(await session.consumer("orders"), len(went)) == list(range(len(went)))
        await depot.empty()


async def test_a_message_larger_than_memory_goes_to_the_store(depot: Depot) -> None:
    await depot.make(limit="8KiB")
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 1)
        await sent(producer, 1, first=1, size=100_000)
        await sent(producer, 1, first=2)
        assert await received(await session.consumer("orders"), 3) == [0, 1, 2]
        await depot.empty()


async def test_a_message_larger_than_the_store_is_refused_and_others_go_on(depot: Depot) -> None:
    """Mutant: `Writer._room` lets the failure be the writer's."""
    await depot.make(store={"limit": 50_000})
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        told = await outcomes([producer.send(body(n, 60_000 if n == 20 else 1000), timeout=600) for n in range(40)])
        assert isinstance(told[20], MessageTooLarge), told[20]
        assert "60" in str(told[20])
        assert all(isinstance(one, headgate.Receipt) for n, one in enumerate(told) if n != 20)
        numbers = [n for n in range(40) if n != 20]
        assert await received(await session.consumer("orders"), 39) == numbers
        await depot.empty()


# Changes while messages are spooled.


async def test_from_spool_to_block_and_back_keeps_order_and_loses_nothing(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        await sent(producer, 60)
        await depot.client.apply("orders", when_full="block")
        waiting = [asyncio.ensure_future(producer.send(body(60 + n), timeout=600)) for n in range(20)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting[-1]), 0.3)
        assert await depot.spooled() >= 40
        await depot.client.apply("orders", when_full="spool", store="disk")
        consumer = await out.consumer("orders", window="pull")
        assert await received(consumer, 2) == [0, 1], "references need room too, and it was full"
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*waiting)
        entries = await depot.client.store.browse(Address.of(depot.client.namespace, "orders"), after=None, count=100)
        assert entries[-1][1][:1] == b"\xc1", "the last of them are spooled"
        await depot.client.apply("orders", when_full="block")
        assert await received(consumer, 78) == list(range(2, 80))
        await depot.empty()


async def test_a_store_is_used_to_the_last_message_that_fits(depot: Depot) -> None:
    """Less than a segment is left, and more than a message. Mutant: `Writer._fitting` asks for a segment only."""
    await depot.make("64KiB", store={"limit": "50KB", "segment": "16KiB"})
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(300)]
        size = len(encode(body(0), None))

        async def used() -> bool:
            return (await depot.usage())[1] > 50_000 - size

        await wait_until(used)
        assert (await depot.usage())[1] <= 50_000
        for one in sending:
            one.cancel()
        await depot.client.purge("orders")
        await depot.empty()


async def test_a_purge_frees_the_store(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 100)
        assert len(depot.storage.objects()) > 10
        await depot.client.purge("orders")
        await depot.empty()
        await sent(producer, 100)
        assert await received(await session.consumer("orders"), 100) == list(range(100))
        await depot.empty()


async def test_what_expires_frees_the_store(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), ttl="0.5s", timeout=600) for n in range(50)))
        address = Address.of(depot.client.namespace, "orders")

        async def expired() -> bool:
            await depot.client.store.reap(address)
            return (await depot.client.recount("orders")).stored[1] == 0

        await wait_until(expired)
        await depot.empty()


# The end of a client.


def _done(sending: Sequence["asyncio.Future[headgate.Receipt]"], count: int) -> bool:
    return sum(one.done() for one in sending) >= count


async def test_a_client_that_closes_in_the_middle_leaves_nothing(
    depot: Depot, other: headgate.Client, redis_url: str
) -> None:
    """Mutant: `Writer.close` does not put back what was being written."""
    await depot.make()
    watch = Depot(other, depot.storage)
    for turn in range(4):
        async with headgate.connect(redis_url, namespace=depot.client.namespace) as client:
            async with client.session("s") as session:
                producer = await session.producer("orders")
                sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(200)]
                await wait_until(partial(_done, sending, 40 * turn + 1))
            told = await asyncio.gather(*sending, return_exceptions=True)
        went = [n for n, one in enumerate(told) if isinstance(one, headgate.Receipt)]
        assert went == list(range(len(went)))
        async with other.session("out") as out:
            assert await received(await out.consumer("orders"), len(went)) == went
            await watch.empty()
        await watch.no_credit_left()


async def test_sends_that_are_cancelled_leave_nothing(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(300)]
        await wait_until(lambda: any(one.done() for one in sending))
        for n, one in enumerate(sending):
            if n % 3:
                one.cancel()
        told = await asyncio.gather(*sending, return_exceptions=True)
        went = [n for n, one in enumerate(told) if isinstance(one, headgate.Receipt)]
        memory, _ = await depot.usage()
        assert memory > 0
        entries = await depot.client.recount("orders")
        got = await received(await session.consumer("orders"), entries.stored[1])
        assert [n for n in got if n in set(went)] == went, "what has a receipt is there, in order"
        assert got == sorted(set(got))
        await depot.empty()
    await depot.no_credit_left()


async def test_closing_beside_a_sweep_discards_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: each discards as many as there were when it began."""
    begun: list[str] = []

    async def free(_self: Sweeper, _spool: object, _address: Address, names: Sequence[str]) -> None:
        begun.extend(names)
        await asyncio.sleep(0.05 if len(begun) == 2 else 0)  # the second call is that of who comes beside

    monkeypatch.setattr(Sweeper, "_free", free)
    sweeper = Sweeper(MagicMock())
    for name in "abc":
        sweeper.discard(MagicMock(), Address.of("ns", "orders"), name)
    await asyncio.gather(sweeper._discard(), sweeper.close())
    assert set(begun) == set("abc")


async def test_what_spools_goes_on_while_others_fill_its_pool(depot: Depot) -> None:
    """Mutants: references count in pools; a message larger than the pool fails, though the store takes it."""
    client = depot.client
    await client.set_pool("memory", limit="16KiB")
    await client.apply("other", limit="1MiB", pools="memory")
    await depot.make("64KiB", pools="memory", store={"segment": "64KiB"})
    async with client.session("fills") as fills, client.session("s") as session:
        other, producer = await fills.producer("other"), await session.producer("orders")
        for n in range(16):
            await other.send(body(n), timeout=GUARD)
        await sent(producer, 40)
        await producer.send(body(40, 20_000), timeout=GUARD)
        assert await depot.spooled() == 41
        assert await received(await session.consumer("orders"), 41) == list(range(41))
        await client.purge("other")
        await depot.empty()
    await client.remove("other")


async def test_what_spools_is_in_memory_while_its_pool_has_room(depot: Depot) -> None:
    """Mutant: who is taken by the store asks for no room of the pool."""
    await depot.client.set_pool("memory", limit="1MiB")
    await depot.make("512KiB", pools="memory")
    async with depot.client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")

        async def whole() -> bool:
            await producer.send(body(0), timeout=GUARD)
            there = await depot.client.store.browse(Address.of(depot.client.namespace, "orders"), after=None, count=9)
            await received(consumer, 1)
            return there[0][1][:1] != b"\xc1"

        await wait_until(whole, timeout=60, description="a message is in memory")
        await depot.empty()


async def test_nothing_is_written_while_there_is_no_room_for_references(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: it is tried again and again; what frees some is not heard of; the wait does not say for what."""
    looks: list[int] = []
    room = SpoolStore.room

    async def looked(self: SpoolStore, address: Address, session: str) -> int:
        looks.append(await room(self, address, session))
        return looks[-1]

    monkeypatch.setattr(SpoolStore, "room", looked)
    await depot.make(limit_references=200)
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(60)]
        await wait_until(lambda: len(looks) >= 2, timeout=60, description="it looked for room")
        before, writes = len(looks), depot.storage.faults.calls.get("write", 0)
        await wait_until(lambda: len(looks) >= before + 2, timeout=60, description="it looked again")
        assert depot.storage.faults.calls.get("write", 0) == writes
        with pytest.raises(CreditTimeout, match=r"limit of references to spooled messages: they take \d+ of 200 bytes"):
            await producer.send(body(60), timeout=1)
        assert "limit_references" in (await depot.client.explain("orders")).remedy
        assert await received(await out.consumer("orders"), 60) == list(range(60))
        await asyncio.gather(*sending)
        await depot.empty()


async def test_a_raised_limit_of_references_lets_those_go_that_wait(depot: Depot) -> None:
    """Mutant: the new limit is not looked at."""
    await depot.make(limit_references=200)
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        sending = asyncio.ensure_future(sent(producer, 100))
        await wait_until(lambda: "references" in producer.reason, timeout=60)
        await depot.client.apply("orders", limit_references="default")
        await sending
        assert await received(await session.consumer("orders"), 100) == list(range(100))
        await depot.empty()

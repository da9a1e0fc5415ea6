"""ActiveMQ Classic, prefetch: how many messages a consumer is sent ahead, and when more."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import headgate
from headgate import Window
from headgate.policy import loads
from headgate.redis.keys import Address
from tests.amqp.rhea_client import Rhea
from tests.conformance.story import fill, held, holds, take, with_options
from tests.sdk.observing import drain, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_f01_half_of_the_prefetch_is_topped_up_when_half_is_acknowledged(client: headgate.Client) -> None:
    await fill(client, "orders", 300)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=Window(100, top_up=0.5))
        await holds(client, consumer, 100)
        messages = [await take(consumer) for _ in range(100)]
        for n in range(49):
            await messages[n].accept()
        await consumer.flush()
        assert (await held(client, consumer), consumer.held_messages) == (51, 51)  # none until half is acknowledged
        await messages[49].accept()
        await holds(client, consumer, 100)  # then half more
        assert await field(client, "orders", "pending_messages") == 250
        for n in range(50, 99):
            await messages[n].accept()
        await consumer.flush()
        assert await held(client, consumer) == 51
        await messages[99].accept()
        await holds(client, consumer, 100)


async def test_f02_the_prefetch_is_per_consumer(client: headgate.Client, other: headgate.Client) -> None:
    await fill(client, "orders", 100)
    async with client.session("a") as a, other.session("b") as b:
        consumers = [await session.consumer("orders", window=window) for session, window in ((a, 10), (a, 1), (b, 20))]
        for consumer, window in zip(consumers, (10, 1, 20), strict=True):
            await holds(client, consumer, window)
        await drain(consumers[1], 5)
        await holds(client, consumers[1], 1)
        assert [await held(client, consumer) for consumer in consumers] == [10, 1, 20]


async def test_f03_a_prefetch_of_one_processes_one_at_a_time(client: headgate.Client) -> None:
    await fill(client, "orders", 5)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=1)
        await holds(client, consumer, 1)  # pushed: it is there before it is asked for
        for _ in range(4):
            message = await take(consumer)
            assert await consumer.receive(timeout=0.02) is None
            assert await held(client, consumer) == 1
            await message.accept()
            await holds(client, consumer, 1)


async def test_f04_a_prefetch_of_zero_polls_one_at_a_time(client: headgate.Client) -> None:
    await fill(client, "orders", 3)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="pull")
        for number in range(3):
            assert (await held(client, consumer), consumer.held_messages) == (0, 0)
            message = await take(consumer)
            assert await held(client, consumer) == 1
            assert await field(client, "orders", "pending_messages") == 3 - number
            await message.accept(confirm=True)
        assert await consumer.receive(timeout=0.02) is None


async def test_f05_a_consumer_is_slow_when_more_than_twice_its_prefetch_is_pending(client: headgate.Client) -> None:
    """The preset says twice; its consumers are looked at each 30 s, which is too long for a test."""
    period = "[[destination]]\nmatch = '#'\nconsumer.slow.period = '20ms'\n"
    await client.apply_policy(loads(f"preset = 'activemq'\n{period}"))
    await fill(client, "orders", 20)
    address = Address.of(client.namespace, "orders")
    pace = address.shared[12]
    async with client.session("s") as session:
        told: list[headgate.Consumer] = []
        session.on_slow(told.append)
        consumer = await session.consumer("orders", window=10)
        await holds(client, consumer, 10)

        async def judged() -> str:
            await client.store.reap(address)
            record = await client.store.server.command(pace, "HGET", pace, consumer.id)
            return str((record or b"").decode())

        for _ in range(3):  # the end of a period, and of two more: twice its prefetch is not more than that
            before = await judged()
            after = await wait_until(partial(_another, judged, before))
            assert after.endswith("slow=0")
        assert not consumer.is_slow
        await fill(client, "orders", 1)

        async def slow() -> bool:
            return bool(await judged()) and consumer.is_slow

        await wait_until(slow)
        assert told == [consumer]
        await drain(consumer, 21)


async def _another(read: Callable[[], Awaitable[str]], before: str) -> str:
    now = await read()
    return now if now != before else ""


async def test_f06_each_kind_of_consumer_has_its_default(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "activemq"'))
    await client.apply("news", kind="topic")
    async with client.session("s") as session:
        assert (await session.consumer("orders")).window == Window(1000)  # persistent or not
        assert (await session.consumer("news")).window == Window(32766)
        assert (await session.consumer("news", subscription="d", durable=True)).window == Window(100)
        await fill(client, "orders", 1500)
        await fill(client, "news", 200)
    async with client.session("s") as session:
        await holds(client, await session.consumer("orders"), 1000)
        await holds(client, await session.consumer("news", subscription="d", durable=True), 100)
    await client.unsubscribe("news", "d")


async def test_f07_the_prefetch_of_a_connection(client: headgate.Client, redis_url: str) -> None:
    await client.apply("news", kind="topic")
    await fill(client, "orders", 200)
    cases = (
        ("jms.prefetchPolicy.all=50", 50, 50),
        ("jms.prefetchPolicy.queuePrefetch=1", 1, 1000),
        ("jms.prefetchPolicy.all=50&jms.prefetchPolicy.queuePrefetch=1", 1, 50),
    )
    for options, queue, topic in cases:
        async with (
            headgate.connect(with_options(redis_url, options), namespace=client.namespace) as theirs,
            theirs.session("s") as session,
        ):
            await holds(client, await session.consumer("orders"), queue)
            assert (await session.consumer("news")).window == Window(topic)


async def test_f08_the_prefetch_of_an_address(client: headgate.Client, redis_url: str) -> None:
    await fill(client, "TEST.QUEUE", 100)
    connection = with_options(redis_url, "jms.prefetchPolicy.all=50")
    async with (
        headgate.connect(connection, namespace=client.namespace) as theirs,
        theirs.session("s") as session,
    ):
        consumer = await session.consumer("TEST.QUEUE?consumer.prefetchSize=10")
        assert consumer.address.name == "TEST.QUEUE"
        await holds(client, consumer, 10)
        own = await session.consumer("TEST.QUEUE?consumer.prefetchSize=10", window=3)
        await holds(client, own, 3)
    assert await client.destinations() == ["TEST.QUEUE"]


async def test_f09_what_was_prefetched_is_released_when_the_consumer_closes(client: headgate.Client) -> None:
    await fill(client, "orders", 100)
    async with client.session("s", ttl="1h") as session:
        pooled = await session.consumer("orders")
        await holds(client, pooled, 100)
        another = await session.consumer("orders")
        assert await held(client, pooled) == 100  # not closed, it keeps them while nobody waits
        await pooled.close()
        messages = await drain(another, 100)
        assert [message.delivery_count for message in messages] == [0] * 100  # never tried


async def test_f09_an_idle_consumer_of_a_pool_gives_back_what_others_wait_for(client: headgate.Client) -> None:
    """Better than the source, where a pooled consumer keeps them until it is used again."""
    await fill(client, "orders", 100)
    async with client.session("s") as session:
        pooled = await session.consumer("orders")
        in_work = await take(pooled)
        await holds(client, pooled, 100)
        another = await session.consumer("orders")
        assert len(await drain(another, 99)) == 99
        assert await held(client, pooled) == 1
        await in_work.accept()


async def test_f09_over_amqp_who_waits_gets_what_a_consumer_holds_and_has_not_begun(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await fill(client, "orders", 40)
    async with client.session("s") as session:
        pooled = await session.consumer("orders")
        in_work = await take(pooled)
        await holds(client, pooled, 40)
        await rhea.receiver("r", "orders", credit_window=30)
        await rhea.sees("message", 20)  # an equal part of them
        rhea.do("settle", link="r", how="accept", count=20)
        await rhea.sees("message", 30)
        rhea.do("settle", link="r", how="accept", count=20)
        await rhea.sees("message", 39)
        await in_work.accept(confirm=True)


async def test_f10_a_larger_prefetch_costs_fewer_calls_and_more_memory(client: headgate.Client) -> None:
    """Counted, not timed: how much faster that is, the benchmarks say."""
    calls, most = {}, {}
    for window in (1, 10, 100):
        await fill(client, "orders", 400)
        async with client.session("s") as session:
            consumer = await session.consumer("orders", window=window)
            await holds(client, consumer, window)
            before = client.store.server.calls
            most[window] = consumer.held_bytes
            await drain(consumer, 400)
            calls[window] = client.store.server.calls - before
    assert most == {1: 100, 10: 1000, 100: 10_000}
    assert calls[1] >= 400 > 4 * calls[10]
    assert calls[10] > 4 * calls[100]


async def test_f01_over_amqp_half_of_the_prefetch_is_topped_up_when_half_is_acknowledged(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await client.apply("orders", consumer_window=20)
    await fill(client, "orders", 60)
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=1000)
    await rhea.sees("message", 20)
    rhea.do("settle", link="r", how="accept", count=9)
    await settled(client, 9)
    assert len(rhea.messages("r")) == 20  # none until half is acknowledged
    rhea.do("settle", link="r", how="accept")
    await rhea.sees("message", 30)
    assert await delivered(client) == [30]


async def delivered(client: headgate.Client) -> list[int]:
    """How many messages each consumer of `orders` was given, as Redis has it."""
    return sorted(int(record["delivered"]) for record in (await look(client, "orders")).consumers.values())


async def settled(client: headgate.Client, count: int) -> None:
    async def so_many() -> bool:
        records = (await look(client, "orders")).consumers.values()
        return sum(int(record["settled"]) for record in records) == count

    await wait_until(so_many, description=f"{count} are settled")


async def test_f02_over_amqp_the_prefetch_is_per_link(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await fill(client, "orders", 100)
    for name, credit in (("a", 10), ("b", 1), ("c", 20)):
        await rhea.receiver(name, "orders")
        rhea.do("credit", link=name, more=credit)
        await rhea.sees("message", credit, link=name)
    assert await delivered(client) == [1, 10, 20]


async def test_f03_over_amqp_a_credit_of_one_processes_one_at_a_time(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await fill(client, "orders", 5)
    await rhea.receiver("r", "orders", credit_window=0)
    for count in range(1, 6):
        rhea.do("credit", link="r", more=1)
        await rhea.sees("message", count)
        assert await delivered(client) == [count]
        rhea.do("settle", link="r", how="accept")
        await settled(client, count)
        assert len(rhea.messages("r")) == count


async def test_f04_over_amqp_without_credit_nothing_is_sent_ahead(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await fill(client, "orders", 2)
    await rhea.receiver("r", "orders", credit_window=0)
    assert await delivered(client) == [0]
    for count in (1, 2):  # it polls
        rhea.do("credit", link="r", more=1)
        await rhea.sees("message", count)
        assert await delivered(client) == [count]
    rhea.do("credit", link="r", more=1)
    rhea.do("drain", link="r")  # a poll that does not wait
    await rhea.sees("receiver_drained")
    assert len(rhea.messages("r")) == 2


async def test_f08_over_amqp_the_prefetch_of_an_address(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await fill(client, "orders", 30)
    await rhea.receiver("r", "orders?consumer.prefetchSize=10", credit_window=0)
    rhea.do("credit", link="r", more=30)
    await rhea.sees("message", 10)
    assert await delivered(client) == [10]


async def test_f09_over_amqp_what_was_prefetched_is_released_when_the_link_closes(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await fill(client, "orders", 20)
    await rhea.receiver("r", "orders", credit_window=20)
    await rhea.sees("message", 20)
    rhea.do("close", link="r")
    await rhea.receiver("another", "orders", credit_window=20)
    await rhea.sees("message", 20, link="another")
    assert not any("delivery_count" in message for message in rhea.messages("another"))  # never tried

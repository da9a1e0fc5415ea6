"""Apache Artemis: windows and rates of consumers, credit of producers, addresses that block."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from proton.utils import ConnectionClosed, LinkDetached

import headgate
from headgate import CreditTimeout, DestinationFull, MessageTooLarge, Window
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate_coordinator.security.grants import Action
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_users import call, grant, there
from tests.amqp.rhea_client import Rhea
from tests.conformance.story import KiB, MiB, blocked_send, body, fill, held, holds, published, take, with_options
from tests.sdk.observing import GUARD, counts, drain, field
from tests.support.waiting import wait_until

__all__ = ["call"]
pytestmark = pytest.mark.one_server

ADDRESS = 10 * MiB
ARTEMIS = 'preset = "artemis"'


async def test_a01_a_consumer_buffers_one_mebibyte_by_default(client: headgate.Client) -> None:
    await client.apply_policy(loads(ARTEMIS))
    for size, most in ((64 * KiB, 16), (100 * KiB, 10)):  # the second leaves a rest that takes no message
        await fill(client, "orders", 40, size)
        async with client.session("s") as session:
            consumer = await session.consumer("orders")
            assert consumer.window == Window("unlimited", MiB)
            await holds(client, consumer, most)
            for received in range(40):  # it is filled up as it empties, and never above
                message = await take(consumer)
                assert consumer.held_bytes <= MiB
                assert await held(client, consumer) <= min(most, 40 - received)
                await message.accept(confirm=True)


async def test_a01_a_consumer_buffers_as_many_bytes_as_it_was_given(client: headgate.Client) -> None:
    await fill(client, "orders", 20, 100)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=Window("unlimited", 500))
        await holds(client, consumer, 5)
        assert consumer.held_bytes == 500


async def test_a02_unbounded_buffers_all_there_is(client: headgate.Client, redis_url: str) -> None:
    await fill(client, "orders", 3000)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="unlimited")
        await holds(client, consumer, 3000)
    async with (
        headgate.connect(with_options(redis_url, "consumerWindowSize=-1"), namespace=client.namespace) as theirs,
        theirs.session("s") as session,
    ):
        await holds(client, await session.consumer("orders"), 3000)


async def test_a03_without_a_buffer_all_but_the_message_in_work_stay_for_others(client: headgate.Client) -> None:
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="pull")
        await (await take(consumer)).accept(confirm=True)
        assert await held(client, consumer) == 0  # the call that settled would have fetched the next
        in_work = await take(consumer)
        assert await held(client, consumer) == 1
        another = await session.consumer("orders", window="unlimited")
        await holds(client, another, 8)
        assert await held(client, consumer) == 1
        await in_work.accept()


async def test_a04_with_a_buffer_the_fast_one_waits_until_the_slow_one_gives_back_what_it_has_not_begun(
    client: headgate.Client,
) -> None:
    """The document lets it idle for as long as the slow one takes; here what nobody has begun is given back."""
    await fill(client, "orders", 20, 1000)
    async with client.session("s") as session:
        slow = await session.consumer("orders", window=Window("unlimited", MiB))
        in_work = await take(slow)
        fast = await session.consumer("orders", window=Window("unlimited", MiB))
        assert (await held(client, slow), await held(client, fast)) == (20, 0)
        got = await fast.receive(timeout=GUARD)
        assert got is not None
        assert slow.held_messages < 20
        for message in (got, in_work):
            await message.accept()


async def test_a04_without_a_buffer_the_fast_one_gets_all_the_rest(client: headgate.Client) -> None:
    await fill(client, "orders", 20, 1000)
    async with client.session("s") as session:
        slow = await session.consumer("orders", window="pull")
        in_work = await take(slow)
        fast = await session.consumer("orders", window="pull")
        assert len(await drain(fast, 19)) == 19
        assert await held(client, slow) == 1
        await in_work.accept()


async def test_a05_the_window_of_a_connection_is_that_of_its_consumers_unless_they_say(
    client: headgate.Client, redis_url: str
) -> None:
    await fill(client, "orders", 30)
    for options, window in (("consumerWindowSize=0", Window.pull), ("consumer_window=pull", Window.pull),
                            ("consumerWindowSize=500", Window("unlimited", 500))):  # fmt: skip
        async with (
            headgate.connect(with_options(redis_url, options), namespace=client.namespace) as theirs,
            theirs.session("s") as session,
        ):
            consumer = await session.consumer("orders")
            assert consumer.window == window
            if window == Window.pull:
                assert await held(client, consumer) == 0
            else:
                await holds(client, consumer, 5)
            own = await session.consumer("orders", window=3)
            await holds(client, own, 3)


async def test_a06_a_consumer_is_never_faster_than_its_rate(client: headgate.Client) -> None:
    await fill(client, "orders", 11)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", rate=20)
        clock = asyncio.get_running_loop().time
        began = clock()
        await drain(consumer, 11)
        assert clock() - began >= 10 / 20 * 0.99


async def test_a06_the_rate_of_a_connection_and_minus_one_for_none(client: headgate.Client, redis_url: str) -> None:
    await fill(client, "orders", 105)
    clock = asyncio.get_running_loop().time
    for options, count, seconds in (("consumerMaxRate=10", 5, 0.4), ("consumerMaxRate=-1", 100, 0.0)):
        async with (
            headgate.connect(with_options(redis_url, options), namespace=client.namespace) as theirs,
            theirs.session("s") as session,
        ):
            consumer = await session.consumer("orders")
            began = clock()
            await drain(consumer, count)  # within 15 s: so one a second is not what -1 means
            assert clock() - began >= seconds * 0.99


async def test_a07_a_slow_rate_with_a_large_window_fills_the_buffer(client: headgate.Client) -> None:
    await fill(client, "orders", 50)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=Window("unlimited", MiB), rate="1/min")
        first = await take(consumer)
        waiting_for_its_turn = asyncio.ensure_future(consumer.receive(timeout=GUARD))
        await holds(client, consumer, 50)
        assert not waiting_for_its_turn.done()
        waiting_for_its_turn.cancel()
        await first.accept()


async def test_a08_a_message_costs_its_size_and_is_sent_only_with_that_much_credit(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        for size in (100, 250, 7):
            before = producer.in_hand
            await producer.send(body(size))
            assert producer.in_hand == before - size
        send = await blocked_send(client, producer, 644)  # 643 are left
        assert await counts(client, "orders") == (357, producer.in_hand)
        await drain(await session.consumer("orders"), 1)
        await send


async def test_a09_a_producer_asks_for_its_window_and_has_no_more_than_that_on_its_way(
    client: headgate.Client,
) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders", window=10_000)
        assert await field(client, "orders", "leased_bytes") == producer.in_hand == 10_000
        on_their_way = []
        for number in range(1, 11):
            on_their_way.append(await producer.post(body(1000)))
            assert producer.in_hand == 10_000 - 1000 * number
        for _ in range(40):  # four windows more: it asks again as it runs low
            on_their_way.append(await producer.post(body(1000)))
            assert 0 <= producer.in_hand < 10_000
        receipts = await asyncio.gather(*on_their_way)
        assert [receipt.seq for receipt in receipts] == list(range(1, 51))
        await wait_until(lambda: producer.in_hand == 10_000, description="a whole window again")


async def test_a10_as_many_credits_are_given_as_are_asked_for_while_there_is_room(client: headgate.Client) -> None:
    await client.apply("orders", limit=ADDRESS)
    async with client.session("a") as a, client.session("b") as b:
        for session, window in ((a, 64 * KiB), (b, MiB)):
            assert (await session.producer("orders", window=window)).in_hand == window
        assert await field(client, "orders", "leased_bytes") == 64 * KiB + MiB


async def test_a11_no_producer_is_given_more_than_the_address_has_left(client: headgate.Client) -> None:
    await client.apply("orders", limit=ADDRESS)
    await fill(client, "orders", 159, 64 * KiB)
    async with client.session("a") as a, client.session("b") as b:
        one = await a.producer("orders", window=MiB)
        assert one.in_hand == 64 * KiB
        two = await b.producer("orders", window=MiB)
        assert one.in_hand + two.in_hand <= 64 * KiB
        assert await field(client, "orders", "peak_bytes") == ADDRESS


@pytest.mark.parametrize("producers", [1, 8, 64])
async def test_a12_many_producers_do_not_exceed_the_limit_by_their_windows(
    client: headgate.Client, other: headgate.Client, producers: int
) -> None:
    """Stricter than the source, which goes over by the number of producers times their window."""
    await client.apply("myqueue", limit=ADDRESS)
    total = 192  # of 64 KiB: 12 MiB
    async with client.session("in") as into:
        sessions = [(client, other)[n % 2].session(f"p{n}") for n in range(producers)]
        opened = [await session.producer("myqueue", window=MiB) for session in sessions]
        payload = body(64 * KiB)
        sends = [asyncio.ensure_future(opened[n % producers].send(payload, timeout=GUARD)) for n in range(total)]

        async def full() -> bool:
            return await field(client, "myqueue", "pending_bytes") == ADDRESS

        await wait_until(full)
        assert sum(send.done() for send in sends) <= 160
        await drain(await into.consumer("myqueue", window=8), total)
        await asyncio.gather(*sends)
        await asyncio.gather(*(session.close() for session in sessions))
    assert await field(client, "myqueue", "peak_bytes") == ADDRESS


async def test_a13_there_are_never_more_than_ten_mebibytes_in_myqueue(client: headgate.Client) -> None:
    await client.apply("myqueue", limit=ADDRESS)
    async with client.session("out") as out, client.session("in") as into:
        producer = await out.producer("myqueue", window=MiB)
        payload = body(100 * KiB)
        sends = [asyncio.ensure_future(producer.send(payload, timeout=GUARD)) for _ in range(150)]

        async def full() -> bool:
            return await field(client, "myqueue", "pending_bytes") == 102 * 100 * KiB

        await wait_until(full)
        await drain(await into.consumer("myqueue", window=4), 150)
        await asyncio.gather(*sends)
    assert 102 * 100 * KiB <= await field(client, "myqueue", "peak_bytes") <= ADDRESS


async def test_a14_when_the_address_is_full_producers_block_until_messages_are_consumed(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("a") as a, other.session("b") as b, client.session("in") as into:
        one, two = await a.producer("orders"), await b.producer("orders")
        for _ in range(10):
            await one.send(body(100))
        sends = [await blocked_send(client, producer, 100) for producer in (one, two)]
        assert one.is_blocked
        assert two.is_blocked
        assert await field(client, "orders", "pending_bytes") == 1000
        consumer = await into.consumer("orders", window="pull")
        await (await take(consumer)).accept(confirm=True)
        done, _ = await asyncio.wait(sends, timeout=GUARD, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1  # one message's room is for one
        await (await take(consumer)).accept(confirm=True)
        await asyncio.gather(*sends)


async def test_a15_only_the_policy_block_blocks(client: headgate.Client) -> None:
    async with client.session("s") as session:
        for policy in ("block", "fail", "drop"):
            await client.apply(policy, limit=100, when_full=policy)
            await (await session.producer(policy)).send(body(100))
        send = await blocked_send(client, await session.producer("block"), 3)
        with pytest.raises(DestinationFull):
            await (await session.producer("fail")).send(body(3))
        assert (await (await session.producer("drop")).send(body(3))).dropped
        assert not send.done()
        await drain(await session.consumer("block"), 1)
        await send


async def test_a16_all_subscriptions_of_a_topic_share_the_limit_of_its_address(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=1000)
    async with client.session("s") as session:
        first = await session.consumer("news", subscription="first")
        second = await session.consumer("news", subscription="second")
        producer = await session.producer("news")
        for _ in range(10):
            await producer.send(body(100))
        send = await blocked_send(client, producer, 100)
        await drain(first, 10)  # what one has read stays for the other, and counts
        assert await field(client, "news", "pending_bytes") == 1000
        assert not send.done()
        await drain(second, 1)
        await send
        assert await field(client, "news", "peak_bytes") == 1000


async def test_a17_the_example_of_the_document(client: headgate.Client) -> None:
    await client.apply_policy(
        loads("""
        [[destination]]
        match = "jms.queue.exampleQueue"
        limit = { bytes = 100000 }
        when_full = "block"
        """)
    )
    async with client.session("s") as session:
        producer = await session.producer("jms.queue.exampleQueue")
        with pytest.raises(MessageTooLarge):
            await producer.send(body(100_001))
        await producer.send(body(99_000))
        await producer.send(body(1000))
        send = await blocked_send(client, producer, 3)
        await drain(await session.consumer("jms.queue.exampleQueue"), 2)
        await send
        assert await field(client, "jms.queue.exampleQueue", "peak_bytes") == 100_000
        elsewhere = await session.producer("jms.queue.another")
        await elsewhere.send(body(100_001))


async def test_a18_by_default_an_address_blocks_after_ten_mebibytes(client: headgate.Client) -> None:
    await client.apply_policy(loads(ARTEMIS))
    await fill(client, "any.address", 160, 64 * KiB)
    async with client.session("s") as session:
        producer = await session.producer("any.address")
        send = await blocked_send(client, producer, 10)
        assert await field(client, "any.address", "pending_bytes") == ADDRESS
        await drain(await session.consumer("any.address"), 1)
        await send
    await client.apply_policy(loads(f'{ARTEMIS}\n[[destination]]\nmatch = "any.address"\nlimit = "11MiB"'))
    await fill(client, "any.address", 16, 64 * KiB)


async def test_a19_what_a_client_sends_beyond_its_credit_is_refused(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    address = Address.of(client.namespace, "orders")
    asked = Account("rogue", 1, 0, need=600, need_m=10, want=600, want_m=10)
    credit = await client.store.acquire(address, asked, ttl_ms=10_000)
    assert credit.granted == 600
    held = Account("rogue", 1, credit.epoch, granted=10**6, granted_m=10**6)  # it says that it has more

    async def publish(seq: int, *sizes: int) -> str:
        bodies = [b"x" * size for size in sizes]
        return (await client.store.publish(address, held, seq=seq, bodies=bodies, ttl_ms=10_000)).code

    assert await publish(1, 601) == "OVERUSE"
    assert await publish(1, 300, 301) == "OVERUSE"
    assert await publish(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) == "OVERUSE"  # of messages it has ten
    assert await field(client, "orders", "pending_bytes") == 0
    assert await publish(1, 400) == "OK"
    assert await field(client, "orders", "leased_bytes") == 200  # it never said that it used 400
    assert await publish(2, 201) == "OVERUSE"
    assert await field(client, "orders", "peak_bytes") == 600
    await client.remove("orders")


async def test_a21_above_the_hard_limit_those_who_count_messages_are_rejected(client: headgate.Client) -> None:
    cases: list[tuple[str, int | str, list[int]]] = [
        ("soft", "default", [1000, 3]),  # off by default: then the limit is all there is
        ("hard", 1500, [1000, 300, 200, 3]),
    ]
    for name, hard, sizes in cases:
        await client.apply(name, limit=1000, hard_limit=hard)
        address = Address.of(client.namespace, name)
        asked = Account("amqp", 1, 0, need=100, need_m=100, want=100, want_m=100)
        credit = await client.store.acquire(address, asked, ttl_ms=10_000)
        answers = [
            await client.store.publish(
                address, Account("amqp", 1, credit.epoch), seq=seq, bodies=[b"x" * size], ttl_ms=10_000, beyond="hard"
            )
            for seq, size in enumerate(sizes, 1)
        ]
        assert [answer.code for answer in answers] == ["OK"] * (len(sizes) - 1) + ["FULL"]
        assert await field(client, name, "pending_bytes") == sum(sizes[:-1])
        async with client.session("s") as session:  # all others stop at the limit
            with pytest.raises(CreditTimeout):
                await (await session.producer(name)).send(body(3), timeout=0.05)


async def _credit(rhea: Rhea, link: str, *expected: int) -> None:
    async def as_expected() -> bool:
        return (await rhea.look(link))["credit"] in expected

    await wait_until(as_expected, description=f"a credit of {expected}")


async def test_a20_amqp_credit_counts_messages_a_hundred_at_a_time_refreshed_at_thirty(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    await _credit(rhea, "s", 100)
    rhea.do("pump", link="s", total=69, size=100)
    await rhea.sees("accepted", 69)
    await _credit(rhea, "s", 31)
    rhea.do("pump", link="s", total=1, size=100)
    await rhea.sees("accepted", 70)
    await _credit(rhea, "s", 100)
    await client.apply("limited", limit_messages=150)
    await rhea.sender("l", "limited")
    rhea.do("pump", link="l", total=400, size=100)
    await rhea.sees("accepted", 150, link="l")
    await _credit(rhea, "l", 0)  # none while full
    assert await field(client, "limited", "pending_messages") == 150
    assert len(rhea.told("accepted", link="l")) == 150


async def test_a21_over_amqp_messages_above_the_hard_limit_are_rejected(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await client.apply("orders", limit=10_000, hard_limit=15_000)
    for link in ("a", "b", "c"):
        await rhea.sender(link, "orders")
        await _credit(rhea, link, *range(2, 101))  # all have it before the queue is full
    message = {"body": {"$data": "78" * 2984}}  # 3000 bytes as stored
    for link in ("a", "b", "c", "a", "b", "c"):
        rhea.do("send", link=link, messages=[message])
    (refused, *_) = await rhea.sees("rejected")
    await rhea.sees("accepted", 5)
    assert refused["error"]["condition"] == "amqp:resource-limit-exceeded"
    assert await field(client, "orders", "pending_bytes") == 15_000
    assert len(rhea.told("rejected")) == 1


async def test_a22_a_producer_is_never_faster_than_its_rate(client: headgate.Client, redis_url: str) -> None:
    async with (
        headgate.connect(with_options(redis_url, "producerMaxRate=50"), namespace=client.namespace) as theirs,
        theirs.session("s") as session,
    ):
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(b"x") for _ in range(16)))
    stored = await published(client, "orders")
    assert sum(count for _, count in stored) == 16
    assert stored[-1][0] - stored[0][0] >= 15 / 50 * 1e6 * 0.9


async def test_a22_minus_one_is_no_rate(client: headgate.Client, redis_url: str) -> None:
    async with (
        headgate.connect(with_options(redis_url, "producerMaxRate=-1"), namespace=client.namespace) as theirs,
        theirs.session("s") as session,
    ):
        producer = await session.producer("orders")
        before = theirs.store.server.calls
        await asyncio.gather(*(producer.send(b"x") for _ in range(100)))
        assert theirs.store.server.calls - before == 1  # all at once


async def test_a23_a_user_has_so_many_connections_and_makes_so_many_destinations(
    client: headgate.Client, start_node: StartNode, call: Callable[..., Any]
) -> None:
    await grant(client, "ann", Action.PRODUCE, Action.BROWSE)
    policy = '[[user_limit]]\nname = "resources"\nusers = ["ann"]\nconnections = 2\ndestinations = 1'
    await client.apply_policy(loads(policy))
    node = start_node("--plain-without-tls")
    one: Any = await there(call, node, "ann")
    await there(call, node, "ann")
    with pytest.raises(ConnectionClosed, match=r"'ann' has 2 connections over all nodes.*quota 'resources'"):
        await there(call, node, "ann")
    await there(one.create_sender, "orders")
    with pytest.raises(LinkDetached, match=r"resource-limit-exceeded.*the most allowed"):
        await there(one.create_sender, "others")

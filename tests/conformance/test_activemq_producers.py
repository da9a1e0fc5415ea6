"""ActiveMQ Classic, producers: blocked one by one, or told; limits of destinations and of the system."""

import asyncio

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from tests.amqp.rhea_client import Rhea
from tests.conformance.story import MiB, blocked_send, body, fill, take
from tests.sdk.observing import GUARD, drain, field, stored_bodies
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

GiB = 1 << 30


async def pool(client: headgate.Client, name: str) -> headgate.PoolState:
    return next(state for state in await client.pools() if state.name == name)


async def test_c01_each_producer_of_a_shared_connection_is_controlled_by_itself(client: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    async with client.session("one") as one, client.session("two") as two:
        producers = [await session.producer("full") for session in (one, two)]
        for _ in range(10):
            await producers[0].send(body(100))
        blocked = [await blocked_send(client, producer, 400) for producer in producers]
        elsewhere = await one.producer("elsewhere")  # the same session, and so the same connection, goes on
        for _ in range(100):
            await elsewhere.send(body(1000))
        assert len(await drain(await one.consumer("elsewhere"), 100)) == 100
        assert not any(send.done() for send in blocked)
        consumer = await two.consumer("full", window="pull")
        for _ in range(4):
            await (await take(consumer)).accept(confirm=True)
        await blocked[0]  # room for one of them, and the first in line has it
        assert not blocked[1].done()
        for _ in range(4):
            await (await take(consumer)).accept(confirm=True)
        await blocked[1]


async def test_c02_the_limit_of_the_destination_and_those_of_the_system_all_count(client: headgate.Client) -> None:
    await client.set_pool("store", limit=2000)
    await client.set_pool("temp", limit=500)
    await client.apply("own", limit=1000, pools="store")
    await client.apply("persistent", limit="1MB", pools="store")
    await client.apply("temporary", limit="1MB", pools="temp")
    for name, most in (("own", 10), ("persistent", 10), ("temporary", 5)):
        await fill(client, name, most)
    async with client.session("s") as session:
        for name in ("own", "persistent", "temporary"):
            with pytest.raises(CreditTimeout):
                await (await session.producer(name, window=100)).send(body(100), timeout=0.3)
        await drain(await session.consumer("own"), 10)
        for name in ("own", "persistent"):  # room of the destination's own, and room in the store
            await (await session.producer(name, window=100)).send(body(100), timeout=GUARD)
        with pytest.raises(CreditTimeout):
            await (await session.producer("temporary", window=100)).send(body(100), timeout=0.3)


async def test_c03_by_default_a_send_blocks_until_there_is_space(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        send = await blocked_send(client, producer, 100)
        await drain(await session.consumer("orders"), 1)
        assert (await send).seq == 11


async def test_c04_synchronous_sends_are_controlled_each_for_itself(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("a") as a, client.session("b") as b, client.session("in") as into:
        producers = [await a.producer("orders"), await b.producer("orders")]

        async def send(producer: headgate.Producer) -> list[int]:
            return [(await producer.send(body(100), timeout=GUARD)).seq for _ in range(20)]

        sending = [asyncio.ensure_future(send(producer)) for producer in producers]

        async def full() -> bool:
            return await field(client, "orders", "pending_bytes") == 1000

        await wait_until(full)
        assert not any(one.done() for one in sending)
        await drain(await into.consumer("orders", window=2), 40)
        numbers = await asyncio.gather(*sending)
        assert sorted(numbers[0] + numbers[1]) == list(range(1, 41))
        assert all(own == sorted(own) for own in numbers)
    assert await field(client, "orders", "peak_bytes") == 1000


async def test_c05_asynchronous_sends_wait_when_a_window_is_not_acknowledged(client: headgate.Client) -> None:
    await client.apply("orders", limit="1MB")
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        unacknowledged = [await producer.post(body(100)) for _ in range(10)]
        assert producer.in_hand == 0
        eleventh = asyncio.ensure_future(producer.post(body(100)))
        await asyncio.sleep(0)
        assert not eleventh.done()  # nothing was acknowledged yet
        await asyncio.gather(*unacknowledged)
        await (await eleventh)
    await client.apply("orders", limit=1100)  # full now: even those who do not wait for an answer notice
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        with pytest.raises(CreditTimeout):
            await producer.post(body(100), timeout=0.05)


async def test_c06_a_producer_can_learn_of_the_limit_at_once(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, when_full="fail")
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        with pytest.raises(DestinationFull, match="the limit of 1000 bytes is reached"):
            async with asyncio.timeout(GUARD):
                await producer.send(body(100), timeout=600)
    assert await field(client, "orders", "pending_messages") == 10


async def test_c07_flow_control_is_off_for_the_topics_of_a_pattern(client: headgate.Client) -> None:
    policy = """
        [[destination]]
        match = "#"
        kind = "topic"
        limit = 1000

        [[destination]]
        match = "FOO.>"
        kind = "topic"
    """
    await client.apply_policy(loads(f'{policy}enforce = "off"'))
    async with client.session("s") as session:
        for name in ("FOO.BAR", "FOO.BAR.BAZ", "OTHER"):
            await session.consumer(name, window="paused")
            await fill(client, name, 10)
        for name in ("FOO.BAR", "FOO.BAR.BAZ"):
            await fill(client, name, 20)
            assert await field(client, name, "pending_bytes") == 3000
        blocked = await blocked_send(client, await session.producer("OTHER"), 100)
        await client.apply_policy(loads(policy))
        also = await blocked_send(client, await session.producer("FOO.BAR"), 100)
        await client.apply_policy(loads(f'{policy}enforce = "off"'))
        await also
        assert not blocked.done()
        await client.purge("OTHER")
        await blocked


async def test_c08_messages_are_kept_in_memory_and_producers_stop_at_the_limit(
    client: headgate.Client, redis_url: str
) -> None:
    """As with `vmQueueCursor`; file cursors are in test_activemq_producers_spool.py."""
    await client.apply("orders", limit=1000)
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        send = await blocked_send(client, await session.producer("orders"), 100)
        assert len(stored_bodies(redis_url, client.namespace, "orders")) == 10
        await drain(await session.consumer("orders"), 10)
        await send


async def test_c09_each_queue_has_a_limit_of_one_megabyte_of_its_own(client: headgate.Client) -> None:
    rule = '[[destination]]\nmatch = ">"\nkind = "queue"\nlimit = { bytes = "1MiB", scope = "%s" }'
    await client.apply_policy(loads(rule % "each"))
    for name in ("one", "two", "a.b.three"):
        await fill(client, name, 16, MiB // 16)
    async with client.session("s") as session:
        blocked = [
            await blocked_send(client, await session.producer(name, window=100), 100)
            for name in ("one", "two", "a.b.three")
        ]
        await drain(await session.consumer("two"), 1)
        await blocked[1]
        assert not blocked[0].done()
        for name in ("one", "a.b.three"):
            await client.purge(name)
        await asyncio.gather(*blocked)
    assert [await field(client, name, "peak_bytes") for name in ("one", "two", "a.b.three")] == [MiB] * 3


async def test_c10_grants_tell_that_another_window_may_be_sent_and_who_ignores_them_is_stalled(
    client: headgate.Client,
) -> None:
    await client.apply("orders", limit=1000)
    address = Address.of(client.namespace, "orders")
    nice = Account("nice", 1, 0, need=400, need_m=4, want=400, want_m=4)
    credit = await client.store.acquire(address, nice, ttl_ms=10_000)
    granted = [credit.granted]
    for seq, total in ((1, 800), (5, 1200)):
        asks = Account("nice", 1, credit.epoch, need=total, need_m=total // 100, want=total, want_m=total // 100)
        credit = await client.store.publish(address, asks, seq=seq, bodies=[b"x" * 100] * 4, ttl_ms=10_000)
        granted.append(credit.granted)
    assert granted == [400, 800, 800]  # totals: a second window in exchange for the first, and none while it is full
    assert (credit.place, credit.blocked) == (1, 1)
    rude = Account("nice", 1, credit.epoch)
    answer = await client.store.publish(address, rude, seq=9, bodies=[b"x" * 100], ttl_ms=10_000)
    assert answer.code == "OVERUSE"
    assert await field(client, "orders", "pending_bytes") == 800
    await fill(client, "elsewhere", 10)  # its connection is not stalled, nor is anybody else


async def test_c11_an_exception_instead_of_blocking_to_catch_wait_and_retry(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, when_full="fail")
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders", window="pull")
        failures: list[DestinationFull] = []

        async def persist() -> headgate.Receipt:
            while True:
                try:
                    return await producer.send(body(200))
                except DestinationFull as full:
                    failures.append(full)
                await (await take(consumer)).accept(confirm=True)

        receipt = await asyncio.wait_for(persist(), GUARD)
        assert receipt.seq == 11
        assert [(full.destination, full.size) for full in failures] == [("orders", 200)] * 2


async def test_c12_an_exception_only_after_three_seconds_without_space(client: headgate.Client) -> None:
    clock = asyncio.get_running_loop().time
    for name in ("stuck", "moving"):
        await client.apply(name, limit=1000, when_full="fail-after 3000ms")
        await fill(client, name, 10)
    async with client.session("s") as session:
        stuck, moving = await session.producer("stuck"), await session.producer("moving")
        consumer = await session.consumer("moving", window="paused")
        began = clock()
        fails = await blocked_send(client, stuck, 100)
        sent = await blocked_send(client, moving, 100)
        await asyncio.wait((fails, sent), timeout=max(0.0, began + 2 - clock()))
        assert not fails.done()
        assert not sent.done()
        await consumer.configure(window="pull")
        await (await take(consumer)).accept(confirm=True)  # space after two seconds
        await sent
        with pytest.raises(DestinationFull) as failed:
            await fails
        assert failed.value.waited >= 3
        assert clock() - began >= 3


async def test_c13_with_flow_control_off_nothing_but_the_store_stops_producers(client: headgate.Client) -> None:
    """Here nothing binds; with the disk it is in test_activemq_producers_spool.py."""
    await client.apply("orders", limit=1000, enforce="off")
    await fill(client, "orders", 50)
    assert await field(client, "orders", "pending_bytes") == 5000
    await client.apply("orders", enforce="always")
    async with client.session("s") as session:
        with pytest.raises(CreditTimeout):
            await (await session.producer("orders")).send(body(100), timeout=0.05)


async def test_c14_memory_store_and_temp_each_bound_the_messages_of_their_class(client: headgate.Client) -> None:
    await client.apply_policy(
        loads("""
        preset = "activemq"

        [[destination]]
        match = "nonpersistent.>"
        pools = ["memory"]

        [[destination]]
        match = "persistent.>"
        pools = ["store"]

        [[destination]]
        match = "temporary.>"
        pools = ["temp"]
        """)
    )
    limits = {state.name: state.limit for state in await client.pools()}
    assert limits == {"memory": 64 * MiB, "store": 100 * GiB, "temp": 10 * GiB}
    for name in ("nonpersistent.a", "nonpersistent.b"):
        await fill(client, name, 32, MiB)
    async with client.session("s") as session:
        blocked = await blocked_send(client, await session.producer("nonpersistent.b", window=MiB), MiB)
        for name in ("persistent.a", "temporary.a"):
            await (await session.producer(name, window=MiB)).send(body(MiB), timeout=GUARD)
        assert not blocked.done()
        assert (await pool(client, "memory")).used == 64 * MiB
        await drain(await session.consumer("nonpersistent.a"), 1)
        await asyncio.wait_for(blocked, GUARD)
        assert (await pool(client, "memory")).used <= 64 * MiB


async def test_c14_out_of_the_box_all_messages_together_have_the_64_mb_of_memory(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "activemq"'))
    await client.apply("news", kind="topic")
    async with client.session("s") as session:
        subscriber = await session.consumer("news", subscription="d", durable=True)
        for name in ("orders", "news"):
            await fill(client, name, 32, MiB)
        blocked = await blocked_send(client, await session.producer("other"), MiB)
        assert (await pool(client, "memory")).used == 64 * MiB
        await drain(subscriber, 1)
        await asyncio.wait_for(blocked, GUARD)
        assert (await pool(client, "memory")).used <= 64 * MiB
    await client.unsubscribe("news", "d")


async def test_c15_a_percentage_of_a_stated_total_or_of_what_there_is(client: headgate.Client) -> None:
    await client.set_pool("store", percent=70, total=10_000)
    await client.set_pool("vast", percent=50, total="200TB")  # more than there is: nobody compares it with a disk
    await client.apply("orders", pools="store")
    await client.apply("logs", pools="vast")
    assert (await pool(client, "store")).limit == 7000
    assert (await pool(client, "vast")).limit == 100 * 10**12
    await fill(client, "orders", 70)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=100)
        with pytest.raises(CreditTimeout):
            await producer.send(body(100), timeout=0.3)
        await client.set_pool("store", percent=71, total=10_000)
        await producer.send(body(100), timeout=GUARD)
    await fill(client, "logs", 100)


@pytest.mark.parametrize("sessions", [("one", "two"), ("one", "one")], ids=["two sessions", "one session"])
async def test_c01_over_amqp_one_link_of_a_connection_is_blocked_and_another_goes_on(
    rhea_there: Rhea, client: headgate.Client, sessions: tuple[str, str]
) -> None:
    rhea = rhea_there
    await client.apply("full", limit_messages=10)
    for name in set(sessions):
        rhea.do("session", connection="c", name=name)
    for link, session in zip(("full", "free"), sessions, strict=True):
        await rhea.sender(link, link, session=session)
    rhea.do("pump", link="full", total=200, size=100)
    await rhea.sees("accepted", 10, link="full")
    rhea.do("pump", link="free", total=500, size=100)
    await rhea.sees("accepted", 500, link="free")
    assert len(rhea.told("accepted", link="full")) == 10 == await field(client, "full", "pending_messages")
    assert (await rhea.look("full"))["credit"] == 0
    await rhea.receiver("r", "full", credit_window=50, autoaccept=True, autosettle=True)
    await rhea.sees("accepted", 200, link="full")


async def test_c10_over_amqp_who_ignores_that_it_has_no_credit_loses_its_link_and_nothing_is_exceeded(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await client.apply("orders", limit_messages=50)
    await rhea.sender("s", "orders")
    rhea.do("pump", link="s", total=60, size=100)
    await rhea.sees("accepted", 50)
    rhea.do("cheat", link="s")
    rhea.do("pump", link="s", total=240, size=100)
    (event,) = await rhea.sees("sender_error", link="s")
    assert event["error"]["condition"] == "amqp:link:transfer-limit-exceeded"
    assert await field(client, "orders", "pending_messages") == 50
    rhea.do("session", connection="c", name="another")
    await rhea.sender("t", "others", session="another")  # the connection goes on
    rhea.do("pump", link="t", total=10, size=100)
    await rhea.sees("accepted", 10, link="t")

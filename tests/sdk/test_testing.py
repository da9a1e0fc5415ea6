"""headgate.testing: the real client and the real scripts, on a Redis in memory."""

import ast
import asyncio
import sys
import textwrap
from collections.abc import AsyncIterator

import pytest

import headgate
import headgate.testing
from headgate import CoordinatorUnavailable, CreditTimeout, MessageTooLarge
from headgate.testing import FakeRedis
from tests.sdk.observing import GUARD, counts, drain, field, waiting
from tests.support.waiting import wait_until

pytest_plugins = ["pytester"]


@pytest.fixture
def shared() -> FakeRedis:
    return FakeRedis()


@pytest.fixture
async def client(shared: FakeRedis) -> AsyncIterator[headgate.Client]:
    async with headgate.testing.client(redis=shared) as client:
        yield client


@pytest.fixture
async def other(shared: FakeRedis) -> AsyncIterator[headgate.Client]:
    async with headgate.testing.client(redis=shared) as client:
        yield client


async def test_messages_go_from_one_client_to_another(client: headgate.Client, other: headgate.Client) -> None:
    async with client.session("out") as out, other.session("in") as into:
        producer, consumer = await out.producer("orders"), await into.consumer("orders", window=5)
        sending = [asyncio.ensure_future(producer.send(f"{n}", headers={"n": n})) for n in range(40)]
        messages = await drain(consumer, 40)
        await asyncio.gather(*sending)
        assert [(message.body, message.headers) for message in messages] == [(f"{n}", {"n": n}) for n in range(40)]
        await producer.send("again")
        for attempts in range(3):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert message.delivery_count == attempts
            await message.modify()
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.release()
        assert (await drain(consumer, 1))[0].delivery_count == 3
    assert await counts(client, "orders") == (0, 0)


async def test_a_full_queue_blocks_and_goes_on(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("out") as out, other.session("in") as into:
        producer, consumer = await out.producer("orders", window=1000), await into.consumer("orders")
        await producer.send(b"x" * 900)
        with pytest.raises(CreditTimeout, match="place 1"):
            await producer.send(b"y" * 900, timeout=0.1)
        with pytest.raises(MessageTooLarge):
            await producer.send(b"y" * 1000)
        blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        assert (await client.explain("orders")).state == "blocked"
        await drain(consumer, 1)
        await blocked


async def test_every_subscription_of_a_topic_gets_its_copy(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=1000)
    async with client.session("s") as session:
        one = await session.consumer("news", subscription="one", durable=True)
        two = await session.consumer("news")
        producer = await session.producer("news")
        for number in range(5):
            await producer.send(f"{number}")
        assert len(await drain(one, 5)) == len(await drain(two, 5)) == 5
        assert (await counts(client, "news"))[0] == 0
        await one.close()
        await producer.send("kept")
        assert [m.body for m in await drain(await session.consumer("news", subscription="one", durable=True), 1)] == [
            "kept"
        ]


async def test_gates_and_buckets_hold_their_limits(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    await client.apply("mails", rate=1, burst=2)
    async with client.session("one") as one, other.session("two") as two:
        holder, gate = await one.gate("gate", window=100), await two.gate("gate", window=100)
        permit = holder.try_admit(40)
        assert permit is not None
        async with asyncio.timeout(GUARD), gate.admit(60, timeout=GUARD):
            with pytest.raises(CreditTimeout):
                async with gate.admit(1, timeout=0.05):
                    pass
        permit.release()
        bucket = await two.bucket("mails")
        await bucket.take(2)
        with pytest.raises(CreditTimeout):
            await bucket.take(timeout=0.1)
        assert await field(client, "gate", "peak_bytes") <= 100
    assert await counts(client, "gate") == (0, 0)


async def test_a_limiter_works_as_on_a_redis(client: headgate.Client, other: headgate.Client) -> None:
    """All that a limiter does: wait, settle, release, say what is taken, be held off."""
    limits = {"tokens": {"rate": "1/h", "burst": 1000}, "slots": {"at_once": 2}}
    await client.apply("llm", kind="limiter", limits=limits, key_limits={"slots": {"at_once": 1}})
    async with client.session("one") as one, other.session("two") as two:
        llm, elsewhere = await one.limiter("llm"), await two.limiter("llm", in_hand=False)
        async with llm.admit(tokens=600, slots=1, key="t1", timeout=GUARD) as hold:
            refused = await elsewhere.attempt(tokens=600, slots=1, key="t2")
            assert isinstance(refused, headgate.Refused)
            assert refused.limit == "tokens"
            with pytest.raises(CreditTimeout) as late:
                await elsewhere.admit(slots=1, key="t1", timeout=0.1)
            assert (late.value.limit, late.value.rule, late.value.retry_after) == ("slots", "key", None)
            waits = asyncio.ensure_future(elsewhere.admit(slots=1, key="t1", timeout=GUARD).__aenter__())
            hold.settle(tokens=100)
            state = await elsewhere.state(key="t1")
            assert state["slots"].taken == 1
        mine = await waits
        assert (await elsewhere.state()).limits["tokens"].taken == 100
        mine.release()
        with pytest.raises(MessageTooLarge):
            await elsewhere.admit(tokens=1001)
        assert await elsewhere.hold_off(30, reason="429", key="t1") == pytest.approx(30, abs=1)
        refused = await elsewhere.attempt(slots=1, key="t1")
        assert isinstance(refused, headgate.Refused)
        assert refused.limit == "hold_off"
        assert await elsewhere.hold_off(0, key="t1") == 0


async def test_the_credit_of_a_session_that_is_gone_comes_back(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with headgate.testing.client(redis=client._redis) as dead:  # type: ignore[attr-defined]
        gone = await dead.session("dead", ttl=1).gate("gate", window=100)
        assert gone._account._task is not None
        gone._account._task.cancel()  # it is not heard of any more
        async with client.session("s") as session:
            gate = await session.gate("gate", window=100)
            async with asyncio.timeout(GUARD), gate.admit(100, timeout=GUARD):
                pass


async def test_administration_works(client: headgate.Client) -> None:
    await client.apply("b", limit=100)
    await client.apply("a", kind="topic")
    assert await client.destinations() == ["a", "b"]
    async with client.session("s") as session:
        await (await session.producer("b")).send(b"x")
    assert await client.purge("b") == 1
    await client.apply("b", limit="unlimited")
    assert (await client.recount("b", repair=True)).equal
    await client.remove("a")
    await client.remove("b")
    assert await client.destinations() == []


async def test_each_client_has_a_redis_of_its_own_unless_it_is_given_one(client: headgate.Client) -> None:
    await client.apply("orders", limit=5)
    async with headgate.testing.client() as alone:
        assert await alone.destinations() == []
        assert alone.redis_url == "redis://fakeredis:6379/0"


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_what_is_missing_is_said_with_how_to_get_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CoordinatorUnavailable, match=rf"needs {missing}, .* pip install 'headgate\[testing\]'"):
        headgate.testing.client()


def test_the_example_of_the_module_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take a second to load
    text = headgate.testing.__doc__ or ""
    example = textwrap.dedent(text[text.index("::\n") + 3 : text.index("\nEach client")])
    ast.parse(example)
    pytester.makepyfile(
        "async def announce_order(session, number):\n"
        "    producer = await session.producer('orders')\n"
        "    await producer.send('', headers={'order': number})\n\n" + example
    )
    result = pytester.runpytest_subprocess(
        "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"
    )
    result.assert_outcomes(passed=1)


async def test_gates_and_buckets_with_keys_and_hold_offs_work(client: headgate.Client) -> None:
    await client.apply("db", kind="gate", limit=2, key_limits={"bytes": {"at_once": 1}})
    async with client.session("s") as session:
        gate, bucket = await session.gate("db"), await session.bucket("mail")
        async with gate.admit(key="t"):
            assert not await gate.attempt(key="t")
            assert await bucket.try_take(key="t") is True
        assert await gate.hold_off(60) == 60
        assert not await gate.attempt(key="u")
        assert await bucket.hold_off(60) == 60
        assert not await bucket.try_take()

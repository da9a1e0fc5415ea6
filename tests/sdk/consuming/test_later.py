"""Messages for later, and failed ones that wait, over the SDK: none before its time, and all of them in the end."""

import asyncio
import math
import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headgate
import headgate.sync
import headgate.testing
from headgate.core.due_time import MOST_LATER
from headgate.errors import InvalidValue, PolicyError
from headgate.policy import loads
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, look
from tests.sdk.workers import Worker
from tests.support.audited import audit
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def redis_ms(client: headgate.Client) -> int:
    key = Address.of(client.namespace, "jobs").shared[0]
    seconds, microseconds = await client.store.server.command(key, "TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


async def take(consumer: headgate.Consumer) -> headgate.Message:
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    return message


async def test_each_comes_at_its_time_and_others_go_on(client: headgate.Client) -> None:
    """Sent and read by several at once; by Redis' clock none comes early."""
    await client.apply("jobs", kind="queue", limit="1MB")
    async with client.session("a") as session, client.session("b") as other:
        producer = await session.producer("jobs")
        due = {}
        for number in range(40):
            began, delay = await redis_ms(client), 0.02 * (number % 5)
            await producer.send(str(number), delay=delay, timeout=GUARD)
            due[str(number)] = began + delay * 1000
        for number in range(40, 50):
            moment = datetime.now(UTC) + timedelta(milliseconds=(number - 45) * 50)
            await producer.send(str(number), at=moment if number % 2 else moment.timestamp(), timeout=GUARD)
            due[str(number)] = math.floor(moment.timestamp() * 1000)
        assert (await look(client, "jobs")).fields["pending_messages"] == "50"
        consumers = [await session.consumer("jobs", window=3), await other.consumer("jobs")]
        got = []

        async def drain(consumer: headgate.Consumer) -> None:
            async for message in consumer:
                assert await redis_ms(client) >= due[str(message.body)]
                got.append(message.body)
                await message.accept()

        tasks = [asyncio.create_task(drain(consumer)) for consumer in consumers]
        await wait_until(lambda: len(got) == 50, timeout=GUARD)
        for task in tasks:
            task.cancel()
        assert sorted(map(str, got)) == sorted(due)


async def test_a_consumer_that_waits_is_not_late_by_a_poll(client: headgate.Client) -> None:
    """It looks by itself as the time comes: ten in a row would take ten polls, of a second each."""
    await client.apply("jobs", kind="queue")
    async with client.session("a") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            await producer.send("x", delay=0.03, timeout=GUARD)
            await (await take(consumer)).accept()
        assert asyncio.get_running_loop().time() - began < 8


async def test_a_failed_message_waits_and_becomes_a_dead_letter(client: headgate.Client) -> None:
    policy = '[[destination]]\nmatch = "jobs"\nmax_attempts = 3\ndead_letter = "dead"\n'
    await client.apply_policy(loads(policy + 'retry = { delay = "40ms", factor = 3, max = "5min" }'))
    async with client.session("a") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        await producer.send("poison", timeout=GUARD)
        last, waits = 0, []
        for attempt in range(3):
            message = await take(consumer)
            assert message.delivery_count == attempt
            waits.append(await redis_ms(client) - last)
            last = await redis_ms(client)
            await message.modify()
        dead = await take(await session.consumer("dead"))
        assert dead.body == "poison"
        assert waits[1] >= 40
        assert waits[2] >= 120


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 1), *(pytest.param(seed, 3, marks=pytest.mark.soak) for seed in range(2, 7))]
)
async def test_whichever_process_is_killed_none_comes_early_and_none_is_lost(
    seed: int, rounds: int, client: headgate.Client, redis_url: str
) -> None:
    """Two processes at a time send for later, and give back for later, until they are killed; the ledger is proven."""
    await client.apply("jobs", kind="queue", retry_delay="50ms", retry_factor=2)
    dice, said = random.Random(seed), list[list[str]]()
    for number in range(rounds):
        with ExitStack() as stack:
            seeds = (10 * seed + number, 10 * seed + number + 100)
            workers = [stack.enter_context(Worker("delays", redis_url, client.namespace, "jobs", one)) for one in seeds]
            for worker in workers:
                worker.ready()
            for worker in workers:
                said += [worker.next_line() for _ in range(dice.randrange(20, 60))]
            for worker in workers:
                worker.kill9()
                assert worker.process.stdout is not None
                said += map(str.split, worker.process.stdout.read().splitlines())
    stored, done = ({name for what, name in said if what == word} for word in ("stored", "accepts"))
    assert [name for what, name in said if what == "early"] == []
    assert done
    async with client.session("last") as session:
        consumer = await session.consumer("jobs")
        while (await look(client, "jobs")).fields["pending_messages"] != "0":
            message = await consumer.receive(timeout=1)
            if message is not None:
                name = str(message.body)
                assert await redis_ms(client) >= int(name.partition("-")[0])
                done.add(name)
                await message.accept(confirm=True)
    assert stored <= done
    key = Address.of(client.namespace, "jobs").shared[-1]
    ledger = await client.store.server.command(key, "XRANGE", key, "-", "+")
    assert sum(b";later:due" in text or b",later:due" in text for _, (_, text) in ledger) > 9
    assert audit(ledger) == []


async def test_a_consumer_says_how_long(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", retry_delay="1h")
    async with client.session("a") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        await producer.send("x", timeout=GUARD)
        ways: list[dict[str, Any]] = [
            {"after": 0},
            {"after": "30ms"},
            {"failed": False},
            {"failed": False, "after": 0.02},
        ]
        for count, how in enumerate(ways):
            message = await take(consumer)
            assert message.delivery_count == min(count, 2)
            await message.modify(**how, confirm=True)
        message = await take(consumer)
        with pytest.raises(InvalidValue, match="after: -1 is not a duration"):
            await message.modify(after=-1)
        await message.accept()
        with pytest.raises(InvalidValue, match="cannot be settled twice"):
            await message.modify(after=3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"delay": -1}, "delay: -1 is not a duration"),
        ({"delay": math.nan}, "delay: nan is not a duration"),
        ({"delay": "soon"}, "delay: 'soon' is not a duration"),
        ({"delay": MOST_LATER + 1}, "the most is 31622400 s, 366 days"),
        ({"at": math.nan}, "at: nan is not a time; use a datetime, or seconds since 1970"),
        ({"at": math.inf}, "at: inf is not a time"),
        ({"at": -5}, "at: -5 is not a time"),
        ({"at": True}, "at: True is not a time"),
        ({"at": 4e12}, "at: 4000000000000.0 is too far ahead"),
        ({"at": datetime(2027, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is what is wrong with it
        ({"at": 1, "delay": 1}, "give one of them"),
    ],
)
async def test_what_cannot_be_used_is_refused_by_name(
    client: headgate.Client, arguments: dict[str, Any], says: str
) -> None:
    async with client.session("a") as session:
        producer = await session.producer("jobs")
        with pytest.raises(InvalidValue, match=says):
            await producer.send("x", **arguments)
        assert await redis_ms(client)
        assert (await look(client, "jobs")).fields["pending_messages"] == "0"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"retry_factor": 2}, "retry_factor and retry_max without retry_delay"),
        ({"retry_delay": "1s", "retry_factor": 0.5}, "use a number from 1 to 100"),
        ({"retry_delay": "1s", "retry_max": "10ms"}, "retry_max 10 ms is below retry_delay 1000 ms"),
        ({"kind": "gate", "retry_delay": "1s"}, "retry_delay belongs to a queue or a topic, not to a gate"),
    ],
)
async def test_settings_that_mean_nothing_are_refused(
    client: headgate.Client, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises((PolicyError, InvalidValue), match=says):
        await client.apply("jobs", **settings)


async def test_browsing_shows_what_waits(client: headgate.Client) -> None:
    async with client.session("a") as session:
        producer = await session.producer("jobs")
        before = await redis_ms(client)
        await producer.send("later", delay="1h", ttl="2h", timeout=GUARD)
        await producer.send("now", timeout=GUARD)
        later, now = [message async for message in client.browse("jobs")]
        assert later.due_ms is not None
        assert before + 3_600_000 <= later.due_ms <= await redis_ms(client) + 3_600_000
        assert later.expires_ms is not None
        assert (now.due_ms, now.expires_ms) == (None, None)


def test_threads_send_for_later_and_give_back_for_later(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("a") as session:
        client.apply("jobs", kind="queue", retry_delay="1h")
        producer, consumer = session.producer("jobs"), session.consumer("jobs")
        producer.send("a", delay=0.03, timeout=GUARD)
        producer.post("b", at=datetime.now(UTC), timeout=GUARD).result()
        found = [consumer.receive(timeout=GUARD) for _ in range(2)]
        assert sorted(message.body for message in found if message) == ["a", "b"]
        for message in found:
            assert message is not None
            message.modify(after=0.02)
        again = [consumer.receive(timeout=GUARD) for _ in range(2)]
        assert [message.delivery_count for message in again if message] == [1, 1]


async def test_a_test_without_redis_waits_too() -> None:
    async with headgate.testing.client() as client, client.session("a") as session:
        await client.apply("jobs", kind="queue", retry_delay="20ms")
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        await producer.send("x", delay=0.03)
        message = await take(consumer)
        await message.modify()
        assert (await take(consumer)).delivery_count == 1

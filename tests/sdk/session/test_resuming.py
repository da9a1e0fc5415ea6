"""Sessions that go on where an earlier one of the same name and key ended."""

import pytest

import headgate
from headgate.errors import Closed, SessionExpired
from headgate.redis.keys import Address
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def bodies(client: headgate.Client, destination: str = "jobs") -> list[bytes | str]:
    return [message.body async for message in client.browse(destination)]


async def test_who_begins_anew_is_told_how_many_are_stored(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a session that resumes deletes its receipt as it leaves; its messages are numbered from 1."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        for attempt, until in enumerate((3, 5, 5)):
            async with client.session("etl", resume="batch 7") as session:
                producer = await session.producer("jobs")
                assert producer.resumed == (0, 3, 5)[attempt]
                for number in range(producer.resumed, until):
                    await producer.send(str(number))
        async with client.session("etl", resume="batch 8") as session:
            assert (await session.producer("jobs")).resumed == 0
        assert await bodies(client) == ["0", "1", "2", "3", "4"]


async def test_a_process_that_crashes_at_each_start_breaks_nothing(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: an incarnation is twice the one before; after 85 of them Redis cannot read the record any more."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        for _ in range(100):  # none leaves, as after kill -9
            await client.session("etl", resume="batch 7").producer("jobs")
        [record] = (await client.store.sessions(Address.of(cleanup_namespace, "jobs"))).values()
        assert 1 <= int(record["inc"]) < 100 * 2**21
        async with client.session("other") as other:
            await (await other.producer("jobs")).send("0")


async def test_a_later_session_fences_the_earlier_one(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: who is fenced opens its account anew."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        earlier = await client.session("etl", resume="batch 7").producer("jobs")
        await earlier.send("0")
        later = await client.session("etl", resume="batch 7").producer("jobs")
        assert later.resumed == 1
        await later.send("1")
        await earlier.send("1")  # the same message under the same number: it is stored, once
        with pytest.raises((SessionExpired, headgate.CoordinatorUnavailable)):
            await earlier.send("2")
        await wait_until(lambda: earlier.is_closed)
        with pytest.raises(Closed):
            await earlier.send("2")
        await later.send("2")
        assert await bodies(client) == ["0", "1", "2"]

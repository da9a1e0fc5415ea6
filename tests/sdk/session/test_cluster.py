"""End to end on three masters: destinations spread over them, each in one slot."""

import asyncio

import pytest
import redis
from redis.crc import key_slot

import headgate
from headgate import CreditTimeout
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, counts, drain, field
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.every_cluster
NAMES = [f"orders-{number}" for number in range(9)]


@pytest.fixture(params=["redis://", "redis+cluster://"])
def url(request: pytest.FixtureRequest, cluster_url: str) -> str:
    """The cluster named as one, and named as if it were a single server, which is found out."""
    return cluster_url.replace("redis://", request.param)


async def test_messages_go_through_on_every_master(
    url: str, shared_servers: SharedServers, cleanup_namespace: str
) -> None:
    async with headgate.connect(url, namespace=cleanup_namespace) as client, client.session("s") as session:
        for name in NAMES:
            await client.apply(name, limit=2000)
            producer = await session.producer(name, window=1000)
            consumer = await session.consumer(name, window=5)
            sending = [asyncio.ensure_future(producer.send(f"{number}")) for number in range(200)]
            messages = await drain(consumer, 200)
            assert [message.body for message in messages] == [str(number) for number in range(200)]
            await asyncio.gather(*sending)
        with redis.Redis.from_url(url.replace("+cluster", "")) as direct:
            assert direct.cluster("info")["cluster_state"] == "ok"
        slots = {_slot(name, client.namespace) * 3 // 16384 for name in NAMES}
        assert slots == {0, 1, 2}, "a destination on each master"
        assert await client.destinations() == sorted(NAMES)
        for name in NAMES:
            assert (await counts(client, name))[0] == 0


def _slot(name: str, namespace: str) -> int:
    return int(key_slot(Address.of(namespace, name).key.encode()))


async def test_blocked_sends_gates_and_buckets_work_there_too(url: str, cleanup_namespace: str) -> None:
    async with (
        headgate.connect(url, namespace=cleanup_namespace) as client,
        headgate.connect(url, namespace=cleanup_namespace) as other,
        client.session("one") as one,
        other.session("two") as two,
    ):
        await client.apply("full", limit=100)
        await client.apply("gate", kind="gate", limit=100)
        await client.apply("mails", rate=1, burst=2)
        producer = await one.producer("full", window=100)
        await producer.send(b"x" * 90)
        blocked = asyncio.ensure_future(producer.send(b"y" * 90, timeout=GUARD))

        async def waits() -> bool:
            return await field(client, "full", "blocked") == 1

        await wait_until(waits)
        await drain(await two.consumer("full"), 1)
        async with asyncio.timeout(GUARD):
            await blocked
        gates = [await one.gate("gate", window=100), await two.gate("gate", window=100)]
        async with asyncio.timeout(GUARD), gates[1].admit(100, timeout=GUARD):
            assert gates[0].try_admit(1) is None
        bucket = await two.bucket("mails")
        await bucket.take(2)
        with pytest.raises(CreditTimeout):
            await bucket.take(timeout=0.1)

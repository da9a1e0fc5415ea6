"""Whoever is cancelled, wherever it waits, leaves no connection, no task and no server."""

import functools

import pytest

import headgate
from headgate.redis.embedded import EmbeddedRedis
from tests.sdk.cancelling import SOCKETS, cancelled_everywhere, leaves_nothing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.timeout(120)]


@pytest.mark.skipif(not SOCKETS.is_dir(), reason="no list of what this process has open")
async def test_a_client_in_the_middle_of_its_work(redis_url: str, cleanup_namespace: str) -> None:
    """It connects, hears hints, sends, receives, and closes."""

    async def work() -> None:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            await client.apply("orders")
            async with client.session() as session:
                producer, consumer = await session.producer("orders"), await session.consumer("orders")
                await producer.send(b"x")
                message = await consumer.receive(timeout=5)
                if message is not None:
                    await message.accept()

    await leaves_nothing(work)


async def test_a_client_that_starts_its_own_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a cancelled client leaves the thread that starts a server, and nobody stops what it started."""
    started: list[EmbeddedRedis] = []
    start = EmbeddedRedis.start

    def noted() -> EmbeddedRedis:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(EmbeddedRedis, "start", noted)

    async def work() -> None:
        async with headgate.connect():
            pass

    def are_gone(all_of_them: int) -> bool:
        return len(started) == all_of_them and not any(one.directory.exists() for one in started)

    rounds = 0
    async for where in cancelled_everywhere(work):
        rounds += 1
        await wait_until(functools.partial(are_gone, rounds), description=f"no server is left, {where}")

"""What the demo's parent sees of the queue."""

import pytest

import headgate
from headgate.redis.keys import Address
from headgate_coordinator.demo.watch import Watch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_it_counts_once_what_had_no_time_to_go_has_lapsed(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the demo failed: a consumer that had ended was still counted. Mutants: no wait; no reap."""

    async def lost(*_: object, **__: object) -> None:
        raise headgate.CoordinatorUnavailable("no answer")

    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        watch = Watch(client, Address.of(client.namespace, "demo"))

        async def some() -> bool:
            return any((await watch.count(0)).counted)

        async with client.session("s", ttl=1) as session:
            await session.consumer("demo")
            await wait_until(some, description="the consumer is known")
            with monkeypatch.context() as cut:
                cut.setattr(type(client.store.server), "call", lost)
                await session.close()
        assert await some(), "its end was lost"
        assert not any((await watch.count(30)).counted)

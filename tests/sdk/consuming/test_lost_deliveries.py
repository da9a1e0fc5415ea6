"""A failover may lose that a message was delivered: then it comes again, and nobody is told that it is settled."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis.asyncio

import headgate
from headgate.errors import CoordinatorUnavailable
from headgate.redis.store import Store
from tests.sdk.observing import field


@pytest.mark.parametrize("confirm", [True, False])
async def test_what_was_settled_is_not_said_to_be_where_a_failover_lost_its_delivery(
    client: headgate.Client, redis_url: str, cleanup_namespace: str, confirm: bool
) -> None:
    """Breaks when a settlement, waited for or flushed, counts as made of whose delivery Redis knows nothing."""
    await client.apply("q", kind="queue", limit="1MiB")
    async with client.session("s") as session, redis.asyncio.Redis.from_url(redis_url) as direct:
        consumer = await session.consumer("q", window="pull")
        await (await session.producer("q")).send("a")
        # As a replica has it that hears of no delivery since, and takes over.
        kept = {key: await direct.dump(key) async for key in direct.scan_iter(f"hg:{{{cleanup_namespace}/q}}*")}
        message = await consumer.receive(timeout=10)
        assert message is not None
        for key, state in kept.items():
            assert state is not None
            await direct.restore(key, 0, state, replace=True)
        await direct.hset(f"hg:{{{cleanup_namespace}/q}}", "run_id", "0" * 40)

        if not confirm:
            await message.accept()
        with pytest.raises(CoordinatorUnavailable, match="comes again"):
            await (message.accept(confirm=True) if confirm else consumer.flush(timeout=10))
        again = await consumer.receive(timeout=10)
        assert again is not None
        assert again.body == "a"
        await again.accept(confirm=True)
        await consumer.flush(timeout=10)


async def test_what_is_given_back_after_a_failover_is_given_back_once_however_often_the_call_comes(
    client: headgate.Client, redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a copy of that call that comes late takes the message from where it was delivered since."""
    await client.apply("q", kind="queue", limit="1MiB")
    settle, calls = Store.settle, list[Callable[[], Any]]()

    def noted(store: Store, *args: Any, **named: Any) -> Any:
        if named.get("released"):
            calls.append(partial(settle, store, *args, **named))
        return settle(store, *args, **named)

    monkeypatch.setattr(Store, "settle", noted)
    async with client.session("s") as session, redis.asyncio.Redis.from_url(redis_url) as direct:
        consumer = await session.consumer("q", window="pull")
        await (await session.producer("q")).send("a")
        message = await consumer.receive(timeout=10)
        assert message is not None
        # As a replica has it that hears of no settlement, and takes over.
        kept = {key: await direct.dump(key) async for key in direct.scan_iter(f"hg:{{{cleanup_namespace}/q}}*")}
        await message.accept(confirm=True)
        for key, state in kept.items():
            assert state is not None
            await direct.restore(key, 0, state, replace=True)
        await direct.hset(f"hg:{{{cleanup_namespace}/q}}", "run_id", "0" * 40)

        again = await consumer.receive(timeout=10)
        assert again is not None
        (late,) = calls
        await late()
        await again.accept(confirm=True)
        assert await field(client, "q", "pending_messages") == 0

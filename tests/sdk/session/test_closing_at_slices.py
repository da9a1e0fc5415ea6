"""A session that ends takes its consumers along from all slices, also from those that came as it ended."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate.consuming.feed import Feed
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def consumers(client: headgate.Client) -> list[int]:
    """Return how many consumers there are at each slice."""
    snapshots = [
        await client.store.snapshot(slice_, waiters=0, consumers=10)
        for slice_ in client.parts.registry.slices(Address.of(client.namespace, "orders"))
    ]
    return [len(snapshot.consumers) if snapshot else 0 for snapshot in snapshots]


async def none_is_left(client: headgate.Client) -> None:
    async def there_is_none() -> bool:
        return not any(await consumers(client))

    await wait_until(there_is_none, timeout=GUARD)


def attach_late(monkeypatch: pytest.MonkeyPatch, *, but: str = "") -> tuple[asyncio.Event, asyncio.Event]:
    """Have feeds, but for one, attach once the second event is set; the first says that one is about to."""
    attaches, goes, attach = asyncio.Event(), asyncio.Event(), Feed._attach

    async def attaches_late(feed: Feed) -> Any:
        if feed.address.name != but:
            attaches.set()
            await goes.wait()
        return await attach(feed)

    monkeypatch.setattr(Feed, "_attach", attaches_late)
    return attaches, goes


async def test_a_consumer_of_a_slice_that_is_being_opened_goes_with_its_session(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the slice's consumer attaches behind the session's end, and keeps what it is given."""
    await client.apply("orders", kind="queue", slices=1)
    attaches, goes = attach_late(monkeypatch, but="orders")
    session = client.session("ends")
    await session.consumer("orders")
    await client.apply("orders", slices=3)
    await attaches.wait()
    closing = asyncio.create_task(session.close())
    await asyncio.wait([closing], timeout=0.1)
    goes.set()
    await closing
    await none_is_left(client)


async def test_a_consumer_that_is_being_opened_goes_with_its_session(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it goes on, and renews its lease as long as the process lives."""
    await client.apply("orders", kind="queue", slices=2)
    attaches, goes = attach_late(monkeypatch)
    session = client.session("ends")
    opening = asyncio.create_task(session.consumer("orders"))
    await attaches.wait()
    await session.close()
    goes.set()
    with pytest.raises(headgate.Closed):
        await opening
    await none_is_left(client)


async def test_a_session_that_ended_opens_nothing_at_slices_that_come_later(client: headgate.Client) -> None:
    """Mutant: its consumers follow the number of slices on."""
    await client.apply("orders", kind="queue", slices=1)
    async with client.session("ends") as session:
        await session.consumer("orders")
    await client.apply("orders", slices=3)
    async with client.session("goes on") as session:
        await session.consumer("orders")
        assert len(await consumers(client)) == 3

        async def one_each() -> bool:
            return await consumers(client) == [1, 1, 1]

        await wait_until(one_each, timeout=GUARD)
    await none_is_left(client)

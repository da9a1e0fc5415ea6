"""Settings are read again as hints come, of each destination apart."""

import asyncio
from collections import Counter

import pytest

import headgate
from headgate.namespace.stale_settings import AT_ONCE, StaleSettings
from headgate.redis.keys import Address
from tests.support.waiting import wait_until


async def test_one_that_is_away_keeps_no_other_from_being_read(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that was changed is heard of while the master of another destination does not answer."""
    for name in ("away", "orders"):
        await client.apply(name, kind="queue", limit=1000)
    registry = client.parts.registry
    read, tries = registry._read, Counter[str]()

    async def answers(address: Address, *names: str) -> dict[str, str]:
        tries[address.name] += 1
        if address.name == "away":
            raise headgate.CoordinatorUnavailable("nobody is there")
        return await read(address, *names)

    async with client.session() as session:
        producers = [await session.producer(name) for name in ("away", "orders")]
        monkeypatch.setattr(registry, "_read", answers)
        registry._doubt(Address.of(client.namespace, "away"))
        await wait_until(lambda: tries["away"] > 0)
        orders = Address.of(client.namespace, "orders")
        await client.store.apply(orders, {"limit_bytes": "2000"}, mode="change", ttl_ms=10_000)
        await wait_until(lambda: registry.fields(orders).get("limit_bytes") == "2000")
        monkeypatch.undo()
        await asyncio.gather(*(producer.close() for producer in producers))


async def test_what_is_stale_while_it_is_read_is_read_once_more() -> None:
    begun, goes_on, times = asyncio.Event(), asyncio.Event(), 0

    async def read(_: Address) -> None:
        nonlocal times
        times += 1
        begun.set()
        await goes_on.wait()

    stale, orders = StaleSettings(read), Address.of("n", "orders")
    stale.add(orders)
    await begun.wait()
    stale.add(orders)
    stale.add(orders)
    goes_on.set()
    await wait_until(lambda: not stale._tasks)
    assert times == 2
    stale.add(orders)
    await wait_until(lambda: times == 3, description="it is read after that, too")
    await stale.close()


async def test_so_many_are_read_at_a_time_and_none_once_it_is_closed() -> None:
    reading = 0

    async def read(_: Address) -> None:
        nonlocal reading
        reading += 1
        await asyncio.Event().wait()

    stale = StaleSettings(read)
    for number in range(AT_ONCE + 1):
        stale.add(Address.of("n", str(number)))
    await wait_until(lambda: reading == AT_ONCE)
    await asyncio.sleep(0)
    assert reading == AT_ONCE
    await stale.close()
    assert not stale._tasks

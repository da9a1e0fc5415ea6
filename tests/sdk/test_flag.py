"""A flag wakes those who wait for it, as an event does, with less."""

import asyncio

import pytest

from headgate._util.flag import Flag


async def test_it_wakes_all_who_wait() -> None:
    flag = Flag()
    waits = [asyncio.create_task(flag.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not flag.is_set()
    flag.set()
    flag.set()
    await asyncio.gather(*waits)
    await flag.wait()
    flag.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flag.wait(), 0.01)


async def test_it_wakes_whoever_waited_though_it_is_cleared_at_once() -> None:
    flag = Flag()
    wait = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set()
    flag.clear()
    await wait


async def test_nobody_who_gave_up_is_kept() -> None:
    """Mutant: a cancelled wait leaves its future."""
    flag = Flag()
    for _ in range(3):
        wait = asyncio.create_task(flag.wait())
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
    assert not flag._waiters

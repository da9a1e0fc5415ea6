"""A gate between processes that are always busy: each gets its share, and nobody waits for ever."""

import asyncio
import threading
import time
from typing import Any

import pytest

import headgate
import headgate.sync
from tests.sdk.observing import GUARD, field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.mark.parametrize("limit", [{"limit": 8}, {"limit_messages": 8}, {"limit": 80, "limit_messages": 8}])
async def test_who_is_always_busy_gives_others_their_share(
    client: headgate.Client, other: headgate.Client, limit: dict[str, Any]
) -> None:
    """Eight holders each for eight permits; each takes the next as it puts one back, with nothing in between."""
    await client.apply("api", kind="gate", **limit)
    admitted = [0, 0]
    first_is_busy = asyncio.Event()

    async def hold(number: int, gate: headgate.Gate) -> None:
        while True:
            async with gate.admit(timeout=60):
                admitted[number] += 1
                if admitted[0] > 20:
                    first_is_busy.set()
                await asyncio.sleep(0.005)

    async with client.session() as one, other.session() as two:
        first = await one.gate("api")
        holders = [asyncio.create_task(hold(0, first)) for _ in range(8)]
        async with asyncio.timeout(GUARD):
            await first_is_busy.wait()
        second = await two.gate("api")
        holders += [asyncio.create_task(hold(1, second)) for _ in range(8)]
        before = admitted[0]
        await wait_until(lambda: admitted[1] >= 200, timeout=GUARD, description="the second is admitted too")
        assert 0.25 < admitted[1] / (admitted[0] - before) < 4
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)
    if "limit" in limit:
        assert await field(client, "api", "peak_bytes") <= limit["limit"]


async def test_a_session_with_more_callers_than_permits_gives_one_soon_to_another_that_comes(
    client: headgate.Client, other: headgate.Client
) -> None:
    """It waits alone, with all permits. Mutant: it takes it for its own echo, for a second, that holders are asked."""
    await client.apply("api", kind="gate", limit=8)
    admitted, meanwhile = 0, []

    async def hold(gate: headgate.Gate) -> None:
        nonlocal admitted
        while True:
            async with gate.admit(timeout=60):
                admitted += 1
                await asyncio.sleep(0.005)

    async with client.session() as one, other.session() as two:
        busy, rare = await one.gate("api"), await two.gate("api")
        holders = [asyncio.create_task(hold(busy)) for _ in range(16)]
        for _ in range(7):
            begins = admitted
            await wait_until(lambda begins=begins: admitted > begins + 700, timeout=GUARD)  # type: ignore[misc]
            before = admitted
            async with rare.admit(timeout=60):
                meanwhile.append(admitted - before)
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)
    assert sorted(meanwhile)[3] < 150, meanwhile


async def test_those_who_take_small_permits_again_at_once_keep_no_large_one_out(client: headgate.Client) -> None:
    """Three take a quarter of the limit each, which is their share; the fourth needs more than that leaves."""
    await client.apply("api", kind="gate", limit=100)
    admitted = dict.fromkeys(range(4), 0)

    async def hold(number: int, size: int) -> None:
        gate = await client.session().gate("api")
        while True:
            async with gate.admit(size, timeout=60):
                admitted[number] += size
                await asyncio.sleep(0.005)

    holders = [asyncio.create_task(hold(number, size)) for number, size in enumerate((25, 25, 25, 60))]
    # Holders hear five times a second that others wait: those who came between begin as late as that.
    await wait_until(lambda: min(admitted.values()) > 0, timeout=GUARD, description="each is admitted")
    before = dict(admitted)

    def parts() -> list[int]:
        return [admitted[number] - before[number] for number in admitted]

    await wait_until(lambda: min(parts()) >= 2400, timeout=GUARD, description="each is admitted again and again")
    for holder in holders:
        holder.cancel()
    await asyncio.gather(*holders, return_exceptions=True)
    assert max(parts()) < 3 * min(parts()), parts()


def test_threads_that_are_always_busy_give_others_their_share(redis_url: str, cleanup_namespace: str) -> None:
    with (
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client,
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as other,
        client.session() as one,
        other.session() as two,
    ):
        client.apply("api", kind="gate", limit=4)
        stop, admitted = threading.Event(), [0, 0]

        def hold(number: int, gate: headgate.sync.Gate) -> None:
            while not stop.is_set():
                with gate.admit(timeout=60):
                    admitted[number] += 1
                    time.sleep(0.002)

        gates = one.gate("api"), two.gate("api")
        threads = [threading.Thread(target=hold, args=(number, gates[number])) for number in (0, 1) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            until = time.monotonic() + GUARD
            while min(admitted) < 100 and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert min(admitted) >= 100

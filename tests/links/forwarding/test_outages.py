"""The target's site is cut off under load, or loses answers: all gets there once and in order when it is back."""

from collections.abc import Callable

import pytest

import headgate
from headgate.redis.keys import Address
from tests.links.chaos import Load, at_rest, linked, look
from tests.support.extent import share_of
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until

TTL = 1.0


def hold(proxy: FaultProxy) -> None:
    """Pass nothing on; connections stay."""
    proxy.hold()


def break_off(proxy: FaultProxy) -> None:
    """End connections, and refuse new ones."""
    proxy.refuse()
    proxy.reset()


@pytest.mark.parametrize("cut", share_of([hold, break_off], 2))
async def test_a_site_that_is_cut_off_for_longer_than_a_lease_gets_all_once_when_it_is_back(
    ends: tuple[headgate.Client, headgate.Client], cut: Callable[[FaultProxy], None]
) -> None:
    here, there = ends
    async with (
        FaultProxy(there.redis_url) as proxy,
        linked(here, proxy.url) as worker,
        Load(here, there) as load,
    ):
        for _ in range(2):
            before = worker.forwarder.committed
            await wait_until(lambda: worker.forwarder.committed > before + 50)  # noqa: B023 -- used before it changes
            cut(proxy)

            async def given_up() -> bool:
                load.watch()
                await there.store.reap(Address.of(there.namespace, "orders"))
                return (await look(there))["leased_bytes"] == "0"

            async def stuck() -> bool:
                return int((await look(here))["blocked"]) == len(load.sent)

            await wait_until(given_up, description="the target gives the link's credit to others")
            await wait_until(stuck, description="producers of the source wait, for it is full")
            await wait_until(lambda: worker.forwarder.trouble, description="the reason is said")
            proxy.pass_through()
        await load.drained()
        assert load.numbers() == [list(range(count)) for count in load.sent]
        await at_rest(here)
    await at_rest(there)


async def test_a_commit_whose_answer_is_lost_is_stored_once(ends: tuple[headgate.Client, headgate.Client]) -> None:
    """Mutant: `lua/link_commit.lua` without `seq > mark`."""
    here, there = ends
    async with FaultProxy(there.redis_url) as proxy, linked(here, proxy.url) as worker, Load(here, there) as load:
        await wait_until(lambda: worker.forwarder.committed)
        proxy.lose_every(7)

        def enough() -> bool:
            worker.forwarder.woken(source=True, target=True)
            worker._event.set()
            return proxy.lost >= 100

        await wait_until(enough, timeout=120)
        proxy.pass_through()
        await load.drained()
        assert load.numbers() == [list(range(count)) for count in load.sent]
        await at_rest(here)
    await at_rest(there)

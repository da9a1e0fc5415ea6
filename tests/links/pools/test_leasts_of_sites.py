"""A site has its least, by letters between nodes: used or not, cut off or not, raised or lowered, and as it leaves."""

import asyncio

import pytest

import headgate
from headgate_coordinator.operate.status import _over_sites
from headgate_coordinator.pools import job, part_job
from tests.links.pools.pool_sites import POOLED, drawn, in_use, part, shared, whole, working
from tests.links.pools.test_pools_over_sites import BODY, both_say_so, cut_off, empty, pool_of
from tests.links.sites import SiteOf
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def has(site: SiteOf, size: int) -> None:
    """Wait until a part holds so many bytes."""

    async def held() -> bool:
        return await drawn(site) == size

    await wait_until(held, timeout=30, description=f"{site.name} holds {size} bytes")


async def test_a_site_that_is_cut_off_uses_its_least_though_it_had_nothing_to_send(three_sites: list[SiteOf]) -> None:
    """Breaks where the home keeps it and does not lend it before it is asked for, or lends it to others meanwhile."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, least=300, berlin=600), berlin)
    async with cut_off(paris, berlin) as proxy, working(paris, berlin):
        await has(berlin, 300)
        proxy.refuse()
        proxy.reset()
        await paris.send("orders", *[BODY] * 7, timeout=20)
        with pytest.raises(headgate.CreditTimeout, match="berlin"):
            await paris.send("orders", BODY, timeout=1)

        await both_say_so(paris, berlin)
        state = await pool_of(paris)
        (one,) = state.sites
        assert (one.held, one.least, one.kept) == (300, 300, 0)
        (line,) = _over_sites(state)
        assert "300 B of at most 600 B, at least 300 B" in line
        await berlin.send("invoices", *[BODY] * 3, timeout=20)
        with pytest.raises(headgate.CreditTimeout, match="cut off"):
            await berlin.send("invoices", BODY, timeout=1)
        proxy.pass_through()
        await empty(paris, "orders")
        await berlin.send("invoices", *[BODY] * 3, timeout=30)
        assert await in_use(paris, ["orders"]) + await in_use(berlin, ["invoices"]) <= 1000


async def test_a_part_keeps_its_least_and_gives_back_what_is_beyond(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks where a node gives its least back as idle: the home would grant it again, and so on for ever."""
    monkeypatch.setattr(part_job, "IDLE", 0.2)
    monkeypatch.setattr(part_job, "EVERY", 0.1)
    monkeypatch.setattr(job, "EVERY", 0.1)
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, least=300, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 5, timeout=20)
        await empty(berlin, "invoices")
        await has(berlin, 300)

        async def heard() -> bool:
            return (await pool_of(paris)).sites[0].held == 300

        await wait_until(heard, timeout=30, description="paris has heard of that")
        looks = set[float | None]()

        async def looked_often() -> bool:
            one = (await pool_of(paris)).sites[0]
            assert one.held == await drawn(berlin) == 300
            looks.add(one.heard)
            return len(looks) > 20

        await wait_until(looked_often, timeout=30, description="nothing went back meanwhile")


async def test_a_least_that_is_raised_comes_before_who_waits_and_one_that_is_lowered_goes_back(
    three_sites: list[SiteOf],
) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await paris.send("orders", *[BODY] * 9, timeout=20)
        waits = asyncio.create_task(paris.send("letters", *[BODY] * 5, timeout=60))
        await paris.govern(whole(1000, least=300, berlin=600), berlin)
        async with paris.client.session() as session:
            consumer = await session.consumer("orders", window=1)
            for _ in range(3):
                message = await consumer.receive(timeout=20)
                assert message is not None
                await message.accept(confirm=True)
        await has(berlin, 300)
        assert not waits.done()
        assert await in_use(paris, ["orders", "letters"]) <= 700
        await paris.govern(whole(1000, berlin=600), berlin)
        await empty(paris, "orders")
        await waits
        await has(berlin, 0)


async def test_a_site_that_leaves_the_policy_gives_its_least_back(three_sites: list[SiteOf]) -> None:
    """Breaks where it is kept for whoever had it once."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, least=300, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await has(berlin, 300)
        await paris.govern("[[pool]]\nname = 'orders'\nlimit = 1000\n" + POOLED)

        async def came_back() -> bool:
            return "@berlin" not in await shared(paris)

        await wait_until(came_back, timeout=30, description="all of it is paris' again")
        await paris.send("orders", *[BODY] * 10, timeout=20)

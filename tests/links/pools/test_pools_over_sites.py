"""One pool over sites: what each may use is drawn from one of them, to the byte, whatever is lost between them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.namespace import pool_slices
from headgate.namespace.pool_sites import forget_site
from headgate.redis.keys import PoolAddress, owned_keys
from headgate.redis.stores.pools import PoolStore
from tests.links.pools.pool_sites import POOLED, drawn, in_use, part, reached_by_env, shared, whole, working
from tests.links.sites import SiteOf, reach_of
from tests.support.extent import each
from tests.support.faultproxy import FaultProxy
from tests.support.leaks import delete_namespace
from tests.support.ports import own_port
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
BODY = b"x" * 97
"""With what says what it is: 100 bytes."""


async def empty(site: SiteOf, name: str) -> None:
    """Take all that is stored."""
    async with site.client.session() as session:
        consumer = await session.consumer(name)
        while await site.pending(name):
            if (message := await consumer.receive(timeout=1)) is not None:
                await message.accept(confirm=True)


async def pool_of(site: SiteOf) -> headgate.PoolState:
    (pool,) = await site.client.pools()
    return pool


async def test_a_site_draws_what_its_members_need_and_gives_back_what_they_do_not(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 4, timeout=20)
        assert (await shared(paris))["@berlin"] == await drawn(berlin) >= 400
        with pytest.raises(headgate.CreditTimeout, match="a part of pool orders at site paris"):
            await berlin.send("invoices", *[BODY] * 3, timeout=2)
        state = await pool_of(berlin)
        assert state.part_of is not None
        assert (state.part_of.site, state.part_of.most, state.part_of.stranded) == ("paris", 600, False)
        await empty(berlin, "invoices")

        async def came_back() -> bool:
            return (await shared(paris)).get("@berlin") == 0

        await wait_until(came_back, timeout=30, description="what nobody uses at berlin is paris' again")


async def test_who_waits_at_home_gets_what_is_not_used_elsewhere(three_sites: list[SiteOf]) -> None:
    paris, berlin, rome = three_sites
    await paris.govern(whole(1000, berlin=900, rome=900), berlin)
    await berlin.govern(part("paris"), paris)
    await rome.govern(part("paris"), paris)
    async with working(paris, berlin, rome):
        await berlin.send("invoices", *[BODY] * 5, timeout=20)
        await paris.send("orders", *[BODY] * 2, timeout=20)
        await rome.send("letters", *[BODY] * 3, timeout=20)
        total = sum(
            [await in_use(berlin, ["invoices"]), await in_use(paris, ["orders"]), await in_use(rome, ["letters"])]
        )
        assert total == 1000
        late = asyncio.create_task(paris.send("orders", BODY, timeout=30))
        await asyncio.sleep(0)
        await empty(berlin, "invoices")
        await late


@contextlib.asynccontextmanager
async def cut_off(paris: SiteOf, berlin: SiteOf) -> AsyncIterator[FaultProxy]:
    """Have berlin reach paris through a proxy."""
    async with FaultProxy(paris.url) as proxy:
        through = SiteOf("paris", paris.client, proxy.url)
        berlin.reach = type(berlin.reach)(
            hosts=(*berlin.reach.hosts, proxy.url.split("//")[1].split("/")[0].split("?")[0])
        )
        await berlin.govern(part("paris"), through)
        yield proxy


async def both_say_so(paris: SiteOf, berlin: SiteOf) -> None:
    """Wait until each site says that the other is cut off; they last heard of one another at different moments."""

    async def stranded() -> bool:
        part_of = (await pool_of(berlin)).part_of
        return (await pool_of(paris)).sites[0].stranded and part_of is not None and part_of.stranded

    await wait_until(stranded, timeout=30, description="paris and berlin say that they are cut off")


async def test_a_site_that_is_cut_off_goes_on_with_what_it_holds_and_no_more(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    async with cut_off(paris, berlin) as proxy, working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 3, timeout=20)
        proxy.refuse()
        proxy.reset()
        await both_say_so(paris, berlin)
        held = await drawn(berlin)
        assert (await pool_of(paris)).sites[0].held >= held  # a last report may have been lost
        with pytest.raises(headgate.CreditTimeout):
            await paris.send("orders", *[BODY] * 11, timeout=1)
        assert await in_use(paris, ["orders"]) <= 1000 - held
        with pytest.raises(headgate.CreditTimeout, match="cut off"):
            await berlin.send("invoices", *[BODY] * 10, timeout=2)
        assert await in_use(berlin, ["invoices"]) <= held
        await empty(berlin, "invoices")
        await berlin.send("invoices", *[BODY] * 2, timeout=20)
        proxy.pass_through()
        await empty(paris, "orders")
        await berlin.send("invoices", *[BODY] * 3, timeout=30)
        assert await in_use(paris, ["orders"]) + await in_use(berlin, ["invoices"]) <= 1000


async def learns(site: SiteOf) -> None:
    """Have the pool there learn anew, as after a failover."""
    store = PoolStore(site.client.store.server)
    pool = PoolAddress.of(site.client.namespace, "orders")
    epoch = int((await store.fields(pool))["epoch"]) + 1
    await store.server.command(pool.keys[0], "HSET", pool.key, "epoch", epoch, "learning", epoch)


async def test_a_home_that_learns_does_not_wait_for_somebody_to_ask_there(three_sites: list[SiteOf]) -> None:
    """Breaks where only who waits at home has its members asked: others then wait for ever."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    await learns(paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 6, timeout=60)


async def test_a_part_that_learns_asks_its_members_while_the_home_is_away(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks where whoever notes that the home is away is taken for one that asks them, and does not."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    monkeypatch.setenv("HEADGATE_SITE_PARIS", f"redis://127.0.0.1:{own_port()}")
    await berlin.govern(part("paris") + reached_by_env(paris))
    await berlin.client.apply("invoices")
    await learns(berlin)

    async def learnt() -> bool:
        (pool,) = await berlin.client.pools()
        fields = await PoolStore(berlin.client.store.server).fields(PoolAddress.of(berlin.client.namespace, "orders"))
        return fields["learning"] == "0" and pool.part_of is not None and "do not reach" in pool.part_of.trouble

    async with working(berlin):
        await wait_until(learnt, timeout=60, description="the part has asked its members")


async def test_a_lost_site_is_forgotten_by_word_alone(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris):
        async with working(berlin):
            await berlin.send("invoices", *[BODY] * 6, timeout=20)
        with pytest.raises(headgate.CreditTimeout):
            await paris.send("orders", *[BODY] * 5, timeout=2)
        pool = PoolAddress.of(paris.client.namespace, "orders")
        assert await forget_site(paris.client.store.server, pool, "berlin") == 600
        await paris.send("orders", *[BODY] * 6, timeout=20)


async def test_a_pool_that_leaves_the_policy_gives_all_back(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 3, timeout=20)
        await berlin.govern("", paris)

        async def came_back() -> bool:
            return (await shared(paris)).get("@berlin") == 0 and not await berlin.client.pools()

        await wait_until(came_back, timeout=30, description="all of it is paris' again")


async def test_a_site_that_leaves_the_policy_of_the_home_gives_all_back_as_it_is_used_up(
    three_sites: list[SiteOf],
) -> None:
    """Breaks when the home reads reports of those sites alone that its policy names."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 3, timeout=20)
        await paris.govern("[[pool]]\nname = 'orders'\nlimit = 1000\n" + POOLED)
        assert (await shared(paris))["@berlin"] >= 300
        await empty(berlin, "invoices")

        async def came_back() -> bool:
            return "@berlin" not in await shared(paris)

        await wait_until(came_back, timeout=30, description="all of it is paris' again")
        with pytest.raises(headgate.MessageTooLarge, match="pool 'orders' has 0 bytes for it"):
            await berlin.send("invoices", BODY, timeout=1)


async def test_when_a_node_dies_another_goes_on(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin, count=2) as nodes:
        await berlin.send("invoices", BODY, timeout=20)
        for node in nodes[::2]:
            await node._rounds.stop()
            await node._stop(list(node._jobs))
        await berlin.send("invoices", *[BODY] * 5, timeout=30)


@pytest.mark.parametrize("loses", [pytest.param("paris", marks=pytest.mark.whole), "berlin"])
async def test_whichever_side_loses_its_pool_the_limit_holds(three_sites: list[SiteOf], loses: str) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 4, timeout=20)
        await paris.send("orders", *[BODY] * 3, timeout=20)
        site = paris if loses == "paris" else berlin
        pool = PoolAddress.of(site.client.namespace, "orders")
        await site.client.store.server.command(pool.keys[0], "DEL", *pool.keys)
        sends = [
            asyncio.create_task(berlin.send("invoices", *[BODY] * 9, timeout=25)),
            asyncio.create_task(paris.send("orders", *[BODY] * 9, timeout=25)),
        ]

        async def total() -> int:
            return await in_use(berlin, ["invoices"]) + await in_use(paris, ["orders"])

        async def full() -> bool:
            assert await total() <= 1000
            return await total() == 1000

        await wait_until(full, timeout=60, description="all of the limit is in use again, and no more")
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        assert await total() <= 1000


async def test_a_queue_with_slices_may_use_a_part(three_sites: list[SiteOf]) -> None:
    """Breaks when a queue's slots draw from the queue's own limit alone."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris") + "limit = 2000\nslices = 3\n", paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 4, timeout=20)
        slots = [slice_name("invoices", number) for number in range(3)]
        assert await in_use(berlin, slots) == 400
        assert 400 <= await drawn(berlin) <= (await shared(paris))["@berlin"] <= 600
        with pytest.raises(headgate.CreditTimeout, match="a part of pool orders at site paris"):
            await berlin.send("invoices", *[BODY] * 3, timeout=2)
        assert await in_use(berlin, slots) == 600
        late = asyncio.create_task(paris.send("orders", *[BODY] * 10, timeout=30))
        await empty(berlin, "invoices")
        await late
        assert (await shared(paris))["@berlin"] == 0


@each("clustered", ["paris", "berlin"])
async def test_either_side_may_be_a_cluster(
    three_sites: list[SiteOf], cluster_url: str, shared_servers: SharedServers, clustered: str
) -> None:
    paris, berlin, _ = three_sites
    async with headgate.connect(cluster_url, namespace=f"{berlin.client.namespace}-c") as client:
        site = SiteOf(clustered, client, cluster_url, reach=reach_of(cluster_url, paris.url, berlin.url))
        paris, berlin = (site, berlin) if clustered == "paris" else (paris, site)
        paris.reach = berlin.reach = site.reach
        await paris.govern(whole(1000, berlin=600))
        await berlin.govern(part("paris"), paris)
        async with working(paris, berlin):
            await berlin.send("invoices", *[BODY] * 4, timeout=20)
            await paris.send("orders", BODY, timeout=20)
            assert (await shared(paris))["@berlin"] >= 400
            with pytest.raises(headgate.CreditTimeout):
                await berlin.send("letters", *[BODY] * 3, timeout=2)
            assert await in_use(berlin, ["invoices", "letters"]) == 600
        namespace = client.namespace
    for url in shared_servers.cluster().urls:
        delete_namespace(url, namespace)


async def test_a_node_works_on_more_pools_than_one_call_may_be_about(three_sites: list[SiteOf]) -> None:
    """A call renews 256 leases. Mutant: the round names all at once, is refused, and no pool answers its sites."""
    paris, berlin, _ = three_sites
    names = [f"orders-{number}" for number in range(258)]
    pools = "".join(f"[[pool]]\nname = '{name}'\nlimit = 1000\nsites = {{ berlin = 400 }}\n" for name in names)
    await paris.govern(pools, berlin)
    key = owned_keys(paris.client.namespace)[0]

    async def leased() -> bool:
        return int(await paris.client.store.server.command(key, "HLEN", key)) == len(names)

    async with working(paris):
        await wait_until(leased, timeout=60, description="a lease of each pool")


async def test_who_waits_at_home_gets_what_members_elsewhere_hold_and_do_not_use(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a site gives back only what none of its members has."""
    paris, berlin, _ = three_sites
    monkeypatch.setattr(pool_slices, "IDLE", 3600)
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", *[BODY] * 6, timeout=20)
        await empty(berlin, "invoices")
        assert await drawn(berlin) == 600
        await paris.send("orders", *[BODY] * 10, timeout=30)
        assert await drawn(berlin) == 0

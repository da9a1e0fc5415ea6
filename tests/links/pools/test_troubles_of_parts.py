"""A part of a pool at another site says why it gets nothing more: where it is read, and to whoever waits."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as plain

import headgate
from headgate.namespace.pool_sites import REFUSED, TROUBLES
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import Held, Letter, PoolSiteStore
from headgate_coordinator.pools.job import PoolJob
from tests.links.pools.pool_sites import part, reached_by_env, whole, working
from tests.links.sites import SiteOf
from tests.support.ports import own_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SECRET = "s3cret"


async def is_told(site: SiteOf, code: str) -> None:
    """Wait until the pool of a site says so; nothing is wrong where there is no code."""
    why = TROUBLES[code][0] if code else ""

    async def told() -> bool:
        (pool,) = await site.client.pools()
        return pool.part_of is not None and pool.part_of.trouble == why

    await wait_until(told, timeout=60, description=f"the part at {site.name} says {why!r}")


async def test_who_waits_is_told_why_the_other_site_lends_nothing(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Breaks where all that is wrong there looks like a line that is cut."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, rome=600), berlin)
    await berlin.govern(part("paris") + reached_by_env(paris))
    async with working(berlin):
        await is_told(berlin, "unset")
        monkeypatch.setenv("HEADGATE_SITE_PARIS", paris.url.replace("://", f"://nobody:{SECRET}@"))
        await is_told(berlin, "refused")
        monkeypatch.setenv("HEADGATE_SITE_PARIS", f"redis://nobody:{SECRET}@127.0.0.1:{own_port()}")
        await is_told(berlin, "unreachable")
        with pytest.raises(
            headgate.CreditTimeout, match=r"for nodes here do not reach its Redis, .*, or let them reach"
        ):
            await berlin.send("invoices", b"x", timeout=1)
        letters = PoolAddress.of(paris.client.namespace, "orders").site_key("berlin")
        await paris.client.store.server.command(letters, "SET", letters, "no letters")
        monkeypatch.setenv("HEADGATE_SITE_PARIS", paris.url)
        await is_told(berlin, "failing")
        await paris.client.store.server.command(letters, "DEL", letters)
        await is_told(berlin, "silent")
        async with working(paris):
            await paris.govern(whole(1000, berlin=600), berlin)
            await is_told(berlin, "")
            await berlin.send("invoices", b"x", timeout=60)
            await paris.govern(whole(1000, rome=600), berlin)
            await is_told(berlin, "unnamed")
    assert "refused" in caplog.text
    assert SECRET not in caplog.text


@pytest.fixture
def said(three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Return what is said of the pool of berlin, as it goes: by whose job, and the code."""
    said, share = list[tuple[str, str | None]](), PoolSiteStore.share

    async def noted(self: PoolSiteStore, pool: PoolAddress, *letter: Letter, **words: Any) -> Held:
        if pool.namespace == three_sites[1].client.namespace:
            said.append((words["of"], words.get("trouble")))
        return await share(self, pool, *letter, **words)

    monkeypatch.setattr(PoolSiteStore, "share", noted)
    return said


@contextlib.contextmanager
def reader(site: SiteOf, key: bytes) -> Iterator[tuple[str, Callable[[], None]]]:
    """Have a user who may read a key there and change nothing, until that is granted."""
    name = f"reader-{site.client.namespace}"
    with plain.Redis.from_url(site.url) as server:

        def grant(*rules: str | bytes) -> None:
            server.execute_command("ACL", "SETUSER", name, *rules)

        grant("on", f">{SECRET}", b"~" + key, "allchannels", "-@all")
        grant("+hget", "+info", "+ping", "+select", "+subscribe", "+unsubscribe")
        try:
            yield site.url.replace("://", f"://{name}:{SECRET}@"), lambda: grant("+hset", "+publish")
        finally:
            server.execute_command("ACL", "DELUSER", name)


async def test_who_may_read_there_and_not_report_is_told_so_all_the_time(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch, said: list[tuple[str, str | None]]
) -> None:
    """Breaks where each round that reads an answer says that nothing is wrong, until it reports."""
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    with reader(paris, PoolAddress.of(paris.client.namespace, "orders").site_key("berlin")) as (url, grant):
        monkeypatch.setenv("HEADGATE_SITE_PARIS", url)
        await berlin.govern(part("paris") + reached_by_env(paris))
        async with working(berlin):
            await is_told(berlin, "refused")
            said.clear()
            again = ("paris/orders", "refused")
            await wait_until(lambda: said.count(again) >= 2, timeout=60, description="it was refused again")
            assert set(said) == {again, ("paris/orders", None)}
            grant()
            async with working(paris):
                await is_told(berlin, "")


async def test_two_deployments_of_one_name_are_told_that(three_sites: list[SiteOf]) -> None:
    """Breaks where the letters to one are read as the other's."""
    paris, berlin, rome = three_sites
    other = SiteOf(berlin.name, rome.client, rome.url, reach=rome.reach)
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", b"x", timeout=60)
        await is_told(berlin, "")
        await other.govern(part("paris"), paris)
        async with working(other):
            await is_told(berlin, "stale")
            await is_told(other, "twin")

            async def is_seen_at_home() -> bool:
                (pool,) = await paris.client.pools()
                (site,) = pool.sites
                return (site.trouble, site.stranded) == (REFUSED["stale"][0], False)

            await wait_until(is_seen_at_home, timeout=60, description="the home says that two report as berlin")
            with pytest.raises(headgate.CreditTimeout, match="a later pool by this site's name"):
                await berlin.send("invoices", b"x" * 500, timeout=1)


class Idle(PoolJob):
    async def _round(self) -> bool:
        return False

    async def _leave(self) -> None:
        return


async def test_what_comes_and_goes_is_logged_once(three_sites: list[SiteOf], caplog: pytest.LogCaptureFixture) -> None:
    client = three_sites[0].client
    job = Idle(client, PoolAddress.of(client.namespace, "orders"))
    try:
        for trouble in ("first", "", "first", "second", "", "second"):
            job.fail(trouble)
        assert job.trouble == "second"
        assert [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)] == ["first", "second"]
    finally:
        await job.stop()

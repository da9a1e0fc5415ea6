"""Letters between a pool and its sites: what either side reads of them, however many, and whatever they say."""

from collections import Counter

import pytest

from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import Letter, PoolSiteStore
from headgate_coordinator.pools import sites_job
from headgate_coordinator.pools.letters import leave_report
from headgate_coordinator.pools.sites_job import PoolSitesJob
from tests.links.pools.pool_sites import whole
from tests.links.sites import SiteOf
from tests.support.waiting import wait_until

ANSWER = "code=OK epoch=1 pool=2 granted=30 returned=10 most=60 lacks=0 owed=0 at=5"


@pytest.mark.parametrize(
    ("sound", "other"),
    [
        ("granted=30", "granted=-30"),
        ("granted=30", "granted=9007199254740992"),
        ("granted=30", f"granted={'9' * 300}"),
        ("most=60", "most=6e1"),
        ("lacks=0 ", ""),
        ("code=OK", "code=FINE"),
        ("at=5", "least=-1 at=5"),
        ("at=5", f"least={2**53} at=5"),
        ("at=5", "least=1.5 at=5"),
        ("at=5", f"at={'5' * 400}"),
        ("epoch=1", "epoch=\xff"),
    ],
)
def test_a_site_reads_no_answer_that_no_pool_gives(sound: str, other: str) -> None:
    assert Letter.read(ANSWER.encode()).granted == 30, "as an older home gives it"
    assert Letter.read(ANSWER.replace(sound, other).encode("latin-1")) == Letter()


@pytest.mark.one_server
async def test_reports_of_one_site_cost_no_calls_for_others(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when each round is about all sites: many that report every second cost the square of their number."""
    paris, berlin, _ = three_sites
    calls, account = Counter[str](), PoolSiteStore.account

    async def counted(store: PoolSiteStore, pool: PoolAddress, site: str) -> object:
        calls[site] += 1
        return await account(store, pool, site)

    monkeypatch.setattr(PoolSiteStore, "account", counted)
    monkeypatch.setattr(sites_job, "EVERY", 3600)
    await paris.govern(whole(1000, berlin=400, rome=400), berlin)
    pool = PoolAddress.of(paris.client.namespace, "orders")
    job = PoolSitesJob(paris.client, pool, ("berlin", "rome"))
    try:
        await wait_until(lambda: calls["rome"] > 0, timeout=30, description="the first round, about all of them")
        for number in range(5):
            before = calls["berlin"]

            def is_read(before: int = before) -> bool:
                return calls["berlin"] > before

            report = f"epoch=1 pool=0 granted=0 returned=0 need=0 at={number}"
            await leave_report(paris.client.store.server, pool, "berlin", report)
            await wait_until(is_read, timeout=30, description="its report")
        assert calls["rome"] == 1
    finally:
        await job.stop()

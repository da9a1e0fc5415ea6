"""The audit without Spark: real ledgers are proven, and every single fault in them is found."""

from collections.abc import AsyncIterator, Iterable

import pytest

from headgate_pipeline.findings import Finding, Settings
from headgate_pipeline.replay import OPS, Replay
from tests.pipeline.faults import faults
from tests.pipeline.story import Row, of_bucket, of_queue
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[RewritingServer]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    yield server
    await server.close()


def replay(ledger: Iterable[Row], settings: Settings | None = None) -> list[Finding]:
    one = Replay(settings)
    for row in sorted(ledger, key=lambda row: (row[12] or 0, row[0])):
        one.step(row)
    return one.finish()


def missed(ledger: list[Row]) -> list[str]:
    """Return the faults that leave the replay without a finding, from its first entry on."""
    return [
        name
        for name, faulty in faults(ledger)
        if [(found.finding, found.first_seq) for found in replay(faulty)] == [("audited", 1)]
    ]


async def test_a_ledger_of_every_operation_is_proven_and_every_single_fault_in_it_found(
    server: RewritingServer, namespace: str
) -> None:
    """Mutants: `_balance` leaves out messages; `Accounts.totals` compares nothing; `_published` asks for no number."""
    ledger = await of_queue(server, namespace)
    assert {row[2] for row in ledger} == OPS - {"take", "slice"}
    (done,) = replay(ledger)
    assert done == Finding("audited", seq=len(ledger), entries=len(ledger), first_seq=1, excused=1, taken_over=0)
    assert missed(ledger) == []


async def test_so_is_the_ledger_of_a_bucket(server: RewritingServer, namespace: str) -> None:
    ledger = await of_bucket(server, namespace)
    assert [found.finding for found in replay(ledger, Settings(rate=50))] == ["audited"]
    assert missed(ledger) == []
    (found, _) = replay(ledger, Settings(rate=49))
    assert (found.promise, found.what) == ("P8", "tokens were taken faster than the rate")

"""A defect in the work of one link ends no link for good: it says so, and begins anew."""

import logging

import pytest

import headgate
from headgate.policy import loads
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.links.worker import LinkWorker
from tests.links.policy.test_bridges import bridges, send, stored
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_link_whose_work_fails_unexpectedly_says_so_and_begins_anew(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutants: its task ends, and the node keeps its lease: nothing moves, and nobody hears why; each try is logged."""
    perform, fails, failed = LinkWorker.perform, True, 0

    async def failing(worker: LinkWorker, call: object) -> object:
        nonlocal failed
        if fails:
            failed += 1
            raise ZeroDivisionError("a defect")
        return await perform(worker, call)  # type: ignore[arg-type]  # it is a call

    monkeypatch.setattr(LinkWorker, "perform", failing)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(loads(bridges(("orders", "billing"))))
        supervisor = Supervisor(client, "node~00000001", ttl=2.0)
        await supervisor.start()
        try:
            await wait_until(lambda: any("ZeroDivisionError" in str(fact.trouble) for fact in supervisor.facts()))
            seen = failed
            await wait_until(lambda: failed > seen)
            await send(client, "orders", b"one")
            fails = False
            await wait_until(lambda: _has(client, b"one"))
        finally:
            await supervisor.close()
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [bool(record.exc_info) for record in logged] == [True]


async def _has(client: headgate.Client, body: bytes) -> bool:
    return await stored(client, "billing") == [body]

"""The judgement whether a server has all that its predecessor had, of servers that a test stands in for."""

import asyncio
from typing import Any, cast

import pytest

from headgate.redis import handover
from headgate.redis.connection import OtherRunError, ServerConnections
from headgate.redis.handover import Handovers

RUN, BEFORE = b"b.22", b"a.11"


class Promoted:
    """A server that was promoted, and has no replica yet."""

    async def replication(self) -> tuple[bytes, dict[str, str]]:
        return RUN, {"role": "master", "master_replid": "22", "master_replid2": "11"}


async def test_a_former_master_that_hangs_is_waited_for_less_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning, and so the next grant, begins only then. Mutant: a call that timed out does not count."""
    monkeypatch.setattr(handover, "PATIENCE", 3.0)
    patient, hasty = Handovers(cast("Any", None), {}), Handovers(cast("Any", None), {})
    hasty.unanswered()
    other, lane = OtherRunError("RUN", BEFORE, RUN), cast("ServerConnections", Promoted())
    long, short = (asyncio.ensure_future(one.judge(lane, other)) for one in (patient, hasty))
    done, _ = await asyncio.wait((long, short), return_when=asyncio.FIRST_COMPLETED)
    assert done == {short}
    assert await short == b"!"
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    for one in (patient, hasty):
        await one.close()

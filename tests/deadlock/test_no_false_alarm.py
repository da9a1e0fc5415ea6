"""Traffic that goes on is never taken for a deadlock, however long its waits."""

import asyncio
import random

import pytest

import headgate
from headgate.redis.stores import notes
from headgate.session import ties
from headgate_coordinator.deadlock import detector as detecting
from headgate_coordinator.deadlock.detector import Detector
from tests.deadlock.traffic import Traffic

pytestmark = pytest.mark.one_server
FASTER = 10
"""So many times faster than in life do sessions tell of their waits, and the detector looks at them."""


async def watch(client: headgate.Client, other: headgate.Client, seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let traffic run for so many seconds of its life, with a detector beside it."""
    for module, name in ((ties, "TELL_AFTER"), (ties, "LOOK_EVERY"), (notes, "TELL_EVERY")):
        patch.setattr(module, name, getattr(module, name) / FASTER)
    seed = random.randrange(1 << 30)
    traffic, detector = Traffic([client, other], seed), Detector(client, "n1", ttl=5.0)
    await traffic.start()
    looks = suspected = 0
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds / FASTER
    try:
        while loop.time() < end or not suspected:
            found = await detector.round()
            assert not found, f"seed {seed}, after {looks} looks: {[str(one) for one in found]}"
            looks += 1
            suspected += bool(detector._passes._before)
            await asyncio.sleep(detecting.EVERY / FASTER)
    finally:
        await traffic.close()
    print(f"seed {seed}: {looks} looks, waits in {suspected} of them, {traffic.settled} messages settled")
    assert traffic.settled > 10


async def test_a_minute_of_live_traffic(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: every consumer of a session that waits to send is tied (`Ties._find`)."""
    await watch(client, other, 60, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_an_hour_of_live_traffic(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watch(client, other, 3600, monkeypatch)

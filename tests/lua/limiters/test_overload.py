"""Bands at three times the capacity, in virtual time: the first waits no longer than alone, the last gets its share."""

import heapq
import random
from collections import Counter

import pytest

from tests.lua.limiters.trial import Limiter

pytestmark = pytest.mark.one_server
SLOTS = 10
TOOK_MS = 500
"""A call takes so long: 20 a second."""
EVERY_MS = {0: 400, 3: 40, 7: 40}
"""Between two calls of a band, on average: three times what is served of the others, and a little of the first."""
SECONDS = 8
PATIENCE_MS = 2000
AGING = 0.2


async def overload(limiter: Limiter) -> tuple[list[int], Counter[int]]:
    """Return for how many ms each call of the first band waited, and how many of each band were let in."""
    chance = random.Random(1)
    events: list[tuple[int, int, str, int]] = []
    begin, number, seen = limiter.now, 0, 0
    came: dict[str, tuple[int, int]] = {}
    waits, admitted = list[int](), Counter[int]()

    def plan(at: int, what: str, about: int) -> None:
        heapq.heappush(events, (at, len(events), what, about))

    for band in EVERY_MS:
        plan(begin + band, "come", band)
    while events[0][0] < begin + SECONDS * 1000:
        at, _, what, about = heapq.heappop(events)
        await limiter.wait(max(0, at - limiter.now))
        if what == "come":
            number += 1
            hold = f"s{about}.{number}"
            came[hold] = limiter.now, about
            plan(at + 1 + round(chance.expovariate(1 / EVERY_MS[about])), "come", about)
            await limiter.admit(hold, f"slots=1~{about}", wait_ms=PATIENCE_MS)
        else:
            await limiter.release(next(hold for hold in came if hold.endswith(f".{about}")))
        events_so_far = await limiter.events()
        for ms, text in events_so_far[seen:]:
            if text.startswith("held:"):
                hold = text.split(":")[1]
                since, band = came[hold]
                admitted[band] += 1
                if band == 0:
                    waits.append(ms - since)
                plan(limiter.now + TOOK_MS, "release", int(hold.rpartition(".")[2]))
        seen = len(events_so_far)
    return waits, admitted


async def test_the_first_band_does_not_wait_and_the_last_has_its_share(limiter: Limiter) -> None:
    """Mutant: a band that was passed far enough is before all others, also at what is kept from it."""
    await limiter.create("slots at_once 10", reserve="0=600", aging=str(AGING))
    waits, admitted = await overload(limiter)
    assert len(waits) > 12
    assert sorted(waits)[int(len(waits) * 0.99)] == 0, waits
    owed = 1 / (7 * AGING * SLOTS + 8)
    assert admitted[7] / admitted.total() >= owed, admitted
    assert admitted[3] > 3 * admitted[7]

"""Queues that deliver by priority: what goes first, how often it can be overtaken, and that nothing is lost."""

import random
import re
from collections import Counter
from typing import Any

import pytest

from headgate.core.limits.priority import band_key
from headgate.redis.keys import PARTS
from tests.lua.destinations.test_fair_queues import asked, drained, in_turn, is_whole, key_of, send, switch
from tests.lua.place import Place
from tests.lua.route import Route
from tests.model.turns import BANDS, Turns

pytestmark = pytest.mark.one_server

FAIR, ROTA, LEDGER = (1 + PARTS.index(part) for part in ("fair", "rota", "ledger"))


async def make(place: Place, **settings: Any) -> None:
    await place.create(limit=100_000, fair_by="priority", **settings)


def most_overtaken(keys: str, waits: str) -> int:
    """Return how many others went before one of a band that waits all the time, at most."""
    return max(len(run) for band in waits for run in re.split(re.escape(band), keys))


async def test_the_highest_goes_first_and_within_a_band_the_first(place: Place) -> None:
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"*70*037")
    ids = await cid.fetch(7)
    keys = await key_of(place)
    assert "".join(keys[id_] for id_ in ids) == "003**77"
    seqs = [int(id_.split(b"-")[0]) for id_ in ids]
    assert seqs == [3, 5, 6, 1, 4, 2, 7], "stored in the order in which they came"
    await is_whole(place)


async def test_a_high_one_is_next_behind_a_backlog_of_ten_thousand(place: Place) -> None:
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    for _ in range(40):
        await send(ann, *"7" * 250)
    assert await in_turn(place, cid, 5) == "77777"
    await send(ann, "0", "*")
    assert await in_turn(place, cid, 1, 2) == "0*7"


@pytest.mark.parametrize("rooms", [[60], [1] * 60, [7] * 8 + [4]])
async def test_one_that_was_overtaken_often_enough_goes_before(place: Place, rooms: list[int]) -> None:
    """Mutant: nothing ages."""
    await make(place, max_overtaken=16)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"0" * 60, *"77")
    assert await in_turn(place, cid, *rooms) == "0" * 9 + "7" + "0" * 9 + "7" + "0" * 40


async def test_with_all_bands_saturated_none_is_overtaken_more_often_than_the_bound(place: Place) -> None:
    await make(place, max_overtaken=16)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    chance = random.Random(7)
    for band in BANDS:
        await send(ann, *band * 60)
    got = await in_turn(place, cid, *[chance.choice((1, 2, 5, 30)) for _ in range(40)])
    assert most_overtaken(got[:190], BANDS) <= 16
    assert got[:190].count("0") > got[:190].count("1"), "the highest gets what the others need not have"


async def test_the_low_band_gets_its_share_beside_a_saturated_one(place: Place) -> None:
    """Where the settings do not say, one of 94: overtaken 93 times by one band, and seven more may come between."""
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    for _ in range(3):
        await send(ann, *"0" * 240, *"7" * 4)
    got = await in_turn(place, cid, 250, 250)
    assert (got.count("7"), got.index("7"), most_overtaken(got[:470], "7")) == (5, 93, 93)


@pytest.mark.parametrize("failed", [False, True])
async def test_what_comes_back_goes_before_the_rest_of_its_band(place: Place, failed: bool) -> None:
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"777")
    first, *_ = await cid.fetch(1)
    await send(ann, "0")
    await cid.call(**{"failed" if failed else "released": [first]})
    await is_whole(place)
    cid.fetches += 1
    answer = await cid.call(fetch=cid.fetches, max_messages=3, max_bytes=100)
    assert [id_ for id_, _, _ in answer.messages][1] == first
    assert [attempts for _, _, attempts in answer.messages] == [0, int(failed), 0]
    await is_whole(place)


async def test_a_band_that_was_empty_begins_anew(place: Place) -> None:
    """Else one that comes late would go before all that are higher."""
    await make(place, max_overtaken=16)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, "7", expires_ms=1000)
    await send(ann, *"0" * 30)
    assert await in_turn(place, cid, 8) == "0" * 8
    await place.wait(2000)
    assert await in_turn(place, cid, 1) == "0"
    await send(ann, "7")
    assert await in_turn(place, cid, 10) == "0" * 9 + "7"
    await is_whole(place)


async def test_a_band_that_one_call_empties_and_fills_again_is_not_forgotten(place: Place) -> None:
    """What was there before is put in turn a piece a call; that may be all of its band, and more comes."""
    await place.create(limit=2_000_000)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, "*", size=400_000)
    await cid.fetch(1)
    await send(ann, *["*"] * 20)
    await switch(place, "priority")
    answer = await cid.call(fetch=2, max_messages=50, max_bytes=4_000_000)
    assert len(answer.messages) > 10, "ten are a piece, for the largest is large"
    cid.fetches = 2
    await is_whole(place)
    assert len(answer.messages) + len(await drained(cid)) == 20


async def test_other_keys_go_to_the_usual_band(place: Place) -> None:
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, "8", "x", "7", "4")
    assert set(await asked(place, ROTA, "ZRANGE", 0, -1)) == {b"*", b"4", b"7"}
    assert await in_turn(place, cid, 4) == "48x7"
    await is_whole(place)


async def test_from_keys_to_priorities_and_back_nothing_is_left_behind(place: Place) -> None:
    """Mutant: what other keys have waits for ever."""
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *["x"] * 150, *["y"] * 90, *"z" * 3)
    await send(ann, *["y"] * 200)
    held = await cid.fetch(2)
    await switch(place, "priority")
    await send(ann, *"70")
    assert await in_turn(place, cid, 1) == "0"
    await cid.call(released=held)
    await is_whole(place)
    calls = 0
    while set(await asked(place, ROTA, "ZRANGE", 0, -1)) - {b"*", b"7"}:
        assert await in_turn(place, cid, 1) != "7"
        await is_whole(place)
        calls += 1
        assert calls < 9, "256 a call"
    await switch(place, "header:tenant")
    await send(ann, *"70x")
    await is_whole(place)
    await switch(place, "")
    await send(ann, "w")
    got = await drained(cid)
    await cid.accept(*[id_ for id_ in cid.held if id_ not in got])
    assert await key_of(place) == {}
    assert await place.usage() == ann.held


async def test_a_purge_and_a_repair_keep_to_it(place: Place) -> None:
    await make(place)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"7*07")
    await cid.call(released=await cid.fetch(1))
    await asked(place, FAIR, "ZREM", *(await asked(place, FAIR, "ZRANGE", 0, 1)))
    assert not (await place.recount()).equal
    await place.store.recount(place.address, repair=True)
    await is_whole(place)
    assert await in_turn(place, cid, 2) == "0*"
    await place.store.remove(place.address, everything=False)
    await is_whole(place)
    await send(ann, *"70")
    assert await in_turn(place, cid, 9) == "07"


async def test_a_link_takes_them_in_order_and_its_target_delivers_by_priority(place: Place, namespace: str) -> None:
    route = await Route.make(place.server, namespace)
    source = route.source
    try:
        await switch(source, "priority")
        ann = source.producer("ann")
        await send(ann, *"7*0", size=2)
        assert [entry.seq for entry in (await route.read()).entries] == [1, 2, 3]
        await is_whole(source)
        await route.check()
    finally:
        await route.close()


async def test_the_ledger_has_what_came_what_went_and_what_waited(place: Place) -> None:
    await make(place, max_overtaken=16, message_ttl_ms=60_000)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"7*007")
    await cid.fetch(3)
    await cid.call(released=cid.held[-1:])
    await send(ann, "x", expires_ms=5)
    await place.wait(100)
    await cid.call()
    entries = await asked(place, LEDGER, "XRANGE", "-", "+")
    events = [event for _, (_, text) in entries for event in text.decode().split(",")[7].split(";")]
    by_band = [event for event in events if event.startswith(("filed", "unfiled", "banded"))]
    assert by_band == [
        "filed:0=2+5=1+7=2", "banded:16:0=2+5=1+7=2:0=2+5=1", "filed:5=1", "filed:5=1", "unfiled:1",
    ]  # fmt: skip


async def test_without_the_rule_the_ledger_has_nothing_of_it(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"07", expires_ms=5)
    await cid.fetch(1)
    await place.wait(100)
    await cid.call()
    entries = await asked(place, LEDGER, "XRANGE", "-", "+")
    assert not any(b"banded" in text or b"filed" in text for _, (_, text) in entries)


def test_priorities_have_their_bands() -> None:
    bands = [band_key(priority) for priority in range(10)]
    assert bands == ["7", "7", "6", "6", "*", "4", "3", "2", "1", "0"]
    assert Counter(map(BANDS.index, bands)) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2}
    assert [band_key(value) for value in (None, True, "9", -1, 300)] == ["*", "*", "*", "7", "0"]


async def test_it_is_the_order_of_the_plain_model(place: Place) -> None:
    """Of random bands, sent and fetched in pieces of random length, one message at a time in the model."""
    await make(place, max_overtaken=16)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    model, chance, seq = Turns({}, 16), random.Random(20), 0
    for _ in range(60):
        keys = chance.choices(BANDS, weights=chance.choices((0, 1, 9), k=8), k=chance.randrange(40)) if seq else ["0"]
        await send(ann, *keys) if keys else None
        for key in keys:
            seq += 1
            model.file(key, seq)
        room = chance.randrange(1, 30)
        assert [int(id_.split(b"-")[0]) for id_ in await cid.fetch(room)] == model.take(room)
    await is_whole(place)

"""Queues that deliver by priority, audited: a real ledger is proven, and a broken order or bound is seen."""

import random
from collections.abc import AsyncIterator

import pytest

from headgate.redis.keys import Address
from headgate_pipeline.audit.replay import Replay
from tests.lua.destinations.test_fair_queues import send
from tests.lua.place import Place
from tests.pipeline.story import Row, rows
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server
BANDS = "01234*67"


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[RewritingServer]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    yield server
    await server.close()


async def story(server: RewritingServer, namespace: str) -> list[Row]:
    """Return the ledger of a queue in which much came, went, came back and expired, seed by seed the same."""
    place = Place(server, Address.of(namespace, "orders"))
    await place.create(limit=100_000, fair_by="priority", max_overtaken="16")
    ann, cid, chance = place.producer("ann"), await place.consumer("cid"), random.Random(3)
    for round_ in range(30):
        keys = chance.choices(BANDS, weights=(9, 1, 1, 1, 1, 5, 1, 5), k=1 + chance.randrange(20))
        await send(ann, *keys, expires_ms=chance.choice((0, 0, 60)))
        await place.wait(20)
        ids = await cid.fetch(chance.randrange(1, 30))
        half = len(ids) // 2
        await cid.call(accepted=ids[:half], released=ids[half:])
        if round_ == 15:
            await place.change(max_overtaken="20")
    found = await rows(place)
    await server.forget(place.address, "ann", "cid")
    return found


def findings(ledger: list[Row]) -> list[str]:
    replay = Replay()
    for row in ledger:
        replay.step(row)
    return [found.what for found in replay.finish() if found.finding == "violated" and found.promise == "P7"]


async def test_a_real_ledger_is_proven_and_what_is_left_out_of_it_is_seen(
    server: RewritingServer, namespace: str
) -> None:
    ledger = await story(server, namespace)
    assert sum("banded" in row[7] for row in ledger) > 20
    assert sum("unfiled" in row[7] for row in ledger) > 2
    assert findings(ledger) == []
    at = next(n for n, row in enumerate(ledger) if row[2] == "publish" and row[7].startswith("filed") and n > 9)
    assert findings(without_filed(ledger, at))
    assert findings([(*row[:7], row[7].replace("banded:16", "banded:8"), *row[8:]) for row in ledger]), "a lower bound"


def without_filed(ledger: list[Row], at: int) -> list[Row]:
    events = ";".join(event for event in ledger[at][7].split(";") if not event.startswith("filed"))
    return [*ledger[:at], (*ledger[at][:7], events, *ledger[at][8:]), *ledger[at + 1 :]]


def told(*events: str) -> list[str]:
    """Return what is violated by events of fetches, one an entry."""
    head = (1, 10, "apply", "-", 0, 0, 0, "limits:inf:inf;binds:yes;above:refuse:-", 0, 0, 0, 0, 10, 1, None)
    entries = ((n, 10, "settle", "c.1", 0, 0, 0, event, 0, 0, 0, 0, 10, 1, None) for n, event in enumerate(events, 2))
    return findings([head, *entries])


def test_what_keeps_to_it() -> None:
    assert told("banded:16:0=20+7=2:0=9+7=1+0=9+7=1", "banded:16:0=2:0=2") == []
    assert told("banded:16:0=20+7=2:0=9", "filed:0=5", "banded:16:0=16+7=2:7=1+0=9") == []
    assert told("banded:100:7=5:7=2", "unfiled:3", "filed:0=1+7=1", "banded:100:0=1+7=1:0=1+7=1") == []


def test_one_that_waits_is_not_overtaken_more_often() -> None:
    assert told("banded:16:0=20+7=2:0=17") == ["what was next of band 7 was overtaken more often than the bound"]
    two = ("banded:16:0=20+7=2:0=9", "banded:16:0=11+7=2:0=8")
    assert told(*two) == ["what was next of band 7 was overtaken more often than the bound"], "over two fetches"


def test_none_goes_before_a_higher_one_without_being_due() -> None:
    assert told("banded:16:0=20+7=2:7=2") == ["2 of band 7 went before higher ones"]
    early = ("banded:16:0=20+7=2:0=9+7=1", "banded:16:0=11+7=1:0=3+7=1")
    assert told(*early) == ["1 of band 7 went before higher ones"]


def test_what_waits_is_what_came_and_did_not_go() -> None:
    text = "what waits by priority is not what came and did not go"
    assert told("banded:16:0=2:0=1", "banded:16:0=2:0=2") == [text], "delivered, and waits all the same"
    assert told("banded:16:0=2+7=1:0=1", "banded:16:0=1:0=1") == [text], "one that waits is left out"
    assert told("banded:16:0=2:0=1", "filed:7=1", "unfiled:1", "banded:16:0=1+7=2:0=1") == [text]
    assert told("banded:16:0=2:0=3") == ["more of band 0 went than waited"]


def test_a_setting_or_a_repair_begins_it_anew() -> None:
    for op in ("apply", "recount"):
        entries = [
            (n, 10, name, "c.1", 0, 0, 0, detail, 0, 0, 0, 0, 10, 1, None)
            for n, (name, detail) in enumerate(
                (("apply", "limits:inf:inf"), ("settle", "banded:16:0=2:0=1"), (op, "filed:5=9"),
                 ("settle", "banded:16:5=9:5=9")), 1,
            )
        ]  # fmt: skip
        assert findings(entries) == []


@pytest.mark.parametrize("event", ["banded:16:0=1", "banded:x:0=1:0=1", "filed:8=1", "filed:0=0", "filed:", "unfiled:"])
def test_what_cannot_be_read_is_unproven(event: str) -> None:
    replay = Replay()
    replay.step((1, 10, "settle", "c.1", 0, 0, 0, event, 0, 0, 0, 0, 10, 1, None))
    assert any("cannot be read" in found.what for found in replay.finish())

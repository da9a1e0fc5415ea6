"""The audit of rates that all slices of a destination share, from ledgers of real scripts and of broken ones."""

from collections.abc import AsyncIterator

import pytest
from pyspark.sql import SparkSession

from headgate_pipeline.audit.findings import Settings
from headgate_pipeline.audit.shared_rates import beyond, over_slices
from tests.lua.place import Place
from tests.lua.promises.test_p8_shared_rates import RateWorld, bring, parts_of
from tests.pipeline.rows import frame
from tests.pipeline.story import entry as as_entry
from tests.pipeline.story import rows
from tests.support.rewriting import RewritingServer, virtual_clock

SETTINGS = Settings(send_rate=10.0, send_burst=4.0)


def sent(slice_: str, ms: int, messages: int, op: str = "publish") -> tuple[object, ...]:
    return slice_, ms, ms, op, "ann", 10 * messages, messages


def test_what_all_slices_send_together_is_judged() -> None:
    """Mutants: each slice has a burst of its own; what came before another rate is judged by that."""
    both = [sent("orders", 0, 4), sent("orders#1", 10, 2)]
    assert list(beyond(both, SETTINGS, 0)) == ["orders#1"]
    assert beyond(both, SETTINGS, 200) == {}, "clocks may be wrong by that"
    assert beyond([*both, sent("orders#1", 20, 0, "apply"), sent("orders", 30, 4)], SETTINGS, 0) == {}
    assert beyond([sent("orders", 0, 4), sent("orders#1", 200, 2)], SETTINGS, 0) == {}


@pytest.fixture(params=["sound", "broken"])
async def world(request: pytest.FixtureRequest, redis_url: str, namespace: str) -> AsyncIterator[RateWorld]:
    """A queue of three slices; where scripts are broken the first one lends what others have in hand."""
    lends = ("left = left - has\n", "") if request.param == "broken" else ("", "")
    server = RewritingServer(redis_url, virtual_clock, lambda source: source.replace(*lends))
    await server.open()
    world = RateWorld([Place(server, part) for part in parts_of(namespace)])
    yield world
    server.run = None
    for one in world.places:
        await server.forget(one.address, *one.sessions)
    await server.close()


@pytest.mark.one_server
async def test_slices_that_send_more_than_the_rate_are_named(
    world: RateWorld, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    await world.open(send_rate="10.0", send_burst="4")
    await world.wait(5)  # settings that change in the same millisecond are taken to come last
    for number in range(3):
        await bring(world, number, want=4)
    for number in range(3):
        await world.offer(number, 1, 1, 1, 1)
    places = [(place.address.name, await rows(place)) for place in world.places]
    found = spark.createDataFrame(
        [as_entry(name, row) for name, each in places for row in each], frame(spark, []).schema
    )
    judged = over_slices(found, {("tests", "orders"): SETTINGS}, skew_ms=0).collect()
    broken = "broken" in request.node.name
    assert {row["destination"] for row in judged} == ({"orders#1", "orders#2"} if broken else set())
    assert over_slices(found, {("tests", "invoices"): SETTINGS}).collect() == []

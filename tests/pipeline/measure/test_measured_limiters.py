"""Tables of limiters: each limit in windows, and the keys that took most."""

import pytest
from pyspark.sql import SparkSession

from headgate_pipeline.measure.limiters import TOP_KEYS, limiter_keys, limiters
from headgate_pipeline.report.advice import advise
from headgate_pipeline.report.report import labels_of, render
from headgate_pipeline.report.report_data import gather
from tests.pipeline.limiter_story import rows
from tests.pipeline.rows import START, entry, frame

pytestmark = pytest.mark.xdist_group("spark")


def test_use_waits_refusals_and_settlements_of_each_limit(spark: SparkSession) -> None:
    """Mutants: waits counted where they began; what was settled for less counted as owed."""
    found = {
        (row["limit"], row["of"], (row["start"].replace(tzinfo=START.tzinfo) - START).seconds): row
        for row in limiters(frame(spark, rows()), "10 seconds").collect()
    }
    assert set(found) == {
        ("slots", "all", 0), ("slots", "all", 10), ("slots", "key", 0), ("tokens", "all", 0), ("tokens", "all", 10),
        ("hold_off", "all", 0), ("hold_off", "all", 10),
    }  # fmt: skip
    slots, tokens = found["slots", "all", 0], found["tokens", "all", 0]
    assert (slots["form"], slots["most"], slots["taken_max"], slots["admitted"], slots["amount"]) == (
        "at_once",
        2,
        2,
        3,
        3,
    )
    assert (slots["waits"], slots["unserved"], slots["waited_ms"], slots["refused"]) == (1, 1, 2000, 3)
    assert (slots["held_max_ms"], slots["lapsed"]) == (4000, 1)
    assert 3900 <= slots["full_ms"] <= 4100, "both were held from 3 s to 7 s"
    assert slots["taken_p50"] == 1
    assert (tokens["amount"], tokens["refunded"], tokens["owed"]) == (15, 6, 4)
    assert tokens["taken_max"] == pytest.approx(10)
    own = found["slots", "key", 0]
    assert (own["most"], own["waits"], own["unserved"], own["wait_max_ms"]) == (1, 1, 0, 3000)
    assert found["slots", "all", 10]["held_max_ms"] == 8000
    assert [found["hold_off", "all", at]["full_ms"] for at in (0, 10)] == [1000, 2000]


def test_only_the_keys_that_took_most_have_rows(spark: SparkSession) -> None:
    """Mutant: all keys have one."""
    story = rows()
    many = [entry(n, n, "admit", "other", detail=f"held:z.{n}:k{n:03}:tokens={n}") for n in range(1, 40)]
    found = limiter_keys(frame(spark, [*story, *many]), "10 seconds").collect()
    assert [row["key"] for row in found if row["destination"] == "other"] == [f"k{n:03}" for n in range(39, 29, -1)]
    assert sum(row["destination"] == "other" for row in found) == TOP_KEYS
    t1 = next(row for row in found if row["key"] == "t1")
    assert (t1["share"], t1["admitted"], t1["waits"], t1["waited_ms"]) == (1.0, 2, 1, 3000)
    assert t1["amounts"] == {"tokens": 15, "slots": 2}


@pytest.mark.soak
def test_the_report_shows_the_limits_that_were_waited_for(spark: SparkSession) -> None:
    """Mutant: windows of the whole period that begin in 1970, of which nothing is sampled."""
    told = gather(frame(spark, rows()))
    assert [(row["limit"], row["of"], row["waited_ms"]) for row in told.limits[:2]] == [
        ("slots", "key", 3000),
        ("slots", "all", 2000),
    ]
    assert 3900 <= told.limits[1]["full_ms"] <= 4100
    html = render(told)
    assert "Limits of limiters" in html
    assert "llm: slots of each key" in html
    said = advise(told, labels_of(told))
    assert any("1 admission(s) waited 3 s in all for its limit slots of each key" in line for line in said)

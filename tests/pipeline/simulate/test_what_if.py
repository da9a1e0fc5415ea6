"""The model of a destination, and what it says of a real run under another limit."""

from io import StringIO
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from headgate import InvalidValue
from headgate_pipeline.cli.main import app
from headgate_pipeline.cli.what_if import limits_of, render
from headgate_pipeline.ledger import events
from headgate_pipeline.simulate import time_bins
from headgate_pipeline.simulate.flow import replay, shared
from headgate_pipeline.simulate.model import Period, bound, rank_of, recorded
from headgate_pipeline.simulate.rules import Rules
from headgate_pipeline.simulate.scenario import Scenario, ask, seen_of
from headgate_pipeline.simulate.what_if import look, what_if
from tests.pipeline.rows import entry, frame


def period(sends: list[list[float]], settled: float, bins: int = 100) -> Period:
    """Senders send at the begin; consumers, always busy, take the same in every bin of 10 ms."""
    cells = np.zeros((len(sends), bins))
    for cell, sent in zip(cells, sends, strict=True):
        cell[: len(sent)] = sent
    busy = np.ones(bins)
    return Period(10, cells, cells.sum(0), busy * settled, busy, busy, idle=0, waited=0, began_with=1)


def test_a_burst_waits_for_what_is_above_the_limit() -> None:
    """1000 bytes at once, 10 in 10 ms: below 400 it waits until 600 are gone. Mutant: the sender's own time goes on."""
    outcome = replay(period([[1000, 0, 50]], 10), 400)
    assert outcome.waited == pytest.approx(600 + 50, abs=30)
    assert outcome.peak == pytest.approx(400)
    assert outcome.unsent == 0
    assert replay(period([[1000]], 10), 2000).waited == 0


def test_delay_is_what_is_in_front() -> None:
    """Mutant: the mean of what is pending instead of the time that bytes are."""
    outcome = replay(period([[500]], 10), 1000)
    assert outcome.delay == pytest.approx(250, abs=15)
    assert outcome.delay_p99 == pytest.approx(495, abs=15)


def test_senders_share_alike() -> None:
    """Mutant: first come, first served."""
    assert shared(np.array([5.0, 100.0, 40.0]), 65).tolist() == [5, 30, 30]
    assert shared(np.array([5.0, 10.0]), 15).tolist() == [5, 10]
    assert shared(np.array([0.0, 10.0]), 0).tolist() == [0, 0]


def test_what_is_never_let_in_is_told() -> None:
    assert replay(period([[1000]], 0.1), 100).unsent > 0


@pytest.mark.parametrize(("count", "quantile"), [(300, 0.99), (500, 0.99), (1000, 0.9), (30_000, 0.5)])
def test_the_bound_of_a_quantile_holds_as_often_as_it_says(count: int, quantile: float) -> None:
    """Mutant: the quantile of the sample itself, which is too low half of the time."""
    random = np.random.default_rng(7)
    rank, confidence = rank_of(count, quantile, 0.95)
    assert confidence == 0.95
    times = 400 if count <= 1000 else 50
    held = [np.sort(random.random(count))[rank - 1] >= quantile for _ in range(times)]
    assert np.mean(held) >= 0.9
    assert rank <= count


def test_too_few_values_give_the_largest_and_a_lower_confidence() -> None:
    value, confidence = bound([3, 1, 2], 0.99, 0.95)
    assert value == 3
    assert confidence == pytest.approx(1 - 0.99**3)


def test_limits_are_names_and_sizes() -> None:
    assert limits_of(["a=b=1KiB", "c=unlimited"]) == ({"a=b": 1024.0, "c": float("inf")}, {})
    assert limits_of(["llm:tokens=300k/min", "llm:per_key.slots=5"]) == (
        {},
        {"llm": {"tokens": "300k/min", "per_key.slots": "5"}},
    )
    with pytest.raises(InvalidValue, match="write NAME=SIZE"):
        limits_of(["1MiB"])


@pytest.mark.soak  # test_flow.py has waits in the model
@pytest.mark.xdist_group("spark")
def test_a_senders_time_stands_still_while_it_waits(spark: SparkSession) -> None:
    """Mutant: bins by the time of the entry."""
    rows = [
        entry(1, 0, "apply", detail="limits:1000:inf"),
        entry(2, 10, "publish", session="a", bytes=800, messages=1, pending_bytes=800),
        entry(3, 20, "acquire", session="a", detail="block:a:500:1", pending_bytes=800),
        entry(4, 60, "settle", session="c", bytes=800, messages=1, detail="unblock:a:40"),
        entry(5, 61, "publish", session="a", bytes=500, messages=1, pending_bytes=500),
        entry(6, 99, "settle", session="c", bytes=500, messages=1),
    ]
    prepared = events.prepare(frame(spark, rows))
    seen = time_bins.period_of(time_bins.binned(prepared, events.waits(prepared)).toPandas())
    assert (seen.step, seen.sends.shape, seen.waited) == (1, (1, 100), 40)
    assert {int(at): int(seen.sends[0, at]) for at in np.flatnonzero(seen.sends[0])} == {10: 800, 21: 500}
    assert np.flatnonzero(seen.busy).tolist() == [*range(11, 60), *range(62, 99)]
    assert recorded(seen).peak == 800


@pytest.mark.xdist_group("spark")
def test_what_is_replayed_together_begins_together(spark: SparkSession) -> None:
    """Mutants: bins of their own for each; what is pending before the first entry taken from the last one; members of a
    pool replayed each by itself.
    """
    rows = [
        entry(1, 0, "publish", "a", session="a", bytes=10, messages=1, pending_bytes=10),
        entry(2, 99, "settle", "a", session="c", bytes=10, messages=1),
        entry(1, 30, "publish", "b", session="a", bytes=20, messages=2, pending_bytes=50),
        entry(2, 199, "settle", "b", session="c", bytes=10, messages=1, pending_bytes=40),
    ]
    prepared = events.prepare(frame(spark, rows)).localCheckpoint()  # else its plan stands eight times in what follows
    told: Any = time_bins.binned(prepared, events.waits(prepared), {"a": "p", "b": "p"}).toPandas()
    a, b = (time_bins.period_of(told[told["destination"] == name]) for name in "ab")
    assert a.sends.shape == b.sends.shape == (1, 200)
    assert a.began_ms == b.began_ms
    assert (b.pending[0], b.pending[29], b.pending[30], b.began_with) == (30, 30, 50, 30)
    assert (b.messages is not None and b.messages.sum(), b.consumers) == (2, 1)
    asked = dict.fromkeys("ab", Rules(pools=("p",)))
    question = Scenario(asked, dict.fromkeys("ab", Rules()), {"p": 55}, {})  # each alone has room in it
    found = {(row["destination"], row["case"]): row for row in what_if(prepared, question).collect()}
    assert set(found["b", "what if"]["causes"]) == {"pool p"}
    assert found["b", "what if"]["rules"] == "55 B in p"
    assert [found[name, "same rules"]["waited"] for name in "ab"] == [0, 0]


@pytest.mark.xdist_group("spark")
def test_slices_of_a_destination_are_replayed_as_one(spark: SparkSession) -> None:
    """Mutants: the limit is of each slice; what is pending is of one of them."""
    rows = [
        entry(1, 0, "apply", detail="limits:1000:inf"),
        entry(1, 0, "apply", "orders#1", detail="limits:1000:inf"),
        entry(2, 10, "publish", session="a", bytes=300, messages=3, pending_bytes=300),
        entry(2, 12, "publish", "orders#1", session="b", bytes=400, messages=4, pending_bytes=400),
        entry(3, 90, "settle", session="c", bytes=300, messages=3),
        entry(3, 99, "settle", "orders#1", session="c", bytes=400, messages=4),
    ]
    prepared = events.prepare(frame(spark, rows)).localCheckpoint()
    (seen,) = seen_of(row.asDict() for row in look(prepared).orderBy("destination").collect())
    assert (seen.name, seen.limit, seen.slices) == ("orders", 1000, ("orders", "orders#1"))
    found = {row["case"]: row for row in what_if(prepared, ask([seen], None, {"orders": 500.0})).collect()}
    assert {row["destination"] for row in found.values()} == {"orders"}
    assert (found["recorded"]["peak"], found["recorded"]["refused"]) == (700, 0)
    assert found["same rules"]["waited"] == 0
    assert set(found["what if"]["causes"]) == {"bytes"}
    assert found["what if"]["peak"] <= 500


@pytest.mark.parametrize("text", ["", "orders", "orders=1MiBB"])
def test_a_question_that_cannot_be_asked_says_what_to_write(text: str) -> None:
    arguments = ["what-if", "--redis", "redis://localhost:1", *(["--limit", text] if text else [])]
    told = CliRunner().invoke(app, arguments)
    assert isinstance(told.exception, InvalidValue)
    assert "MiB" in str(told.exception)


def test_what_people_read_has_a_table_for_each_destination() -> None:
    """Mutants: tokens told in bytes; what is refused left out."""
    row = dict.fromkeys(("unsent", "refused"), 0.0)
    row |= {"waited": 2000.0, "peak": 2048.0, "delay": 5.0, "delay_p99": 9.0, "took": 100.0}
    cases = [{"case": at, "rules": rule, "causes": {"rate": 9.0}} for at, rule in (("recorded", "a"), ("what if", "b"))]
    rows = [row | case | {"destination": name} for name in ("emails", "orders") for case in cases]
    rows[3] |= {"refused": 1024.0, "causes": {}}
    console = Console(width=100, record=True, file=StringIO())
    for table in render(rows, {"emails"}):
        console.print(table)
    told = console.export_text()
    assert "emails: a -> b" in told
    assert "2 s (rate)" in told
    assert ("2,048" in told, "2 KiB" in told) == (True, True)
    assert "100 ms, 1 KiB refused" in told

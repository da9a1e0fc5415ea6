"""The model of a destination, and what it says of a real run under another limit."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import InvalidValue
from headgate_pipeline import bins, events
from headgate_pipeline.cli import app
from headgate_pipeline.cli_what_if import limits_of
from headgate_pipeline.model import Period, bound, rank_of, recorded, replay, shared
from tests.pipeline.load import run
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
    assert limits_of(["a=b=1KiB", "c=unlimited"]) == {"a=b": 1024.0, "c": float("inf")}
    with pytest.raises(InvalidValue, match="write NAME=SIZE"):
        limits_of(["1MiB"])


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
    seen = bins.period_of(bins.binned(prepared, events.waits(prepared)).toPandas())
    assert (seen.step, seen.sends.shape, seen.waited) == (1, (1, 100), 40)
    assert {int(at): int(seen.sends[0, at]) for at in np.flatnonzero(seen.sends[0])} == {10: 800, 21: 500}
    assert np.flatnonzero(seen.busy).tolist() == [*range(11, 60), *range(62, 99)]
    assert recorded(seen).peak == 800


@pytest.mark.soak  # it compares two runs in time, and so wants a machine of its own
@pytest.mark.one_server
@pytest.mark.xdist_group("spark")
def test_the_replay_of_a_run_is_as_a_run_with_that_limit(
    redis_url: str, cleanup_namespace: str, spark: SparkSession
) -> None:
    """Mutants: the limit asked about not used; consumers that are as fast as they ever were."""

    def ask(name: str, limit: str) -> dict[str, dict[str, Any]]:
        arguments = ["what-if", "--redis", redis_url, "--namespace", cleanup_namespace, "--json", "--limit"]
        told = CliRunner().invoke(app, [*arguments, f"{name}={limit}"], catch_exceptions=False)
        assert told.exit_code == 0, told.output
        return {row["case"]: row for row in json.loads(told.stdout)}

    for name, limit in (("before", "16KiB"), ("after", "48KiB")):
        asyncio.run(run(redis_url, cleanup_namespace, name, limit=limit, senders=3, bursts=3))
    before, after = ask("before", "48KiB"), ask("after", "48KiB")
    said, fact = before["what if"], after["recorded"]
    assert fact["waited"] < 0.75 * before["recorded"]["waited"]  # it makes a difference
    for fact_name, low, high in (("waited", 0.5, 1.6), ("peak", 0.85, 1.15), ("delay", 0.6, 1.5)):
        assert low < said[fact_name] / fact[fact_name] < high, (fact_name, said, fact)
    for name in ("waited", "peak", "delay"):
        assert 0.6 < before["same limit"][name] / before["recorded"][name] < 1.5, (name, before)

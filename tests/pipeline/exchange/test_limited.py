"""Rows of a Spark job that wait for a limit which all executors share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf

import headgate.sync
from headgate import InvalidValue
from headgate.redis.keys import Address
from headgate_pipeline.exchange import limited
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.one_server]
ROWS = 60


@pytest.fixture
def limiter(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Limiter]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session() as session:
        limits = {"calls": {"rate": "1/h", "burst": 2 * ROWS}, "parts": {"at_once": 1}}
        client.apply("legacy", kind="limiter", limits=limits)
        yield session.limiter("legacy", in_hand=False)
    with redis.Redis.from_url(redis_url) as server:
        holds = f"{Address.of(cleanup_namespace, 'legacy').key}:holds"
        # What an executor gives back after the limiter is gone would make it anew.
        wait_for(lambda: not server.exists(holds), description="no hold")


@pytest.fixture
def opener(redis_url: str, cleanup_namespace: str) -> headgate.sync.Opener[headgate.sync.Limiter]:
    return headgate.sync.PerProcess(redis_url, cleanup_namespace, ttl=2.0).limiter("legacy")


def one_part(_: pd.DataFrame) -> int:
    """Return 1, of the type that a sum of a column has. Mutant: that is refused."""
    return np.int64(1)  # type: ignore[return-value]  # as users write it


def test_rows_of_all_executors_are_admitted_by_one_limiter(
    spark: SparkSession, limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any], tmp_path: Path
) -> None:
    alone = str(tmp_path / "alone")

    def call(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            Path(alone).touch(exist_ok=False)  # fails where another part is under way
            assert len(frame) <= 10
            Path(alone).unlink()
            yield frame.assign(id=frame["id"] * 2)

    def double(ids: pd.Series) -> pd.Series:
        return ids * 2

    calls = limited(call, opener, rows=10, timeout=60, calls=1, parts=one_part)
    doubled = pandas_udf(limited(double, opener, rows=7, timeout=60, calls=1), "long")  # type: ignore[call-overload]  # its stubs know no Callable[..., Any]
    rows = spark.range(0, ROWS, 1, 2).mapInPandas(calls, "id long").select(doubled("id").alias("id"))
    assert sorted(row.id for row in rows.collect()) == [4 * number for number in range(ROWS)]
    assert limiter.state()["calls"].remaining == 0
    wait_for(lambda: limiter.state()["parts"].taken == 0)


def test_waits_of_executors_are_spans_where_they_set_a_provider(
    spark: SparkSession, limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any], tmp_path: Path
) -> None:
    seen = tmp_path / "spans"

    def call(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        spans, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        trace._TRACER_PROVIDER = provider  # for this task alone: its process works for others too
        try:
            yield from frames
        finally:
            trace._TRACER_PROVIDER = None
            seen.write_text(" ".join(span.name for span in spans.get_finished_spans()))

    calls = limited(call, opener, rows=10, timeout=60, calls=1, parts=one_part)
    assert spark.range(0, 20, 1, 1).mapInPandas(calls, "id long").count() == 20
    assert set(seen.read_text().split(" ")) == {"admit", "legacy"}


def test_rows_that_are_not_admitted_fail_their_task(
    limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any]
) -> None:
    frames = [pd.DataFrame({"id": range(2 * ROWS)}), pd.DataFrame({"id": [7]})]
    calls = limited(iter, opener, rows=ROWS, timeout=2, calls=1, parts=one_part)(iter(frames))
    assert [len(next(calls)) for _ in range(2)] == [ROWS, ROWS]
    with pytest.raises(headgate.CreditTimeout):
        next(calls)
    wait_for(lambda: limiter.state()["parts"].taken == 0)
    empty = limited(lambda ids: ids, opener, calls=1)(pd.Series([], dtype=int))
    assert len(empty) == 0


def test_a_function_of_series_takes_them_in_each_form_that_spark_has(
    limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any]
) -> None:
    """Mutants: a tuple of columns is taken for a frame; a function that makes one number of many fails unclearly."""
    ones, twos = pd.Series([1] * 5), pd.Series([2] * 5)

    def added(pairs: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        for one, two in pairs:
            assert len(one) <= 2
            yield one + two

    terms: dict[str, Any] = {"rows": 2, "timeout": 60, "calls": 1, "parts": one_part}
    assert [*pd.concat([*limited(added, opener, **terms)(iter([(ones, twos)]))])] == [3] * 5
    assert [*limited(lambda one, two: one + two, opener, **terms)(ones, twos)] == [3] * 5
    assert limiter.state()["calls"].remaining == 2 * ROWS - 10
    with pytest.raises(InvalidValue, match="total: it returned 2"):
        limited(total, opener, **terms)(ones)


def test_a_group_is_not_taken_apart(limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any]) -> None:
    """Mutant: of a group that is larger than ``rows`` the function sees parts, and what it says of each is wrong."""
    group = pd.DataFrame({"id": range(7)})
    of_groups = limited(lambda frame: frame[["id"]].sum().to_frame("id"), opener, rows=2, calls=1, parts=one_part)
    assert [*of_groups(group)["id"]] == [21]
    assert limiter.state()["calls"].remaining == 2 * ROWS - 7
    with pytest.raises(headgate.MessageTooLarge):
        of_groups(pd.DataFrame({"id": range(2 * ROWS + 1)}))


def test_a_function_of_a_key_and_its_group_is_known_to_spark_as_one(
    spark: SparkSession, limiter: headgate.sync.Limiter, opener: headgate.sync.Opener[Any]
) -> None:
    """Mutants: Spark is shown a function of one frame; a group that takes nothing fails its task."""

    def counted(key: tuple[int], group: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"key": [key[0]], "rows": [len(group)]})

    def of_odd(group: pd.DataFrame) -> int:
        return (group["id"] % 2).sum()  # type: ignore[no-any-return]  # as users write it

    calls = limited(counted, opener, timeout=60, calls=of_odd)
    groups = spark.range(0, 10, 1, 1).groupBy((col("id") % 2).alias("odd")).applyInPandas(calls, "key long, rows long")
    assert sorted(tuple(row) for row in groups.collect()) == [(0, 5), (1, 5)]
    assert limiter.state()["calls"].remaining == 2 * ROWS - 5


def total(ones: pd.Series) -> int:
    return int(ones.sum())


def test_what_cannot_be_used_is_refused_before_a_job_begins(opener: headgate.sync.Opener[Any]) -> None:
    for on, terms, named in (
        (print, {"calls": 1}, "PerProcess"),
        (opener, {"calls": 0}, "calls: 0"),
        (opener, {"calls": 1, "rows": 0}, "rows: 0"),
    ):
        with pytest.raises(InvalidValue, match=named):
            limited(print, on, **terms)  # type: ignore[arg-type]  # that is what is tried

"""One destination with a hundred times the entries of the others: tasks of one size, and nothing late.

Spark's watermark is of all ledgers together. Were the small ones read to their end first, what is left of the large one
would be behind it, and windows would drop it without a word.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate_pipeline.ingest.job import run
from headgate_pipeline.ledger import redis_ledgers as ledgers
from headgate_pipeline.ledger.spark_source import NAME, LedgerStreamReader, Options, register
from headgate_pipeline.measure.measure import flow
from tests.pipeline.ingested import expected, job_of, stored
from tests.pipeline.ledgers_of import Writer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.one_server]

LARGE, SMALL, HOUR_MS = 10_000, 100, 3_600_000


@pytest.fixture
def writer(redis_url: str, namespace: str) -> Iterator[Writer]:
    """Three destinations that were at work for the same hour."""
    writer = Writer(redis_url, namespace)
    for name, count in (("large", LARGE), ("one", SMALL), ("two", SMALL)):
        writer.add(name, count, apart=HOUR_MS // count)
    yield writer
    writer.clear()
    ledgers.disconnect()


def test_tasks_are_of_one_size(writer: Writer) -> None:
    """Mutant: a task for each destination."""
    options = Options.of({"url": writer.url, "namespace": writer.namespace, "rowsPerPartition": "2040"})
    reader = LedgerStreamReader(options)
    parts = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
    sizes = [sum(last - first + 1 for _, first, last, _ in part.value) for part in parts]
    assert sizes == [2040] * 5


@pytest.mark.soak  # test_ingest.py has it of ledgers that are alike
def test_every_entry_is_ingested_once(spark: SparkSession, writer: Writer, tmp_path: Path) -> None:
    assert run(spark, job_of(writer, tmp_path, max_rows=5100), print) == LARGE + 2 * SMALL
    assert stored(tmp_path) == expected(large=LARGE, one=SMALL, two=SMALL)


@pytest.mark.soak
def test_windows_of_a_stream_drop_nothing_as_late(spark: SparkSession, writer: Writer, tmp_path: Path) -> None:
    """Mutant: `share` gives each ledger as much as the others."""
    register(spark)
    options = {"url": writer.url, "namespace": writer.namespace}
    stream = spark.readStream.format(NAME).options(**options, maxRows="3400").load()

    def told(found: DataFrame) -> DataFrame:
        return found.select("destination", "start", "entries", "admitted_bytes")

    query = (
        told(flow(stream, "1 minute", "2 minutes")).writeStream.format("memory").queryName("skew").outputMode("append")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    operators = [operator for progress in query.recentProgress for operator in progress.stateOperators]
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) == 3
    assert sum(operator.numRowsDroppedByWatermark for operator in operators) == 0
    closed = spark.table("skew").collect()
    whole = told(flow(spark.read.format(NAME).options(**options).load(), "1 minute")).collect()
    assert len(closed) > len(whole) * 0.9  # the last windows are open for as long as entries may come
    assert set(closed) <= set(whole)
    assert len(set(closed)) == len(closed)

"""Where a job's entries come from: also folders that were ingested by other versions."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline.ledger.entries import entries
from headgate_pipeline.ledger.events import with_limits
from headgate_pipeline.ledger.schema import ENTRY
from headgate_pipeline.measure.measure import flow
from tests.pipeline.rows import entry, frame

pytestmark = pytest.mark.xdist_group("spark")


def test_folders_of_older_and_newer_versions_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    """Columns that a file lacks are null, whichever file Spark looks at first. Mutant: without `schema(ENTRY)`."""
    of_today = frame(spark, [entry(seq, seq, "publish", bytes=10, messages=1, leased_bytes=5) for seq in (1, 2)])
    new = of_today.where("seq = 1").withColumn("column_of_tomorrow", F.lit("x"))
    old = of_today.where("seq = 2").drop("leased_bytes", "leased_messages", "raw").withColumn("seq", F.lit(0))
    for number, rows in enumerate((old, new, of_today.where("seq = 2"))):
        rows.write.parquet(f"{tmp_path}/entries/date=2026-01-0{number + 1}")
    found = entries(spark, tmp_path, None, "shop").drop("date")
    assert found.columns == ENTRY.names
    told = {row.seq: (row.bytes, row.leased_bytes) for row in found.collect()}
    assert told == {0: (10, None), 1: (10, 5), 2: (10, 5)}
    (window,) = flow(with_limits(found)).collect()
    assert (window.entries, window.admitted_bytes, window.held_bytes) == (3, 30, 5)

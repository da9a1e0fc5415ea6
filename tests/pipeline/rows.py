"""Small ledgers, written by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headgate_pipeline.ledger.schema import ENTRY

START = datetime(2026, 1, 1, tzinfo=UTC)


def entry(seq: int, ms: int, op: str, destination: str = "orders", **columns: Any) -> dict[str, Any]:
    """Return a row of an entry ``ms`` after the start; what is not said is 0, or empty."""
    row: dict[str, Any] = {field.name: 0 for field in ENTRY}
    row |= {"namespace": "shop", "destination": destination, "seq": seq, "version": 1, "op": op, "session": "-"}
    row |= {"time": START + timedelta(milliseconds=ms), "detail": "", "epoch": 1, "problem": None, "raw": None}
    return row | columns


def frame(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Return rows as a job gets them."""
    return spark.createDataFrame([tuple(row[field.name] for field in ENTRY) for row in rows], ENTRY)

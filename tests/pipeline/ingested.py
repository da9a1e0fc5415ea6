"""Ledgers that a test ingests, and what came of it."""

from pathlib import Path
from typing import Any

import pyarrow.dataset as pa_dataset

from headgate_pipeline.ingest.job import Ingest
from tests.pipeline.ledgers_of import Writer


def job_of(writer: Writer, folder: Path, **more: Any) -> Ingest:
    source = {"url": writer.url, "namespace": writer.namespace, "maxRows": str(more.pop("max_rows", 1000))}
    return Ingest(source, str(folder), str(folder / "_checkpoint"), **more)


def stored(folder: Path, table: str = "entries") -> list[tuple[str, int]]:
    """As anybody reads it who knows nothing of Spark: every file counts."""
    if not (folder / table).exists():
        return []
    found = pa_dataset.dataset(folder / table, format="parquet", partitioning="hive").to_table(["destination", "seq"])
    return sorted(zip(*(found[name].to_pylist() for name in ("destination", "seq")), strict=True))


def expected(**counts: int) -> list[tuple[str, int]]:
    return sorted((name, seq) for name, count in counts.items() for seq in range(1, count + 1))

"""A job finds its entries in ingested Parquet, or in the ledgers of a Redis as they are now."""

from pathlib import Path
from typing import TYPE_CHECKING

from headgate import InvalidValue
from headgate_pipeline.ledger.schema import ENTRY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def entries(spark: "SparkSession", folder: Path | str | None, url: str | None, namespace: str) -> "DataFrame":
    """Return entries, as :data:`~headgate_pipeline.ledger.schema.ENTRY` has them, and what is missing among them.

    Args:
        spark: the session.
        folder: what ``headgate pipeline ingest`` wrote, or Parquet; what belongs to other namespaces is left out.
        url: of a Redis, used where there is no folder.
        namespace: whose destinations.

    Raises:
        InvalidValue: there is neither folder nor URL, or no such folder.
    """
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

    from headgate_pipeline.ledger.spark_source import NAME, register

    if folder is not None:
        tables = _tables(str(folder))
        rows = [spark.read.schema(ENTRY).parquet(table) for table in tables]
        found = rows[0] if len(rows) == 1 else rows[0].unionByName(rows[1])
        return found.where(F.col("namespace") == namespace)
    if not url:
        raise InvalidValue("no ledger was given: use --input DIR with what was ingested, or --redis URL")
    register(spark)
    return spark.read.format(NAME).option("url", url).option("namespace", namespace).load()


def _tables(folder: str) -> list[str]:
    if "://" in folder:  # a store that only Spark reaches: it says itself what is not there
        return [folder]
    if not Path(folder).is_dir():
        raise InvalidValue(f"--input {folder}: there is no such folder; `headgate pipeline ingest` writes one")
    parts = [Path(folder, part) for part in ("entries", "problems")]
    return [str(part) for part in parts if part.is_dir()] or [folder]


def parquet_files(folder: Path | str) -> list[tuple[str, int]]:
    """Return the files of a folder of entries and their bytes, in the order in which they were written.

    Returns:
        Nothing where only Spark can tell: of a store, or of a folder that Spark's own streaming sink wrote.

    Raises:
        InvalidValue: there is no such folder.
    """
    tables = _tables(str(folder))
    if any("://" in table or Path(table, "_spark_metadata").exists() for table in tables):
        return []
    found = []
    for table in tables:
        for path in sorted(Path(table).rglob("*")):
            hidden = any(part.startswith(("_", ".")) for part in path.relative_to(table).parts)
            if not hidden and path.is_file():
                found.append((str(path), path.stat().st_size))
    return found

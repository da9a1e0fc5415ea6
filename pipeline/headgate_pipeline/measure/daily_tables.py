"""Tables with a part for each day, in Parquet or in what the user's session has: Delta, Iceberg, other file formats.

Nothing of Delta and Iceberg comes with this package: each version of them is made for one of Spark, so they are given
to the session, as `spark-submit --packages` does.
"""

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from headgate import HeadgateError, InvalidValue

DAY: Final = "day"
"""The column that parts a table."""
_GIVE: Final = {
    "delta": (
        "--packages io.delta:delta-spark_<version of Spark>_2.13:<version> "
        "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
        "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "iceberg": (
        "--packages org.apache.iceberg:iceberg-spark-runtime-<version of Spark>_2.13:<version> "
        "--conf spark.sql.catalog.<name>=org.apache.iceberg.spark.SparkCatalog"
    ),
}
_NAME: Final = re.compile(r"\w[\w-]*(\.\w[\w-]*)+")


class FormatMissing(HeadgateError):
    """The session cannot write this format."""


def check(spark: SparkSession, form: str, output: str) -> None:
    """Say before anything is read whether the session can write a format.

    Args:
        spark: the session.
        form: name of the format: ``parquet``, ``delta``, ``iceberg``, or of another that is made of files.
        output: a folder; of Iceberg, ``<catalog>.<namespace>``.

    Raises:
        FormatMissing: the session does not have it.
        InvalidValue: for Iceberg, the output names no namespace of a catalog.
    """
    jvm: Any = spark._jvm  # noqa: SLF001, Spark tells what it has nowhere else
    settings: Any = spark._jsparkSession.sessionState().conf()  # noqa: SLF001, nor what is set
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(form, settings)
    except Py4JJavaError:
        give = _GIVE.get(form, "--packages <the package that brings it>")
        raise FormatMissing(f"this Spark session does not have the format {form!r}; spark-submit {give}") from None
    if form == "iceberg":
        catalog(spark, output)


def catalog(spark: SparkSession, output: str) -> str:
    """Return the catalog of ``<catalog>.<namespace>``.

    Raises:
        InvalidValue: it is not that, or the session has no such catalog.
    """
    if not _NAME.fullmatch(output):
        raise InvalidValue(f"--output {output!r}: tables of Iceberg are in a catalog; give <catalog>.<namespace>")
    name = output.partition(".")[0]
    if spark.conf.get(f"spark.sql.catalog.{name}", None) is None:
        raise InvalidValue(
            f"--output {output!r}: this Spark session has no catalog {name!r}; "
            f"--conf spark.sql.catalog.{name}=org.apache.iceberg.spark.SparkCatalog, and where it is"
        )
    return name


def write(table: DataFrame, output: str, name: str, form: str) -> str:
    """Write a table; days of it that are there already are written anew, others stay. Returns where it is.

    Args:
        table: with the column :data:`DAY`.
        output: as for :func:`check`.
        name: of the table.
        form: as for :func:`check`.
    """
    if form == "iceberg":
        return _iceberg(table, f"{_quoted(output)}.{name}", _quoted(output))
    place = f"{output.rstrip('/')}/{name}"
    if form == "delta":
        _delta(table, place)
    else:
        writer = table.write.format(form).mode("overwrite").partitionBy(DAY)
        writer.option("partitionOverwriteMode", "dynamic").save(place)
    return place


def _delta(table: DataFrame, place: str) -> None:
    """Replace the days by name: that is one commit, and does not depend on what the session says of overwriting."""
    known = table.persist()
    try:
        days = sorted(str(row[DAY]) for row in known.select(DAY).distinct().collect())
        writer = known.write.format("delta").partitionBy(DAY).option("mergeSchema", "true")
        if days:
            which = ", ".join(f"'{day}'" for day in days)
            writer = writer.mode("overwrite").option("replaceWhere", f"{DAY} IN ({which})")
        else:
            writer = writer.mode("append")
        writer.save(place)
    finally:
        known.unpersist()


def _iceberg(table: DataFrame, place: str, namespace: str) -> str:
    spark = table.sparkSession
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    if spark.catalog.tableExists(place):
        table.writeTo(place).overwritePartitions()
    else:
        table.writeTo(place).using("iceberg").partitionedBy(DAY).create()
    return place.replace("`", "")


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))

"""Tables by day, in formats that the session has; those that it lacks are told in one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import HeadgateError, InvalidValue
from headgate_pipeline.cli.main import app
from headgate_pipeline.measure import daily_tables as daily
from tests.support.extent import share_of

pytestmark = pytest.mark.xdist_group("spark")


def days(spark: SparkSession, place: str, form: str) -> list[tuple[str, int]]:
    return sorted((str(row.day), row.n) for row in spark.read.format(form).load(place).collect())


@pytest.mark.parametrize("form", share_of(["orc", "parquet"], 2))
def test_a_day_is_written_anew_and_others_stay(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """Mutants: `partitionOverwriteMode` left out; the format that was asked for is not used."""
    daily.check(spark, form, str(tmp_path))

    def write(text: str) -> str:
        return daily.write(spark.sql(f"select date(d) day, n from values {text} t(d, n)"), f"{tmp_path}/", "flow", form)

    place = write("('2026-03-01', 1), ('2026-03-01', 2), ('2026-03-02', 3)")
    assert place == f"{tmp_path}/flow"
    assert {path.name for path in Path(place).iterdir() if path.is_dir()} == {"day=2026-03-01", "day=2026-03-02"}
    write("('2026-03-02', 4), ('2026-03-03', 5)")
    assert days(spark, place, form) == [("2026-03-01", 1), ("2026-03-01", 2), ("2026-03-02", 4), ("2026-03-03", 5)]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("delta", "io.delta:delta-spark_<version of Spark>_2.13"),
        ("iceberg", "iceberg-spark-runtime"),
        ("nonsense", "--packages"),
    ],
)
def test_a_format_that_the_session_lacks_is_told_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, form: str, told: str
) -> None:
    """Mutant: `check` is not called, and Java says it in a hundred lines."""
    arguments = ["--input", f"{tmp_path}/none", "--output", f"{tmp_path}/out", "--format", form]
    error = CliRunner().invoke(app, ["measure", *arguments]).exception
    assert isinstance(error, HeadgateError), error
    assert str(error).startswith(f"this Spark session does not have the format '{form}'; spark-submit ")
    assert told in str(error)
    assert len(str(error).splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_tables_of_iceberg_are_in_a_catalog_that_the_session_has() -> None:
    settings = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=settings.get))
    assert daily.catalog(spark, "lake.head-gate") == daily.catalog(spark, "lake.a.b") == "lake"
    for output, told in (("pond.a", "has no catalog 'pond'"), ("lake", "<catalog>.<namespace>"), ("/tmp/x", "give <")):
        with pytest.raises(InvalidValue, match=told):
            daily.catalog(spark, output)


@pytest.mark.parametrize("there", [False, True])
def test_days_of_an_iceberg_table_are_overwritten_where_it_is_there(there: bool) -> None:
    """No Iceberg here: what is asked of Spark. Mutant: `append`."""
    table = MagicMock()
    table.sparkSession.catalog.tableExists.return_value = there
    assert daily.write(table, "lake.head-gate", "flow", "iceberg") == "lake.head-gate.flow"
    table.sparkSession.sql.assert_called_once_with("CREATE NAMESPACE IF NOT EXISTS `lake`.`head-gate`")
    table.writeTo.assert_called_once_with("`lake`.`head-gate`.flow")
    made = call.using("iceberg").partitionedBy("day").create().call_list()
    assert table.writeTo.return_value.mock_calls == ([call.overwritePartitions()] if there else made)


@pytest.mark.parametrize(
    ("found", "mode", "where"),
    [(["2026-03-02", "2026-03-01"], "overwrite", "day IN ('2026-03-01', '2026-03-02')"), ([], "append", None)],
)
def test_days_of_a_delta_table_are_replaced_by_name(found: list[str], mode: str, where: str | None) -> None:
    """No Delta here either. Mutant: `overwrite` without `replaceWhere`, which empties the table."""
    table = MagicMock()
    known = table.persist.return_value
    known.select.return_value.distinct.return_value.collect.return_value = [{"day": day} for day in found]
    writer = MagicMock()
    for name in ("format", "partitionBy", "option", "mode"):
        getattr(writer, name).return_value = writer
    known.write = writer
    assert daily.write(table, "/out/", "flow", "delta") == "/out/flow"
    options = dict(done.args for done in writer.option.mock_calls)
    assert (writer.format.mock_calls, writer.mode.mock_calls) == ([call("delta")], [call(mode)])
    assert (options.get("replaceWhere"), options["mergeSchema"]) == (where, "true")
    writer.save.assert_called_once_with("/out/flow")
    known.unpersist.assert_called_once_with()

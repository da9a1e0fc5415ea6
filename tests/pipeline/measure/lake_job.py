"""Writes and reads tables by day in a process of its own, with a Spark and the jars that fit it: see test_lake.py."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headgate_pipeline.measure import daily_tables as daily

FORM, FOLDER, PLACE, JARS = sys.argv[1:5]


def session() -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.jars": ",".join(map(str, sorted(Path(JARS).glob("*.jar")))),
        "spark.sql.warehouse.dir": f"{FOLDER}/warehouse",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{FOLDER}/lake",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    building: Any = SparkSession.builder
    for name, value in settings.items():
        building = building.config(name, value)
    spark: SparkSession = building.master("local[1]").getOrCreate()
    return spark


def write(spark: SparkSession, first: int, files: int) -> None:
    """Write the days 1 and 2, or with ``first`` above 0 others of them; in so many files."""
    numbers = spark.range(first, first + 40, 1, files)
    day = f"date_add(date'2026-03-01', cast(id % 2 as int) + {int(first > 0)}) day"
    daily.write(numbers.selectExpr(day, "id n"), PLACE, "flow", FORM)


def rows(spark: SparkSession) -> list[list[Any]]:
    table = spark.table(f"{PLACE}.flow") if FORM == "iceberg" else spark.read.format(FORM).load(f"{PLACE}/flow")
    return sorted([str(row.day), row.n] for row in table.collect())


def main() -> None:
    spark = session()
    daily.check(spark, FORM, PLACE)
    if sys.argv[5] == "begin":
        write(spark, 0, 1)
        print(json.dumps(rows(spark)), flush=True)
        write(spark, 100, 40)  # killed while it does
        print("it was not killed", flush=True)
        return
    for _ in range(3):
        print(json.dumps(rows(spark)), flush=True)
        write(spark, 100, 40)
    spark.stop()


main()

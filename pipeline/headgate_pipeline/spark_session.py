"""A job gets its Spark session here, once the machine is found to have what Spark needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate import HeadgateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    # To note the line of our code that made each column takes some ten calls of the JVM a column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Where the user's own session says nothing else."""


class NoJava(HeadgateError):
    """Spark runs on Java, and there is none."""


def java() -> str:
    """Return the path of Java.

    Raises:
        NoJava: there is none that runs.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None or subprocess.run([found, "-version"], capture_output=True, check=False).returncode:  # noqa: S603, of PATH
        raise NoJava(
            "Spark needs Java 17 or newer, and there is none on PATH or in JAVA_HOME; on Debian: "
            "apt-get install openjdk-17-jre-headless"
        )
    return found


def session(name: str, *, master: str | None = None, settings: dict[str, str] | None = None) -> "SparkSession":
    """Return the Spark session: the one that there is (``spark-submit``), or one of this process.

    Args:
        name: of the job.
        master: where it runs; by default ``local[*]``, or the one of ``spark-submit``.
        settings: of Spark, before ours.

    Raises:
        NoJava: there is no Java.
    """
    from pyspark.sql import SparkSession

    java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers are of the same environment
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if active := SparkSession.getActiveSession():
        return active
    if "SPARK_ENV_LOADED" not in os.environ or master:  # spark-submit has chosen where
        _hush()
        builder = builder.master(master or "local[*]")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _hush() -> None:
    """Have Spark's own log say errors alone, before its JVM starts. The user's own settings stay."""
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "log4j2.configurationFile" not in options:
        file = Path(__file__).with_name("quiet.properties")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -Dlog4j2.configurationFile={file.as_uri()}".strip()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

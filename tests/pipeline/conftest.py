"""One Spark session for the tests of a process."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.spark_forks import python

ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "tests.pipeline.spark_daemon",
    "spark.driver.memory": "768m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    # A handful of rows a query: to compile it would take most of its time. Jobs in processes of their own do compile.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
        # Room for what is compiled and for classes from the start, else both are thrown out and made again.
        " -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -Xms768m -Xmn320m"
    ),
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none here")
    parts = [str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*parts, str(ROOT)])  # workers inherit it
    stack = ExitStack()
    os.environ["PYSPARK_PYTHON"] = str(stack.enter_context(python(tmp_path_factory.mktemp("python"))))
    builder = SparkSession.builder.master("local[2,4]").appName("tests")  # tasks are tried again, as on a cluster
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    with stack:
        yield session
        session.stop()

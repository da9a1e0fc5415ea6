"""A Spark cluster of this machine: a master and workers, each a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
LOCAL = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


def environment() -> dict[str, str]:
    """Return what all processes get: our code on PYTHONPATH."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@contextmanager
def process(log: Path, *command: str, env: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command that logs to a file; it is ended in the end."""
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env=env or environment(), start_new_session=True)
    try:
        yield started
    finally:
        started.terminate()  # a worker ends its executors
        started.wait(30)


def _found(log: Path, pattern: str) -> str:
    match = wait_for(lambda: re.search(pattern, log.read_text()), timeout=240)
    return str(match and match[1])


def cluster(
    stack: ExitStack, folder: Path, *names: str, env: dict[str, str] | None = None
) -> tuple[tuple[str, ...], "list[subprocess.Popen[bytes]]"]:
    """Start a master and workers of these names; returns the command that submits to them, and the workers."""
    spark_class = str(SPARK / "bin" / "spark-class")
    stack.enter_context(process(folder / "master", spark_class, f"{DEPLOY}.master.Master", *LOCAL, env=env))
    master = _found(folder / "master", r"Starting Spark master at (spark://\S+)")
    workers = []
    for name in names:
        own = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work-{name}"))
        started = process(folder / name, spark_class, f"{DEPLOY}.worker.Worker", *LOCAL, *own, master, env=env)
        workers.append(stack.enter_context(started))
        _found(folder / name, r"(Successfully registered with master)")
    return (str(SPARK / "bin" / "spark-submit"), "--master", master, "--executor-memory", "512m"), workers

"""The sink on a cluster: a master, two workers, and `spark-submit`, each a process of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

import headgate.sync
from headgate.redis.keys import Address
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_for

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here"),
]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@contextmanager
def process(log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env=environment(), start_new_session=True)
    try:
        yield started
    finally:
        started.terminate()  # a worker ends its executors
        started.wait(30)


def found(log: Path, pattern: str) -> str:
    match = wait_for(lambda: re.search(pattern, log.read_text()), timeout=60)
    return str(match and match[1])


def executors(worker: int) -> list[int]:
    """Return the executors that a worker started."""
    children = (pid for file in Path(f"/proc/{worker}/task").glob("*/children") for pid in file.read_text().split())
    return [int(pid) for pid in children if b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_job_on_a_cluster_is_within_one_limit_and_survives_an_executor(
    shared_servers: SharedServers, cleanup_namespace: str, tmp_path: Path
) -> None:
    """Executors of two workers fill the limit and wait, one is killed, and then somebody consumes: each row once."""
    url, spark_class = shared_servers.standalone(newest_server()), str(SPARK / "bin" / "spark-class")
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        client = stack.enter_context(headgate.sync.connect(url, namespace=cleanup_namespace))
        client.apply("orders", kind="queue", limit="1KiB")

        def fields() -> dict[str, str]:
            snapshot = client._run(lambda: client._inner.store.snapshot(Address.of(cleanup_namespace, "orders")))
            return snapshot.fields if snapshot else {}

        stack.enter_context(process(tmp_path / "master", spark_class, f"{DEPLOY}.master.Master", *local))
        master = found(tmp_path / "master", r"Starting Spark master at (spark://\S+)")
        workers = []
        for name in ("one", "two"):
            folder = ("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work-{name}"))
            started = process(tmp_path / name, spark_class, f"{DEPLOY}.worker.Worker", *local, *folder, master)
            workers.append(stack.enter_context(started))
            found(tmp_path / name, r"(Successfully registered with master)")
        submit = (str(SPARK / "bin" / "spark-submit"), "--master", master, "--executor-memory", "512m")
        job = stack.enter_context(
            process(tmp_path / "job", *submit, str(HERE / "standalone_job.py"), url, cleanup_namespace, "1000")
        )
        wait_for(lambda: job.poll() is not None or fields().get("blocked") == "2", timeout=120)
        assert job.poll() is None, (tmp_path / "job").read_text()[-4000:]
        (executor,) = executors(workers[0].pid)
        os.kill(executor, signal.SIGKILL)
        got: list[str] = []
        with client.session("reader") as session:
            consumer = session.consumer("orders", window=20)
            while job.poll() is None or consumer.held_messages or fields()["pending_messages"] != "0":
                if message := consumer.receive(timeout=0.2):
                    got.append(str(message.body))
                    message.accept()
        assert job.returncode == 0, (tmp_path / "job").read_text()[-4000:]
        assert sorted(got) == sorted(str(n) for n in range(1000))
        assert int(fields()["peak_bytes"]) <= 1024

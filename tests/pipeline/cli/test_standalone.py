"""The sink on a cluster: a master, two workers, and `spark-submit`, each a process of its own."""

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

import headgate.sync
from headgate.redis.keys import Address
from tests.pipeline.standalone import cluster, process
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_for

HERE = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here"),
]


def executors(worker: int) -> list[int]:
    """Return the executors that a worker started."""
    children = (pid for file in Path(f"/proc/{worker}/task").glob("*/children") for pid in file.read_text().split())
    return [int(pid) for pid in children if b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_job_on_a_cluster_is_within_one_limit_and_survives_an_executor(
    shared_servers: SharedServers, cleanup_namespace: str, tmp_path: Path
) -> None:
    """Executors of two workers fill the limit and wait, one is killed, and then somebody consumes: each row once."""
    url = shared_servers.standalone(newest_server())
    with ExitStack() as stack:
        client = stack.enter_context(headgate.sync.connect(url, namespace=cleanup_namespace))
        client.apply("orders", kind="queue", limit="1KiB")

        def fields() -> dict[str, str]:
            snapshot = client._run(lambda: client._inner.store.snapshot(Address.of(cleanup_namespace, "orders")))
            return snapshot.fields if snapshot else {}

        submit, workers = cluster(stack, tmp_path, "one", "two")
        job = stack.enter_context(
            process(tmp_path / "job", *submit, str(HERE / "standalone_job.py"), url, cleanup_namespace, "1000")
        )
        wait_for(lambda: job.poll() is not None or fields().get("blocked") == "2", timeout=1100)
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

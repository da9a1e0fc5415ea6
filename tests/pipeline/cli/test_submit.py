"""The commands by `spark-submit`, with the code that `--py-files` brings: executors have it from nowhere else."""

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path

import pytest

import headgate.sync
from tests.pipeline.ingested import stored
from tests.pipeline.standalone import ROOT, cluster, environment, process
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here"),
]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The wheel, named as what `--py-files` takes."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    return wheel.rename(tmp_path / "headgate.zip")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python has all libraries, but not the checkout that is installed among them."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return environment() | {"PYTHONPATH": sysconfig.get_path("purelib"), "PYSPARK_PYTHON": str(python)}


def test_a_ledger_is_ingested_measured_and_audited_on_a_cluster(
    shared_servers: SharedServers, cleanup_namespace: str, tmp_path: Path, code: Path, bare: dict[str, str]
) -> None:
    url = shared_servers.standalone(newest_server())
    with headgate.sync.connect(url, namespace=cleanup_namespace) as client:
        client.apply("orders", kind="queue", limit="1KiB")
        with client.session("service") as session:
            producer, consumer = session.producer("orders"), session.consumer("orders")
            for number in range(50):
                producer.send(str(number))
                message = consumer.receive()
                assert message is not None
                message.accept()
    job = tmp_path / "jobs.py"
    job.write_text("import headgate_pipeline.__main__\n")
    driver = bare | {"PYTHONPATH": os.pathsep.join([str(code), bare["PYTHONPATH"]])}  # the source of a stream is there
    place = ("--redis", url, "--namespace", cleanup_namespace)
    with ExitStack() as stack:
        submit, _ = cluster(stack, tmp_path, "worker", env=bare)

        def run(*arguments: str) -> tuple[int, str]:
            log = tmp_path / arguments[0]
            with process(log, *submit, "--py-files", str(code), str(job), *arguments, env=driver) as submitted:
                return submitted.wait(280), log.read_text()  # 80 s on two busy cores

        ingested, said = run("ingest", "--output", str(tmp_path / "ledger"), *place)
        assert (ingested, said.count("rows written to")) == (0, 1), said[-4000:]
        assert len(stored(tmp_path / "ledger")) > 100
        measured, said = run("measure", "--input", str(tmp_path / "ledger"), "--output", str(tmp_path / "out"), *place)
        assert measured == 0, said[-4000:]
        assert list((tmp_path / "out" / "flow").glob("day=*/*.parquet"))
        audited, said = run("audit", "--input", str(tmp_path / "ledger"), *place)
        assert (audited, said.count("orders: proven (entries 1 to ")) == (0, 1), said[-4000:]
        (tmp_path / "nothing").mkdir()
        refused, said = run("measure", "--input", str(tmp_path / "ledger"), "--output", "o", "--format", "delta")
        assert refused == 1, said[-4000:]
        assert "headgate: this Spark session does not have the format 'delta'; spark-submit --packages io.delta" in said

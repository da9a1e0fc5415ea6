"""Ledgers to Parquet: exactly once, whatever dies when."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as pa_dataset
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import HeadgateError, InvalidValue
from headgate_pipeline.cli.main import app
from headgate_pipeline.ingest.job import Ingest, IngestFailed, committed, run, tables
from headgate_pipeline.ingest.publish import Published
from headgate_pipeline.ledger import redis_ledgers as ledgers
from headgate_pipeline.ledger.spark_source import NAME, register
from tests.pipeline.ingested import expected, job_of, stored
from tests.pipeline.ledgers_of import Writer
from tests.support.extent import share_of
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.one_server]
ROOT = Path(__file__).parents[3]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m"


@pytest.fixture
def writer(redis_url: str, namespace: str) -> Iterator[Writer]:
    writer = Writer(redis_url, namespace)
    yield writer
    writer.clear()
    ledgers.disconnect()


def test_entries_and_problems_by_day_and_what_is_new_later(spark: SparkSession, writer: Writer, tmp_path: Path) -> None:
    """Mutants: the batch is named by its number alone; problems stay among the entries."""
    writer.add("orders", 1500, ms=1_763_596_799_000)  # 2025-11-19T23:59:59Z
    writer.add("bills", 700)
    writer.do("bills", "XADD", "701-0", "e", "nonsense")
    writer.do("bills", "XADD", "702-0", "e", "7,of,a,layout,of,tomorrow")
    said: list[str] = []
    job = job_of(writer, tmp_path)
    assert run(spark, job, said.append) == 2202
    assert stored(tmp_path) == expected(orders=1500, bills=700)
    why = pa_dataset.dataset(tmp_path / "problems", format="parquet").to_table(["seq", "problem", "raw"]).to_pylist()
    assert sorted(tuple(row.values()) for row in why) == [
        (701, "malformed: 1 columns, not 13", "nonsense"),
        (702, "version: 7", "7,of,a,layout,of,tomorrow"),
    ]
    folders = (tmp_path / "entries").iterdir()
    days = {folder.name: pa_dataset.dataset(folder, format="parquet").count_rows() for folder in folders}
    assert days == {"date=2025-11-19": 999, "date=2025-11-20": 1201}
    batches = [line for line in said if line.startswith("batch ")]  # and perhaps that a worker of Spark was late
    assert [line.split(":")[0] for line in batches] == ["batch 0", "batch 1", "batch 2"]
    assert said[-1].endswith("0 behind")
    at_once = spark.read.format(NAME).options(**job.source).load()  # with maxRows, which a batch has no use for
    entries, problems = (spark.read.parquet(str(tmp_path / table)) for table in ("entries", "problems"))
    both = entries.union(problems).drop("date")
    assert sorted(at_once.collect(), key=str) == sorted(both.collect(), key=str)
    assert run(spark, job, said.append) == 0
    writer.add("orders", 5, first=1501)
    writer.add("new", 3)
    assert run(spark, job, said.append) == 8
    assert stored(tmp_path) == expected(orders=1505, bills=700, new=3)
    offsets = {"bills": {"epoch": 0, "seq": 702}, "new": {"epoch": 7, "seq": 3}, "orders": {"epoch": 7, "seq": 1505}}
    assert committed(tmp_path / "_checkpoint") == (3, offsets)
    again = job_of(writer, tmp_path, max_rows=5000)
    assert run(spark, replace(again, checkpoint=str(tmp_path / "_other")), said.append) == 2210
    assert len(stored(tmp_path)) == 2 * 2208  # a checkpoint of its own: all is there again, and nothing written over


def test_what_is_trimmed_was_stored(spark: SparkSession, writer: Writer, tmp_path: Path) -> None:
    """Mutant: trims up to what a batch is to read, not to what was committed."""
    writer.add("orders", 3000)
    said: list[str] = []
    run(spark, job_of(writer, tmp_path, trim=True), said.append)
    kept = writer.do("orders", "XLEN")
    assert 100 <= kept <= 300
    assert sum(int(line.split()[1]) for line in said if line.startswith("trimmed")) == 3000 - kept
    writer.add("orders", 200, first=3001)
    assert run(spark, job_of(writer, tmp_path, trim=True), said.append) == 200
    assert (stored(tmp_path), stored(tmp_path, "problems")) == (expected(orders=3200), [])


class _Crash(Exception):
    pass


@pytest.mark.parametrize(("renamed", "gone"), share_of(itertools.product([0, 1, 2], [False, True]), 2))
def test_a_batch_is_there_once_wherever_it_was_cut_off(
    spark: SparkSession, tmp_path: Path, renamed: int, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its rows cannot be had again. Mutant: what was staged whole is computed again."""
    rows = spark.sql(
        "select id seq, 'd' destination, null problem, timestamp'2026-01-01' + make_interval(0, 0, 0, int(id)) time"
        " from range(0, 2, 1, 1)"
    )
    published = Published(spark, str(tmp_path))
    inner, done = published._files, 0

    class Files:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def rename(self, source: Any, target: Any) -> Any:
            nonlocal done
            if done == renamed:
                raise _Crash
            done += 1
            return inner.rename(source, target)

    monkeypatch.setattr(published, "_files", Files())
    try:
        published.add(tables(rows), "q-000000001")
    except _Crash:
        done = -10
        published.add(tables(rows.limit(0) if gone else rows), "q-000000001")
    assert stored(tmp_path) == [("d", 0), ("d", 1)]
    done = -10
    published.add(tables(rows), "q-000000002")
    assert stored(tmp_path) == [("d", 0), ("d", 0), ("d", 1), ("d", 1)]
    assert [path.name for path in (tmp_path / "_staging").iterdir()] == ["q-000000002"]


def test_a_redis_that_is_gone_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with RedisServer.start(persist=False) as server:
        writer = Writer(server.url, "ns")
        writer.add("orders", 10)
        job = job_of(writer, tmp_path)
        writer.direct.close()
    with pytest.raises(IngestFailed, match=r"unix:.* cannot be used: .*; the next run goes on from") as caught:
        run(spark, job, print)
    assert len(str(caught.value).splitlines()) == 1


def test_spark_shows_no_password_and_reads_what_is_empty(spark: SparkSession, writer: Writer) -> None:
    """Mutant: an option of another name than ``url``, which Spark hides."""
    register(spark)
    rows = spark.read.format(NAME).option("url", "redis://u:geheim@127.0.0.1:1/0").load()
    assert "geheim" not in rows._jdf.queryExecution().toString()
    with pytest.raises(PySparkException, match=r"redis://u:\*\*\*@127.0.0.1:1/0 cannot be used") as caught:
        rows.count()
    assert "geheim" not in str(caught.value)
    nothing = spark.read.format(NAME).option("url", writer.url).option("namespace", writer.namespace).load()
    assert nothing.count() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which Redis"),
        (("--redis", "amqp://node"), "URL scheme 'amqp' is unknown"),
        (("--redis", "redis://127.0.0.1:1"), "redis://127.0.0.1:1/0 cannot be used"),
    ],
)
def test_what_is_wrong_is_said_before_spark_begins(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    result = CliRunner().invoke(app, ["ingest", "--output", str(tmp_path / "out"), *arguments])
    assert isinstance(result.exception, HeadgateError)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_trimming_needs_a_checkpoint_that_can_be_read(writer: Writer) -> None:
    with pytest.raises(InvalidValue, match="local path"):
        Ingest({"url": writer.url}, "o", "s3a://bucket/checkpoint", trim=True).check()


def killed(writer: Writer, folder: Path, least: int) -> None:
    """Ingest in a process of its own; kill driver and JVM at once when there are so many files, and more to come."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")),
        "HEADGATE_URL": writer.url,
        "HEADGATE_NAMESPACE": writer.namespace,
        "JDK_JAVA_OPTIONS": QUICK,
    }
    command = [sys.executable, "-m", "headgate_pipeline", "ingest", "--master", "local[2]", "--max-rows", "6000"]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, "--output", str(folder)], env=environment, stdout=said, stderr=said, start_new_session=True
        )
    wait_for(partial(_wrote, folder, least, process), timeout=280, description="files")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.soak  # a batch that is cut off anywhere is above; here a process of Spark is
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [1, 6])
def test_a_driver_that_is_killed_loses_and_doubles_nothing(
    spark: SparkSession, writer: Writer, tmp_path: Path, kills: int
) -> None:
    """Mutant: a run that goes on gives its batches new names."""
    _dies(spark, writer, tmp_path, kills=kills)


def _dies(spark: SparkSession, writer: Writer, folder: Path, *, kills: int) -> None:
    counts = {"orders": 20_000 * kills, "bills": 3000, "returns": 7000}
    for name, count in counts.items():
        writer.add(name, count)
    for _ in range(kills):
        killed(writer, folder, len(list((folder / "entries").rglob("*.parquet"))) + 1)
    run(spark, job_of(writer, folder, max_rows=6000), print)
    assert stored(folder) == expected(**counts)
    assert stored(folder, "problems") == []


def _wrote(folder: Path, least: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (folder / "said").read_text()
    return len(list((folder / "entries").rglob("*.parquet"))) >= least

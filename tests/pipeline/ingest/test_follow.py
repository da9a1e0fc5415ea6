"""An ingest that follows, while its Redis comes and goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headgate import CoordinatorUnavailable
from headgate_pipeline.ingest import job as ingest
from headgate_pipeline.ingest.job import Ingest, IngestFailed, run
from headgate_pipeline.ledger import redis_ledgers as ledgers
from tests.pipeline.ingested import expected, job_of, stored
from tests.pipeline.ledgers_of import Writer
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("spark")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer.start(persist=True) as server:
        yield server


@pytest.fixture
def writer(server: RedisServer) -> Iterator[Writer]:
    writer = Writer(server.url, "ns")
    yield writer
    writer.direct.close()
    ledgers.disconnect()


def test_it_asks_again_ever_more_seldom_and_at_once_after_it_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a pause that grows for ever; one that stays long when Redis is there again."""
    query: list[Any] = [*["away"] * 7, 3, "away", "over"]
    paused: list[float] = []

    def copy(*_: object) -> Iterator[Any]:
        while (what := query.pop(0)) != "over":
            if what == "away":
                raise CoordinatorUnavailable("Redis is away.")
            yield SimpleNamespace(numInputRows=what)

    said: list[str] = []
    monkeypatch.setattr(ingest, "_copy", copy)
    monkeypatch.setattr(ingest, "_line", lambda progress: f"{progress.numInputRows} rows")
    monkeypatch.setattr(time, "sleep", paused.append)
    spark: Any = None
    assert run(spark, Ingest({}, "o", "c", follow=True), said.append) == 3
    assert paused == [1, 2, 5, 10, 30, 30, 30, 1]
    assert said[:2] == ["Redis is away; retrying in 1 s", "Redis is away; retrying in 2 s"]
    assert said[7:9] == ["Redis answers again", "3 rows"]
    query[:] = ["away"]
    with pytest.raises(IngestFailed, match="the next run goes on from c"):
        run(spark, Ingest({}, "o", "c"), said.append)


@pytest.mark.parametrize("late", [4, 5])
def test_a_query_whose_worker_starts_late_is_started_again(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """Spark waits ten seconds for it, whatever is set, which a busy machine may take."""
    words = "java.io.IOException: Python worker failed to connect back."
    starts: list[str] = []

    class Query:
        recentProgress = ()  # noqa: N815 -- as Spark names it

        def awaitTermination(self, _: float) -> bool:  # noqa: N802 -- as Spark names it
            if len(starts) <= late:
                raise StreamingQueryException(words)
            return True

        def stop(self) -> None:
            """Do nothing."""

    def start(*_: object) -> Query:
        starts.append("started")
        return Query()

    monkeypatch.setattr(ingest, "start", start)
    said: list[str] = []
    spark: Any = None
    if late < 5:
        assert run(spark, Ingest({}, "o", "c"), said.append) == 0
    else:
        with pytest.raises(IngestFailed, match=r"connect back\.; the next run goes on from c"):
            run(spark, Ingest({}, "o", "c"), said.append)
    assert len(starts) == 5
    assert said == ["a worker of Spark did not start in time; the query is started again"] * 4


def test_it_goes_on_where_it_was_when_redis_is_back(
    spark: SparkSession, server: RedisServer, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends when it is told to. Mutant: `_AWAY` is not looked for, and the run ends."""
    monkeypatch.setattr(ingest, "AGAIN", (0.1,))
    writer.add("orders", 300)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("batch 0"):
            server.kill9()
        elif "retrying" in line:
            server.restart()
            writer.add("orders", 200, first=301)
        elif line.startswith("batch 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spark, job_of(writer, tmp_path, follow=True, every=1), say)
    assert [line.split(":")[0] for line in said if "retrying" not in line] == [
        "batch 0",
        "Redis answers again",
        "batch 1",
    ]
    assert spark.streams.active == []
    assert stored(tmp_path) == expected(orders=500)
    assert stored(tmp_path, "problems") == []


def test_a_batch_that_is_done_again_is_told_of_without_a_lag() -> None:
    """Spark does not look for its end then."""
    for latest in ("null", None):
        source = SimpleNamespace(latestOffset=latest, endOffset='{"orders": {"epoch": 7, "seq": 9}}')
        progress = SimpleNamespace(sources=[source], batchId=3, numInputRows=9, batchDuration=500)
        assert ingest._line(progress) == "batch 3: 9 rows of 1 ledger in 0.5 s"


@pytest.mark.one_server
def test_a_search_for_ledgers_says_that_redis_is_away(server: RedisServer, writer: Writer) -> None:
    """Mutant: SCAN raises what redis-py raises, which nobody waits for."""
    found = ledgers.Ledgers(writer.direct, "ns")
    writer.add("orders", 1)
    assert found.find("#") == ["orders"]
    server.kill9()
    with pytest.raises(CoordinatorUnavailable):
        found.find("#")
    server.restart()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_command_outlives_its_redis_and_ends_by_ctrl_c(server: RedisServer, writer: Writer, tmp_path: Path) -> None:
    """Redis dies five times while a batch is written, and once more before Ctrl-C."""
    count = 20_000
    writer.add("orders", count)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m",
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "headgate_pipeline", "ingest", "--follow", "--every", "1", "--max-rows", "5000"]
    said = tmp_path / "said"
    with said.open("wb") as out:
        job = subprocess.Popen(
            [*command, "--redis", server.url, "--namespace", "ns", "--output", str(tmp_path), "--trim"],
            env=environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip

    def told(text: str) -> int:
        assert job.poll() is None, said.read_text()
        return said.read_text().count(text)

    def staged() -> set[str]:
        assert job.poll() is None, said.read_text()
        return {path.name for path in tmp_path.glob("_staging/*")}

    def newer(known: set[str]) -> bool:
        """Whether a batch is being written."""
        return bool(staged() - known)

    def asked(before: int) -> bool:
        return told("retrying") > before

    wait_for(staged, timeout=240)
    for _ in range(5):
        known = staged()
        writer.add("orders", 5000, first=count + 1)
        count += 5000
        wait_for(partial(newer, known), timeout=240)
        server.kill9()
        wait_for(partial(asked, told("retrying")), timeout=240)
        server.restart()
    wait_for(lambda: stored(tmp_path) == expected(orders=count), timeout=280)
    assert told("Redis answers again")
    server.kill9()
    wait_for(partial(asked, told("retrying")), timeout=240)
    os.killpg(job.pid, signal.SIGINT)
    assert job.wait(30) == 130, said.read_text()
    assert said.read_text().endswith("headgate: interrupted; the next run goes on from the checkpoint\n")
    assert "Traceback" not in said.read_text(), said.read_text()
    assert (stored(tmp_path), stored(tmp_path, "problems")) == (expected(orders=count), [])
    server.restart()

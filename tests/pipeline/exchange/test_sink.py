"""Writing through ``format("headgate")``."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

import headgate.sync
from headgate.redis.keys import Address
from headgate_pipeline.exchange import register
from headgate_pipeline.exchange.sink import BATCH, QUERY
from tests.pipeline.spark_workers import python_workers
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture
def url(shared_servers: SharedServers, cleanup_namespace: str) -> str:
    return shared_servers.standalone(newest_server())


@pytest.fixture
def client(url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Client]:
    with headgate.sync.connect(url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def options(url: str, cleanup_namespace: str, spark: SparkSession) -> dict[str, str]:
    register(spark)
    return {"url": url, "namespace": cleanup_namespace, "destination": "orders", "ttl": "2"}


class Reader:
    """Consumes in a thread, until it is told that all was sent and there is no more."""

    def __init__(self, client: headgate.sync.Client) -> None:
        self._session = client.session("reader")
        self._consumer = self._session.consumer("orders", window=20)
        self._sent = threading.Event()
        self._bodies: list[str] = []
        self._thread = threading.Thread(target=self._consume)
        self._thread.start()

    def _consume(self) -> None:
        while (message := self._consumer.receive(timeout=0.5)) is not None or not self._sent.is_set():
            if message is not None:
                self._bodies.append(str(message.body))
                message.accept()

    def done(self) -> list[str]:
        self._sent.set()
        self._thread.join()
        self._session.close()
        return sorted(self._bodies)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("cast(id as string) as body", "map('n', cast(id as string)) as headers")


def written(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def fields(client: headgate.sync.Client) -> dict[str, str]:
    inner = client._inner
    snapshot = client._run(lambda: inner.store.snapshot(Address.of(client.namespace, "orders")))
    return snapshot.fields if snapshot else {}


def test_all_tasks_share_one_limit_and_a_killed_worker_sends_nothing_twice(
    spark: SparkSession, client: headgate.sync.Client, options: dict[str, str]
) -> None:
    """Two tasks fill the limit and wait, their workers are killed, and then somebody consumes.

    Mutants: the key of a session has the number of the attempt in it; the sink does not leave out what is stored.
    """
    client.apply("orders", limit="1KiB")

    def kill_and_consume() -> Reader:
        wait_for(lambda: int(fields(client).get("blocked", 0)) == 2, timeout=240)
        assert int(fields(client)["pending_messages"]) > 0
        killed = python_workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(set(python_workers()) - set(killed)) >= 2, timeout=240)
        return Reader(client)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_and_consume)
        writing = numbers(spark, 300).repartition(2).write.format("headgate").mode("append")
        writing.options(**options, window="256").save()
        assert killing.result().done() == written(300)
    assert int(fields(client)["peak_bytes"]) <= 1024
    wait_for(lambda: (fields(client)["leased_bytes"], fields(client)["pending_bytes"]) == ("0", "0"))


@pytest.mark.soak
def test_a_task_that_raises_goes_on_where_it_was(
    spark: SparkSession, client: headgate.sync.Client, options: dict[str, str], tmp_path: Path
) -> None:
    """And the whole job, begun anew under its name, sends nothing. Mutant: the receipt goes as the session leaves."""
    stumbled = tmp_path / "stumbled"

    def stumble(rows: Iterable[Row]) -> Iterable[Row]:
        for number, row in enumerate(rows):
            if number == 600 and not stumbled.exists():
                stumbled.touch()
                raise ValueError
            yield row

    frame = spark.createDataFrame(
        numbers(spark, 1000).coalesce(1).rdd.mapPartitions(stumble), "body string, headers map<string,string>"
    )
    for _ in range(2):
        frame.write.format("headgate").mode("append").options(**options, job="export 1").save()
        assert sorted(str(m.body) for m in client.browse("orders")) == written(1000)
    assert stumbled.exists()


def test_a_stream_that_repeats_a_batch_sends_it_once(
    spark: SparkSession, client: headgate.sync.Client, options: dict[str, str], tmp_path: Path
) -> None:
    """Its commit is taken away between two runs, as if it had died before it. Mutant: the batch is not in the key."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"

    def run(*bodies: str) -> None:
        source.mkdir(exist_ok=True)
        if bodies:
            (source / f"{bodies[0]}.txt").write_text("\n".join(bodies))
        rows = spark.readStream.format("text").load(str(source)).withColumnRenamed("value", "body")
        query = (
            rows.writeStream.format("headgate").options(**options)
            .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run("a", "b")
    run("c")
    for commit in (checkpoint / "commits" / "1", checkpoint / "commits" / ".1.crc"):
        commit.unlink()
    run()
    run("d")
    assert sorted(str(m.body) for m in client.browse("orders")) == ["a", "b", "c", "d"]


@pytest.mark.soak
def test_a_query_that_is_stopped_while_it_waits_holds_nothing_soon(
    spark: SparkSession, client: headgate.sync.Client, options: dict[str, str], tmp_path: Path
) -> None:
    """Spark ends such tasks without their `finally`; the lease does it. Mutant: a lease of an hour."""
    client.apply("orders", limit="1KiB")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("\n".join("x" * 90 for _ in range(100)))
    rows = spark.readStream.format("text").load(str(tmp_path / "in")).withColumnRenamed("value", "body")
    writing = rows.writeStream.format("headgate").options(**options, window="256")
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_for(lambda: fields(client).get("blocked") == "1", timeout=240)
    stored, workers = int(fields(client)["pending_messages"]), set(python_workers())
    query.stop()
    wait_for(lambda: workers - set(python_workers()), timeout=240)  # Spark kills the worker of such a task
    reader = Reader(client)  # who uses the destination ends leases that are over
    wait_for(lambda: (fields(client)["blocked"], fields(client)["leased_bytes"]) == ("0", "0"), timeout=120)
    assert 0 < len(reader.done()) == stored < 100


def test_spark_tells_tasks_their_query_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Not documented, so this says when it ends."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")

    def told(rows: Iterator[Row]) -> Iterator[Row]:
        task = TaskContext.get()
        assert task is not None
        (tmp_path / "told").write_text(f"{task.getLocalProperty(QUERY)} {task.getLocalProperty(BATCH)}")
        yield from rows

    query = (
        spark.readStream.format("text").load(str(tmp_path / "in"))
        .mapInPandas(told, "value string").writeStream.format("noop").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert (tmp_path / "told").read_text() == f"{query.id} 0"

"""The pipeline: how fast ledgers are read, how fast they become Parquet, and what those who send notice of it."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them
from pyspark.sql.datasource import InputPartition

import headgate
from bench.harness import Figure, at_least, at_most, percentile
from bench.spark.ledgers import NAMESPACE, fill
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate_pipeline.ingest.job import Ingest, start
from headgate_pipeline.ledger.redis_ledgers import COUNT
from headgate_pipeline.ledger.spark_source import NAME, LedgerReader, LedgerSource, register
from headgate_pipeline.spark_session import session

PROBES = 2000
PAUSE = 0.0005
"""Seconds between two probes."""
_READ = """
import sys
from headgate_pipeline.ledger.redis_ledgers import Ledgers, connected
ledgers, read = Ledgers(connected(sys.argv[1]), sys.argv[2]), 0
for bounds in iter(lambda: ledgers.look(dict.fromkeys(ledgers.find("#"))), None):
    for name, there in bounds.items():
        for batch in ledgers.read(name, there.first, there.last):
            read += batch.num_rows
            print(read, flush=True)
"""


class RowsReader(LedgerReader):
    """Reads the same replies, and gives Spark Python's tuples."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one partition."""
        namespace = self.options.namespace
        ledgers = self.options.ledgers()
        for name, first, last, _ in partition.value or ():
            key = Address.of(namespace, name).shared[-1]
            for since in range(first, last + 1, COUNT):
                found = ledgers._range(key, since, last, COUNT)  # noqa: SLF001, the same replies
                for entry_id, (_, text) in found:
                    part = text.decode().split(",")
                    when = datetime.fromtimestamp(int(part[1]) / 1000, UTC)
                    yield (
                        *(namespace, name, int(entry_id[:-2]), int(part[0]), when, part[2], part[3]),
                        *map(int, part[4:7]),
                        part[7],
                        *map(int, part[8:13]),
                        *(None, None),
                    )


class RowsSource(LedgerSource):
    """The source as it would be without Arrow."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "headgate-ledger-rows"

    def reader(self, schema: Any) -> RowsReader:
        """Return what reads once."""
        return RowsReader(self._for(schema))


def _batch(spark: SparkSession, url: str, source: str, count: int) -> float:
    """Return entries a second."""
    rows = spark.read.format(source).option("url", url).option("namespace", NAMESPACE).load()
    began = time.perf_counter()
    found = rows.agg(F.count("op"), F.sum("seq"), F.sum("bytes")).first()
    assert found is not None
    assert found[0] == count
    return count / (time.perf_counter() - began)


def _stream(spark: SparkSession, url: str, count: int) -> list[float]:
    """Return entries a second of each batch but the first."""
    folder = tempfile.mkdtemp(prefix="hg-bench-")
    options = {"url": url, "namespace": NAMESPACE, "maxRows": str(count // 4)}
    query = start(spark, Ingest(options, f"{folder}/out", f"{folder}/checkpoint"))
    query.awaitTermination()
    rates = [found.numInputRows / found.batchDuration * 1000 for found in query.recentProgress if found.numInputRows]
    stored = spark.read.parquet(f"{folder}/out/entries").count()
    shutil.rmtree(folder)
    assert stored == count
    return rates[1:]


async def _calls(url: str) -> tuple[float, float]:
    """Return the p99 of asking for credit and of publishing a message, in ms, as a client has them."""
    acquired, published = [], []
    async with headgate.connect(url, namespace="probe") as client:
        await client.apply("orders", kind="queue", limit="1GiB")
        address, store = Address.of("probe", "orders"), client.store
        account = Account("bench", 1, 0, want=1 << 20, want_m=1 << 10)
        answer = await store.acquire(address, account, ttl_ms=60_000)
        account = replace(account, epoch=answer.epoch, granted=answer.granted, granted_m=answer.granted_m)
        for number in range(PROBES):
            began = time.perf_counter()
            await store.acquire(address, account, ttl_ms=60_000)
            asked = time.perf_counter()
            await store.publish(address, account, seq=1 + number, bodies=[b"x" * 100], ttl_ms=60_000)
            acquired.append((asked - began) * 1000)
            published.append((time.perf_counter() - asked) * 1000)
            await asyncio.sleep(PAUSE)
        await client.remove("orders")
    return percentile(acquired, 0.99), percentile(published, 0.99)


def _probe(url: str) -> tuple[float, float]:
    return asyncio.run(_calls(url))


def _probe_while_read(url: str) -> tuple[tuple[float, float], float]:
    """Return the p99s in ms, and the entries a second that were read meanwhile."""
    reader = subprocess.Popen([sys.executable, "-c", _READ, url, NAMESPACE], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    before, began = int(reader.stdout.readline()), time.perf_counter()
    found = _probe(url)
    seconds = time.perf_counter() - began
    reader.kill()
    last = reader.stdout.read().split("\n")[:-1]
    reader.wait()
    return found, (int(last[-1]) - before) / seconds


async def measure(*, quick: bool) -> list[Figure]:
    """Measure on a private Redis; the session of Spark is warm."""
    return await asyncio.to_thread(_measure, 400_000 if quick else 2_000_000, 2 if quick else 4)


def _measure(count: int, times: int) -> list[Figure]:
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # workers read with classes of this module
    server = EmbeddedRedis.start()
    spark = session("bench", master="local[2]")
    try:
        fill(server.url, count)
        idle = [_probe(server.url) for _ in range(times)]
        busy = [_probe_while_read(server.url) for _ in range(times)]
        register(spark)
        spark.dataSource.register(RowsSource)
        arrow, rows = [], []
        for number in range(times + 1):
            found = _batch(spark, server.url, NAME, count), _batch(spark, server.url, RowsSource.name(), count)
            if number:  # the first does not count
                arrow.append(found[0])
                rows.append(found[1])
        stream = [rate for _ in range(2) for rate in _stream(spark, server.url, count)]
    finally:
        spark.stop()
        server.stop()
    figures = []
    for at, call in enumerate(("acquire", "publish")):
        alone = [p99s[at] for p99s in idle]
        figures.append(at_most(f"p99 of {call}, nobody reads", alone, "ms"))
        beside = [p99s[at] for p99s, _ in busy]
        figures.append(at_most(f"p99 of {call} while ledgers are read", beside, "ms", round(2 * min(alone) + 1, 2)))
    return [
        at_least(f"entries/s read in a batch ({count} entries, {os.cpu_count()} processors)", arrow, "/s", 700_000),
        at_least("  the same as Python's tuples", rows, "/s"),
        at_least("  times as fast", [one / other for one, other in zip(arrow, rows, strict=True)], "", 2.5),
        at_least("entries/s from a stream to Parquet", stream, "/s", 300_000),
        *figures,
        at_least("  entries/s read meanwhile", [rate for _, rate in busy], "/s"),
    ]

"""The audit: entries a second that are proven from Parquet, beside a replay of one after the other; a whole command."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.harness import Figure, at_least, at_most
from headgate_pipeline.audit.audit import audit, audit_folder, verdicts
from headgate_pipeline.audit.replay import Replay
from headgate_pipeline.ledger.entries import entries
from headgate_pipeline.ledger.schema import ENTRY
from headgate_pipeline.measure.measure import flow
from headgate_pipeline.spark_session import session

NAMESPACE = "bench"
DESTINATIONS = 64
FILE = 250_000
"""Entries of a file."""
DEMO = 20_000
"""Entries of a ledger as the demo leaves it."""
BEGIN_MS = 1_763_600_000_000
SIZE = 1024
BATCH = 16


def ledger(name: str, count: int) -> Iterator[tuple[object, ...]]:
    """A queue that four producers send batches to, and a consumer settles: two entries a batch, each with events."""
    granted, pending, sent = [0] * 4, 0, 1
    held = BATCH * SIZE

    def entry(
        seq: int, op: str, who: str, size: int, messages: int, first: int, detail: str, leased: int
    ) -> tuple[object, ...]:
        at = (BEGIN_MS + seq * 2) * 1000
        return (
            NAMESPACE, name, seq, 1, at, op, who, size, messages, first, detail, pending, pending // SIZE, leased,
            leased // SIZE, BEGIN_MS, None, None,
        )  # fmt: skip

    yield (
        NAMESPACE, name, 1, 1, BEGIN_MS * 1000, "apply", "-", 0, 0, 0, "limits:1048576:inf;binds:yes;above:refuse:-",
        0, 0, 0, 0, BEGIN_MS, None, None,
    )  # fmt: skip
    for who in range(4):
        granted[who] = held
        detail = f"open:p{who}~0001;grant:p{who}~0001:{held}:{BATCH}"
        yield entry(who + 2, "acquire", f"p{who}~0001", held, BATCH, 0, detail, held * (who + 1))
    yield entry(6, "attach", "c~0001.1", 0, 0, 0, "attach:c~0001.1:queue", held * 4)
    delivered = (0, 0)
    for seq in range(7, count, 2):
        who = seq // 2 % 4
        granted[who] += held
        pending += held
        detail = f"grant:p{who}~0001:{granted[who]}:{granted[who] // SIZE}"
        yield entry(seq, "publish", f"p{who}~0001", held, BATCH, sent, detail, held * 4)
        sent += BATCH
        pending -= delivered[0]
        detail = f"settled:{delivered[0]}:{delivered[1]};fetched:{held}:{BATCH}"
        yield entry(seq + 1, "settle", "c~0001.1", *delivered, 0, detail, held * 4)
        delivered = (held, BATCH)


def write(folder: Path, count: int, destinations: int) -> int:
    """Write ledgers as `ingest` does, every file with a stretch of each; returns how many entries."""
    folder.mkdir()
    kinds = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    schema = pa.schema([(field.name, kinds[field.dataType.simpleString()]) for field in ENTRY])
    tables = []
    for number in range(destinations):
        columns = list(zip(*ledger(f"queue-{number}", count // destinations), strict=True))
        tables.append(
            pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
        )
    stretch = max(1, FILE // destinations)
    for number in range(-(-tables[0].num_rows // stretch)):
        part = pa.concat_tables([table.slice(number * stretch, stretch) for table in tables])
        pq.write_table(part, folder / f"{number:05}.parquet", use_deprecated_int96_timestamps=True)
    return sum(table.num_rows for table in tables)


def one_by_one() -> float:
    """Return entries a second that a replay takes in this process, rows at hand."""
    rows = [
        (seq, at // 1000, *rest, version, None)
        for _, _, seq, version, at, *rest, _, _ in ledger("queue", 100_000)
        if isinstance(at, int)
    ]
    replay, began = Replay(), time.perf_counter()
    for row in rows:
        replay.step(row)
    took = time.perf_counter() - began
    assert [found.finding for found in replay.finish()] == ["audited"]
    return len(rows) / took


def rate(findings: Callable[[], DataFrame], count: int) -> float:
    """Return entries a second of an audit that finds all proven."""
    began = time.perf_counter()
    said = verdicts(findings()).collect()
    took = time.perf_counter() - began
    assert {row["verdict"] for row in said} == {"proven"}, said
    assert sum(row["entries"] for row in said) == count
    return count / took


def command(folder: Path) -> float:
    """Return the seconds of a whole command, the start of Python, Java and Spark included."""
    began = time.perf_counter()
    words = ("-m", "headgate_coordinator", "pipeline", "audit", "--input", str(folder), "--namespace", NAMESPACE)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


async def measure(*, quick: bool) -> list[Figure]:
    """Measure; the session of Spark is warm, but for the command."""
    return await asyncio.to_thread(_measure, 500_000 if quick else 2_000_000, 4 if quick else 8)


def _measure(count: int, times: int) -> list[Figure]:
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory(prefix="hg-bench-") as name:
        many, one, demo = (Path(name, part) for part in ("many", "one", "demo"))
        written = write(many, count, DESTINATIONS), write(one, count // 2, 1), write(demo, DEMO, 4)
        commands = [command(demo) for _ in range(2)]
        spark = session("bench", master="local[2]", settings={"spark.driver.memory": "2g"})
        try:
            rounds: list[list[float]] = [[] for _ in range(5)]
            for number in range(times):
                found = (
                    rate(lambda: audit_folder(spark, many, NAMESPACE), written[0]),
                    rate(lambda: audit_folder(spark, one, NAMESPACE), written[1]),
                    rate(lambda: audit(entries(spark, many, None, NAMESPACE)), written[0]),
                    _windows(entries(spark, many, None, NAMESPACE), written[0]),
                    one_by_one(),
                )
                if number > 1:  # the first two do not count: Java has not yet compiled what it runs
                    for numbers, value in zip(rounds, found, strict=True):
                        numbers.append(value)
        finally:
            spark.stop()
    quickly, skewed, framed, windows, singly = rounds
    return [
        at_least(f"entries/s proven from Parquet ({written[0]} of {DESTINATIONS} ledgers)", quickly, "/s", 700_000),
        at_least("  one process, entry by entry, nothing read", singly, "/s"),
        at_least("  times as fast", [a / b for a, b in zip(quickly, singly, strict=True)], "", 1.8),
        at_least(f"entries/s of one ledger of {written[1]}", skewed, "/s"),
        at_least("entries/s of a frame, as from a Redis", framed, "/s"),
        at_least("entries/s in windows (`measure`)", windows, "/s", 300_000),
        at_most(f"the command on {written[2]} entries, from its start", commands, "s", 30),
    ]


def _windows(rows: DataFrame, count: int) -> float:
    began = time.perf_counter()
    flow(rows).write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began)

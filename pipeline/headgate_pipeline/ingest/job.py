"""An ingest writes ledgers to Parquet, each entry once.

The folders are ``<output>/entries/date=<day>/`` and ``<output>/problems/date=<day>/``.

How far it got is in a checkpoint. A run that dies anywhere is continued by the next one, with nothing lost or doubled.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them
from pyspark.sql.streaming.query import StreamingQuery

from headgate import CoordinatorUnavailable, HeadgateError, InvalidValue
from headgate_pipeline.ingest.publish import Published
from headgate_pipeline.ledger.offsets import Offset
from headgate_pipeline.ledger.redis_ledgers import disconnect
from headgate_pipeline.ledger.spark_source import NAME, Options, register

ENTRIES: Final = "entries"
PROBLEMS: Final = "problems"
AGAIN: Final = (1, 2, 5, 10, 30)
"""Seconds from one attempt to the next while Redis does not answer; the last for all that follow."""
_LOOK: Final = 1
"""Seconds between two looks at the progress of the query."""
_AWAY: Final = f"{CoordinatorUnavailable.__module__}.{CoordinatorUnavailable.__name__}: "
"""Words in a worker's traceback about a Redis that does not answer."""
_LATE: Final = "failed to connect back"
"""Spark's words about a worker that did not start within ten seconds, which no setting changes: nothing was read."""
_STARTS: Final = 5
"""Times in a row that a query is started whose worker is late."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """An ingest holds the source and the target of a copy.

    Attributes:
        source: options of ``headgate-ledger``.
        output: folder of the tables.
        checkpoint: folder of the checkpoint; local when ``trim`` is on.
        follow: go on for ever, instead of ending with what there is.
        every: seconds from one batch to the next when following.
        trim: delete entries from Redis once the checkpoint has them.
    """

    source: dict[str, str]
    output: str
    checkpoint: str
    follow: bool = False
    every: int = 10
    trim: bool = False

    def check(self) -> None:
        """Say what is wrong before Spark begins.

        Raises:
            InvalidValue, InvalidName, PolicyError: an option is wrong.
            CoordinatorUnavailable: Redis does not answer.
        """
        Options.of(self.source).ledgers()
        if self.trim and "://" in self.checkpoint:
            raise InvalidValue(f"--trim reads the checkpoint, so it must be a local path; it is {self.checkpoint!r}")


class IngestFailed(HeadgateError):
    """The query has failed. Nothing is lost: the next run goes on from the checkpoint."""


class _LateError(Exception):
    """A worker of Spark did not start in time."""


def tables(rows: DataFrame) -> DataFrame:
    """Return the rows with the columns ``table`` and ``date``: the day of the entry, or for a problem without a time,
    the day on which it was read.
    """  # noqa: D205
    return rows.withColumn(
        "table", F.when(F.col("problem").isNull(), F.lit(ENTRIES)).otherwise(F.lit(PROBLEMS))
    ).withColumn("date", F.to_date(F.coalesce(F.col("time"), F.current_timestamp())))


def start(spark: SparkSession, job: Ingest) -> StreamingQuery:
    """Start the query."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # a day is one of UTC
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "16")  # so few days are written without being sorted
    register(spark)
    published = Published(spark, job.output)
    query_id: list[str] = []

    def batch(rows: DataFrame, number: int) -> None:
        if not query_id:
            session: Any = rows.sparkSession
            query_id.append(session.sparkContext.getLocalProperty("sql.streaming.queryId"))
        published.add(tables(rows), f"{query_id[0][:8]}-{number:09d}")

    writer = (
        spark.readStream.format(NAME)
        .options(**job.source)
        .load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", job.checkpoint)
        .queryName("ingest")
    )
    timed = writer.trigger(processingTime=f"{job.every} seconds") if job.follow else writer.trigger(availableNow=True)
    return timed.start()


def run(spark: SparkSession, job: Ingest, say: Callable[[str], None]) -> int:
    """Copy until all was copied, or for ever; returns how many rows were written. ``say`` hears of each batch.

    A job that follows outlives its Redis: while that does not answer, it is asked again after 1, 2, 5, 10 and then
    always 30 seconds, and the copy goes on where its checkpoint is.

    Raises:
        InvalidValue, InvalidName, PolicyError: an option is wrong.
        IngestFailed: the query failed.
    """
    rows, failed, late = 0, 0, 0
    while True:
        try:
            for progress in _copy(spark, job, say):
                if failed:
                    say("Redis answers again")
                if progress.numInputRows:
                    say(_line(progress))
                rows, failed, late = rows + progress.numInputRows, 0, 0
        except CoordinatorUnavailable as error:
            if not job.follow:
                raise IngestFailed(f"{error}; the next run goes on from {job.checkpoint}") from None
            pause = AGAIN[min(failed, len(AGAIN) - 1)]
            say(f"{str(error).rstrip('.')}; retrying in {pause} s")
            failed += 1
            disconnect()  # of a cluster, what is known of its servers may be old
            time.sleep(pause)
        except _LateError as error:
            late += 1
            if late == _STARTS:
                raise IngestFailed(f"{error}; the next run goes on from {job.checkpoint}") from None
            say("a worker of Spark did not start in time; the query is started again")
        else:
            return rows


def _copy(spark: SparkSession, job: Ingest, say: Callable[[str], None]) -> Iterator[Any]:
    """Run one query to its end; yields what it tells of its progress."""
    query = start(spark, job)
    reported, trimmed = "", -1
    try:
        while True:
            try:
                over = query.awaitTermination(_LOOK)
            except StreamingQueryException as error:
                reason = _reason(error)
                if _AWAY in str(error):
                    raise CoordinatorUnavailable(reason) from None
                if _LATE in str(error):
                    raise _LateError(reason) from None
                raise IngestFailed(f"{reason}; the next run goes on from {job.checkpoint}") from None
            for progress in query.recentProgress:
                if progress.timestamp > reported:
                    reported = progress.timestamp
                    yield progress
            if job.trim:
                trimmed = _trim(job, trimmed, say)
            if over:
                return
    finally:
        query.stop()


def committed(checkpoint: Path) -> tuple[int, Offset]:
    """Return the last batch that the checkpoint has, and how far it read; -1 and nothing when it has none."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdecimal()]
    if not done:
        return -1, {}
    lines = (checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8").splitlines()
    return max(done), json.loads(lines[2])  # the version, the state of the query, one line a source


def _trim(job: Ingest, before: int, say: Callable[[str], None]) -> int:
    batch, offset = committed(Path(job.checkpoint))
    if batch > before:
        began = time.monotonic()
        if count := Options.of(job.source).ledgers().trim(offset):
            say(f"trimmed {count} entries that the checkpoint has, in {time.monotonic() - began:.1f} s")
    return batch


def _reason(error: StreamingQueryException) -> str:
    """Return what went wrong, out of what a worker, Java and Spark say about it."""
    lines = str(error).splitlines()
    ours = [line for line in lines if line.startswith(("headgate.errors.", "headgate_pipeline."))]
    return ours[-1].partition(": ")[2] if ours else lines[0]


def _line(progress: Any) -> str:
    source = progress.sources[0]
    lag = ""
    latest, end = (json.loads(text or "null") or {} for text in (source.latestOffset, source.endOffset))
    if latest:  # a batch that is done again is not looked for
        behind = sum(max(0, there["seq"] - end.get(name, {"seq": 0})["seq"]) for name, there in latest.items())
        lag = f", {behind} behind"
    count = len(end)
    return (
        f"batch {progress.batchId}: {progress.numInputRows} rows of {count} ledger{'s' * (count != 1)} "
        f"in {progress.batchDuration / 1000:.1f} s{lag}"
    )

"""A query reads a destination in a stream: a window bounds what it has, and what is done with is settled.

A batch is a list of the numbers of its messages. That list is the offset, which Spark writes down before the batch
begins. So after a crash the batch is the same messages again, as soon as the lease of who died is over; and those of
the last batch that was committed are known, and accepted when they come again instead of being given out. So are those
of earlier batches whose leases ended before they were accepted: the offset names them as long as they are owed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headgate_pipeline.exchange.intake import Intake
from headgate_pipeline.exchange.messages import Messages, batches_of
from headgate_pipeline.exchange.numbers import numbers_of, ranges
from headgate_pipeline.exchange.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

LOOK: Final = 0.5
"""Seconds that Spark waits here for a message before it looks again."""

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader reads for ``readStream``; all but :meth:`read` runs in one process beside the driver.

    Spark asks for the next batch before it says that the last was committed, and says nothing of the very last, so
    what is settled goes by :meth:`latestOffset`: a batch that begins after another has that one behind it.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        options.consumer_window()
        self._intake: Intake | None = None
        self._until: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what cannot go to executors, nor has to."""
        return {**self.__dict__, "_intake": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins: with nothing behind it."""
        return {"batch": 0, "numbers": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may have: the option ``limit``, else what the window lets it hold."""
        return ReadMaxRows(self._options.limit) if self._options.limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what was sent so far: this run ends with it."""
        self._until = self._messages().last()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Settle the batch that ended at ``start``, and return the next; the same where there is nothing."""
        intake = self._messages()
        intake.settle(numbers_of(start["numbers"]), numbers_of(start.get("owed", "")))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 1 << 31
        wait = LOOK if self._until is None else self._options.idle
        found = intake.fresh(most=most, wait=wait, until=self._until)
        if not found:
            return start
        return {"batch": start["batch"] + 1, "numbers": ranges(found), "owed": ranges(intake.owed)}

    def partitions(self, start: Offset, end: Offset) -> list[Messages]:
        """Return the messages of a batch, shared out."""
        if start == end:
            return []
        patience = 2 * self._options.ttl + 5  # of a query that was killed, what it held comes back by then
        owed = numbers_of(end.get("owed", ""))
        stored = self._messages().batch(numbers_of(end["numbers"]), owed, patience=patience)
        size = -(-len(stored) // self._options.parts) or 1
        return [Messages(stored[at : at + size]) for at in range(0, len(stored), size)]

    def read(self, partition: Messages) -> "Iterator[pa.RecordBatch]":  # type: ignore[override]
        """Yield the rows of one partition; runs on an executor."""
        return batches_of(partition.stored)

    def stop(self) -> None:
        """Give back what is held; Spark may not call it, and then the lease ends."""
        if self._intake is not None:
            self._intake.close()

    def _messages(self) -> Intake:
        if self._intake is None:
            self._intake = Intake(self._options)
        return self._intake

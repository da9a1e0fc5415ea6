"""A read in a batch may take messages: they are settled when the job has succeeded, and come again when it has not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headgate_pipeline.exchange.intake import Intake
from headgate_pipeline.exchange.messages import MESSAGE, batches_of
from headgate_pipeline.exchange.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def drained(spark: "SparkSession", **given: Any) -> "Iterator[DataFrame]":
    """Take what is pending, as a DataFrame; what was taken is accepted as the block ends, and given back if it raises.

        with drained(spark, url=url, destination="orders", limit=10_000) as frame:
            frame.write.parquet(path)

    The driver holds the messages while the block runs, so run the job inside it. A driver that is killed has settled
    nothing: all of it comes again after the TTL, also what the job has dealt with.

    Args:
        spark: the session.
        given: options as of ``format("headgate")``. It takes up to ``limit`` messages, else as many as the window has
            room for, and ends when none came for ``idle`` seconds.

    Raises:
        InvalidValue: an option cannot be used.
        CoordinatorUnavailable: Redis does not answer; as the block ends, it is not known what was settled.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    options = Options.of({name: str(value) for name, value in given.items()})
    if options.limit and options.window is None:
        options = Options.of({**{name: str(value) for name, value in given.items()}, "window": str(options.limit)})
    intake = Intake(options)
    try:
        taken: set[int] = set()
        while options.limit is None or len(taken) < options.limit:
            found = intake.fresh(most=(options.limit or 1 << 31) - len(taken), wait=options.idle)
            if not found:
                break
            taken.update(found)
        stored = intake.batch(taken, patience=0)
        table = pa.Table.from_batches(list(batches_of(stored)), schema=to_arrow_schema(MESSAGE, timezone="UTC"))
        yield spark.createDataFrame(table, MESSAGE)
        intake.settle(taken)
    finally:
        intake.close()

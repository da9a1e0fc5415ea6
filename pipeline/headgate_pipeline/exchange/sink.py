"""Each task sends its rows with credit that the whole cluster shares, and sends none of them twice.

A task is one session, whose id is a hash of what the task has to do: (query, batch, partition), or (job, partition). An
attempt that begins anew resumes that session. It learns how many messages the earlier attempts stored, leaves out as
many rows, and fences an attempt that still runs. Which messages are stored, and how many, is written by one script, so
no crash comes between. Nothing depends on ``finally``: what a killed worker held comes back when its lease ends.
"""

from collections import deque
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from headgate import InvalidValue
from headgate.limiting.bucket import Bucket
from headgate.producing.producer import Producer
from headgate.session.session import Session
from headgate_pipeline.exchange.connection import connection
from headgate_pipeline.exchange.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Local properties of a streaming task. Spark does not document them; a test says when they are gone."""
CHUNK: Final = 256
"""Rows that are handed to the event loop at a time."""
MOST_LATE: Final = 4096
"""Messages on their way out, at the most; their bytes are bounded by the producer's window."""

Row = tuple[bytes | str, dict[str, str] | None]


@dataclass
class TaskReport(WriterCommitMessage):
    """A task report tells the driver what one task did.

    Attributes:
        rows: that it had.
        resumed: how many of them earlier attempts had sent.
    """

    rows: int
    resumed: int


def columns(schema: StructType, options: Options) -> tuple[str, str]:
    """Return the names of the columns of body and headers; empty where there are no headers.

    Raises:
        InvalidValue: a column is missing, or of another type.
    """
    types = {field.name: field.dataType for field in schema}
    if not isinstance(types.get(options.body), BinaryType | StringType):
        found = types[options.body].simpleString() if options.body in types else "missing"
        raise InvalidValue(f"column {options.body!r} is {found}; send text or binary, or name another in option body")
    if options.headers is None and "headers" not in types:
        return options.body, ""
    name = options.headers or "headers"
    if types.get(name) != MapType(StringType(), StringType(), valueContainsNull=True) and types.get(name) != MapType(
        StringType(), StringType(), valueContainsNull=False
    ):
        found = types[name].simpleString() if name in types else "missing"
        raise InvalidValue(f"column {name!r} is {found}; headers must be map<string,string>")
    return options.body, name


def rows_of(batches: "Iterator[pa.RecordBatch]", body: str, headers: str) -> Iterator[Row]:
    """Yield body and headers of each row.

    Raises:
        InvalidValue: there is no body.
    """
    for batch in batches:
        bodies = batch.column(body).to_pylist()
        extras = batch.column(headers).to_pylist() if headers else [None] * len(bodies)
        for text, pairs in zip(bodies, extras, strict=True):
            if text is None:
                raise InvalidValue(
                    f"column {body!r} is null in a row; filter such rows, since every message has a body"
                )
            yield text, {name: value or "" for name, value in pairs} if pairs else None


class Sending:
    """A sending is one attempt of a task, on the event loop; ``key`` names what the task has to do."""

    def __init__(self, options: Options, key: str) -> None:
        self._options = options
        self._connection = connection(options)
        self._late: deque[Awaitable[Any]] = deque()
        self._key = key
        self._bucket: Bucket | None = None

    def send(self, rows: Iterator[Row]) -> TaskReport:
        """Send all rows that earlier attempts did not, and wait until they are stored.

        Raises:
            CreditTimeout: there was no room in time.
            SessionExpired: a later attempt took over.
            HeadgateError: any other reason why they could not be sent.
        """
        run = self._connection.run
        session = run(self._session())
        try:
            producer = run(self._open(session))
            resumed = producer.resumed
            done = sum(1 for _ in islice(rows, resumed))
            if done < resumed:
                raise InvalidValue(
                    f"{resumed} messages of {self._key!r} are stored, and now it has {done} rows; "
                    "a task that is tried again must have the same rows in the same order"
                )
            while chunk := list(islice(rows, CHUNK)):
                run(self._send(producer, chunk))
                done += len(chunk)
            run(self._rest(0))
        finally:
            run(session.close())
        return TaskReport(done, resumed)

    async def _session(self) -> Session:
        return self._connection.client.session("spark", ttl=self._options.ttl, resume=self._key)

    async def _open(self, session: Session) -> Producer:
        o = self._options
        if o.bucket:
            self._bucket = await session.bucket(o.bucket)
        return await session.producer(
            o.destination, window=o.window, rate=o.rate, weight=o.weight, timeout=o.timeout, when_full="block"
        )

    async def _send(self, producer: Producer, rows: list[Row]) -> None:
        for body, headers in rows:
            if self._bucket is not None:
                await self._bucket.take(1, timeout=self._options.timeout)
            self._late.append(await producer.post(body, headers=headers))
        await self._rest(MOST_LATE)

    async def _rest(self, most: int) -> None:
        while len(self._late) > most:
            await self._late.popleft()


class BatchWriter(DataSourceArrowWriter):
    """A batch writer sends the rows of ``write``.

    A job is done when every row is stored; a job that failed has sent some, and says so.
    """

    def __init__(self, options: Options, schema: StructType, job: str) -> None:
        self._options = options
        self._job = job
        self._body, self._headers = columns(schema, options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskReport:
        """Send one partition; runs on an executor."""
        key = f"{self._job}/{_task().partitionId()}"
        return Sending(self._options, key).send(rows_of(iterator, self._body, self._headers))


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream writer sends the rows of ``writeStream``; arguments as :class:`BatchWriter`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._body, self._headers = columns(schema, options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskReport:
        """Send one partition of one batch; runs on an executor."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise InvalidValue(f"this Spark does not give tasks their query and batch ({QUERY}, {BATCH})")
        key = f"{query}/{batch}/{task.partitionId()}"
        return Sending(self._options, key).send(rows_of(iterator, self._body, self._headers))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvalidValue("this runs only in Spark's tasks")
    return task

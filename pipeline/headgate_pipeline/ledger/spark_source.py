"""A Spark source offers ledgers as rows of ENTRY: `spark.read.format("headgate-ledger")`, `spark.readStream...`.

Options:

``url``
    The Redis; by default what the environment of the driver has in HEADGATE_URL. Spark hides an option of this name.
``urlFile``
    A file that has the URL in it, on every host; instead of ``url``.
``namespace``
    ``default``.
``destination``
    A pattern of names as in a policy; ``#``, all, by default.
``rowsPerPartition``
    Entries that one task reads; 250000.
``maxRows``
    Entries that one trigger of a stream takes at most, shared in proportion to what each ledger has; no limit.
``discoverySeconds``
    A stream looks so often for ledgers that are new; 10.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate import InvalidValue
from headgate.core.addresses.pattern import Pattern
from headgate.redis.keys import check_namespace
from headgate_pipeline.ledger import parse as ledger
from headgate_pipeline.ledger.offsets import Bounds, Offset, Range, pack, position, share, went_back
from headgate_pipeline.ledger.redis_ledgers import Ledgers, connected
from headgate_pipeline.ledger.schema import ENTRY

NAME: Final = "headgate-ledger"
_OPTIONS: Final = ("url", "urlFile", "namespace", "destination", "rowsPerPartition", "maxRows", "discoverySeconds")


@dataclass(frozen=True, slots=True)
class Options:
    """`Options` holds the options of a source, checked; they travel to the tasks."""

    url: str | None = field(repr=False)
    url_file: str | None
    namespace: str
    destination: str
    rows: int
    max_rows: int | None
    discovery: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Return the options that Spark gives.

        Raises:
            InvalidValue, InvalidName, PolicyError: one is unknown or wrong.
        """
        known = {name.lower(): name for name in _OPTIONS}
        values = {}
        for name, value in given.items():
            if name.lower() not in known:
                raise InvalidValue(f"option {name!r} is unknown; {NAME} has {', '.join(_OPTIONS)}")
            values[known[name.lower()]] = value
        url, file = values.get("url"), values.get("urlFile")
        if url is None and file is None:
            url = os.environ.get("HEADGATE_URL")
        if (url is None) == (file is None):
            raise InvalidValue("which Redis? give the option url or urlFile, one of them, or set HEADGATE_URL")
        destination = values.get("destination", "#")
        Pattern.parse(destination)
        return cls(
            url=url,
            url_file=file,
            namespace=check_namespace(values.get("namespace", "default")),
            destination=destination,
            rows=_count("rowsPerPartition", values.get("rowsPerPartition", "250000")),
            max_rows=_count("maxRows", values["maxRows"]) if "maxRows" in values else None,
            discovery=_count("discoverySeconds", values.get("discoverySeconds", "10"), least=0),
        )

    def ledgers(self) -> Ledgers:
        """Return the ledgers, over this process' connections.

        Raises:
            InvalidValue: the URL is wrong, or its file cannot be read.
            CoordinatorUnavailable: nothing answers there.
        """
        url = self.url
        if url is None:
            try:
                url = Path(self.url_file or "").read_text(encoding="utf-8").strip()
            except OSError as error:
                raise InvalidValue(f"urlFile {self.url_file!r} cannot be read: {error.strerror}") from None
        return Ledgers(connected(url), self.namespace)


def _count(name: str, text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise InvalidValue(f"option {name} is {text!r}: expected a whole number, {least} or more")
    return int(text)


class Ranges(InputPartition):
    """`Ranges` is one task's part of a ledger."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__([(part.destination, part.first, part.last, part.back) for part in ranges])


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    ledgers = options.ledgers()
    for destination, first, last, back in partition.value or ():  # Spark gives one with None when there are none
        if back is not None:
            yield ledger.back(options.namespace, destination, back, first)
        yield from ledgers.read(destination, first, last)


class LedgerReader(DataSourceReader):
    """A ledger reader reads all that is in the ledgers when the query begins."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        ledgers = self.options.ledgers()
        found = ledgers.look(dict.fromkeys(ledgers.find(self.options.destination)))
        ranges = [Range(name, there.first, there.last) for name, there in found.items() if there]
        return [Ranges(piece) for piece in pack(ranges, self.options.rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition."""
        return _read(self.options, partition)


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ledgers from where a checkpoint is; those that are new are picked up on the way.

    Entries that were trimmed before they were read are a row with a ``problem``, and so is a ledger that went back. A
    destination that was removed is forgotten.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._target: dict[str, int] | None = None
        self._names: list[str] = []
        self._found_at = float("-inf")
        self._latest: Offset = {}

    def initialOffset(self) -> Offset:  # noqa: N802, the name is Spark's
        """Return where a stream without a checkpoint begins: before the oldest entry of every ledger."""
        ledgers = self.options.ledgers()
        found = ledgers.look(dict.fromkeys(ledgers.find(self.options.destination)))
        return {name: position(there.first - 1, 0) for name, there in sorted(found.items()) if there}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now: that is all this query reads."""
        ledgers = self.options.ledgers()
        found = ledgers.look(dict.fromkeys(ledgers.find(self.options.destination)))
        self._target = {name: there.last for name, there in found.items() if there}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far the next batch reads."""
        ledgers = self.options.ledgers()
        names = sorted({*start, *self._known(ledgers)})
        found = ledgers.look({name: start[name]["seq"] if name in start else None for name in names})
        here = {name: there for name, there in found.items() if there}
        self._latest = {name: position(there.last, there.epoch) for name, there in here.items()}
        bases = {name: _base(ledgers, name, there, start.get(name)) for name, there in here.items()}
        backlog = {}
        for name, there in here.items():
            end = there.last if self._target is None else min(there.last, self._target.get(name, 0))
            if end > bases[name][0]:
                backlog[name] = end - bases[name][0]
        taken = share(backlog, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        reached = {name: bases[name][0] + count for name, count in taken.items() if count}
        cut = ledgers.look({name: seq for name, seq in reached.items() if seq != here[name].last})
        epochs = {name: there.epoch for name, there in here.items()}
        epochs |= {name: (there.at or 0) if there else 0 for name, there in cut.items()}
        moved = {name: position(seq, epochs[name]) for name, seq in reached.items()}
        kept = {name: start[name] for name in start if name in here}
        return dict(sorted({**kept, **moved}.items()))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return what there was at the last look: its distance to the end of a batch is the lag."""
        return self._latest or None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return what each task of a batch reads; the same for the same offsets, whenever it is asked."""
        ranges = []
        for name, upto in sorted(end.items()):
            since = start.get(name, position(0, 0))
            if upto == since:
                continue
            first, back = since["seq"] + 1, None
            if upto["seq"] < since["seq"] or upto["epoch"] != since["epoch"]:
                ledgers = self.options.ledgers()
                there = ledgers.look({name: since["seq"]})[name]
                base, back = _base(ledgers, name, there, since) if there else (min(since["seq"], upto["seq"] - 1), None)
                first = base + 1
            ranges.append(Range(name, first, upto["seq"], back))
        return [Ranges(piece) for piece in pack(ranges, self.options.rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition."""
        return _read(self.options, partition)

    def _known(self, ledgers: Ledgers) -> list[str]:
        if time.monotonic() - self._found_at >= self.options.discovery:
            self._names, self._found_at = ledgers.find(self.options.destination), time.monotonic()
        return self._names


def _base(ledgers: Ledgers, name: str, there: Bounds, since: dict[str, int] | None) -> tuple[int, int | None]:
    """Return the number to read on after, and the ledger's own number if it went back."""
    if since is None:
        return 0, None
    gone = went_back(there, since)
    if gone:
        return ledgers.first_after(name, since["epoch"], there.last) - 1, since["seq"]
    return since["seq"], None


class LedgerSource(DataSource):
    """A ledger source is registered with Spark: ``spark.dataSource.register(LedgerSource)``, or :func:`register`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._checked = Options.of(options)

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns."""
        return ENTRY

    def reader(self, schema: StructType) -> LedgerReader:
        """Return what reads once."""
        return LedgerReader(self._for(schema))

    def streamReader(self, schema: StructType) -> LedgerStreamReader:  # noqa: N802
        """Return what reads as a stream."""
        return LedgerStreamReader(self._for(schema))

    def _for(self, schema: StructType) -> Options:
        if schema != ENTRY:
            raise InvalidValue(f"{NAME} has columns of its own; leave out schema(), and select() what you want")
        return self._checked


def register(spark: SparkSession) -> None:
    """Make ``format("headgate-ledger")`` known to a session."""
    spark.dataSource.register(LedgerSource)

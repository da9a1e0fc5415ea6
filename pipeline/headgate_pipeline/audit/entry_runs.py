"""A run is made of entries of one destination that follow each other, as one value that Spark moves.

Pure but for reading files.

Rows that Spark shuffles and sorts one by one cost more than all that is then asked of them. A run costs what its bytes
do.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate_pipeline.audit.findings import ROW

_TEXT: Final = frozenset({"op", "session", "detail", "problem"})
PLACE: Final = ("namespace", "destination")
ROWS: Final = pa.schema([pa.field(name, pa.string() if name in _TEXT else pa.int64()) for name in ROW])
"""Columns of a run."""
ENTRIES: Final = pa.schema([*(pa.field(name, pa.string()) for name in PLACE), *ROWS])
"""Columns that runs are made of."""
RUN: Final = pa.schema([
    *(pa.field(name, pa.string()) for name in PLACE),
    *(pa.field(name, pa.int64()) for name in ("epoch", "seq")),
    pa.field("entries", pa.binary()),
])  # fmt: skip
"""``epoch`` and ``seq`` are those of the first entry, -1 where it has none; ``entries`` is an Arrow stream."""
AT_ONCE: Final = 1 << 17
"""Entries that are cut into runs together: that many are in memory."""
MOST: Final = 1 << 15
"""Entries of a run."""
_SMALL: Final = 1024
"""Entries a run: where they are fewer, it is worth while to sort first."""

Numbers = npt.NDArray[np.int64]


def read(paths: Iterable[str], namespace: str) -> Iterator[pa.RecordBatch]:
    """Return the entries of a namespace in Parquet files, in their order, as :data:`ENTRIES`."""
    for path in paths:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            there = set(file.schema_arrow.names)
            wanted = [name for name in ("time", *ENTRIES.names) if name in there]
            for batch in file.iter_batches(MOST, columns=wanted, use_threads=False):
                entries = _entries(batch)
                ours = pc.equal(entries.column("namespace"), namespace)
                yield from (entries if pc.all(ours).as_py() else entries.filter(ours)).to_batches()


def _entries(batch: pa.RecordBatch) -> pa.Table:
    found = {name: batch.column(name) for name in batch.schema.names}
    if (time := found.get("time")) is not None:
        found["ms"] = pc.divide(time.cast(pa.timestamp("us", time.type.tz)).cast(pa.int64()), 1000)
    columns = [
        found[field.name].cast(field.type) if field.name in found else pa.nulls(batch.num_rows, field.type)
        for field in ENTRIES
    ]
    return pa.table(columns, schema=ENTRIES)


def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches of :data:`ENTRIES`, of any destinations in any order, into runs.

    Returns:
        Batches of :data:`RUN`.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= AT_ONCE:
            yield _cut(pa.Table.from_batches(held))
            held, count = [], 0
    if count:
        yield _cut(pa.Table.from_batches(held))


def _cut(table: pa.Table) -> pa.RecordBatch:
    namespaces, destinations = (table.column(name).combine_chunks().dictionary_encode() for name in PLACE)
    many = max(1, len(destinations.dictionary))
    place = _numbers(namespaces.indices) * many + _numbers(destinations.indices)
    epoch, seq = _numbers(table.column("epoch")), _numbers(table.column("seq"))
    entries = table.select(ROW)
    begin = _begin(place, epoch, seq)
    if len(begin) * _SMALL > len(seq):
        order = np.lexsort((seq, epoch, place))
        place, epoch, seq, entries = place[order], epoch[order], seq[order], entries.take(pa.array(order))
        begin = _begin(place, epoch, seq)
    ends, of = np.append(begin[1:], len(seq)), place[begin]
    packed = _packed(entries, zip(begin.tolist(), ends.tolist(), strict=True))
    return pa.RecordBatch.from_arrays(
        [
            namespaces.dictionary.take(pa.array(of // many)), destinations.dictionary.take(pa.array(of % many)),
            pa.array(epoch[begin]), pa.array(seq[begin]), packed,
        ],
        schema=RUN,
    )  # fmt: skip


def _begin(place: Numbers, epoch: Numbers, seq: Numbers) -> Numbers:
    """Return where runs begin."""
    apart = (place[1:] != place[:-1]) | (epoch[1:] != epoch[:-1]) | (seq[1:] != seq[:-1] + 1)
    return np.union1d(np.flatnonzero(apart) + 1, np.arange(0, len(seq), MOST))


def _packed(entries: pa.Table, parts: Iterable[tuple[int, int]]) -> pa.Array:
    """Return each part as an Arrow stream, all in one buffer."""
    sink, ends = pa.BufferOutputStream(), [0]
    for first, last in parts:
        with pa.ipc.new_stream(sink, ROWS) as writer:
            writer.write_table(entries.slice(first, last - first))
        ends.append(sink.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, sink.getvalue()])


def unpacked(run: pa.Buffer | bytes) -> pa.Table:
    """Return the entries of a run."""
    with pa.ipc.open_stream(run) as reader:
        return reader.read_all()


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    return np.asarray(pc.fill_null(column, -1).to_numpy(), np.int64)


class EntryStream:
    """The entries of one destination, in order of epoch and number, out of runs in order of their first entry.

    Runs that reach into each other, because an entry is there twice, are merged. Only what may still be reached into is
    held.
    """

    def __init__(self, take: Callable[[pa.RecordBatch], None]) -> None:
        self._take = take
        self._held: pa.Table | None = None

    def add(self, epoch: int, seq: int, run: pa.Table) -> None:
        """Add a run that begins there."""
        if self._held is not None:
            held = self._held
            upto = _count_before(held, epoch, seq)
            self._give(held.slice(0, upto))
            if upto < held.num_rows:
                run = _merged(held.slice(upto), run)
        self._held = run

    def finish(self) -> None:
        """Give what is held."""
        if self._held is not None:
            self._give(self._held)
            self._held = None

    def _give(self, table: pa.Table) -> None:
        for batch in table.combine_chunks().to_batches():
            if batch.num_rows:
                self._take(batch)


def _count_before(table: pa.Table, epoch: int, seq: int) -> int:
    epochs, seqs = _numbers(table.column("epoch")), _numbers(table.column("seq"))
    low = int(np.searchsorted(epochs, epoch, "left"))
    high = int(np.searchsorted(epochs, epoch, "right"))
    return low + int(np.searchsorted(seqs[low:high], seq, "left"))


def _merged(one: pa.Table, other: pa.Table) -> pa.Table:
    both = pa.concat_tables([one, other])
    return both.take(pa.array(np.lexsort((_numbers(both.column("seq")), _numbers(both.column("epoch"))))))

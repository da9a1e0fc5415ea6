"""A parser turns the entries of a ledger into columns. Pure: no Redis, no Spark session.

An entry is ``[b"<seq>-0", [b"e", b"<text>"]]``, as Redis answers XRANGE; its text is of one of the layouts of
:mod:`headgate.core.ledger`. Plain entries are read by Arrow's CSV parser, a batch at a time; a
batch with anything else in it is read again entry by entry, so that one bad entry becomes one row with a ``problem``.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.csv as pa_csv
from pyspark.sql.types import DataType, LongType, StringType, TimestampType

from headgate.core.ledger import DIGITS, LAYOUTS, Layout, layout_of
from headgate_pipeline.ledger.schema import ENTRY

_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}
SCHEMA: Final = pa.schema([pa.field(field.name, _ARROW[type(field.dataType)]) for field in ENTRY.fields])
"""As Spark wants the columns of :data:`~headgate_pipeline.ledger.schema.ENTRY`: these types, or it refuses them."""

_TEXT: Final = ("op", "session", "detail")
_ID: Final = {"seq": pa.int64(), "part": pa.int64()}
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)

Entry = list[Any]
"""``[id, [name, text, ...]]``; the second is None where the entry was deleted while it was read."""


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector still: a reply is hundreds of thousands of lists, and none of them is garbage yet."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def seq_of(entry: Entry) -> int:
    """Return the number of an entry."""
    return int(entry[0].split(b"-", 1)[0])


def epoch_of(entry: Entry | None) -> int | None:
    """Return the epoch of an entry, or None where it cannot be read."""
    try:
        columns = entry[1][1].split(b",") if entry else []
        layout = layout_of(columns[0]) or ()
        return int(columns[layout.index("epoch")])
    except (IndexError, TypeError, ValueError):  # ValueError also of a layout that is not known
        return None


def decode(namespace: str, destination: str, entries: Sequence[Entry], first: int, last: int) -> pa.RecordBatch:
    """Return the rows of the numbers from ``first`` to ``last``, in order.

    Args:
        namespace: for its column.
        destination: for its column; the decoded name.
        entries: all that there is of these numbers, as XRANGE answered.
        first: the first number that is looked for.
        last: the last one. A run of numbers with no entry is one row with ``problem`` ``gap: <first>-<last>``.
    """
    if len(entries) == last - first + 1:
        fast = _at_once(namespace, destination, entries, first)
        if fast is not None:
            return fast
    rows = _one_by_one(namespace, destination, entries, first, last)
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def back(namespace: str, destination: str, was: int, first: int) -> pa.RecordBatch:
    """Return the row that says that a ledger went back: it had ``was`` numbers, and goes on with ``first``."""
    row = _row(namespace, destination, first - 1, problem=f"back: {was}-{first}")
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def _at_once(namespace: str, destination: str, entries: Sequence[Entry], first: int) -> pa.RecordBatch | None:
    """Return the rows when every entry is of one layout and no number is missing."""
    count = len(entries)
    try:
        layout = layout_of(entries[0][1][1].partition(b",")[0])
        if layout is None:
            return None
        if {name for _, (name, _) in entries} != {b"e"}:
            return None
        ids = _columns([entry_id for entry_id, _ in entries], "-", _ID)
        found = _columns([text for _, (_, text) in entries], ",", _types(layout))
        found["time"] = found["time"].cast(pa.timestamp("ms", tz="UTC")).cast(_ARROW[TimestampType])
    except (pa.ArrowInvalid, IndexError, TypeError, ValueError):  # not text, not two parts, not these columns
        return None
    if _only(ids["part"]) != 0 or _only(found["version"]) is None:
        return None
    found["seq"] = pa.array(np.arange(first, first + count))
    if not found["seq"].equals(ids["seq"]) or len(found["op"]) != count:  # an entry with the end of a line in it
        return None
    found |= {
        "namespace": pa.repeat(pa.scalar(namespace, pa.string()), count),
        "destination": pa.repeat(pa.scalar(destination, pa.string()), count),
    }
    lacking = {field.name: pa.nulls(count, field.type) for field in SCHEMA if field.name not in found}
    return pa.RecordBatch.from_arrays([(found | lacking)[name] for name in SCHEMA.names], schema=SCHEMA)


def _types(layout: Layout) -> dict[str, pa.DataType]:
    """Return the types that the columns of a layout are read as."""
    return {name: pa.string() if name in _TEXT else pa.int64() for name in layout}


def _columns(lines: Sequence[bytes], delimiter: str, types: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    text = b"\n".join(lines)
    read = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(types))
    parse = pa_csv.ParseOptions(delimiter=delimiter, quote_char=False, double_quote=False, escape_char=False)
    convert = pa_csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    table = pa_csv.read_csv(pa.py_buffer(text), read, parse, convert)
    return {name: column.combine_chunks() for name, column in zip(types, table.columns, strict=True)}


def _only(column: pa.Array) -> int | None:
    """Return the value that all have, or None."""
    bounds = pa_compute.min_max(column).as_py()
    return bounds["min"] if bounds["min"] == bounds["max"] else None


def _one_by_one(
    namespace: str, destination: str, entries: Sequence[Entry], first: int, last: int
) -> Iterator[dict[str, Any]]:
    expected = first
    for entry in entries:
        seq = seq_of(entry)
        if seq > expected:
            yield _row(namespace, destination, seq - 1, problem=f"gap: {expected}-{seq - 1}")
        yield _row(namespace, destination, seq, **_read(entry))
        expected = seq + 1
    if last >= expected:
        yield _row(namespace, destination, last, problem=f"gap: {expected}-{last}")


def _row(namespace: str, destination: str, seq: int, **rest: Any) -> dict[str, Any]:
    return {"namespace": namespace, "destination": destination, "seq": seq, **rest}


def _read(entry: Entry) -> dict[str, Any]:
    """Return the columns of one entry, or what is wrong with it and what it says."""
    name, fields = entry
    if not name.endswith(b"-0"):
        return _bad(f"its id is {name.decode('ascii', 'replace')}, not <number>-0", fields)
    if not fields or len(fields) != 2 or fields[0] != b"e":
        return _bad("it has fields other than e", fields)
    text: bytes = fields[1]
    version, *rest = text.split(b",")
    layout = layout_of(version)
    if layout is None and version.isdigit():
        known = {"version": int(version)} if len(version) <= DIGITS else {}
        return {**known, "problem": f"version: {_shown(version)[:40]}", "raw": _shown(text)}
    layout = layout or LAYOUTS[max(LAYOUTS)]
    if 1 + len(rest) != len(layout):
        return _bad(f"{1 + len(rest)} columns, not {len(layout)}", fields)
    found: dict[str, Any] = {}
    for column, value in zip(layout, (version, *rest), strict=True):
        try:
            found[column] = value.decode() if column in _TEXT else _number(value)
        except ValueError:
            return _bad(f"{column} is {_shown(value)[:40]!r}", fields)
    try:
        found["time"] = _START + timedelta(milliseconds=found["time"])
    except OverflowError:
        return _bad(f"time is {found['time']}", fields)
    return found


def _number(value: bytes) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(number)
    return number


def _bad(why: str, fields: Sequence[bytes] | None) -> dict[str, str]:
    raw = fields[1] if fields and len(fields) == 2 and fields[0] == b"e" else b" ".join(fields or ())
    return {"problem": f"malformed: {why}", "raw": _shown(raw)}


def _shown(value: bytes) -> str:
    return value.decode("utf-8", "replace")

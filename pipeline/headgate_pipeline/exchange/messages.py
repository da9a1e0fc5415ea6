"""Spark gets a message as a row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructField, StructType

from headgate import HeadgateError
from headgate.message import decode

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE: Final = StructType([
    StructField("id", StringType()),
    StructField("body", BinaryType()),
    StructField("headers", MapType(StringType(), StringType())),
    StructField("attempts", IntegerType()),
])  # fmt: skip
"""``id`` at its destination, ``<number>-<bytes>``, behind ``<slice>:`` where it has slices; ``body``, text as UTF-8;
``headers`` as text; ``attempts``: failed deliveries before this one. A message that cannot be read has the whole of
what is stored as its body, and no headers.
"""
PAGE: Final = 8192
Stored = tuple[str, int, bytes]
"""A message as it is stored: id, failed attempts, bytes."""


@dataclass
class Messages(InputPartition):
    """`Messages` holds the messages for one task."""

    stored: list[Stored]


def batches_of(stored: Iterable[Stored]) -> "Iterator[pa.RecordBatch]":
    """Yield messages in the columns of :data:`MESSAGE`."""
    rows = []
    for id_, attempts, data in stored:
        body, headers = _read(data)
        rows.append((id_, body, headers, attempts))
        if len(rows) == PAGE:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _read(data: bytes) -> tuple[bytes, list[tuple[str, str]] | None]:
    try:
        body, headers = decode(data)
    except HeadgateError:
        return data, None
    return body.encode() if isinstance(body, str) else bytes(body), [(k, str(v)) for k, v in headers.items()]


def _batch(rows: list[tuple[str, bytes, list[tuple[str, str]] | None, int]]) -> "pa.RecordBatch":
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(MESSAGE, timezone="UTC")
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )

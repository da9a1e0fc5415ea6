"""Spark reads in a batch by a look at what is stored. It takes nothing, holds nothing and settles nothing.

Spark does not tell a batch read how its job ended, so what it took could be settled too early, and lost. To take
messages use :func:`~headgate_pipeline.exchange.drain.drained`, or a stream with the trigger ``availableNow``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.client import Client
from headgate.core.names import shown_id, slice_name
from headgate_pipeline.exchange.connection import connection
from headgate_pipeline.exchange.intake import newest
from headgate_pipeline.exchange.messages import Stored, batches_of
from headgate_pipeline.exchange.numbers import at_slice, number_of
from headgate_pipeline.exchange.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST: Final = (1 << 53) - 1
PIECE: Final = 1000


@dataclass
class MessageRange:
    """Messages of a slice with numbers from ``first`` to ``last``."""

    slice: int
    first: int
    last: int

    def has(self, id_: str) -> bool:
        """Return whether a message is one of these."""
        slice_, number = at_slice(number_of(id_))
        return slice_ == self.slice and self.first <= number <= self.last


@dataclass
class BrowsePartition(InputPartition):
    """A browse partition lists the messages that one task looks at; mostly one span."""

    spans: list[MessageRange]


class BrowseReader(DataSourceReader):
    """A browse reader reads messages that are stored as the job begins, unless they are settled before a task looks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        options.consumer_window()

    def partitions(self) -> list[InputPartition]:
        """Divide the numbers that messages have now."""
        link = connection(self._options)
        spans = []
        for slice_, last in link.run(newest(link.client, self._options)).items():
            if oldest := link.run(self._piece(link.client, MessageRange(slice_, 1, last), 1)):
                spans.append(MessageRange(slice_, at_slice(number_of(oldest[0][0]))[1], last))
        if self._options.limit:  # which is of all together
            return [BrowsePartition(spans)] if spans else []
        size = -(-sum(span.last - span.first + 1 for span in spans) // self._options.parts)
        return [
            BrowsePartition([MessageRange(span.slice, at, min(at + size - 1, span.last))])
            for span in spans
            for at in range(span.first, span.last + 1, size)
        ]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of one partition; runs on an executor. Spark sends None where there are none."""
        return batches_of(self._stored(partition.spans)) if isinstance(partition, BrowsePartition) else iter(())

    def _stored(self, spans: list[MessageRange]) -> Iterator[Stored]:
        link = connection(self._options)
        left = self._options.limit or LARGEST
        for span in spans:
            while left > 0:
                asked = min(left, PIECE)
                found = link.run(self._piece(link.client, span, asked))
                yield from found
                left -= len(found)
                if len(found) < asked:
                    break
                span = MessageRange(span.slice, at_slice(number_of(found[-1][0]))[1] + 1, span.last)  # noqa: PLW2901

    async def _piece(self, client: Client, span: MessageRange, count: int) -> list[Stored]:
        """Return up to so many of the first messages of a span."""
        after = shown_id(slice_name(self._options.destination, span.slice), f"{span.first - 1}-{LARGEST}")
        browsed = client.browse(self._options.destination, after=after, limit=count)
        return [(message.id, 0, message.stored) async for message in browsed if span.has(message.id)]

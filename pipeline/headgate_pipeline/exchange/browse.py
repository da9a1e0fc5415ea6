"""Reading in a batch: a look at what is stored. It takes nothing, holds nothing and settles nothing.

Spark does not tell a batch read how its job ended, so what it took could be settled too early, and lost. To take
messages use :func:`~headgate_pipeline.exchange.drain.drained`, or a stream with the trigger ``availableNow``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.client import Client
from headgate_pipeline.exchange.connection import connection
from headgate_pipeline.exchange.intake import newest
from headgate_pipeline.exchange.messages import Stored, batches_of
from headgate_pipeline.exchange.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST: Final = (1 << 53) - 1
PIECE: Final = 1000


@dataclass
class Numbers(InputPartition):
    """Messages with numbers from ``first`` to ``last``."""

    first: int
    last: int


class Look(DataSourceReader):
    """Of ``read``: messages that are stored as the job begins, unless they are settled before their task looks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        options.consumer_window()

    def partitions(self) -> list[InputPartition]:
        """Share the numbers out that messages have now."""
        link = connection(self._options)
        oldest = link.run(_piece(link.client, self._options.destination, 0, 1))
        if not oldest:
            return []
        first, last = int(oldest[0][0].partition("-")[0]), link.run(newest(link.client, self._options))
        parts = 1 if self._options.limit else self._options.parts
        size = -(-(last - first + 1) // parts)
        return [Numbers(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of one partition; runs on an executor. Spark sends None where there are none."""
        return batches_of(self._stored(partition)) if isinstance(partition, Numbers) else iter(())

    def _stored(self, numbers: Numbers) -> Iterator[Stored]:
        link = connection(self._options)
        after, left = numbers.first - 1, self._options.limit or LARGEST
        while left > 0:
            found = link.run(_piece(link.client, self._options.destination, after, min(left, PIECE)))
            for stored in found:
                after = int(stored[0].partition("-")[0])
                if after > numbers.last:
                    return
                yield stored
            if len(found) < min(left, PIECE):
                return
            left -= len(found)


async def _piece(client: Client, destination: str, after: int, count: int) -> list[Stored]:
    found = client.browse(destination, after=f"{after}-{LARGEST}" if after else None, limit=count)
    return [(message.id, 0, message.stored) async for message in found]

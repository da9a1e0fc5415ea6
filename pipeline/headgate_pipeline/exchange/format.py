"""Spark finds all of this under the name that is given here: ``format("headgate")``."""

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headgate import InvalidValue
from headgate_pipeline.exchange.browse import BrowseReader
from headgate_pipeline.exchange.messages import MESSAGE
from headgate_pipeline.exchange.options import Options
from headgate_pipeline.exchange.sink import BatchWriter, StreamWriter
from headgate_pipeline.exchange.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HeadgateDataSource(DataSource):
    """A data source reads and writes the queues and topics of Headgate.

    For options see :class:`~headgate_pipeline.exchange.options.Options`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name for ``format()``."""
        return "headgate"

    def schema(self) -> StructType:
        """Return the columns of what is read."""
        return MESSAGE

    def reader(self, schema: StructType) -> BrowseReader:  # noqa: ARG002 - it is ours
        """Return what reads in a batch."""
        return BrowseReader(self._options())

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: ARG002, N802 - Spark's name
        """Return what reads in a stream."""
        return StreamReader(self._options())

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Return what writes in a batch."""
        if overwrite:
            raise InvalidValue('messages that were sent stay sent; say .mode("append")')
        options = self._options()
        options.check_sending()
        return BatchWriter(options, schema, options.job or uuid.uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, FBT001, N802
        """Return what writes in a stream."""
        options = self._options()
        options.check_sending()
        return StreamWriter(options, schema)

    def _options(self) -> Options:
        return Options.of(dict(self.options))


def register(spark: "SparkSession") -> None:
    """Make ``format("headgate")`` known to a session; each job does this once."""
    spark.dataSource.register(HeadgateDataSource)

"""A Spark job sends and receives under flow control: ``format("headgate")`` writes, reads and streams through the SDK.

    headgate_pipeline.exchange.register(spark)
    frame.write.format("headgate").mode("append").option("url", ...).option("destination", "orders").save()

What tasks send is paid with credit that the whole cluster shares, and what a query reads it holds under a window.
"""

from headgate_pipeline.exchange.drain import drained
from headgate_pipeline.exchange.format import HeadgateDataSource, register
from headgate_pipeline.exchange.limited import limited

__all__ = ["HeadgateDataSource", "drained", "limited", "register"]

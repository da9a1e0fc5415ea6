"""A ledger entry has these columns in a DataFrame.

Every job reads and writes these, and adds columns at the end only.
"""

from typing import Final

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

ENTRY: Final = StructType([
    StructField("namespace", StringType()),
    StructField("destination", StringType()),
    StructField("seq", LongType()),
    StructField("version", LongType()),
    StructField("time", TimestampType()),
    StructField("op", StringType()),
    StructField("session", StringType()),
    StructField("bytes", LongType()),
    StructField("messages", LongType()),
    StructField("first", LongType()),
    StructField("detail", StringType()),
    StructField("pending_bytes", LongType()),
    StructField("pending_messages", LongType()),
    StructField("leased_bytes", LongType()),
    StructField("leased_messages", LongType()),
    StructField("epoch", LongType()),
    StructField("problem", StringType()),
    StructField("raw", StringType()),
])  # fmt: skip
"""Entries as columns: ``namespace`` and ``destination`` (decoded), ``seq`` (dense from 1), the columns of the
data dictionary (``lua/README.md``, "Ledger"; ``time`` by Redis' clock), and two for what is no entry: ``problem`` says
why, ``raw`` what was found. Both are null in an entry that was read. All columns may be null, as Arrow and Spark have
them. Problems are ``malformed: ...``; ``version: 9``; ``gap: 17-204``, numbers that were trimmed or lost, in a row
whose ``seq`` is the last missing one; ``back: 20-13``, the ledger had 20 numbers and then went on with 13, because a
failover lost its end or the destination was made again, in a row whose ``seq`` is one below.
"""

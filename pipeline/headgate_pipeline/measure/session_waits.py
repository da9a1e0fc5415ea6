"""Waits of sessions are computed here, with their causes.

A pure transform of a batch, as it depends on earlier entries.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.ledger import text_pattern
from headgate_pipeline.ledger.events import ORDER, PLACE


def stalls(entries: DataFrame, at_least_ms: int = 1000) -> DataFrame:
    """Return waits of sessions, of entries, that lasted at least that many ms, and those that have not ended.

    Returns:
        ``namespace``, ``destination``, ``session``; ``began`` and ``ended``, null while it waits; ``ms`` (to the last
        entry of the destination while it waits); ``end``: ``unblock``, ``giveup`` or ``waits``; ``cause``: ``bytes``,
        ``messages`` (it lacked them), ``turn`` (it lacked none: others were before it, or a stop, a level to resume
        at or a pool was in the way) or ``unknown`` (its beginning is not among the entries); ``lacking_bytes`` and
        ``lacking_messages`` of its beginning, as the ledger has them.
    """
    known = entries.where(F.col("problem").isNull() & F.col("time").isNotNull())
    last = known.groupBy(*PLACE).agg(F.max("time").alias("until"))
    events = _events(known)
    line = Window.partitionBy(*PLACE, "who").orderBy(*ORDER, "at")
    around = {"before": F.lag("event").over(line), "following": F.lead("event").over(line)}
    seen = events.withColumns(around)
    lacking = F.when(F.col("before")[0] == "block", F.col("before"))
    ended = seen.where(F.col("event")[0].isin("unblock", "giveup")).select(
        *PLACE,
        F.col("who").alias("session"),
        F.timestamp_millis(F.unix_millis("time") - F.col("event")[2].cast("long")).alias("began"),
        F.col("time").alias("ended"),
        F.col("event")[2].cast("long").alias("ms"),
        F.col("event")[0].alias("end"),
        *_lacking(lacking),
    )
    waiting = (
        seen.where((F.col("event")[0] == "block") & F.col("following").isNull())
        .join(last, [*PLACE])
        .select(
            *PLACE,
            F.col("who").alias("session"),
            F.col("time").alias("began"),
            F.lit(None).cast("timestamp").alias("ended"),
            (F.unix_millis("until") - F.unix_millis("time")).alias("ms"),
            F.lit("waits").alias("end"),
            *_lacking(F.col("event")),
        )
    )
    return ended.unionByName(waiting).where(F.col("ms") >= at_least_ms)


def _events(entries: DataFrame) -> DataFrame:
    """Return when sessions began and ceased to wait; a newer account of one (`reopen`) ends its wait unsaid."""
    found = F.regexp_extract_all("detail", F.lit(text_pattern("block", "unblock", "giveup", "reopen")), 1)
    each = entries.where(F.col("detail").rlike("block:|giveup:|reopen:"))
    split = each.select(*PLACE, *ORDER, "time", F.posexplode(found).alias("at", "text"))
    event = F.split("text", ":")
    return split.select(*PLACE, *ORDER, "time", "at", event.alias("event"), event[1].alias("who"))


def _lacking(block: Column) -> tuple[Column, Column, Column]:
    size, messages = block[2].cast("long"), block[3].cast("long")
    cause = F.when(size > 0, "bytes").when(messages > 0, "messages").when(size.isNotNull(), "turn").otherwise("unknown")
    return cause.alias("cause"), size.alias("lacking_bytes"), messages.alias("lacking_messages")

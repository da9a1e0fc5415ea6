"""A picture draws a few hundred windows of a destination, for any number of its entries; its data are made here.

All is pure, from what :func:`headgate_pipeline.ledger.events.prepare` returns; only what is returned here is ever
collected.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline.ledger.events import ORDER, PLACE, events, in_whole, share_of_all

POINTS: Final = 240
"""Windows of a picture, at most."""
_NICE: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
_HOUR: Final = 3_600_000


def step_for(span_ms: int, points: int = POINTS) -> int:
    """Return the length of a window in ms: a round one with which ``span_ms`` takes at most ``points`` windows."""
    for step in _NICE:
        if span_ms < step * points:
            return step
    return (span_ms // (points * _HOUR) + 1) * _HOUR


def window_of(ms: str | Column, step: int) -> Column:
    """Return the begin of the window that a time is in, in ms."""
    ms = F.col(ms) if isinstance(ms, str) else ms
    return ms - F.pmod(ms, F.lit(step))


def levels(prepared: DataFrame, step: int) -> DataFrame:
    """Return the counters in windows: one row for each window of a destination that has entries.

    Returns:
        ``window`` (ms), ``pending`` and ``leased`` (bytes, after the last entry), ``held_min`` and ``held_max``
        (of pending and leased together), ``limit`` (bytes; the last one), ``published`` and ``settled`` (bytes).
    """
    held = F.col("pending_bytes") + F.col("leased_bytes")
    return prepared.groupBy(*PLACE, window_of("ms", step).alias("window")).agg(
        F.max_by("pending_bytes", F.struct(*ORDER)).alias("pending"),
        F.max_by("leased_bytes", F.struct(*ORDER)).alias("leased"),
        F.min(held).alias("held_min"),
        F.max(held).alias("held_max"),
        F.max_by("limit_bytes", F.struct(*ORDER)).alias("limit"),
        F.sum(F.when(F.col("op") == "publish", F.col("bytes")).otherwise(0)).alias("published"),
        F.sum(F.when(F.col("op") == "settle", F.col("bytes")).otherwise(0)).alias("settled"),
    )


def blocked(waits: DataFrame, step: int) -> DataFrame:
    """Return the time that sessions waited, in the windows (of ``step`` ms) in which they did.

    Returns:
        ``window``, ``cause`` and ``waited``: ms of all sessions together, so 2 sessions may wait 2 s in a second.
    """
    windows = F.sequence(window_of("began", step), window_of("ended", step), F.lit(step).cast("bigint"))
    in_it = F.least("ended", F.col("window") + step) - F.greatest("began", "window")
    cut = waits.withColumn("window", F.explode(windows))
    return cut.groupBy(*PLACE, "window", "cause").agg(F.sum(in_it).alias("waited"))


def totals(prepared: DataFrame, waits: DataFrame) -> DataFrame:
    """Return a row for each destination, over the whole period: what the table and the advice are made of.

    Peaks of slices are added up: no less than what all had at a time.
    """
    held = F.col("pending_bytes") + F.col("leased_bytes")
    share = F.when((F.col("limit_bytes") > 0) & (F.col("limit_bytes") < float("inf")), held / F.col("limit_bytes"))
    published, settled = F.col("op") == "publish", F.col("op") == "settle"
    seen = prepared.groupBy(*PLACE).agg(
        F.count("*").alias("entries"),
        F.min("ms").alias("first_ms"),
        F.max("ms").alias("last_ms"),
        F.max_by("limit_bytes", F.struct(*ORDER)).alias("limit"),
        F.max_by("limit_messages", F.struct(*ORDER)).alias("limit_messages"),
        F.max("pending_bytes").alias("peak_pending"),
        F.max(held).alias("peak_held"),
        F.max(share).alias("peak_share"),
        F.max_by("pending_bytes", F.struct(*ORDER)).alias("pending"),
        F.sum(F.when(published, F.col("bytes")).otherwise(0)).alias("published"),
        F.sum(F.when(published, F.col("messages")).otherwise(0)).alias("published_messages"),
        F.sum(F.when(settled, F.col("bytes")).otherwise(0)).alias("settled"),
        F.sum(F.when(settled, F.col("messages")).otherwise(0)).alias("settled_messages"),
        F.sum(F.when(F.col("op") == "take", F.col("bytes")).otherwise(0)).alias("taken"),
        F.sum(F.when(F.col("op") == "take", F.col("messages")).otherwise(0)).alias("refused"),
        F.sum(F.when(F.col("op") == "drop", F.col("messages")).otherwise(0)).alias("dropped"),
    )
    how = {
        "first_ms": F.min("first_ms"), "last_ms": F.max("last_ms"), "limit": F.max_by("limit", "last_ms"),
        "limit_messages": F.max_by("limit_messages", "last_ms"), "peak_share": share_of_all("peak_share"),
    }  # fmt: skip
    sums = [how.get(name, F.sum(name)).alias(name) for name in seen.columns if name not in PLACE]
    seen = in_whole(seen).groupBy(*PLACE).agg(*sums)
    causes = [
        F.sum(F.when(F.col("cause") == cause, F.col("waited")).otherwise(0)).alias(f"waited_{cause}")
        for cause in ("bytes", "messages", "turn", "unknown")
    ]
    stalls = waits.groupBy(*PLACE).agg(
        F.sum("waited").alias("waited"),
        F.max("waited").alias("longest"),
        F.count("*").alias("waits"),
        F.count_if(F.col("fate") == "gave up").alias("gave_up"),
        F.count_distinct("session").alias("sessions"),
        *causes,
    )
    return seen.join(stalls, PLACE, "left").fillna(0, [name for name in stalls.columns if name not in PLACE])


def producers(waits: DataFrame, top: int) -> DataFrame:
    """Return the sessions that waited longest in all, longest first."""
    by_session = waits.groupBy(*PLACE, "session").agg(
        F.sum("waited").alias("waited"),
        F.max("waited").alias("longest"),
        F.count("*").alias("waits"),
        F.count_if(F.col("fate") == "gave up").alias("gave_up"),
        F.mode("cause").alias("cause"),
    )
    return by_session.orderBy(F.desc("waited"), *PLACE, "session").limit(top)


def consumers(prepared: DataFrame, spells: DataFrame, top: int) -> DataFrame:
    """Return the consumers that were slow for longest, longest first, with what they settled."""
    settling = in_whole(prepared).where(F.col("op") == "settle")
    by_consumer = settling.groupBy(*PLACE, F.col("session").alias("consumer"))
    settled = by_consumer.agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    slow = (
        in_whole(spells)
        .groupBy(*PLACE, "consumer")
        .agg(F.sum(F.col("ended") - F.col("began")).alias("slow"), F.count("*").alias("times"))
    )
    return slow.join(settled, [*PLACE, "consumer"], "left").orderBy(F.desc("slow"), *PLACE, "consumer").limit(top)


def links(prepared: DataFrame, top: int) -> DataFrame:
    """Return the links by what is left for them at the end, most first.

    Returns:
        ``link``, ``source``, ``target`` (null where its ledger is not here), ``forwarded`` (messages of the period),
        ``first_ms``, ``last_ms``, ``number`` (at the source, up to which the target has all) and ``behind``:
        messages that the source got after it, those that the link passes over included.
    """
    ended = events(prepared, "released", "committed").withColumn("number", F.col("arg2").try_cast("bigint"))
    ends = ended.groupBy(F.col("arg1").alias("link")).agg(
        F.max_by("destination", F.when(F.col("event") == "released", F.col("ms"))).alias("source"),
        F.max_by("destination", F.when(F.col("event") == "committed", F.col("ms"))).alias("target"),
        F.max("number").alias("number"),
        (F.max("number") - F.min("number")).alias("forwarded"),
        F.min("ms").alias("first_ms"),
        F.max("ms").alias("last_ms"),
    )
    published = prepared.where((F.col("op") == "publish") & (F.col("messages") > 0))
    newest = published.groupBy(F.col("destination").alias("source")).agg(
        F.max(F.col("first") + F.col("messages") - 1).alias("newest")
    )
    behind = F.greatest(F.col("newest") - F.col("number"), F.lit(0))
    return ends.join(newest, "source", "left").withColumn("behind", behind).orderBy(F.desc("behind"), "link").limit(top)


def numbers(prepared: DataFrame, step: int) -> DataFrame:
    """Return how far links and destinations got, in windows.

    Returns:
        ``name``, of a link or of a destination, ``is_link``, ``window`` and ``number``: up to which the link has
        forwarded, or of the newest message of the destination.
    """
    window = window_of("ms", step).alias("window")
    ended = events(prepared, "released", "committed").groupBy(F.col("arg1").alias("name"), window)
    forwarded = ended.agg(F.lit(True).alias("is_link"), F.max(F.col("arg2").try_cast("bigint")).alias("number"))
    published = prepared.where((F.col("op") == "publish") & (F.col("messages") > 0))
    newest = published.groupBy(F.col("destination").alias("name"), window)
    return forwarded.unionByName(
        newest.agg(F.lit(False).alias("is_link"), F.max(F.col("first") + F.col("messages") - 1).alias("number"))
    )

"""An entry holds more than counters: limits in force, events of ``detail``, waits and their causes."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.ledger import EVENTS, arguments_pattern

PLACE: Final = ["namespace", "destination"]
ORDER: Final = ["epoch", "seq"]
"""Numbers begin anew where a state was lost."""
CAUSES: Final = ("bytes", "messages", "turn", "unknown")
"""Why a session waits: the limit in bytes or in messages had no room for what it lacked; there was room, but it was not
its turn, or a pool, a level to resume at or a stop was in the way; the limit is not known, as its entry was trimmed."""

_BEGINS: Final = ("block",)
_ENDS: Final = ("unblock", "giveup")


def prepare(entries: DataFrame) -> DataFrame:
    """Return entries (:data:`~headgate_pipeline.ledger.schema.ENTRY`) that were read, with what holds at each.

    Returns:
        The same columns, and ``ms`` (of ``time``), ``limit_bytes`` and ``limit_messages`` in force after the entry
        (infinite: none; null: not known, since no entry that is left says it).
    """
    known = entries.where(F.col("problem").isNull() & F.col("time").isNotNull())
    return with_limits(known.withColumn("ms", F.unix_millis("time")))


def with_limits(entries: DataFrame) -> DataFrame:
    """Add ``limit_bytes`` and ``limit_messages``, in force after each entry: infinite for none, null if not known."""
    so_far = Window.partitionBy(*PLACE).orderBy(*ORDER)
    limits = {f"limit_{unit}": F.last(_limit(unit), ignorenulls=True).over(so_far) for unit in EVENTS["limits"]}
    return entries.withColumns(limits)


def in_whole(frame: DataFrame) -> DataFrame:
    """Return a frame with slices under the name of their destination; each has a ledger of its own."""
    return frame.withColumn("destination", F.substring_index("destination", "#", 1))  # no other name has one


def share_of_all(share: str) -> Column:
    """Return what slices have together of a limit that is for all: what each had at its most, and no more than 1.

    One alone may have more, where the limit was lowered.
    """
    return F.least(F.sum(share), F.greatest(F.max(share), F.lit(1.0)))


def argument(event: str, name: str) -> Column:
    """Return the text of an argument of an event of ``detail``; empty where there is no such event."""
    return F.regexp_extract(F.coalesce("detail", F.lit("")), arguments_pattern(event), EVENTS[event].index(name) + 1)


def _limit(unit: str) -> Column:
    text = argument("limits", unit)
    return F.when(text == "inf", F.lit(float("inf"))).otherwise(text.try_cast("double"))


def events(prepared: DataFrame, *names: str) -> DataFrame:
    """Return a row for each of these events of ``detail``: the entry's columns, ``event``, ``arg1`` to ``arg3``."""
    rows = prepared.where(F.col("detail") != "").withColumn("event_text", F.explode(F.split("detail", ";")))
    parts = F.split("event_text", ":")
    arguments = {f"arg{n}": F.try_element_at(parts, F.lit(n + 1)) for n in (1, 2, 3)}
    return rows.withColumns({"event": parts[0], **arguments}).where(F.col("event").isin(*names)).drop("event_text")


def waits(prepared: DataFrame) -> DataFrame:
    """Return one row for each time that a session waited for room.

    Returns:
        ``namespace``, ``destination``, ``session``, ``began`` and ``ended`` (ms; those who still wait, up to the last
        entry of the destination), ``waited`` (ms), ``cause`` (of :data:`CAUSES`), ``lacked`` (bytes, at its begin; null
        where that was trimmed) and ``fate``: ``served``, ``gave up`` or ``waits``.
    """
    rows = events(prepared, *_BEGINS, *_ENDS).withColumn("session", F.col("arg1"))
    line = Window.partitionBy(*PLACE, "session").orderBy(*ORDER)
    rows = rows.withColumns({
        "cause": F.when(F.col("event") == "block", _cause()),
        "lacked": F.when(F.col("event") == "block", F.greatest(_number("arg2"), F.lit(0))),
        "is_last": F.lead("event").over(line).isNull(),
    })  # fmt: skip
    last = prepared.groupBy(*PLACE).agg(F.max("ms").alias("last_ms"), F.max("epoch").alias("last_epoch"))
    rows = rows.withColumns({
        "began_as": F.last("cause", ignorenulls=True).over(line),
        "began_lacking": F.last("lacked", ignorenulls=True).over(line),
    })  # fmt: skip
    still = (F.col("event") == "block") & F.col("is_last") & (F.col("epoch") == F.col("last_epoch"))
    rows = rows.join(F.broadcast(last), PLACE).where(F.col("event").isin(*_ENDS) | still)
    ended = F.when(still, F.col("last_ms")).otherwise(F.col("ms"))
    waited = F.when(still, F.col("last_ms") - F.col("ms")).otherwise(_number("arg2"))
    fate = F.when(still, "waits").when(F.col("event") == "unblock", "served").otherwise("gave up")
    return rows.select(
        *PLACE,
        "session",
        (ended - waited).alias("began"),
        ended.alias("ended"),
        waited.alias("waited"),
        F.coalesce("began_as", F.lit("unknown")).alias("cause"),
        F.col("began_lacking").alias("lacked"),
        fate.alias("fate"),
    )


def above_shadows(prepared: DataFrame) -> DataFrame:
    """Return one row for each shadow limit of a queue, topic, gate or bucket that would have kept somebody waiting.

    Returns:
        ``namespace``, ``destination``, ``limit``, ``times`` and ``over``: how far above it they were at most.
    """
    rows = events(prepared, "would-block").withColumn("limit", F.col("arg1"))
    counts = (F.sum(_number("arg2")).alias("times"), F.max(_number("arg3")).alias("over"))
    return rows.groupBy(*PLACE, "limit").agg(*counts)


def _cause() -> Column:
    room = F.col("limit_bytes") - F.col("pending_bytes") - F.col("leased_bytes")
    room_m = F.col("limit_messages") - F.col("pending_messages") - F.col("leased_messages")
    return (
        F.when(F.col("limit_bytes").isNull(), "unknown")
        .when((_number("arg2") > 0) & (_number("arg2") > room), "bytes")
        .when((_number("arg3") > 0) & (_number("arg3") > room_m), "messages")
        .otherwise("turn")
    )


def slow_spells(prepared: DataFrame) -> DataFrame:
    """Return one row for each time that a consumer was slow: ``consumer``, ``began`` and ``ended`` in ms."""
    rows = events(prepared, "slow", "brisk", "detach").withColumn("consumer", F.col("arg1"))
    line = Window.partitionBy(*PLACE, "consumer").orderBy(*ORDER)
    last = prepared.groupBy(*PLACE).agg(F.max("ms").alias("last_ms"))
    rows = rows.withColumn("next_ms", F.lead("ms").over(line)).where(F.col("event") == "slow")
    ended = F.coalesce("next_ms", "last_ms").alias("ended")
    return rows.join(F.broadcast(last), PLACE).select(*PLACE, "consumer", F.col("ms").alias("began"), ended)


def _number(column: str) -> Column:
    return F.col(column).try_cast("bigint")

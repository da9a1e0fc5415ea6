"""What destinations needed in a period, as numbers with a stated confidence: what a recommendation is made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline import bins, events
from headgate_pipeline.events import ORDER, PLACE
from headgate_pipeline.flow import replay
from headgate_pipeline.model import Period, bound

QUANTILE: Final = 0.99
"""Of the demand, in windows of a second (0.1 s where the period is under a minute)."""
CONFIDENCE: Final = 0.95
_SCHEMA: Final = (
    "windows long, need double, need_confidence double, rate double, rate_confidence double, senders long, taken double"
)


@dataclass(frozen=True, slots=True)
class Need:
    """Of one destination. Where nothing was seen of something, it is None.

    Attributes:
        name: of the destination.
        entries: that this is from.
        first_ms: time of the first of them.
        last_ms: of the last.
        limit: bytes in force at the end; infinite where there is none.
        largest: bytes of the largest message, as far as batches tell: the mean of each.
        senders: sessions that published.
        windows: that the quantiles are of.
        need: bytes that would have been held had nobody waited; a bound of their quantile, held with
            ``need_confidence``.
        need_confidence: of ``need``.
        rate: bytes/s of one sender while it does not wait, likewise.
        rate_confidence: of ``rate``.
        taken: bytes/s that consumers take when there is something.
        waited: ms of all senders.
        round_trip: ms from the grant of room to the publish of whoever waited for it, all but 5 % of them.
        round_trips: how many were seen.
        settle: ms that a consumer takes for a message while it has some, all but the quickest 5 %.
        settles: how many were seen.
        tokens: that were asked for in a second, of a bucket; the most.
        tokens_confidence: of ``tokens``.
    """

    name: str
    entries: int
    first_ms: int
    last_ms: int
    limit: float | None = None
    largest: float | None = None
    senders: int = 0
    windows: int = 0
    need: float | None = None
    need_confidence: float | None = None
    rate: float | None = None
    rate_confidence: float | None = None
    taken: float | None = None
    waited: int = 0
    round_trip: float | None = None
    round_trips: int = 0
    settle: float | None = None
    settles: int = 0
    tokens: float | None = None
    tokens_confidence: float | None = None


def needs(entries: DataFrame) -> list[Need]:
    """Return what each destination needed, by name.

    Args:
        entries: of one namespace.
    """
    prepared = events.prepare(entries).persist()
    waits = events.waits(prepared)
    try:
        seen = prepared.groupBy(*PLACE).agg(
            F.count("*").alias("entries"),
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.max_by("limit_bytes", F.struct(*ORDER)).alias("limit"),
            F.max(
                F.when((F.col("op") == "publish") & (F.col("messages") > 0), F.col("bytes") / F.col("messages"))
            ).alias("largest"),
        )
        waited = waits.groupBy(*PLACE).agg(F.sum("waited").alias("waited"))
        moved = prepared.where(F.col("op").isin("publish", "settle")).select(*PLACE).distinct()
        modelled = bins.each(bins.binned(prepared.join(F.broadcast(moved), PLACE), waits), _demands, _SCHEMA)
        parts = [waited, modelled, round_trips(prepared), settles(prepared), tokens(prepared)]
        for part in parts:
            seen = seen.join(part, PLACE, "left")
        rows = [row.asDict() for row in seen.drop("namespace").orderBy("destination").collect()]
    finally:
        prepared.unpersist()
    numbers = ("senders", "windows", "waited", "round_trips", "settles")
    return [
        Need(
            name=row.pop("destination"), **{key: value or 0 if key in numbers else value for key, value in row.items()}
        )
        for row in rows
    ]


def _demands(periods: Mapping[bins.Place, Period]) -> Iterator[tuple[bins.Place, dict[str, Any]]]:
    return ((place, row) for place, period in periods.items() for row in _demand(period))


def _demand(period: Period) -> Iterator[dict[str, Any]]:
    """Yield what would have been held had nobody waited, and how fast a sender sends that does not wait."""
    length = period.step * period.sends.shape[1]
    size = max(1, round((1000 if length >= 60_000 else 100) / period.step))
    levels = replay(period, float("inf")).levels
    held = _most(levels, size)
    need, sure = bound(held, QUANTILE, CONFIDENCE)
    sent = np.add.reduceat(period.sends, np.arange(0, period.sends.shape[1], size), axis=1) / (
        size * period.step / 1000
    )
    active = sent[sent > 0]
    rate, rate_sure = bound(active, QUANTILE, CONFIDENCE) if len(active) else (0.0, 0.0)
    yield {
        "windows": len(held),
        "need": need + period.idle,
        "need_confidence": sure,
        "rate": rate,
        "rate_confidence": rate_sure,
        "senders": int((period.sends.sum(axis=1) > 0).sum()),
        "taken": period.rate / period.step * 1000,
    }


def _most(levels: Any, size: int) -> Any:
    return np.maximum.reduceat(levels, np.arange(0, len(levels), size))


def round_trips(prepared: DataFrame) -> DataFrame:
    """Return how long those who waited took from the grant to their next publish: to them, and back to Redis."""
    served = events.events(prepared, "unblock").select(
        *PLACE, F.col("arg1").alias("session"), "ms", "epoch", "seq", "event"
    )
    publishes = prepared.where(F.col("op") == "publish").select(
        *PLACE, "session", "ms", "epoch", "seq", F.lit("publish").alias("event")
    )
    line = Window.partitionBy(*PLACE, "session").orderBy(*ORDER)
    after = {"after": F.lead("event").over(line), "gap": F.lead("ms").over(line) - F.col("ms") + 1}  # ms are cut off
    both = served.unionByName(publishes).withColumns(after)
    gaps = both.where((F.col("event") == "unblock") & (F.col("after") == "publish"))
    return gaps.groupBy(*PLACE).agg(
        F.percentile_approx("gap", 0.95).cast("double").alias("round_trip"), F.count("*").alias("round_trips")
    )


def settles(prepared: DataFrame) -> DataFrame:
    """Return how long consumers take for a message, while they have one: from what they fetched and settled."""
    line = Window.partitionBy(*PLACE, "session").orderBy(*ORDER)
    rows = prepared.where(F.col("op") == "settle").withColumns({
        "done": _number("(?:^|;)settled:[0-9]+:([0-9]+)"),
        "got": _number("(?:^|;)fetched:[0-9]+:([0-9]+)"),
    })  # fmt: skip
    rows = rows.withColumns({
        "before": F.sum(F.col("got") - F.col("done")).over(line) - F.col("got") + F.col("done"),
        "since": F.col("ms") - F.max(F.when((F.col("done") > 0) | (F.col("got") > 0), F.col("ms"))).over(
            line.rowsBetween(Window.unboundedPreceding, -1)
        ),
    })  # fmt: skip
    each = rows.where((F.col("done") > 0) & (F.col("before") > 0)).withColumn("each", F.col("since") / F.col("done"))
    return each.groupBy(*PLACE).agg(
        F.percentile_approx("each", 0.05).cast("double").alias("settle"), F.count("each").alias("settles")
    )


def _number(pattern: str) -> Column:
    return F.coalesce(F.regexp_extract("detail", pattern, 1).try_cast("bigint"), F.lit(0).cast("bigint"))


def tokens(prepared: DataFrame) -> DataFrame:
    """Return the most tokens of a bucket that were asked for in a second, refused ones included; as a bound."""
    second = F.floor(F.col("ms") / 1000)
    asked = prepared.where(F.col("op") == "take").groupBy(*PLACE, second.alias("second"))
    demand = asked.agg(F.sum(F.col("bytes") + F.col("messages")).cast("double").alias("asked"))
    sure = 1 - F.pow(F.lit(QUANTILE), F.count("*"))
    return demand.groupBy(*PLACE).agg(F.max("asked").alias("tokens"), sure.alias("tokens_confidence"))

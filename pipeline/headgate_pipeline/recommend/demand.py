"""Needs of destinations in a period, as numbers with a stated confidence: the input of a recommendation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline.ledger import events
from headgate_pipeline.ledger.events import ORDER, PLACE
from headgate_pipeline.recommend.limiter_demand import LimitDemand, limit_needs
from headgate_pipeline.simulate import gate_demand as gates
from headgate_pipeline.simulate import time_bins
from headgate_pipeline.simulate.flow import replay
from headgate_pipeline.simulate.model import CONFIDENCE, QUANTILE, Period, bound

_SCHEMA: Final = (
    "windows long, need double, need_m double, confidence double, rate double, rate_m double, rate_confidence double, "
    "sent_m double, senders long, taken double, mean_size double"
)


@dataclass(frozen=True, slots=True)
class DestinationDemand:
    """`DestinationDemand` holds the measured demand at one destination.

    Where nothing was seen of something, it is None.

    Attributes:
        name: of the destination.
        entries: that this is from.
        first_ms: time of the first of them.
        last_ms: of the last.
        kind: ``queue`` (a ledger does not tell topics from them), ``gate``, ``bucket`` or ``limiter``; empty where
            nothing was sent, granted, taken or admitted.
        limit: bytes in force at the end; infinite where there is none.
        limit_m: the same in messages.
        largest: bytes of the largest message, as far as batches tell: the mean of each.
        small: bytes that all but 5 % of the batches exceed, on average by message.
        large: bytes that 5 % of the batches exceed.
        mean_size: bytes of a message.
        senders: sessions that published.
        windows: that the quantiles are of.
        need: bytes that would have been held had nobody waited, of a gate what was held and asked for at the same time;
            a bound of their quantile, held with ``confidence``.
        need_m: the same in messages.
        confidence: of ``need``, ``need_m`` and ``sent_m``.
        mean: bytes that were held by a gate, on average over time.
        lacked: bytes that were waited for at a gate, on average over time.
        rate: bytes/s of one sender while it does not wait, likewise.
        rate_m: the same in messages.
        rate_confidence: of ``rate`` and ``rate_m``.
        sent_m: messages/s of all senders while they do not wait, likewise.
        taken: bytes/s that consumers take when there is something.
        waited: ms of all senders.
        waited_m: ms of them for a limit in messages.
        round_trip: ms from the grant of room to the publish of whoever waited for it, all but 5 % of them.
        round_trips: how many were seen.
        settle: ms that a consumer takes for a message while it has some, all but the quickest 5 %.
        settles: how many were seen.
        tokens: that were asked for in a second, of a bucket; the most.
        refused: tokens of those that were refused, in the whole period.
        limits: of a limiter without slices.
        slices: whose needs these are; 1 where it has none.
        tried: of all else, by shadow limit, how many it would have kept waiting, and the most that one was above it.
    """

    name: str
    entries: int
    first_ms: int
    last_ms: int
    kind: str = ""
    limit: float | None = None
    limit_m: float | None = None
    largest: float | None = None
    small: float | None = None
    large: float | None = None
    mean_size: float | None = None
    senders: int = 0
    windows: int = 0
    need: float | None = None
    need_m: float | None = None
    confidence: float | None = None
    mean: float | None = None
    lacked: float | None = None
    rate: float | None = None
    rate_m: float | None = None
    rate_confidence: float | None = None
    sent_m: float | None = None
    taken: float | None = None
    waited: int = 0
    waited_m: int = 0
    round_trip: float | None = None
    round_trips: int = 0
    settle: float | None = None
    settles: int = 0
    tokens: float | None = None
    refused: float = 0
    limits: tuple[LimitDemand, ...] = ()
    slices: int = 1
    tried: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def needs(entries: DataFrame) -> list[DestinationDemand]:
    """Return what each destination of one namespace needed, by name."""
    prepared = events.prepare(entries).persist()
    waits = events.waits(prepared).persist()
    try:
        each = F.col("bytes") / F.col("messages")
        sizes = F.when((F.col("op") == "publish") & (F.col("messages") > 0), each)
        seen = prepared.groupBy(*PLACE).agg(
            F.count("*").alias("entries"),
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.max_by("limit_bytes", F.struct(*ORDER)).alias("limit"),
            F.max_by("limit_messages", F.struct(*ORDER)).alias("limit_m"),
            F.max(sizes).alias("largest"),
            F.percentile_approx(sizes, 0.05).alias("small"),
            F.percentile_approx(sizes, 0.95).alias("large"),
            F.when(F.max(F.col("op").isin("publish", "drop", "settle")), "queue")
            .when(F.max(F.col("op") == "take"), "bucket")
            .when(F.max(F.col("op").isin("admit", "hold_off")), "limiter")
            .when(F.max(F.col("op").isin("acquire", "leave")), "gate")
            .otherwise("").alias("kind"),
            F.max(F.coalesce(F.contains("detail", F.lit("would-block")), F.lit(False))).alias("tried"),
        )  # fmt: skip
        waited = waits.groupBy(*PLACE).agg(
            F.sum("waited").alias("waited"),
            F.sum(F.when(F.col("cause") == "messages", F.col("waited")).otherwise(0)).alias("waited_m"),
        )
        of_kind = {name: F.broadcast(seen.where(F.col("kind") == name).select(*PLACE)) for name in ("queue", "gate")}
        queues = prepared.join(of_kind["queue"], PLACE)
        modelled = time_bins.each(time_bins.binned(queues, waits.join(of_kind["queue"], PLACE)), _demands, _SCHEMA)
        parts = [waited, modelled, round_trips(queues), settles(queues)]
        for part in parts:
            seen = seen.join(part, PLACE, "left")
        rows = {row["destination"]: row.asDict() for row in seen.drop("namespace").orderBy("destination").collect()}
        of_gates = gates.held(prepared.join(of_kind["gate"], PLACE), waits) if _any(rows, "gate") else None
        of_buckets = tokens(prepared) if _any(rows, "bucket") else None
        for more in (of_gates, of_buckets):
            for row in more.drop("namespace").collect() if more is not None else ():
                rows[row["destination"]] |= row.asDict()
        for name, limits in (limit_needs(prepared) if _any(rows, "limiter") else {}).items():
            rows[name]["limits"] = limits
        found = events.above_shadows(prepared).collect() if any(row["tried"] for row in rows.values()) else ()
        above: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in rows}
        for one in found:
            above[one["destination"]][one["limit"]] = (one["times"], one["over"])
        for name, tried in above.items():
            rows[name]["tried"] = tried
    finally:
        waits.unpersist()
        prepared.unpersist()
    return [_need(row) for row in rows.values()]


def _need(row: dict[str, Any]) -> DestinationDemand:
    numbers = ("senders", "windows", "waited", "waited_m", "round_trips", "settles", "refused")
    values: dict[str, Any] = {key: value or 0 if key in numbers else value for key, value in row.items()}
    return DestinationDemand(name=values.pop("destination"), **values)


def _any(rows: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    return any(row["kind"] == kind for row in rows.values())


def _demands(periods: Mapping[time_bins.Place, Period]) -> Iterator[tuple[time_bins.Place, dict[str, Any]]]:
    return ((place, row) for place, period in periods.items() for row in _demand(period))


def _demand(period: Period) -> Iterator[dict[str, Any]]:
    """Yield what would have been held had nobody waited, and how fast a sender sends that does not wait."""
    length = period.step * period.sends.shape[1]
    size = max(1, round((1000 if length >= 60_000 else 100) / period.step))
    outcome = replay(period, float("inf"))
    held = _most(outcome.levels, size)
    held_m = _most(_in_messages(period, outcome.levels), size)
    need, sure = bound(held, QUANTILE, CONFIDENCE)
    messages = period.messages if period.messages is not None else np.zeros(period.sends.shape)
    seconds = size * period.step / 1000
    starts = np.arange(0, period.sends.shape[1], size)
    sent, sent_m = (np.add.reduceat(amounts, starts, axis=1) / seconds for amounts in (period.sends, messages))
    rate, rate_sure = bound(sent[sent > 0], QUANTILE, CONFIDENCE) if (sent > 0).any() else (0.0, 0.0)
    mean_size = float(period.sends.sum() / messages.sum()) if messages.any() else 0.0
    yield {
        "windows": len(held),
        "need": need + period.idle,
        "need_m": bound(held_m, QUANTILE, CONFIDENCE)[0] + (period.idle / mean_size if mean_size else 0.0),
        "confidence": sure,
        "rate": rate,
        "rate_m": bound(sent_m[sent_m > 0], QUANTILE, CONFIDENCE)[0] if (sent_m > 0).any() else 0.0,
        "rate_confidence": rate_sure,
        "sent_m": bound(sent_m.sum(axis=0), QUANTILE, CONFIDENCE)[0],
        "senders": int((period.sends.sum(axis=1) > 0).sum()),
        "taken": period.rate / period.step * 1000,
        "mean_size": mean_size,
    }


def _in_messages(period: Period, levels: Any) -> Any:
    """Return the messages that are pending, first in first out, from the bytes that are."""
    if period.messages is None:
        return np.zeros(len(levels))
    came, came_m = (np.cumsum(amounts.sum(axis=0)) for amounts in (period.sends, period.messages))
    came, came_m = (np.concatenate((total, np.full(len(levels) - len(total), total[-1]))) for total in (came, came_m))
    went = np.clip(came + period.began_with - levels, 0.0, None)
    older = period.began_with  # of these only the bytes are known, and they leave first
    return np.maximum(0.0, came_m - np.interp(went - older, came, came_m, left=0.0))


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
        "done": _messages("settled"),
        "got": _messages("fetched"),
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


def _messages(event: str) -> Column:
    return F.coalesce(events.argument(event, "messages").try_cast("bigint"), F.lit(0).cast("bigint"))


def tokens(prepared: DataFrame) -> DataFrame:
    """Return a bucket's peak demand in tokens a second, and whether it is certain.

    Calls that took nothing have no entry; what was refused in others counts as asked for.

    Returns:
        ``tokens``, ``refused``, ``windows`` (seconds of the period) and ``confidence``.
    """
    second = F.floor(F.col("ms") / 1000)
    asked = prepared.where(F.col("op") == "take").groupBy(*PLACE, second.alias("second"))
    demand = asked.agg(
        F.sum(F.col("bytes") + F.col("messages")).cast("double").alias("asked"),
        F.sum("messages").cast("double").alias("refused"),
    )
    seconds = F.max("second") - F.min("second") + 1
    return demand.groupBy(*PLACE).agg(
        F.max("asked").alias("tokens"),
        F.sum("refused").alias("refused"),
        seconds.alias("windows"),
        (1 - F.pow(F.lit(QUANTILE), seconds)).alias("confidence"),
    )

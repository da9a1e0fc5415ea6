"""Figures of a report, as plain numbers: the bounded part of the ledger that is collected."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.names import whole_name
from headgate_pipeline.audit.verdict import Verdict
from headgate_pipeline.ledger import events
from headgate_pipeline.ledger.events import PLACE
from headgate_pipeline.measure.limiters import whole
from headgate_pipeline.report import timeline

TOP: Final = 12
"""Destinations with a picture of their own, and rows of the short tables."""
ROWS: Final = 1000
"""Rows of the table of all destinations, at most."""

Row = Mapping[str, Any]
_ADDED: Final = ("pending", "leased", "held_min", "held_max", "published", "settled")
"""Figures of a window that slices of a destination have together."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """All numbers of a report.

    Attributes:
        entries: of the ledger that were read.
        first_ms: time of the first of them.
        last_ms: of the last.
        step: ms of a window of the pictures.
        count: destinations there are; ``destinations`` has at most :data:`ROWS` of them.
        destinations: a row each, as :func:`~headgate_pipeline.report.timeline.totals` has it; the longest waits first.
        levels: by destination (namespace and name), the windows of those with a picture, in order.
        blocked: windows of all destinations together, by cause.
        blocked_by: windows of those with a picture.
        producers: sessions that waited longest.
        consumers: that were slow for longest.
        links: and what is left for them.
        lags: by link, its windows.
        limits: of limiters, those that were waited for longest first.
        tried: shadow limits of all else that would have kept somebody waiting, the most first.
        problems: what is missing or could not be read, and how often; at most 20.
        verdict: of the audit, if it was given.
    """

    entries: int = 0
    first_ms: int = 0
    last_ms: int = 0
    step: int = 1
    count: int = 0
    destinations: tuple[Row, ...] = ()
    levels: Mapping[tuple[str, str], list[Row]] = field(default_factory=dict)
    blocked: tuple[Row, ...] = ()
    blocked_by: tuple[Row, ...] = ()
    producers: tuple[Row, ...] = ()
    consumers: tuple[Row, ...] = ()
    links: tuple[Row, ...] = ()
    lags: Mapping[str, list[Row]] = field(default_factory=dict)
    limits: tuple[Row, ...] = ()
    tried: tuple[Row, ...] = ()
    problems: tuple[Row, ...] = ()
    verdict: Verdict | None = None

    @property
    def span_ms(self) -> int:
        """Length of the period."""
        return self.last_ms - self.first_ms


def has_level(row: Row) -> bool:
    """Return whether a destination had messages, waits or a limit in bytes; limiters have limits of their own."""
    limited = row["limit"] is not None and row["limit"] < inf
    return bool(limited or row["peak_held"] or row["published_messages"] or row["waited"])


def gather(entries: DataFrame, *, top: int = TOP, verdict: Verdict | None = None) -> ReportData:
    """Return the numbers of a report.

    Args:
        entries: rows of :data:`~headgate_pipeline.ledger.schema.ENTRY`.
        top: destinations with a picture of their own.
        verdict: of an audit of these entries.
    """
    entries = entries.persist()  # read once: of a Redis that is in use, each time would find something else
    problems = entries.where(F.col("problem").isNotNull()).groupBy("destination", "problem")
    wrong = _rows(problems.agg(F.count("*").alias("times")).orderBy("destination", "problem").limit(20))
    prepared = events.prepare(entries).persist()
    waits = events.in_whole(events.waits(prepared)).persist()
    try:
        named = events.in_whole(prepared.withColumn("slice", F.col("destination")))
        of_all = named.agg(F.count("*"), F.min("ms"), F.max("ms"), F.count_distinct(*PLACE)).collect()[0]
        if not of_all[0]:
            return ReportData(problems=wrong, verdict=verdict)
        step = timeline.step_for(of_all[2] - of_all[1])
        by_wait = [
            F.desc("waited"),
            F.desc(F.coalesce("peak_share", F.lit(0.0))),
            F.desc("entries"),
            *map(F.col, PLACE),
        ]
        found = timeline.totals(prepared, waits).orderBy(*by_wait).limit(max(ROWS, top))
        destinations = _rows(found)
        drawn = prepared.sparkSession.createDataFrame(
            [(row["namespace"], row["destination"]) for row in filter(has_level, destinations)][:top],
            "namespace string, destination string",
        )
        drawn = F.broadcast(drawn)
        stalls = timeline.blocked(waits, step)
        links = _rows(timeline.links(prepared, top))
        return ReportData(
            entries=of_all[0],
            first_ms=of_all[1],
            last_ms=of_all[2],
            step=step,
            count=of_all[3],
            destinations=destinations,
            levels=_levels(timeline.levels(named.join(drawn, PLACE).withColumn("destination", F.col("slice")), step)),
            blocked=_rows(stalls.groupBy("window", "cause").agg(F.sum("waited").alias("waited")).orderBy("window")),
            blocked_by=_rows(stalls.join(drawn, PLACE).groupBy(*PLACE, "window").agg(F.sum("waited").alias("waited"))),
            producers=_rows(timeline.producers(waits, top)),
            consumers=_rows(timeline.consumers(prepared, events.slow_spells(prepared), top)),
            links=links,
            lags=_lags(prepared, step, links),
            limits=_rows(
                whole(entries).orderBy(F.desc("waited_ms"), F.desc("would_wait"), *PLACE, "limit", "of").limit(2 * top)
            ),
            tried=_rows(events.above_shadows(prepared).orderBy(F.desc("times"), *PLACE, "limit").limit(top)),
            problems=wrong,
            verdict=verdict,
        )
    finally:
        waits.unpersist()
        prepared.unpersist()
        entries.unpersist()


def _levels(levels: DataFrame) -> dict[Any, list[Row]]:
    """Return by destination its windows; in one without entries of a slice, that has what it had before."""
    found: dict[Any, list[Row]] = {}
    held: dict[tuple[str, str], dict[str, Row]] = {}

    def place(row: Row) -> tuple[str, str]:
        return row["namespace"], whole_name(row["destination"])

    rows = sorted(_rows(levels), key=lambda row: (row["window"], place(row)))
    for (window, of), group in groupby(rows, lambda row: (row["window"], place(row))):
        slices = held.setdefault(of, {})
        for name, row in slices.items():
            both = row["pending"] + row["leased"]
            slices[name] = {**row, "held_min": both, "held_max": both, "published": 0, "settled": 0}
        slices |= (fresh := {row["destination"]: row for row in group})
        added = {figure: sum(row[figure] for row in slices.values()) for figure in _ADDED}
        found.setdefault(of, []).append({"window": window, "limit": next(iter(fresh.values()))["limit"], **added})
    return found


def _lags(prepared: DataFrame, step: int, links: tuple[Row, ...]) -> Mapping[str, list[Row]]:
    """Return by link its windows, with ``behind``: the newest number at the source less the one it got to."""
    if not links:
        return {}
    shown = timeline.numbers(prepared, step)
    of_links = F.col("is_link") & F.col("name").isin([row["link"] for row in links])
    of_sources = ~F.col("is_link") & F.col("name").isin([row["source"] for row in links])
    by = _by(shown.where(of_links | of_sources), "is_link", "name")
    return {row["link"]: _behind(by[True, row["link"]], by.get((False, row["source"]), [])) for row in links}


def _behind(forwarded: list[Row], published: list[Row]) -> list[Row]:
    newest_by_window: dict[int, Row] = {}
    number = newest = 0
    for row in sorted([*forwarded, *published], key=lambda row: row["window"]):
        number = row["number"] if row["is_link"] else number
        newest = max(newest, row["number"])
        newest_by_window[row["window"]] = {"window": row["window"], "behind": newest - number}
    return [row for at, row in newest_by_window.items() if at >= forwarded[0]["window"]]


def _rows(frame: DataFrame) -> tuple[Row, ...]:
    return tuple(row.asDict() for row in frame.collect())


def _by(frame: DataFrame, *keys: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in sorted(_rows(frame), key=lambda row: row["window"]):
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found

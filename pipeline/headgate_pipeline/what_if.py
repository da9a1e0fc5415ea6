"""What would have been under another limit: the arrivals and the consumers of a period, replayed by a model."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline import bins, events
from headgate_pipeline.events import PLACE
from headgate_pipeline.model import Outcome, Period, recorded, replay

CASES: Final = ("recorded", "same limit", "what if")
"""What happened; what the model says of the limit that was in force, which shows how far it is to be trusted; and of
the limit that was asked about."""
SCHEMA: Final = (
    "case string, limit double, waited double, peak double, delay double, delay_p99 double, took double, unsent double"
)


def what_if(entries: DataFrame, limits: Mapping[str, float]) -> DataFrame:
    """Return three rows for each destination that is named, one for each of :data:`CASES`.

    Args:
        entries: of one namespace.
        limits: bytes, by name of the destination; infinite for none.

    Returns:
        ``namespace``, ``destination``, ``case``, ``limit`` (bytes), ``waited`` (ms that senders waited for room, all
        together), ``peak`` (bytes pending), ``delay`` and ``delay_p99`` (ms from being let in to being settled),
        ``took`` (ms until all was settled), ``unsent`` (bytes not let in within 20 times the period).
    """
    asked = dict(limits)
    prepared = events.prepare(entries.where(F.col("destination").isin(list(asked))))
    in_force = {
        (row["namespace"], row["destination"]): _bytes(row)
        for row in prepared.groupBy(*PLACE).agg(
            F.max_by("limit_bytes", F.struct(*events.ORDER)).alias("limit"),
            F.max_by("limit_messages", F.struct(*events.ORDER)).alias("limit_messages"),
            (F.sum(F.when(F.col("op") == "publish", F.col("bytes")))
            / F.sum(F.when(F.col("op") == "publish", F.col("messages")))).alias("mean"),
        ).collect()
    }  # fmt: skip

    def work(place: tuple[str, str], period: Period) -> Iterator[dict[str, Any]]:
        before, cap = in_force[place]
        yield _row("recorded", before, recorded(period))
        yield _row("same limit", before, replay(period, min(before, cap)))
        yield _row("what if", asked[place[1]], replay(period, min(asked[place[1]], cap)))

    return bins.each(bins.binned(prepared, events.waits(prepared)), work, SCHEMA)


def _bytes(row: Any) -> tuple[float, float]:
    """Return the limit in bytes, and what the one in messages comes to in bytes."""
    unlimited = float("inf")
    limit = row["limit"] if row["limit"] is not None else unlimited
    messages = row["limit_messages"] if row["limit_messages"] is not None else unlimited
    return limit, messages * row["mean"] if row["mean"] else unlimited


def _row(case: str, limit: float, outcome: Outcome) -> dict[str, Any]:
    names = ("waited", "peak", "delay", "delay_p99", "took", "unsent")
    return {"case": case, "limit": limit, **{name: getattr(outcome, name) for name in names}}

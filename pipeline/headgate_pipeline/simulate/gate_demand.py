"""Measures how much of a gate is held and asked for at a time: a ledger tells leases, not permits, and who waits."""

from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline.ledger.events import ORDER, PLACE
from headgate_pipeline.simulate.model import CONFIDENCE, QUANTILE, Array, bound

_SCHEMA: Final = (
    "namespace string, destination string, windows long, need double, confidence double, mean double, lacked double"
)


def held(prepared: DataFrame, waits: DataFrame) -> DataFrame:
    """Return a row for each gate, of entries of gates alone and their waits.

    Returns:
        ``windows`` of 1 s (0.1 s where the period is under a minute), ``need`` (bytes leased and waited for at the same
        time: a bound of their quantile), its ``confidence``, ``mean`` (bytes leased, on average over time) and
        ``lacked`` (bytes waited for, likewise).
    """
    levels = prepared.groupBy(*PLACE, F.col("ms").alias("began")).agg(
        F.max("leased_bytes").cast("double").alias("most"),
        F.max_by("leased_bytes", F.struct(*ORDER)).cast("double").alias("amount"),
        F.lit(None).cast("bigint").alias("ended"),
    )
    lacking = (
        waits.join(F.broadcast(prepared.select(*PLACE).distinct()), PLACE)
        .where(F.col("lacked").isNotNull())
        .select(*PLACE, "began", F.lit(0.0).alias("most"), F.col("lacked").cast("double").alias("amount"), "ended")
    )
    return levels.unionByName(lacking).groupBy(*PLACE).applyInPandas(_of_gate, _SCHEMA)


def _of_gate(place: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    levels = rows[rows["ended"].isna()].sort_values("began")
    lacking = rows[rows["ended"].notna()]
    numbers = demand(
        *(_array(levels[name]) for name in ("began", "most", "amount")),
        *(_array(lacking[name]) for name in ("began", "ended", "amount")),
    )
    return pd.DataFrame([{"namespace": place[0], "destination": place[1], **numbers}])


def _array(column: Any) -> Array:
    return np.asarray(column, dtype=np.float64)


def demand(at: Array, most: Array, leased: Array, began: Array, ended: Array, lacked: Array) -> dict[str, Any]:
    """Return the demand of a gate.

    Args:
        at: ms at which leases changed, in order.
        most: bytes leased within that ms, at most.
        leased: bytes after it.
        began: ms at which a wait began.
        ended: ms at which it ended.
        lacked: bytes that were waited for.
    """
    first, span = at[0], max(1.0, at[-1] - at[0])
    size = 1000.0 if span >= 60_000 else 100.0
    count = int(span // size) + 1
    moments = np.unique(np.concatenate((at, began, ended)))
    now = leased[np.maximum(np.searchsorted(at, moments, side="right") - 1, 0)]
    now = np.maximum(now, np.where(np.isin(moments, at), most[np.searchsorted(at, moments).clip(max=len(at) - 1)], 0.0))
    starts, ends = np.sort(began), np.sort(ended)
    came = np.concatenate(([0.0], np.cumsum(lacked[np.argsort(began)])))
    gone = np.concatenate(([0.0], np.cumsum(lacked[np.argsort(ended)])))
    waiting = came[np.searchsorted(starts, moments, side="right")] - gone[np.searchsorted(ends, moments, side="right")]
    asked = now + waiting
    windows = np.clip(((moments - first) // size).astype(np.int64), 0, count - 1)
    highest = np.full(count, -1.0)
    np.maximum.at(highest, windows, asked)
    into = np.searchsorted(moments, first + size * np.arange(count), side="right") - 1  # what it began with
    highest = np.maximum(highest, asked[np.maximum(into, 0)])
    need, confidence = bound(highest, QUANTILE, CONFIDENCE)
    lengths = np.diff(at)
    mean = float((leased[:-1] * lengths).sum() / span) if len(lengths) else float(leased[0])
    return {
        "windows": count, "need": need, "confidence": confidence, "mean": mean,
        "lacked": float(((ended - began) * lacked).sum() / span),
    }  # fmt: skip

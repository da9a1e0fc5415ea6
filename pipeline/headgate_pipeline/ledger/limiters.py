"""A frame of entries has the courses of limiters: one task follows one limiter."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate_pipeline.ledger.events import ORDER, PLACE
from headgate_pipeline.ledger.limiter_course import LimiterHistory, course

LIMITS: Final = r"(?:^|;)limiter:([^:;]*):([^:;]*)"
"""A pattern whose groups are the limits of all keys together, and of each."""


def each_limiter(
    entries: DataFrame, work: Callable[[str, LimiterHistory], Iterable[Mapping[str, Any]]], schema: str
) -> DataFrame:
    """Return what ``work`` makes of the course of each limiter, one task a limiter.

    Args:
        entries: that were read.
        work: is given the limiter's name and its course; returns rows, as ``schema`` says.
        schema: of the rows, without ``namespace`` and ``destination``, as text.
    """
    columns = [part.split()[0] for part in schema.split(", ")]

    def one(place: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(ORDER)
        events = course(zip(rows["epoch"].tolist(), rows["ms"].tolist(), rows["detail"].tolist(), strict=True))
        records = [{"namespace": place[0], "destination": place[1], **row} for row in work(place[1], events)]
        return pd.DataFrame(records, columns=[*PLACE, *columns])

    known = entries.where(F.col("problem").isNull() & F.col("time").isNotNull())
    of_limiters = known.where(F.col("op").isin("admit", "hold_off") | F.col("detail").rlike(LIMITS)).select(
        *PLACE, *ORDER, F.unix_millis("time").alias("ms"), "detail"
    )
    return of_limiters.groupBy(*PLACE).applyInPandas(one, f"namespace string, destination string, {schema}")

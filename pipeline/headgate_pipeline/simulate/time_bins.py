"""Bins of entries, as :mod:`~headgate_pipeline.simulate.model` replays them: a bounded number for each destination."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them
from pyspark.sql.types import StructType

from headgate_pipeline.ledger.events import ORDER, PLACE
from headgate_pipeline.simulate.model import Period

BINS: Final = 10_000
"""Of a destination, at most."""
CELLS: Final = 20_000_000
"""Bins times senders, at most; the bins of a destination with very many senders are longer."""
Place = tuple[str, str]


def binned(prepared: DataFrame, waits: DataFrame, parts: Mapping[str, str] | None = None) -> DataFrame:
    """Return the bins of each destination in one frame, to be grouped by it.

    Args:
        prepared: of :func:`headgate_pipeline.ledger.events.prepare`.
        waits: of :func:`headgate_pipeline.ledger.events.waits`.
        parts: for destinations that are replayed together, by name, what to call those: their bins begin together and
            are equally long. All others are a part by themselves.

    Returns:
        ``part``, ``first_ms``, ``step``, ``bins`` and ``consumers`` of the destination, ``kind``, ``bin``, and by kind:
        ``sent``: ``session`` sent ``one`` bytes in ``two`` messages in that bin of its own time. ``seen``: ``one``
        published, ``two`` settled, ``three`` pending at the end, ``four`` the least of it, ``five`` leased. ``waits``:
        ``one`` ms that ended in it, for the cause ``session``.
    """
    publishes, settles = F.col("op") == "publish", F.col("op") == "settle"
    spans = prepared.groupBy(*PLACE).agg(
        F.min("ms").alias("first_ms"),
        F.max("ms").alias("last_ms"),
        F.count_distinct(F.when(publishes, F.col("session"))).alias("senders"),
        F.count_distinct(F.when(settles, F.col("session"))).alias("consumers"),
    )
    named = [*map(F.col, PLACE)]
    if parts:
        kinds = prepared.sparkSession.createDataFrame(list(parts.items()), "destination string, part string")
        spans = spans.join(F.broadcast(kinds), "destination", "left")
    else:
        spans = spans.withColumn("part", F.lit(None).cast("string"))
    spans = spans.withColumn("part", F.coalesce("part", F.concat(F.lit("="), "destination")))
    of_part = Window.partitionBy("namespace", "part")
    spans = spans.withColumns({
        "first_ms": F.min("first_ms").over(of_part),
        "span": F.max("last_ms").over(of_part) - F.min("first_ms").over(of_part) + 1,
        "senders": F.sum("senders").over(of_part),
    })  # fmt: skip
    most = F.least(F.lit(BINS), F.greatest(F.lit(100), F.lit(CELLS) / F.greatest("senders", F.lit(1)))).cast("bigint")
    spans = spans.withColumn("step", F.ceil(F.col("span") / most)).withColumn(
        "bins", F.ceil(F.col("span") / F.col("step"))
    )
    spans = F.broadcast(spans.drop("senders", "last_ms", "span"))
    at = F.floor((F.col("ms") - F.col("first_ms")) / F.col("step")).alias("bin")
    placed = [*named, *map(F.col, ("part", "first_ms", "step", "bins", "consumers")), at]
    rows = prepared.join(spans, PLACE)
    seen = rows.groupBy(*placed).agg(
        F.lit("seen").alias("kind"),
        F.lit("").alias("session"),
        F.sum(F.when(publishes, F.col("bytes")).otherwise(0)).alias("one"),
        F.sum(F.when(settles, F.col("bytes")).otherwise(0)).alias("two"),
        F.max_by("pending_bytes", F.struct(*ORDER)).alias("three"),
        F.min("pending_bytes").alias("four"),
        F.avg("leased_bytes").alias("five"),
    )
    blank = [F.lit(None).alias(name) for name in ("two", "three", "four", "five")]
    ended = waits.withColumn("ms", F.col("ended")).join(spans, PLACE)
    stalls = ended.groupBy(*placed, F.col("cause").alias("session")).agg(
        F.lit("waits").alias("kind"), F.sum("waited").alias("one"), *blank
    )
    sent = (
        _own_time(prepared, waits)
        .join(spans, PLACE)
        .groupBy(*placed, F.col("session"))
        .agg(F.lit("sent").alias("kind"), F.sum("bytes").alias("one"), F.sum("messages").alias("two"), *blank[1:])
    )
    return seen.unionByName(stalls).unionByName(sent)


def _own_time(prepared: DataFrame, waits: DataFrame) -> DataFrame:
    """Return what was sent or dropped, with ``ms`` by the sender's own time, which stands still while it waits."""
    publishes = prepared.where(F.col("op").isin("publish", "drop")).select(
        *PLACE, "session", "ms", "bytes", "messages", F.lit(0).cast("bigint").alias("waited"), F.lit(1).alias("after")
    )
    stood = waits.select(
        *PLACE, "session", F.col("ended").alias("ms"), F.lit(None).cast("bigint").alias("bytes"),
        F.lit(None).cast("bigint").alias("messages"), "waited",
        F.lit(0).alias("after"),
    )  # fmt: skip
    so_far = Window.partitionBy(*PLACE, "session").orderBy("ms", "after").rowsBetween(Window.unboundedPreceding, 0)
    both = publishes.unionByName(stood).withColumn("stood", F.sum("waited").over(so_far))
    return both.where(F.col("bytes").isNotNull()).withColumn("ms", F.col("ms") - F.col("stood"))


def period_of(rows: pd.DataFrame) -> Period:
    """Return the period of one destination from its rows of :func:`binned`."""
    step, bins = int(rows["step"].iloc[0]), int(rows["bins"].iloc[0])
    seen = rows[rows["kind"] == "seen"].sort_values("bin")
    at = seen["bin"].to_numpy(dtype=np.int64)

    def filled(column: str) -> Any:
        values = np.zeros(bins)
        values[at] = seen[column].to_numpy(dtype=np.float64)
        return values

    published, settled = filled("one"), filled("two")
    last = np.maximum.accumulate(np.where(np.isin(np.arange(bins), at), np.arange(bins), -1))  # bin that still holds
    first = int(at[0])
    began_with = max(0.0, filled("three")[first] - published[first] + settled[first])
    pending, leased = filled("three")[last], filled("five")[last]
    pending[:first], leased[:first] = began_with, 0  # of those it is replayed with, others began earlier
    least = np.where(np.isin(np.arange(bins), at), filled("four"), pending)
    stalls = rows[rows["kind"] == "waits"]
    sends = rows[rows["kind"] == "sent"]
    names = {name: n for n, name in enumerate(sorted(sends["session"].unique()))}
    cells, messages = (np.zeros((max(len(names), 1), bins)) for _ in range(2))
    own = np.clip(sends["bin"].to_numpy(dtype=np.int64), 0, bins - 1)
    senders = sends["session"].map(names).to_numpy(dtype=np.int64)
    for amounts, column in ((cells, "one"), (messages, "two")):
        np.add.at(amounts, (senders, own), sends[column].to_numpy(dtype=np.float64))
    waiting = stalls["bin"].to_numpy(dtype=np.int64)
    idle = leased[waiting].mean() if len(waiting) else leased.mean()
    causes = stalls.groupby("session")["one"].sum().to_dict()
    return Period(
        step, cells, published, settled, pending, least, float(idle), float(stalls["one"].sum()), float(began_with),
        messages, int(rows["first_ms"].iloc[0]), int(rows["consumers"].iloc[0]), causes,
    )  # fmt: skip


def each(
    frame: DataFrame,
    work: Callable[[Mapping[Place, Period]], Iterable[tuple[Place, Mapping[str, Any]]]],
    schema: StructType | str,
) -> DataFrame:
    """Return what ``work`` makes of the periods of each part, one task for many of them.

    Args:
        frame: of :func:`binned`.
        work: is given the periods of a part by namespace and name; returns rows, each with its place. They have what
            ``schema`` says.
        schema: of the rows, without ``namespace`` and ``destination``, as text.
    """
    columns = [part.split()[0] for part in str(schema).split(", ")]

    def one(_: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
        periods = {(place[0], place[1]): period_of(of) for place, of in rows.groupby(PLACE)}
        records = [{"namespace": place[0], "destination": place[1], **row} for place, row in work(periods)]
        return pd.DataFrame(records, columns=[*PLACE, *columns])

    return frame.groupBy("namespace", "part").applyInPandas(one, f"namespace string, destination string, {schema}")

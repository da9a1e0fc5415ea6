"""A pool is audited by the sum of what all its destinations held, from their ledgers.

Hosts' clocks differ. So a rise is counted ``skew`` later than its entry says and a fall as much earlier: what is summed
up then was held at one moment, and maybe more. An entry that is missing, and a new epoch, end what is known to be held.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as all who use Spark name it)

from headgate.core.names import encode_name

PLACE: Final = ("site", "namespace", "destination")


def holdings(ledgers: Sequence[tuple[DataFrame, str]], *, skew_ms: int = 0) -> DataFrame:
    """Return each change of what destinations are known to hold of one pool, and the sum after it.

    Args:
        ledgers: of each site, rows of :data:`~headgate_pipeline.ledger.schema.ENTRY`, and the pool's name there.
        skew_ms: how far a clock may be from the right time.

    Returns:
        ``site`` (its number, from 0), ``namespace``, ``destination``, ``epoch``, ``seq``, ``at`` (ms), ``change``,
        ``granted`` (whether a pool granted it then, within its limit; else that is only where what is known begins or
        ends, or it was lent above the limit, with a ticket), ``lost``
        (whether some ledger began a later epoch before), ``held``, by all together, and ``own``, by this one.
    """
    changes = _changes(ledgers[0][0], ledgers[0][1], 0, skew_ms)
    for number, (rows, pool) in enumerate(ledgers[1:], 1):
        changes = changes.unionByName(_changes(rows, pool, number, skew_ms))
    order = (
        Window.partitionBy(F.lit(0)).orderBy("at", "change", *PLACE, "seq").rowsBetween(Window.unboundedPreceding, 0)
    )
    one = Window.partitionBy(*PLACE).orderBy("at", "change", "seq").rowsBetween(Window.unboundedPreceding, 0)
    sums = {"held": F.sum("change").over(order), "own": F.sum("change").over(one)}
    return changes.withColumns({**sums, "lost": F.max("begins_anew").over(order)}).drop("begins_anew")


def _changes(rows: DataFrame, pool: str, number: int, skew_ms: int) -> DataFrame:
    no = F.lit(False)
    ledger = Window.partitionBy("namespace", "destination").orderBy("epoch", "seq")
    run = Window.partitionBy("namespace", "destination", "run").orderBy("seq")
    follows = (F.col("seq") == F.lag("seq").over(ledger) + 1) & (F.col("epoch") == F.lag("epoch").over(ledger))
    later = F.col("epoch") > F.lag("epoch").over(ledger)
    read = (
        rows.where(F.col("problem").isNull())
        .select(
            "namespace",
            "destination",
            "epoch",
            "seq",
            F.unix_millis("time").alias("ms"),
            _slice(pool),
            _is_ticket(pool),
        )
        .withColumns({"begins": ~F.coalesce(follows, no), "begins_anew": F.coalesce(later, no)})
        .withColumn("run", F.sum(F.col("begins").cast("int")).over(ledger))
        .withColumns({"first": F.first("seq").over(run), "last": F.lead("seq").over(run).isNull()})
        .where(F.col("slice").isNotNull() | F.col("last") | F.col("begins_anew"))
    )
    before = F.coalesce(
        F.last("slice", ignorenulls=True).over(run.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)
    )
    knows = F.count("slice").over(run.rowsBetween(Window.unboundedPreceding, -1)) > 0
    steps = read.withColumns({"before": before, "granted": knows | (F.col("first") == 1)})
    same = F.coalesce("slice", "before")
    parts = [
        steps.withColumn("change", same - F.col("before")),
        steps.where("last").withColumns({"change": -same, "granted": no}),
    ]
    at = F.col("ms") + F.when(F.col("change") > 0, skew_ms).otherwise(-skew_ms)
    both = parts[0].unionByName(parts[1]).where((F.col("change") != 0) | F.col("begins_anew"))
    granted = F.col("granted") & (F.col("change") > 0) & ~F.col("is_ticket")
    names = ("namespace", "destination", "epoch", "seq", "change", "begins_anew")
    return both.select(F.lit(number).alias("site"), *names, at.alias("at"), granted.alias("granted"))


def _slice(pool: str) -> Column:
    """Return bytes that an entry says are held of a pool; null where it says nothing of it."""
    event = rf"(?:^|;)slice:\Q{encode_name(pool)}\E:(\d+):(\d+):\d+"
    totals = [F.regexp_extract("detail", event, number) for number in (1, 2)]
    held = totals[0].cast("long") - totals[1].cast("long")
    return F.when(totals[0] != "", held).alias("slice")


def _is_ticket(pool: str) -> Column:
    """Return whether an entry says that something of a pool was lent above its limit."""
    return F.col("detail").rlike(rf"(?:^|;)overdrawn:\Q{encode_name(pool)}\E:[1-9]").alias("is_ticket")


def above(held: DataFrame, limit: int, *, alone: bool = False) -> DataFrame:
    """Return the grants of :func:`holdings` by which more than the limit was held, the first one first.

    Args:
        held: what :func:`holdings` returned.
        limit: the pool's.
        alone: whether one destination may hold more while no other holds anything, for one message above the limit.

    Returns:
        As there, and ``verdict``: ``unproven`` where state was lost before, for that may bring back what was settled.
    """
    verdict = F.when(F.col("lost"), "unproven").otherwise("violated")
    over = F.col("granted") & (F.col("held") > limit)
    if alone:
        over &= F.col("held") != F.col("own")
    return held.where(over).withColumn("verdict", verdict).orderBy("at", "seq")

"""An audit judges the rates of senders over all slices of a destination, whose ledgers it reads as one."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as all who use Spark name it)

from headgate_pipeline.audit.audit import FINDING, Batches, Known, batch_of
from headgate_pipeline.audit.findings import Finding, Settings
from headgate_pipeline.audit.rates import SendRate

COLUMNS: Final = ("seq", "ms", "op", "session", "bytes", "messages")
"""Of an entry, what is read, in the order in which rates take it."""
SKEW_MS: Final = 50
"""Milliseconds by which clocks of masters may be from the time."""


def beyond(entries: Iterable[tuple[Any, ...]], settings: Settings, skew_ms: int) -> dict[str, list[Finding]]:
    """Return what was sent beyond the rates of one destination, by slice; of entries in order of time.

    An entry is the name of its slice, and :data:`COLUMNS`. Nothing from before an ``apply`` is judged, for other rates
    may have held.
    """
    rate = SendRate(settings, 2 * skew_ms)
    slices: dict[int, str] = {}
    for slice_, *columns in entries:
        row = tuple(columns)
        if row[2] == "apply":
            rate.forget()
        elif row[5] > 0:
            slices[len(slices)] = slice_
            rate.step((*row, len(slices) - 1), row[4], row[5])
    found: dict[str, list[Finding]] = {}
    if len(set(slices.values())) < 2:  # what one slice alone sent is judged with its ledger
        return found
    for promise, what, expected, actual, row in rate.finish():
        finding = Finding("violated", promise, row[0], f"{what}, over all slices", str(expected), str(actual))
        found.setdefault(slices[row[-1]], []).append(finding)
    return found


def over_slices(rows: DataFrame, settings: Known, *, skew_ms: int = SKEW_MS) -> DataFrame:
    """Judge the rates of senders over all slices of each destination that has slices.

    Args:
        rows: of :data:`~headgate_pipeline.ledger.schema.ENTRY`.
        settings: by namespace and destination; those that have rates are judged.
        skew_ms: how far clocks of masters may be from the time.

    Returns:
        Rows of :data:`~headgate_pipeline.audit.audit.FINDING`: one for each entry that was beyond a rate.
    """
    rated = {place: one for place, one in settings.items() if one.send_rate or one.send_byte_rate}
    whole = F.split("destination", "#")[0]
    places = [(F.col("namespace") == namespace) & (whole == name) for namespace, name in rated]
    wanted = rows.where(reduce(lambda one, other: one | other, places, F.lit(False))).where(
        F.col("op").isin("publish", "apply")
    )
    columns = {name: F.col(name) for name in COLUMNS} | {"ms": F.unix_millis("time")}
    return (
        wanted.select("namespace", whole.alias("whole"), "destination", *(c.alias(name) for name, c in columns.items()))
        .repartition("namespace", "whole")
        .sortWithinPartitions("namespace", "whole", "ms", "destination", "seq")
        .mapInArrow(_judged(rated, skew_ms), FINDING)
    )


def _judged(rated: dict[tuple[str, str], Settings], skew_ms: int) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        from itertools import groupby

        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for (namespace, whole), entries in groupby(rows, lambda row: (row[0], row[1])):
            found = beyond((row[2:] for row in entries), rated[namespace, whole], skew_ms)
            for destination, findings in found.items():
                yield batch_of((namespace, destination), findings)

    return run

"""The audit: replays the ledgers of destinations and proves their promises for the period, or names who broke them."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as all who use Spark name it)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headgate_pipeline.findings import ROW, Finding, Settings
from headgate_pipeline.replay import Replay

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS: Final = frozenset({"seq", "entries", "first_seq", "excused", "taken_over"})
FINDING: Final = StructType([
    StructField("namespace", StringType()),
    StructField("destination", StringType()),
    *(StructField(name, LongType() if name in NUMBERS else StringType()) for name in Finding._fields),
])  # fmt: skip
"""``namespace``, ``destination`` and the attributes of :class:`~headgate_pipeline.findings.Finding`."""

Batches = Iterator["pa.RecordBatch"]
Known = Mapping[tuple[str, str], Settings]


def audit(entries: DataFrame, settings: Known | None = None) -> DataFrame:
    """Replay the ledger of every destination, each in order of epoch and number.

    A destination is read as a stream of batches: what is kept of it are the accounts of its open sessions.

    Args:
        entries: rows of :data:`~headgate_pipeline.schema.ENTRY`.
        settings: by namespace and destination, what a ledger does not tell; without it, grants above the limit that a
            setting would excuse count as violations, and the rates of senders are not judged.

    Returns:
        Rows of :data:`FINDING`, the last of each destination ``audited``.
    """
    place = ("namespace", "destination")
    columns = {name: F.col(name) for name in ROW} | {"ms": F.unix_millis("time")}
    incomplete = reduce(or_, (columns[name].isNull() for name in ROW if name != "problem"))
    columns["problem"] = F.coalesce("problem", F.when(incomplete, "malformed: a column is missing"))
    wanted = entries.select(*place, *(column.alias(name) for name, column in columns.items()))
    ordered = wanted.repartition(*place).sortWithinPartitions(*place, "epoch", "seq")
    return ordered.mapInArrow(_replayed(dict(settings or {})), FINDING)


def _replayed(
    settings: dict[tuple[str, str], Settings],
) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def run(batches: Batches) -> Batches:
        place: tuple[str, str] | None = None
        replay = Replay()
        for batch in batches:
            said: list[tuple[Any, ...]] = []
            namespaces, names, *columns = (column.to_pylist() for column in batch.columns)
            for namespace, name, row in zip(namespaces, names, zip(*columns, strict=True), strict=True):
                if place is None or name != place[1] or namespace != place[0]:
                    if place is not None:
                        said += [(*place, *finding) for finding in replay.finish()]
                    place = (namespace, name)
                    replay = Replay(settings.get(place))
                replay.step(row)
            if said:
                yield _batch(said)
        if place is not None:
            yield _batch([(*place, *finding) for finding in replay.finish()])

    return run


def _batch(rows: list[tuple[Any, ...]]) -> "pa.RecordBatch":
    import pyarrow as pa

    kinds = {name: pa.int64() if name in NUMBERS else pa.string() for name in FINDING.names}
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)], names=list(kinds)
    )


def verdicts(findings: DataFrame) -> DataFrame:
    """Return one row a destination.

    Args:
        findings: rows of :data:`FINDING`.

    Returns:
        ``namespace``, ``destination``; ``verdict``: ``violated``, ``unproven`` (not all could be said) or ``proven``;
        ``first_seq``, ``last_seq`` and ``entries`` that were replayed; how many are ``violated``, ``unproven``,
        ``excused`` and ``taken_over``; and of the first violation, or else of what is unproven first, ``at`` (number of
        the entry), ``promise`` and ``what``.
    """
    rank = F.when(F.col("finding") == "violated", 0).when(F.col("finding") == "unproven", 1).otherwise(2)
    said = findings.where("finding != 'audited'").withColumn("rank", rank)
    first = said.groupBy("namespace", "destination").agg(
        F.count_if(F.col("rank") == 0).alias("violated"),
        F.count_if(F.col("rank") == 1).alias("unproven"),
        F.min(F.struct("rank", "seq", "promise", "what")).alias("first"),
    )
    audited = findings.where("finding = 'audited'").select(
        "namespace", "destination", "first_seq", F.col("seq").alias("last_seq"), "entries", "excused", "taken_over"
    )
    verdict = F.when(F.col("violated") > 0, "violated").when(F.col("unproven") > 0, "unproven").otherwise("proven")
    return (
        audited.join(first, ["namespace", "destination"], "left")
        .fillna(0, ["violated", "unproven"])
        .select(
            "namespace", "destination", verdict.alias("verdict"), "first_seq", "last_seq", "entries", "violated",
            "unproven", "excused", "taken_over", F.col("first.seq").alias("at"), "first.promise", "first.what",
        )
    )  # fmt: skip

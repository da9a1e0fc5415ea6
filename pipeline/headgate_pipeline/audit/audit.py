"""An audit replays the ledgers of destinations and proves their promises for the period, or names who broke them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as all who use Spark name it)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from headgate_pipeline.audit.findings import ROW, Finding, Settings
from headgate_pipeline.ledger.entries import entries, parquet_files

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS: Final = frozenset({"seq", "entries", "first_seq", "excused", "taken_over"})
FINDING: Final = StructType([
    StructField("namespace", StringType()),
    StructField("destination", StringType()),
    *(StructField(name, LongType() if name in NUMBERS else StringType()) for name in Finding._fields),
])  # fmt: skip
"""``namespace``, ``destination`` and the attributes of :class:`~headgate_pipeline.audit.findings.Finding`."""
PLACE: Final = ("namespace", "destination")
RUN: Final = StructType([
    *(StructField(name, StringType()) for name in PLACE),
    StructField("epoch", LongType()),
    StructField("seq", LongType()),
    StructField("entries", BinaryType()),
])  # fmt: skip
"""As :data:`headgate_pipeline.audit.entry_runs.RUN`."""
LEAST_BYTES: Final = 1 << 20
MOST_BYTES: Final = 32 << 20
"""Of Parquet that one task reads."""

Batches = Iterator["pa.RecordBatch"]
Known = Mapping[tuple[str, str], Settings]


def audit(rows: DataFrame, settings: Known | None = None) -> DataFrame:
    """Replay the ledger of every destination, each in order of epoch and number.

    A destination is read as a stream of runs: what is kept of it are the accounts of its open sessions.

    Args:
        rows: of :data:`~headgate_pipeline.ledger.schema.ENTRY`.
        settings: by namespace and destination, what a ledger does not tell: the rates of senders, which are not judged
            without it, and of old ledgers what may go above the limits.

    Returns:
        Rows of :data:`FINDING`, the last of each destination ``audited``.
    """
    columns = {name: F.col(name) for name in (*PLACE, *ROW)} | {"ms": F.unix_millis("time")}
    wanted = rows.select(*(column.alias(name) for name, column in columns.items()))
    return _replay(wanted.mapInArrow(_cut, RUN), settings)


def audit_folder(spark: SparkSession, folder: Path | str, namespace: str, settings: Known | None = None) -> DataFrame:
    """Replay what ``headgate pipeline ingest`` wrote where executors see it too, as :func:`audit` does.

    Files on a disk are read by Python, the columns that are needed, and no row passes through the JVM.

    Raises:
        InvalidValue: there is no such folder.
    """
    files = parquet_files(folder)
    if not files:  # of a store that only Spark reaches, or listed by Spark's own sink
        return audit(entries(spark, folder, None, namespace), settings)
    parts = _shares(files, _cores(spark))
    runs = spark.range(0, len(parts), numPartitions=len(parts)).mapInArrow(_read(parts, namespace), RUN)
    return _replay(runs, settings, len(parts))


def _shares(files: list[tuple[str, int]], cores: int) -> list[list[str]]:
    """Spread files over tasks, those that follow each other to the same."""
    most = max(LEAST_BYTES, min(MOST_BYTES, sum(size for _, size in files) // (4 * cores)))
    parts: list[list[str]] = [[]]
    filled = 0
    for path, size in files:
        if parts[-1] and filled + size > most:
            parts.append([])
            filled = 0
        parts[-1].append(path)
        filled += size
    return parts


def _read(parts: list[list[str]], namespace: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        from headgate_pipeline.audit.entry_runs import cut, read

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from cut(read(parts[number], namespace))

    return run


def _cut(batches: Batches) -> Batches:
    from headgate_pipeline.audit.entry_runs import cut

    return cut(batches)


def _replay(runs: DataFrame, settings: Known | None, tasks: int = 1) -> DataFrame:
    """Replay runs, each destination by one task; tasks are more than cores, so that none has the most of them alone."""
    ordered = runs.repartition(max(tasks, 4 * _cores(runs.sparkSession)), *PLACE)
    return ordered.sortWithinPartitions(*PLACE, "epoch", "seq").mapInArrow(_replayed(dict(settings or {})), FINDING)


def _cores(spark: SparkSession) -> int:
    try:
        return spark.sparkContext.defaultParallelism
    except AttributeError:  # a session of Spark Connect does not say
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def _replayed(settings: dict[tuple[str, str], Settings]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        from headgate_pipeline.audit.entry_runs import EntryStream, unpacked
        from headgate_pipeline.audit.proof import DestinationAudit

        place, proof, stream = None, DestinationAudit(), EntryStream(lambda _: None)
        for batch in batches:
            *columns, packed = batch.columns
            for *of, epoch, seq, run in zip(*(column.to_pylist() for column in columns), packed, strict=True):
                if tuple(of) != place:
                    if place is not None:
                        stream.finish()
                        yield batch_of(place, proof.finish())
                    place = (of[0], of[1])
                    proof = DestinationAudit(settings.get(place))
                    stream = EntryStream(proof.follow)
                stream.add(epoch, seq, unpacked(run.as_buffer()))
        if place is not None:
            stream.finish()
            yield batch_of(place, proof.finish())

    return run


def batch_of(place: tuple[str, str], findings: list[Finding]) -> "pa.RecordBatch":
    """Return findings about one destination as rows of :data:`FINDING`."""
    import pyarrow as pa

    kinds = {name: pa.int64() if name in NUMBERS else pa.string() for name in FINDING.names}
    columns = zip(*((*place, *finding) for finding in findings), strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)], names=list(kinds)
    )


def verdicts(findings: DataFrame) -> DataFrame:
    """Return one row a destination out of rows of :data:`FINDING`.

    Returns:
        ``namespace``, ``destination``; ``verdict``: ``violated``, ``unproven`` (not all could be judged), ``lost`` (all
        else holds) or ``proven``; ``first_seq``, ``last_seq`` and ``entries`` that were replayed; how many are
        ``violated``, ``unproven``, ``excused`` and ``taken_over``; ``lost``: messages; and of the first
        violation, or else of what is unproven first, or lost, ``at`` (number of the entry), ``promise`` and ``what``.
    """
    kind = F.col("finding")
    rank = F.when(kind == "violated", 0).when(kind == "unproven", 1).otherwise(2)
    audited = F.struct("first_seq", F.col("seq").alias("last_seq"), "entries", "excused", "taken_over")
    verdicts = findings.groupBy(*PLACE).agg(
        F.count_if(kind == "violated").alias("violated"),
        F.count_if(kind == "unproven").alias("unproven"),
        F.count_if(kind == "lost").alias("losses"),
        F.coalesce(F.sum(F.when(kind == "lost", F.col("found").cast("long"))), F.lit(0)).alias("lost"),
        F.min(F.when(kind != "audited", F.struct(rank.alias("rank"), "seq", "promise", "what"))).alias("first"),
        F.max(F.when(kind == "audited", audited)).alias("audited"),
    )
    verdict = F.lit("proven")
    for counted, word in (("losses", "lost"), ("unproven", "unproven"), ("violated", "violated")):
        verdict = F.when(F.col(counted) > 0, word).otherwise(verdict)
    return verdicts.select(
        *PLACE, verdict.alias("verdict"), "audited.first_seq", "audited.last_seq", "audited.entries", "violated",
        "unproven", "lost", "audited.excused", "audited.taken_over", F.col("first.seq").alias("at"), "first.promise",
        "first.what",
    )  # fmt: skip

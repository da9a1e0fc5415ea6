"""Flows are measured in windows of event time: pure transforms of entries. Those with ``delay`` run on streams too.

Windows are of Redis' clock. Rows that could not be read are left out; an audit tells of them.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.ledger import text_pattern
from headgate_pipeline.ledger.events import PLACE, in_whole, share_of_all

TEN_SECONDS: Final = "10 seconds"
LINK: Final = "link~"
"""The prefix of every link's id."""
_ACCURACY: Final = 1000  # of percentiles: a rank is wrong by one in that many at most


def flow(entries: DataFrame, length: str = TEN_SECONDS, delay: str | None = None) -> DataFrame:
    """Return what each destination admitted and settled in every window that has entries.

    Args:
        entries: rows of :data:`~headgate_pipeline.ledger.schema.ENTRY`; with limits, as
            :func:`~headgate_pipeline.ledger.events.with_limits` adds them, also their use is given.
        length: of a window.
        delay: of a stream, how late entries may come; None for a batch.

    Returns:
        ``namespace``, ``destination``, ``start``, ``end``; ``entries``; ``admitted_bytes`` and ``_messages``
        (published); ``settled_bytes`` and ``_messages`` (freed; ``expired_`` and ``purged_`` stand by themselves);
        ``held_bytes``, the most that was pending and leased after an entry; ``utilisation``, the same as a share of
        the limit at that moment (null without one); ``pending_messages`` (mean after entries); ``delay_ms``, for which
        a message was pending by Little's law (null where nothing was settled); ``slow``, consumers that became slow;
        ``refused``, tokens.
    """
    windowed = _windowed(_read(entries, delay), length)
    published, settled = F.col("op") == "publish", F.col("op") == "settle"
    held = F.col("pending_bytes") + F.col("leased_bytes")
    use = F.lit(None).cast("double")
    if "limit_bytes" in entries.columns:
        most = F.col("limit_bytes")
        use = F.max(F.when((most > 0) & (most < float("inf")), held / most))
    found = windowed.groupBy(*PLACE, "window").agg(
        F.count("*").alias("entries"),
        _sum(published, "bytes").alias("admitted_bytes"),
        _sum(published, "messages").alias("admitted_messages"),
        _sum(settled, "bytes").alias("settled_bytes"),
        _sum(settled, "messages").alias("settled_messages"),
        F.sum(_amounts("expired", 1)).alias("expired_bytes"),
        F.sum(_amounts("expired", 2)).alias("expired_messages"),
        F.sum(_amounts("purge", 1)).alias("purged_bytes"),
        F.sum(_amounts("purge", 2)).alias("purged_messages"),
        F.max(held).alias("held_bytes"),
        use.alias("utilisation"),
        F.avg("pending_messages").alias("pending_messages"),
        F.sum(F.regexp_count("detail", F.lit("(^|;)slow:"))).cast("long").alias("slow"),
        _sum(F.col("op") == "take", "messages").alias("refused"),
    )
    return _opened(found).withColumn("delay_ms", _delay())


def of_destinations(flows: DataFrame) -> DataFrame:
    """Return the windows of :func:`flow` of a batch with the slices of a destination as one.

    Figures of each slice by itself are added up, so ``held_bytes``, ``utilisation`` and ``pending_messages`` are no
    less than what all had at a time; in a window without entries of a slice, what that holds is left out.
    """
    keys = [*PLACE, "start", "end"]
    shares = {"utilisation": share_of_all("utilisation")}
    sums = [shares.get(name, F.sum(name)).alias(name) for name in flows.columns if name not in {*keys, "delay_ms"}]
    return in_whole(flows).groupBy(*keys).agg(*sums).withColumn("delay_ms", _delay())


def parties(entries: DataFrame, length: str = TEN_SECONDS, delay: str | None = None) -> DataFrame:
    """Return what each session, consumer and link did in each window; arguments are as for :func:`flow`.

    Returns:
        ``namespace``, ``destination``, ``role`` (``producer``, ``consumer``, ``link``: one that writes here, or reads
        here), ``party`` (id of session, consumer or link), ``start``, ``end``; ``admitted_bytes`` and ``_messages``;
        ``delivered_bytes`` and ``_messages``; ``settled_bytes`` and ``_messages`` (deliveries, all fates); ``calls``.
    """
    wanted = _windowed(_read(entries, delay), length).where(F.col("op").isin("publish", "settle"))
    published = F.col("op") == "publish"
    link = F.col("session").startswith(LINK)
    role = F.when(link, "link").when(published, "producer").otherwise("consumer")
    party = F.when(link & ~published, F.regexp_replace("session", r"\.\d+$", "")).otherwise(F.col("session"))
    return _opened(
        wanted.withColumns({"role": role, "party": party})
        .groupBy(*PLACE, "role", "party", "window")
        .agg(
            _sum(published, "bytes").alias("admitted_bytes"),
            _sum(published, "messages").alias("admitted_messages"),
            F.sum(_amount("fetched", 1)).alias("delivered_bytes"),
            F.sum(_amount("fetched", 2)).alias("delivered_messages"),
            F.sum(_amount("settled", 1)).alias("settled_bytes"),
            F.sum(_amount("settled", 2)).alias("settled_messages"),
            F.count("*").alias("calls"),
        )
    )


def blocked(entries: DataFrame, length: str = TEN_SECONDS, delay: str | None = None) -> DataFrame:
    """Return for how long sessions were blocked, by the window of the end; arguments are as for :func:`flow`.

    Returns:
        ``namespace``, ``destination``, ``start``, ``end``; ``waits``, of which ``given_up`` were not served;
        ``sessions`` (about, how many waited); ``total_ms``, and ``p50_ms``, ``p95_ms``, ``p99_ms`` and ``max_ms`` of
        a wait.
    """
    event = F.explode(F.regexp_extract_all("detail", F.lit(text_pattern("unblock", "giveup")), 1))
    each = _windowed(_read(entries, delay), length).select(*PLACE, "window", event.alias("event"))
    ms = F.substring_index("event", ":", -1).cast("long")
    found = each.select(*PLACE, "window", "event", ms.alias("ms")).groupBy(*PLACE, "window").agg(
        F.count("*").alias("waits"),
        F.count_if(F.col("event").startswith("giveup:")).alias("given_up"),
        F.approx_count_distinct(F.split("event", ":")[1]).alias("sessions"),
        F.sum("ms").alias("total_ms"),
        F.percentile_approx("ms", [0.5, 0.95, 0.99], _ACCURACY).alias("ranks"),
        F.max("ms").alias("max_ms"),
    )  # fmt: skip
    ranks = {f"p{name}_ms": F.col("ranks")[at] for at, name in enumerate((50, 95, 99))}
    return _opened(found.withColumns(ranks).drop("ranks"))


def fairness(shares: DataFrame) -> DataFrame:
    """Return how evenly producers of a batch were served in each window: Jain's index, 1: all alike, 1/n: one alone.

    Returns:
        ``namespace``, ``destination``, ``start``, ``end``, ``producers``, ``jain`` (null where nothing was admitted).
    """
    share = F.col("admitted_bytes").cast("double")
    producers = shares.where((F.col("role") == "producer") & (F.col("admitted_messages") > 0))
    return producers.groupBy(*PLACE, "start", "end").agg(
        F.count("*").alias("producers"),
        (F.sum(share) * F.sum(share) / F.nullif(F.count("*") * F.sum(share * share), F.lit(0.0))).alias("jain"),
    )


def _read(entries: DataFrame, delay: str | None) -> DataFrame:
    known = entries.where(F.col("problem").isNull() & F.col("time").isNotNull())
    return known.withWatermark("time", delay) if delay else known


def _windowed(entries: DataFrame, length: str) -> DataFrame:
    return entries.withColumn("window", F.window("time", length))


def _opened(found: DataFrame) -> DataFrame:
    """Put the window's ends in columns of their own, after those of the subject."""
    keys = [name for name in (*PLACE, "role", "party") if name in found.columns]
    rest = [name for name in found.columns if name not in {*keys, "window"}]
    return found.select(*keys, F.col("window.start").alias("start"), F.col("window.end").alias("end"), *rest)


def _delay() -> Column:
    """Return for how many ms a message was pending, by Little's law."""
    span_ms = F.unix_millis("end") - F.unix_millis("start")
    return F.when(F.col("settled_messages") > 0, F.col("pending_messages") * span_ms / F.col("settled_messages"))


def _sum(when: Column, column: str) -> Column:
    return F.sum(F.when(when, F.col(column)).otherwise(0))


def _amount(event: str, argument: int) -> Column:
    """Return a number of an event that an entry has once at most, 0 where it has none."""
    tail = F.substring_index(F.substring_index("detail", f"{event}:", -1), ";", 1)  # a pattern takes longer
    number = F.substring_index(tail, ":", 1 if argument == 1 else -1).try_cast("long")
    return F.when(F.contains(F.col("detail"), F.lit(f"{event}:")), F.coalesce(number, F.lit(0))).otherwise(F.lit(0))


def _amounts(event: str, argument: int) -> Column:
    """Return the sum of one number over all events of a kind in an entry."""
    found = F.regexp_extract_all("detail", F.lit(rf"(?:^|;){event}:(?:[^:;]+:)?(\d+):(\d+)(?=;|$)"), argument)
    added = F.aggregate(found.cast("array<bigint>"), F.lit(0).cast("bigint"), lambda total, one: total + one)
    return F.when(F.contains(F.col("detail"), F.lit(f"{event}:")), added).otherwise(F.lit(0))

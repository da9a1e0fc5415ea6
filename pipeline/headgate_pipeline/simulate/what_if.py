"""A model replays the arrivals and the consumers of a period under other rules."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.names import whole_name
from headgate_pipeline.ledger import events
from headgate_pipeline.ledger.events import ORDER, PLACE
from headgate_pipeline.ledger.limiter_course import LimiterHistory
from headgate_pipeline.ledger.limiters import LIMITS, each_limiter
from headgate_pipeline.simulate import bucket_model as takes
from headgate_pipeline.simulate import limiter_model as limiters
from headgate_pipeline.simulate import time_bins
from headgate_pipeline.simulate.flow import replay_all
from headgate_pipeline.simulate.model import Period, recorded, together
from headgate_pipeline.simulate.rules import Rules
from headgate_pipeline.simulate.scenario import Scenario

CASES: Final = ("recorded", "same rules", "what if")
"""The recorded past; the model's account of the rules then in force, which shows how far to trust it; and of
those that were asked about."""
SCHEMA: Final = (
    "case string, rules string, limit double, waited double, peak double, delay double, delay_p99 double, took double, "
    "unsent double, refused double, causes map<string,double>"
)
_NUMBERS: Final = ("waited", "peak", "delay", "delay_p99", "took", "unsent", "refused")


def look(prepared: DataFrame) -> DataFrame:
    """Return a row for each destination: which kind of it is known, and the limits in force at the end.

    Returns:
        ``destination``, ``sends``, ``takes``, ``grants`` and ``admits`` (entries), ``limit`` (bytes) and ``limit_m``;
        infinite for none, null where no entry tells; ``limits`` and ``key_limits`` of a limiter, as they were last set.
    """
    order = F.when(F.col("detail").rlike(LIMITS), F.struct(*ORDER))
    return prepared.groupBy(*PLACE).agg(
        F.count_if(F.col("op").isin("publish", "drop", "settle")).alias("sends"),
        F.count_if(F.col("op") == "take").alias("takes"),
        F.count_if(F.col("op").isin("acquire", "leave")).alias("grants"),
        F.count_if(F.col("op").isin("admit", "hold_off")).alias("admits"),
        F.max_by(F.regexp_extract("detail", LIMITS, 1), order).alias("limits"),
        F.max_by(F.regexp_extract("detail", LIMITS, 2), order).alias("key_limits"),
        F.max_by("limit_bytes", F.struct(*ORDER)).alias("limit"),
        F.max_by("limit_messages", F.struct(*ORDER)).alias("limit_m"),
    )


def what_if(prepared: DataFrame, question: Scenario) -> DataFrame:
    """Return three rows for each destination of a namespace that is asked about, one for each of :data:`CASES`.

    Returns:
        ``namespace``, ``destination``, ``case``, ``rules`` (in words), ``limit`` (bytes), ``waited`` (ms that senders
        waited, all together), ``peak`` (bytes pending), ``delay`` and ``delay_p99`` (ms from being let in to being
        settled), ``took`` (ms until all was settled), ``unsent`` (bytes not let in within 20 times the period),
        ``refused`` (bytes that ``when_full`` refuses or drops), ``causes`` (ms of ``waited``, by what bound). Of a
        bucket: tokens for bytes, and the delay is from being asked for to their slot. Of a limiter: ``waited`` is of
        all admissions, the delay from being asked for to being held, ``peak`` how many waited at once, ``refused``
        those that left the line unserved, and in fact those that did not wait.
    """
    ledgers = [one for name in question.asked for one in question.slices.get(name, (name,))]
    prepared = prepared.where(F.col("destination").isin(ledgers))
    is_bucket = F.col("destination").isin(list(question.buckets))
    is_limiter = F.col("destination").isin(list(question.limiters))
    moved = prepared.where(~is_bucket & ~is_limiter)
    binned = time_bins.binned(moved, events.waits(moved), question.parts())

    def work(found: Mapping[time_bins.Place, Period]) -> Iterator[tuple[time_bins.Place, dict[str, Any]]]:
        ledgers: dict[time_bins.Place, list[Period]] = {}
        for (namespace, name), period in found.items():
            ledgers.setdefault((namespace, whole_name(name)), []).append(period)
        periods = {place: together(parts) for place, parts in ledgers.items()}
        names = [name for _, name in periods]
        for place, period in periods.items():
            yield place, _row("recorded", question.same[place[1]], question.same_pools, recorded(period))
        for case, rules, pools in _cases(question):
            for place, outcome in zip(
                periods, replay_all(list(periods.values()), [rules[name] for name in names], pools), strict=True
            ):
                yield place, _row(case, rules[place[1]], pools, outcome)

    def bucket(place: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values(ORDER)
        ms, taken, refused, tat = takes.arrays(rows["ms"], rows["bytes"], rows["messages"], rows["first"])
        same = question.same[place[1]]
        cases = [_row("recorded", same, {}, takes.recorded(ms, taken, refused, tat, same.tokens))]
        for case, rules, _ in _cases(question):
            rule = rules[place[1]]
            cases.append(_row(case, rule, {}, takes.replay(ms, taken + refused, rule.tokens)))
        return pd.DataFrame([{"namespace": place[0], "destination": place[1], **row} for row in cases])

    def limiter(name: str, course: LimiterHistory) -> Iterator[dict[str, Any]]:
        yield _row("recorded", question.same[name], {}, limiters.recorded(course))
        for case, rules, _ in _cases(question):
            rule = rules[name]
            yield _row(case, rule, {}, limiters.replay(course, rule.limits, rule.key_limits, rule.weights, rule.zone))

    replayed = time_bins.each(binned, work, SCHEMA)
    if question.limiters:
        replayed = replayed.unionByName(each_limiter(prepared.where(is_limiter), limiter, SCHEMA))
    if not question.buckets:
        return replayed
    tokens = prepared.where(is_bucket & (F.col("op") == "take"))
    schema = f"namespace string, destination string, {SCHEMA}"
    return replayed.unionByName(tokens.groupBy(*PLACE).applyInPandas(bucket, schema))


def _cases(question: Scenario) -> tuple[tuple[str, Mapping[str, Rules], Mapping[str, float]], ...]:
    return (CASES[1], question.same, question.same_pools), (CASES[2], question.asked, question.pools)


def _row(case: str, rules: Rules, pools: Mapping[str, float], outcome: Any) -> dict[str, Any]:
    numbers = {name: float(getattr(outcome, name, 0.0)) for name in _NUMBERS}
    causes = dict(getattr(outcome, "causes", {}))
    if isinstance(outcome, takes.BucketOutcome) and outcome.waited:
        causes = {"rate": outcome.waited}
    described = rules.described({name: limit for name, limit in pools.items() if limit < inf})
    return {"case": case, "rules": described, "limit": rules.limit, **numbers, "causes": causes}

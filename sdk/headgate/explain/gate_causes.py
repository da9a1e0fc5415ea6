"""Only gates and buckets have these causes: a hold-off, and a bucket's own rate. Judged from facts."""

from collections.abc import Iterator

from headgate.core.limits.hold_off import left_of
from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.model import Reason


def hold_off(facts: DestinationFacts) -> Iterator[Reason]:
    """Yield the hold-off that lasts."""
    left = left_of(facts.fields.get("held_off", ""), facts.now_ms)
    if left:
        why = facts.fields.get("off_reason") or "no reason was given"
        yield Reason(
            "held-off",
            f"it is held off for {left:.3g} s more: {why}",
            remedy="wait, or end it: hold_off(0)",
            seconds=left,
        )


def bucket(facts: DestinationFacts) -> Reason:
    """Return whether a bucket has tokens, and else when."""
    if "rate" not in facts.fields:
        return Reason("open", "it has no rate: takes are not limited")
    rate, burst = facts.number("rate"), facts.count("burst")
    owed = max(0.0, facts.number("tat") / 1e6 - facts.now_ms / 1e3 - (burst - 1) / rate)
    text = f"{rate:g}/s with bursts of {burst}: "
    if owed <= 0:
        return Reason("open", f"{text}there are tokens now")
    return Reason("bucket-rate", f"{text}the next slot is in {owed:.3g} s", rule=facts.rule("rate"), seconds=owed)

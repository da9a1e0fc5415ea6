"""Only gates, buckets, and queues whose values say the slice have these causes. Judged from facts."""

from collections.abc import Iterator

from headgate.core.limits.hold_off import left_of
from headgate.core.limits.spread import Spread
from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.model import Reason
from headgate.explain.views import count
from headgate.figures import plain, rounded


def hold_off(facts: DestinationFacts) -> Iterator[Reason]:
    """Yield the hold-off that lasts."""
    left = left_of(facts.fields.get("held_off", ""), facts.now_ms)
    if left:
        why = facts.fields.get("off_reason") or "no reason was given"
        yield Reason(
            "held-off",
            f"it is held off for {rounded(left)} s more: {why}",
            remedy="wait, or end it: hold_off(0)",
            seconds=left,
        )


def bucket(facts: DestinationFacts) -> Reason:
    """Return whether a bucket has tokens, and else when."""
    if "rate" not in facts.fields:
        return Reason("open", "it has no rate: takes are not limited")
    rate, burst = facts.number("rate"), facts.count("burst")
    owed = max(0.0, facts.number("tat") / 1e6 - facts.now_ms / 1e3 - (burst - 1) / rate)
    text = f"{plain(rate)}/s with bursts of {burst}: "
    if owed <= 0:
        return Reason("open", f"{text}there are tokens now")
    return Reason("bucket-rate", f"{text}the next slot is in {rounded(owed)} s", rule=facts.rule("rate"), seconds=owed)


def spread_anew(facts: DestinationFacts) -> Iterator[Reason]:
    """Yield the change of how messages are spread over slices, which waits for those that were sent before."""
    to = Spread.read(facts.fields.get("spread_to", ""))
    if to is not None:
        by, left = "producer" if to.by == "-" else to.by, facts.count("pending_messages") - facts.count("later")
        yield Reason(
            "spread-anew" if left else "stopped",
            f"it is to be spread over {count(to.slices, 'slice')} by {by} once what was sent before is settled: "
            f"{count(left)} to go",
            remedy="have consumers settle what is there, or set slices and order_by back",
        )

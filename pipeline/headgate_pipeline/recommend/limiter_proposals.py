"""Proposals for the limits of a limiter: each with its reason, and the reason where none is made."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Final

from headgate.figures import rounded
from headgate_pipeline.formatting import count, span
from headgate_pipeline.recommend.demand import DestinationDemand
from headgate_pipeline.recommend.limiter_demand import HOLDS, LimitDemand
from headgate_pipeline.recommend.proposals import REACHED, SEEN, Bounds, Proposal, a_second, how_sure, make, round_rate


def propose_limits(need: DestinationDemand, bounds: Bounds) -> Iterator[Proposal]:
    """Yield what is proposed for each limit of a limiter, what stays included, and the time of a hold's lease.

    Args:
        need: what was seen of it.
        bounds: what is not gone beyond.
    """
    for one in need.limits:
        if one.limit == HOLDS:
            yield _ttl(one, bounds)
        elif one.need is not None:
            yield _OF_FORM[one.form](need, one, bounds)


def _place(one: LimitDemand) -> str:
    return f"per_key.{one.limit}" if one.of == "key" else f"limit.{one.limit}"


def _at_once(need: DestinationDemand, one: LimitDemand, bounds: Bounds) -> Proposal:
    wanted = (one.need or 0.0) * (1 + bounds.room)
    reason = (
        f"held and waited for at the same time{_by(one)} were at most {count(one.need)} in {_of(one)}; and "
        f"{bounds.room:.0%} more. {_waits(one)}"
    )
    if one.of == "all":
        reason += (
            f". By Little's law {rounded(one.come or 0)} holds a second, each held for {span(one.lasted)}, are "
            f"{rounded(one.mean or 0)} at once on average"
        )
    ends = (max(1.0, one.largest), 1 << 52)
    return make(
        f"{_place(one)}.at_once", max(wanted, one.largest), one.most, ends, bounds, reason, _whole, _as(need, one)
    )


def _rate(need: DestinationDemand, one: LimitDemand, bounds: Bounds) -> Proposal:
    demand, now = one.need or 0.0, one.rate or 0.0
    wanted = demand * (1 + bounds.room)
    reason = f"{a_second(demand)}{_by(one)} were asked for at most, as they were settled, in {_of(one)}"
    if demand >= REACHED * now or one.waits or one.refused:
        wanted = max(wanted, now * (1 + bounds.room)) if demand >= REACHED * now else wanted
        reason += "; it was reached" if demand >= REACHED * now else ""
    reason += f"; and {bounds.room:.0%} more. {_waits(one)}"
    return make(f"{_place(one)}.rate", wanted, now, (1e-6, 1 << 40), bounds, reason, round_rate, _as(need, one))


def _quota(need: DestinationDemand, one: LimitDemand, bounds: Bounds) -> Proposal:
    demand, now = one.need or 0.0, one.most
    wanted = demand * (1 + bounds.room)
    is_reached = demand >= REACHED * now or one.waits + one.refused > 0
    if is_reached:
        wanted = max(wanted, now * (1 + bounds.room))
    reason = (
        f"{count(demand)} in one {one.window}{_by(one)} were asked for at most, as they were settled, in {_of(one)}"
        f"{'; it was reached' if is_reached else ''}; and {bounds.room:.0%} more. No ledger says whether that "
        f"much may be spent. {_waits(one)}"
    )
    ends = (max(1.0, one.largest), 1 << 52)
    key = f"{_place(one)}.quota"
    return make(key, max(wanted, one.largest), now, ends, bounds, reason, _whole, _as(need, one))


def _ttl(one: LimitDemand, bounds: Bounds) -> Proposal:
    """Propose the lease of holds that nobody renews; the SDK renews those in its hands."""
    key = "ttl of admit, s"
    if one.holds < SEEN:
        return Proposal(key, None, None, f"only {count(one.holds)} holds were seen from their begin to their end")
    wanted = (one.held_p99 or 0.0) * (1 + bounds.room) / 1000
    reason = (
        f"99 % of {count(one.holds)} holds lasted at most {span(one.held_p99)}, the longest {span(one.held_max)}; and "
        f"{bounds.room:.0%} more. {count(one.lapsed)} lapsed before they were released. For holds that are carried "
        "elsewhere and not renewed: clients renew what they hold themselves, however long it takes"
    )
    return Proposal(key, max(1.0, round_rate(wanted)), None, reason)


def _by(one: LimitDemand) -> str:
    return f" by one key of {count(one.keys)}" if one.of == "key" else ""


def _waits(one: LimitDemand) -> str:
    if one.shadow:
        return f"{_real_waits(one)}. {_shadow(one)}"
    return _real_waits(one)


def _shadow(one: LimitDemand) -> str:
    """Say beside the real limit what its shadow would have done."""
    if not one.would_wait:
        return f"Its shadow, {one.shadow}, would have kept nobody waiting"
    share = f"{count(one.would_wait)} of {count(one.asked)}"
    return f"Its shadow, {one.shadow}, would have kept {share} waiting: {one.would_keys} most"


def _real_waits(one: LimitDemand) -> str:
    if not one.waits and not one.refused:
        return "Nobody waited for it"
    text = f"{count(one.waits)} waited for it {span(one.waited)} in all, {count(one.unserved)} of them in vain"
    return f"{text}; {count(one.refused)} calls did not wait and were refused" if one.refused else text


def _of(one: LimitDemand) -> str:
    return f"99 % of {count(one.windows)} windows of {span(one.size_ms)} ({how_sure(one.confidence)})"


def _as(need: DestinationDemand, one: LimitDemand) -> DestinationDemand:
    return replace(need, windows=one.windows, confidence=one.confidence)


_OF_FORM: Final = {"rate": _rate, "at_once": _at_once, "quota": _quota}


def _whole(value: float) -> int:
    return ceil(round_rate(value))

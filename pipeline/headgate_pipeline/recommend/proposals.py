"""A destination gets proposals: each setting with its reason, and the reason where none is made."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10
from typing import Final

from headgate.core.limits.limit import limits_of
from headgate.figures import rounded
from headgate.options import DEFAULT_WINDOW
from headgate_pipeline.formatting import count, size, span
from headgate_pipeline.recommend.demand import DestinationDemand
from headgate_pipeline.simulate.model import CONFIDENCE, QUANTILE

SEEN: Final = 20
"""Values that a percentile is taken of, at least; of fewer, nothing is proposed."""
VARIED: Final = 4.0
"""Messages differ in size when the large ones are that many times the small ones."""
_SMALL: Final = 0.1
"""The smallest share by which a proposal changes a setting."""
REACHED: Final = 0.95
"""Of a rate: who came so near to it was held back by it."""
_CONSUMER_WINDOW: Final = 1000
Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """`Bounds` holds limits that no proposal goes beyond.

    Attributes:
        step: how much larger or smaller than now, at most.
        limit: least and most bytes of a limit.
        window: of a producer's window.
        prefetch: of a consumer's window, in messages.
        room: share that is added to the demand that was seen.
        max_delay: seconds that messages may wait for consumers, at most; None for any.
        round_trip: ms, where none was seen.
        rates: propose rates where none is set, too.
    """

    step: float = 2.0
    limit: tuple[int, int] = (16 * 1024, 1 << 30)
    window: tuple[int, int] = (1024, 1 << 20)
    prefetch: tuple[int, int] = (2, 1000)
    room: float = 0.25
    max_delay: float | None = None
    round_trip: float = 5.0
    rates: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal is for one setting.

    Attributes:
        key: in the rule, as TOML has it, such as ``producer.window``.
        value: proposed; None where it stays.
        now: in force; None where there is none.
        reason: in words, on one line.
    """

    key: str
    value: float | None
    now: float | None
    reason: str


def propose(need: DestinationDemand, bounds: Bounds, fields: Fields | None = None) -> list[Proposal]:
    """Return what is proposed for a destination, what stays included.

    Args:
        need: what was seen of it.
        bounds: what is not gone beyond.
        fields: its settings in force, as the state spells them; what they do not say is taken at its default.
    """
    fields = fields or {}
    need = replace(
        need,
        limit=_known(need.limit, fields.get("limit_bytes")),
        limit_m=_known(need.limit_m, fields.get("limit_messages")),
    )
    if need.kind == "limiter":
        return []  # recommend.limiter_proposals has what is proposed for each of its limits
    return [*_of_real(need, bounds, fields), *_of_shadows(need, fields)]


def _of_shadows(need: DestinationDemand, fields: Fields) -> Iterator[Proposal]:
    """Yield the shadow limits with what they would have done: nothing is proposed for these."""
    for name, limit in limits_of(fields.get("shadow", "")).items():
        times, over = need.tried.get(name, (0, 0))
        would = f"{count(times)} waiting, at most {count(over)} above it" if times else "nobody waiting"
        yield Proposal(f"shadow.{name}", None, limit.rate or limit.most, f"it would have kept {would}")


def _of_real(need: DestinationDemand, bounds: Bounds, fields: Fields) -> list[Proposal]:
    if need.kind == "bucket":
        return list(_bucket(need, bounds, fields))
    if need.kind == "gate":
        return [_gate(need, bounds)]
    proposals = []
    if need.need is not None and need.senders:
        proposals.append(_limit(need, bounds))
        proposals += _limit_m(need, bounds)
        limit = proposals[0].value or need.limit
        if need.rate:
            proposals.append(_window(need, bounds, fields, limit))
        proposals += _rates(need, bounds, fields)
    if need.settle is not None:
        proposals.append(_prefetch(need, bounds, fields))
    return proposals


def _limit(need: DestinationDemand, bounds: Bounds) -> Proposal:
    demand = need.need or 0.0
    wanted = demand * (1 + bounds.room)
    reason = (
        f"had nobody waited, at most {size(demand)} would have been held in {_of(need)}; and {bounds.room:.0%} more"
    )
    if bounds.max_delay is not None and need.taken and wanted > need.taken * bounds.max_delay:
        wanted = need.taken * bounds.max_delay
        reason += f"; cut to what consumers take in {bounds.max_delay:g} s, at {size(need.taken)}/s"
    elif need.taken and need.waited:
        reason += f"; what is sent last then waits {span(wanted / need.taken * 1000)}"
    wanted = max(wanted, 2 * (need.largest or 0))
    return make("limit.bytes", wanted, _finite(need.limit), bounds.limit, bounds, reason, _round_size, need)


def _limit_m(need: DestinationDemand, bounds: Bounds) -> Iterator[Proposal]:
    """Propose a limit in messages: where one binds, or where bytes do not say how many messages wait."""
    now, varied = _finite(need.limit_m), (need.large or 0) / max(need.small or 0, 1)
    if now is None and not need.waited_m and varied < VARIED:
        return
    demand = need.need_m or 0.0
    wanted = demand * (1 + bounds.room)
    reason = ""
    if varied >= VARIED:
        reason = f"messages have {size(need.small)} to {size(need.large)}, so bytes do not say how many wait; "
    reason += (
        f"had nobody waited, at most {count(demand)} would have been held in {_of(need)}; and {bounds.room:.0%} more"
    )
    taken_m = need.taken / need.mean_size if need.taken and need.mean_size else 0.0
    if bounds.max_delay is not None and taken_m and wanted > taken_m * bounds.max_delay:
        wanted = taken_m * bounds.max_delay
        reason += f"; cut to what consumers take in {bounds.max_delay:g} s, at {count(taken_m)}/s"
    if need.waited_m:
        reason += f"; senders waited {span(need.waited_m)} for this limit"
    wanted = max(wanted, 2 * need.senders)
    yield make("limit.messages", wanted, now, (2, 1 << 40), bounds, reason, _round_count, need)


def _gate(need: DestinationDemand, bounds: Bounds) -> Proposal:
    if _finite(need.limit) is None and (calls := _finite(need.limit_m)) is not None:
        reason = "permits in hand that no call used count as held, so no ledger tells how many calls there are at once"
        return Proposal("limit.messages", None, calls, reason)
    reason = (
        f"held and waited for at the same time were at most {size(need.need)} in {_of(need)}; and {bounds.room:.0%} "
        f"more. On average {size(need.mean)} were held and {size(need.lacked)} waited for (Little's law: what comes a "
        "second, times how long it is held). Credit in hand that no permit used counts as held"
    )
    wanted = (need.need or 0.0) * (1 + bounds.room)
    ends = (1, bounds.limit[1])  # a gate counts what it likes, not only bytes
    return make("limit.bytes", wanted, _finite(need.limit), ends, bounds, reason, _round_count, need)


def _window(need: DestinationDemand, bounds: Bounds, fields: Fields, limit: float | None) -> Proposal:
    trip, how = _round_trip(need, bounds)
    sends = need.rate or 0.0
    reason = (
        f"twice what a sender sends in a round trip, as it asks at half: {size(sends)}/s "
        f"({how_sure(need.rate_confidence)}) in {how}"
    )
    least, most = bounds.window
    least = max(least, ceil(need.largest or 0))
    if limit is not None and limit != inf:
        most = max(least, min(most, int(limit / 2 / need.senders)))
        reason += f"; all {count(need.senders)} together at most half of the limit"
    now = float(fields.get("producer_window") or DEFAULT_WINDOW)
    sure = need.rate_confidence
    return make(
        "producer.window", 2 * sends * trip / 1000, now, (least, most), bounds, reason, _round_size, need, sure=sure
    )


def _rates(need: DestinationDemand, bounds: Bounds, fields: Fields) -> Iterator[Proposal]:
    """Propose rates: where one is set, what it should be; where none is, only if asked for."""
    of_all, of_each = need.sent_m or 0.0, need.rate_m or 0.0
    sure = {"sure": need.confidence}
    for key, field, demand, words, kept in (
        ("rate.messages", "send_rate", of_all, "all senders together sent", sure),
        ("producer.rate", "producer_rate", of_each, "a sender sent", {"sure": need.rate_confidence}),
        ("consumer.shared_rate", "delivery_rate", of_all, "consumers keep up with all that comes: senders sent", sure),
    ):
        text = fields.get(field, "")
        now = float(text) if text else None
        if not demand or (now is None and not bounds.rates):
            continue
        wanted = demand * (1 + bounds.room)
        reason = f"{words} at most {a_second(demand)} in {_of(need, kept['sure'])}, while they did not wait"
        if now is not None and field != "delivery_rate" and demand >= REACHED * now:
            wanted = max(wanted, now * (1 + bounds.room))
            reason = f"it was reached ({a_second(demand)}), so how much would have come without it is not known"
        reason += f"; and {bounds.room:.0%} more"
        yield make(key, wanted, now, (0.01, 1 << 40), bounds, reason, round_rate, need, **kept)


def _prefetch(need: DestinationDemand, bounds: Bounds, fields: Fields) -> Proposal:
    key, text = "consumer.window.messages", fields.get("consumer_window") or str(_CONSUMER_WINDOW)
    text = text.partition("/")[0]
    now = float(text) if text.isdigit() else None
    if need.settles < SEEN:
        return Proposal(
            key, None, now, f"only {count(need.settles)} settlements were seen while a consumer had messages"
        )
    trip, how = _round_trip(need, bounds)
    each = max(need.settle or 0, 0.05)  # below, what is seen is how fine the clock is
    reason = (
        f"what a consumer settles in two round trips, as it fetches at half: a message takes it {rounded(each)} ms or "
        f"more (95 % of {count(need.settles)}), {how}; and one more"
    )
    return make(key, 2 * trip / each + 1, now, bounds.prefetch, bounds, reason, ceil, None)


def _bucket(need: DestinationDemand, bounds: Bounds, fields: Fields) -> Iterator[Proposal]:
    text = fields.get("rate", "")
    now = float(text) if text else None
    demand = need.tokens or 0.0
    seconds = f"one of {count(need.windows)} seconds ({how_sure(need.confidence)})"
    reason = f"{count(demand)} tokens were asked for at most in {seconds}"
    if now is not None and demand >= REACHED * now:
        reason += ", which is all that it gives"
    if need.refused:
        reason += f", {count(need.refused)} in all were refused"
    reason += f"; and {bounds.room:.0%} more. Calls that took nothing are not in the ledger"
    proposal = make(
        "rate", demand * (1 + bounds.room), now, (0.01, 1 << 40), bounds, reason, round_rate, need
    )  # fmt: skip
    yield proposal
    burst = fields.get("burst", "")
    if proposal.value is not None and burst.isdigit():
        yield Proposal(
            "burst", float(burst), float(burst), "as it is: with a rate alone it would be one second's worth"
        )


def _of(need: DestinationDemand, confidence: float | None = None) -> str:
    return f"{QUANTILE:.0%} of {count(need.windows)} windows ({how_sure(confidence or need.confidence)})"


def _round_trip(need: DestinationDemand, bounds: Bounds) -> tuple[float, str]:
    if need.round_trip is None or need.round_trips < SEEN:
        return bounds.round_trip, f"a round trip of {bounds.round_trip:g} ms (too few were seen: taken as given)"
    return need.round_trip, f"a round trip of {need.round_trip:g} ms (95 % of {count(need.round_trips)})"


def _is_sure(confidence: float | None) -> bool:
    return confidence is not None and confidence >= CONFIDENCE


def how_sure(confidence: float | None) -> str:
    """Return a confidence in words."""
    if not _is_sure(confidence):
        return f"too few to be sure: confidence {confidence or 0:.0%}"
    return f"confidence {CONFIDENCE:.0%}"


def _known(limit: float | None, text: str | None) -> float | None:
    """Return a limit in force: as the ledger tells, or if the entry that did was trimmed, the settings."""
    if limit is not None or not text:
        return limit
    return inf if text == "unlimited" else float(text)


def _finite(limit: float | None) -> float | None:
    return None if limit is None or limit == inf else limit


def make(
    key: str,
    wanted: float,
    now: float | None,
    ends: tuple[float, float],
    bounds: Bounds,
    reason: str,
    rounded: Callable[[float], float],
    need: DestinationDemand | None,
    *,
    sure: float | None = None,
) -> Proposal:
    """Return a proposal between the ends and within a step of what is in force; the step comes last.

    Args:
        key: of the setting.
        wanted: what was worked out.
        now: in force; None where there is none.
        ends: least and most.
        bounds: tell how many times larger or smaller than now, at most.
        reason: for what is wanted.
        rounded: to what people write; upwards.
        need: tells of how many windows that is. Of too few, nothing is proposed. None where it is of something else.
        sure: its confidence, where it is not that of ``need``. If it is not enough, nothing is made smaller: what was
            not seen yet may need it.
    """
    if need is not None and need.windows < SEEN:
        seen = "1 window was" if need.windows == 1 else f"{count(need.windows)} windows were"
        return Proposal(key, None, now, f"only {seen} seen, and {SEEN} are the least: {reason}")
    value = min(max(rounded(wanted), ends[0]), ends[1])
    if value != rounded(wanted):
        reason += f"; {value:,g} is the {'least' if value > wanted else 'most'} that may be proposed"
    if now is None:
        return Proposal(key, value, now, reason)
    if value < now and need is not None and not _is_sure(need.confidence if sure is None else sure):
        return Proposal(key, None, now, f"{reason}; too little was seen to make it smaller")
    least, most = now / bounds.step, now * bounds.step
    if rounded is not round_rate:
        least, most = ceil(least), floor(most)
    stepped = min(max(value, least), most)
    if stepped != value:
        reason += (
            f"; {stepped:,g} is as far as one step of {bounds.step:g} goes, {value:,g} was wanted: look again then"
        )
    return Proposal(key, None if abs(stepped - now) <= _SMALL * now else stepped, now, reason)


def _round_size(value: float) -> int:
    """Return a size rounded up to 1 KiB, above 1 MiB to 64 KiB."""
    unit = 1024 if value < 1 << 20 else 1 << 16
    return ceil(value / unit) * unit


def _round_count(value: float) -> int:
    """Return a number rounded up to two digits."""
    return ceil(round_rate(value))


def round_rate(value: float) -> float:
    """Return a rate rounded up to two digits."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{ceil(value / unit - 1e-9) * unit:.6g}")


def a_second(value: float) -> str:
    """Return a rate as text."""
    return f"{rounded(value)}/s" if value < 100 else f"{value:,.0f}/s"

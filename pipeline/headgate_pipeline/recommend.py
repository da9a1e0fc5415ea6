"""Proposed settings, each with its reason: what a policy document says, never what is put in force."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import wrap
from typing import Any, Final

from headgate.core.pattern import Pattern
from headgate.errors import HeadgateError
from headgate.options import DEFAULT_WINDOW
from headgate.redis.keys import encode_name
from headgate_pipeline.needs import CONFIDENCE, QUANTILE, Need
from headgate_pipeline.words import count, moment, size, span

SEEN: Final = 20
"""Values that a percentile is taken of, at least."""
_SMALL: Final = 0.1
"""What would change by less than that, stays."""
_CONSUMER_WINDOW: Final = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no proposal goes beyond.

    Attributes:
        step: how much larger or smaller than now, at most.
        limit: least and most bytes of a limit.
        window: of a producer's window.
        prefetch: of a consumer's window, in messages.
        room: share that is added to the demand that was seen.
        max_delay: seconds that messages may wait for consumers, at most; None for any.
        round_trip: ms, where none was seen.
    """

    step: float = 2.0
    limit: tuple[int, int] = (16 * 1024, 1 << 30)
    window: tuple[int, int] = (1024, 1 << 20)
    prefetch: tuple[int, int] = (2, 1000)
    room: float = 0.25
    max_delay: float | None = None
    round_trip: float = 5.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """One setting.

    Attributes:
        key: in the rule, as TOML has it, such as ``producer = { window = %d }``.
        value: proposed; None where it stays.
        now: in force; None where there is none.
        reason: in words, on one line.
    """

    key: str
    value: int | None
    now: float | None
    reason: str


Fields = Mapping[str, str]


def propose(need: Need, bounds: Bounds, fields: Fields | None = None) -> list[Proposal]:
    """Return what is proposed for a destination, what stays included.

    Args:
        need: what was seen of it.
        bounds: what is not gone beyond.
        fields: its settings in force, as the state spells them; what they do not say is taken at its default.
    """
    fields = fields or {}
    told = []
    if need.tokens is not None and not need.senders:
        return [_rate(need, bounds, fields)]
    if need.need is not None and need.senders:
        told.append(_limit(need, bounds))
    if need.rate and need.senders:
        told.append(_window(need, bounds, fields, told[0].value or need.limit))
    if need.settle is not None:
        told.append(_prefetch(need, bounds, fields))
    return told


def _limit(need: Need, bounds: Bounds) -> Proposal:
    demand = need.need or 0.0
    wanted = demand * (1 + bounds.room)
    reason = (
        f"had nobody waited, at most {size(demand)} would have been held in {QUANTILE:.0%} of {count(need.windows)} "
        f"windows ({_sure(need.need_confidence)}); and {bounds.room:.0%} more"
    )
    if bounds.max_delay is not None and need.taken and wanted > need.taken * bounds.max_delay:
        wanted = need.taken * bounds.max_delay
        reason += f"; cut to what consumers take in {bounds.max_delay:g} s, at {size(need.taken)}/s"
    elif need.taken and need.waited:
        reason += f"; what is sent last then waits {span(wanted / need.taken * 1000)}"
    now = need.limit if need.limit is not None and need.limit != float("inf") else None
    wanted = max(wanted, 2 * (need.largest or 0))
    return _clamped(
        "limit = { bytes = %d }",
        wanted,
        now,
        bounds.limit,
        bounds.step,
        reason,
        _round_size,
        sure=_is_sure(need.need_confidence),
    )


def _window(need: Need, bounds: Bounds, fields: Fields, limit: float | None) -> Proposal:
    trip, how = _round_trip(need, bounds)
    sends = need.rate or 0.0
    wanted = 2 * sends * trip / 1000
    reason = (
        f"twice what a sender sends in a round trip, as it asks at half: {size(sends)}/s "
        f"({_sure(need.rate_confidence)}) in {how}"
    )
    least, most = bounds.window
    least = max(least, ceil(need.largest or 0))
    if limit is not None and limit != float("inf"):
        most = max(least, min(most, int(limit / 2 / need.senders)))
        reason += f"; all {count(need.senders)} together at most half of the limit"
    now = float(fields.get("producer_window") or DEFAULT_WINDOW)
    return _clamped(
        "producer = { window = %d }",
        wanted,
        now,
        (least, most),
        bounds.step,
        reason,
        _round_size,
        sure=_is_sure(need.rate_confidence),
    )


def _prefetch(need: Need, bounds: Bounds, fields: Fields) -> Proposal:
    key, text = "consumer = { window = { messages = %d } }", fields.get("consumer_window") or str(_CONSUMER_WINDOW)
    now = float(text) if text.isdigit() else None
    if need.settles < SEEN:
        return Proposal(
            key, None, now, f"only {count(need.settles)} settlements were seen while a consumer had messages"
        )
    trip, how = _round_trip(need, bounds)
    each = max(need.settle or 0, 0.05)  # below, what is seen is how fine the clock is
    reason = (
        f"what a consumer settles in two round trips, as it fetches at half: a message takes it {each:.3g} ms or more "
        f"(95 % of {count(need.settles)}), {how}; and one more"
    )
    return _clamped(key, 2 * trip / each + 1, now, bounds.prefetch, bounds.step, reason, ceil)


def _rate(need: Need, bounds: Bounds, fields: Fields) -> Proposal:
    reason = (
        f"asked for at most in a second, refused included ({_sure(need.tokens_confidence)}); and {bounds.room:.0%} more"
    )
    now = fields.get("rate")
    return _clamped(
        "rate = %d", (need.tokens or 0) * (1 + bounds.room), float(now) if now else None, (1, 1 << 40), bounds.step,
        f"{count(need.tokens)} tokens were {reason}", ceil, sure=_is_sure(need.tokens_confidence),
    )  # fmt: skip


def _round_trip(need: Need, bounds: Bounds) -> tuple[float, str]:
    if need.round_trip is None or need.round_trips < SEEN:
        return bounds.round_trip, f"a round trip of {bounds.round_trip:g} ms (too few were seen: taken as said)"
    return need.round_trip, f"a round trip of {need.round_trip:g} ms (95 % of {count(need.round_trips)})"


def _is_sure(confidence: float | None) -> bool:
    return confidence is not None and confidence >= CONFIDENCE


def _sure(confidence: float | None) -> str:
    if not _is_sure(confidence):
        return f"too few to be sure: confidence {confidence or 0:.0%}"
    return f"confidence {CONFIDENCE:.0%}"


def _clamped(
    key: str,
    wanted: float,
    now: float | None,
    ends: tuple[float, float],
    step: float,
    reason: str,
    rounded: Any,
    *,
    sure: bool = True,
) -> Proposal:
    """Return a proposal between the ends and within a step of what is in force; the step comes last.

    Args:
        key: of the setting.
        wanted: what was worked out.
        now: in force; None where there is none.
        ends: least and most.
        step: how many times larger or smaller than now, at most.
        reason: for what is wanted.
        rounded: to what people write; upwards.
        sure: enough was seen. If not, nothing is made smaller: what was not seen yet may need it.
    """
    value = min(max(rounded(wanted), ends[0]), ends[1])
    if value != rounded(wanted):
        reason += f"; {value:,.0f} is the {'least' if value > wanted else 'most'} that may be proposed"
    if now is None:
        return Proposal(key, int(value), now, reason)
    if value < now and not sure:
        return Proposal(key, None, now, f"{reason}; too little was seen to make it smaller")
    stepped = min(max(value, ceil(now / step)), int(now * step))
    if stepped != value:
        reason += f"; {stepped:,.0f} is as far as one step of {step:g} goes, {value:,.0f} was wanted: look again then"
    return Proposal(key, None if abs(stepped - now) <= _SMALL * now else int(stepped), now, reason)


def _round_size(value: float) -> int:
    """Return a size rounded up to 1 KiB, above 1 MiB to 64 KiB."""
    unit = 1024 if value < 1 << 20 else 1 << 16
    return ceil(value / unit) * unit


def document(
    needs: Sequence[Need], bounds: Bounds, settings: Mapping[str, Fields] | None = None, base: str | None = None
) -> str:
    """Return the policy document, in TOML.

    Args:
        needs: of each destination.
        bounds: what is not gone beyond.
        settings: in force, by name.
        base: a document to which the proposals are added: rules for exact names win over those that are there.
    """
    lines = list(_head(needs, bounds, base))
    for need in needs:
        lines += ["", *_rule(need, propose(need, bounds, (settings or {}).get(need.name)))]
    return "\n".join(([base.rstrip("\n"), ""] if base else []) + lines) + "\n"


def _head(needs: Sequence[Need], bounds: Bounds, base: str | None) -> Iterator[str]:
    yield "# Proposed by `headgate pipeline recommend`. Nothing is in force: read it, then"
    yield "# `headgate policy apply FILE --dry-run` shows what would change and who would block."
    if base is None:
        yield "# A document is the whole policy: add these rules to yours (--base FILE does), or they are all there is."
    if needs:
        first, last = min(need.first_ms for need in needs), max(need.last_ms for need in needs)
        entries = sum(need.entries for need in needs)
        yield f"# From {moment(first)} to {moment(last)}, {entries:,} entries of the ledger."
    else:
        yield "# The ledger has no entries, so nothing is proposed."
    yield f"# No value is more than {bounds.step:g} times, or less than 1/{bounds.step:g} of, what it is now."


def _rule(need: Need, proposals: list[Proposal]) -> Iterator[str]:
    if not proposals:
        yield f"# {_told(need.name)}: no messages and no tokens were seen, so nothing is proposed."
        return
    try:
        Pattern.parse(encode_name(need.name) and need.name)
    except HeadgateError as error:
        yield f"# {_told(need.name)}: no rule can name it: {_told(str(error))}"
        return
    changed = any(proposal.value is not None for proposal in proposals)
    yield f"# {_told(need.name)}: {moment(need.first_ms)} to {moment(need.last_ms)}, {need.entries:,} entries"
    if changed:
        yield "[[destination]]"
        yield f"match = {_text(need.name)}"
    for proposal in proposals:
        now = "none" if proposal.now is None else f"{proposal.now:,.0f}"
        if proposal.value is None:
            yield from _comment(f"{proposal.key.replace('%d', now)} stays: {proposal.reason}")
        else:
            yield from _comment(f"now {now}: {proposal.reason}")
            yield proposal.key % proposal.value


def _comment(text: str) -> Iterator[str]:
    return (f"# {line}" for line in wrap(_told(text), 116, break_long_words=False, break_on_hyphens=False))


def _told(text: str) -> str:
    """Return text that is safe in a comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _text(text: str) -> str:
    """Return text as TOML spells it; names have no control characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

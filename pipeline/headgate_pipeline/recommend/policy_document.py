"""A policy document has the proposed settings, each with its reason: nothing of it is put in force."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Final

from headgate.core.addresses.pattern import Pattern
from headgate.core.limits.limit import FORMS, Limit, limits_of
from headgate.core.limits.shadow import is_unlimited
from headgate.core.limits.zones import zone_named
from headgate.core.names import decode_name, encode_name
from headgate.errors import HeadgateError
from headgate_pipeline.formatting import moment
from headgate_pipeline.recommend.demand import DestinationDemand
from headgate_pipeline.recommend.limiter_proposals import propose_limits
from headgate_pipeline.recommend.proposals import Bounds, Fields, Proposal, propose

_LINK_RATE: Final = re.compile(r"(bridge|route) (.+): (messages|bytes)/s")
"""Names of the buckets that hold the rates of links."""


def document(
    needs: Sequence[DestinationDemand],
    bounds: Bounds,
    settings: Mapping[str, Fields] | None = None,
    base: str | None = None,
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
        of_limits = list(propose_limits(need, bounds))
        fields = (settings or {}).get(need.name)
        rule = _rule(need, propose(need, bounds, fields))
        lines += ["", *(_limiter(need, of_limits, fields or {}) if of_limits else rule)]
    return "\n".join(([base.rstrip("\n"), ""] if base else []) + lines) + "\n"


def _head(needs: Sequence[DestinationDemand], bounds: Bounds, base: str | None) -> Iterator[str]:
    yield "# Proposed by `headgate pipeline recommend`. Nothing is in force yet: read it; then"
    yield "# `headgate policy apply FILE --dry-run` shows what would change and who would block."
    if base is None:
        yield "# A document is the whole policy: add these rules to yours (--base FILE does), or nothing else remains."
    if needs:
        first, last = min(need.first_ms for need in needs), max(need.last_ms for need in needs)
        entries = sum(need.entries for need in needs)
        yield f"# From {moment(first)} to {moment(last)}, {entries:,} entries of the ledger."
    else:
        yield "# The ledger has no entries, so nothing is proposed."
    yield f"# No value is more than {bounds.step:g} times, or less than 1/{bounds.step:g} of, what it is now."


def _rule(need: DestinationDemand, proposals: list[Proposal]) -> Iterator[str]:
    if not proposals:
        why = "nothing was sent, granted, taken or admitted"
        if need.kind == "limiter" and need.slices > 1:
            why = "a limiter with slices is not judged, for no ledger has what was held and waited for at all of them"
        yield f"# {_quoted(need.name)}: {why}, so nothing is proposed."
        return
    seen = f"{moment(need.first_ms)} to {moment(need.last_ms)}, {need.entries:,} entries"
    if (of_link := _LINK_RATE.fullmatch(need.name)) and need.kind == "bucket":
        table, name, unit = of_link.groups()
        key = "rate" if unit == "messages" else "byte_rate"
        yield f"# {_quoted(table)} {_quoted(name)}: {seen}. Its rate is {key} in its own table, [[{_quoted(table)}]]:"
        for proposal in proposals:
            if proposal.key == "rate":
                yield from _comment(f"{_stays(proposal) if proposal.value is None else _spelled(proposal)}")
        return
    try:
        Pattern.parse(encode_name(need.name) and need.name)
    except HeadgateError as error:
        yield f"# {_quoted(need.name)}: no rule can name it: {_quoted(str(error))}"
        return
    yield f"# {_quoted(need.name)}: {seen}"
    if any(proposal.value is not None for proposal in proposals):
        yield "[[destination]]"
        yield f"match = {_text(need.name)}"
        if need.kind == "bucket":
            yield 'kind = "bucket"'
    for proposal in proposals:
        if proposal.value is None:
            yield from _comment(_stays(proposal))
        else:
            yield from _comment(f"now {_number(proposal.now)}: {proposal.reason}")
            yield f"{proposal.key} = {_number(proposal.value, mark='_')}"


def _limiter(need: DestinationDemand, proposals: list[Proposal], fields: Fields) -> Iterator[str]:
    """Yield the rule of a limiter, whose limits come from one rule as a whole.

    Weights of keys are in no ledger, and the state keeps offsets of a time zone: where settings are missing, or no zone
    with these offsets is known, the proposals are comments.
    """
    seen = f"{moment(need.first_ms)} to {moment(need.last_ms)}, {need.entries:,} entries"
    limits, of_keys = limits_of(fields.get("limits", "")), limits_of(fields.get("key_limits", ""))
    windows = any(limit.window for limit in limits.values())
    zone = zone_named(fields.get("zone") or "0 0") if windows else ""
    if not limits or zone is None or not _can_be_named(need.name):
        why = "the name of its time zone is not known" if zone is None else "its settings in force are not known"
        yield f"# {_quoted(need.name)}: {seen}. Change its own table, [[limiter]], by hand, for {why}:"
        for proposal in proposals:
            yield from _comment(_stays(proposal) if proposal.value is None else _spelled(proposal))
        return
    yield f"# {_quoted(need.name)}: {seen}"
    yield "[[limiter]]"
    yield f"match = {_text(need.name)}"
    by_key = {proposal.key: proposal for proposal in proposals}
    wholes = {}
    shadows = limits_of(fields.get("shadow_limits", ""))
    for limit in limits.values():
        shadow = shadows.get(limit.name)
        wholes[limit.name], because = _changed(limit, by_key, f"limit.{limit.name}")
        if shadow is None or not is_unlimited(limit):
            yield from _one_of_all(wholes[limit.name], because, zone)
        if shadow is not None:
            yield from _one_of_all(shadow, because if is_unlimited(limit) else [], zone, 'enforce = "shadow"')
        if limit.window and fields.get("zone"):
            yield from _comment(f"{zone} has the offsets of the time zone in force, whose name is not stored")
    yield from _of_each_key(of_keys, wholes, by_key, fields, zone)
    for proposal in proposals:
        if proposal.key not in {f"{place}.{form}" for place in _places(limits, of_keys) for form in FORMS}:
            yield from _comment(_stays(proposal) if proposal.value is None else _spelled(proposal))


def _of_each_key(
    of_keys: Mapping[str, Limit], wholes: Mapping[str, Limit], by_key: Mapping[str, Proposal], fields: Fields, zone: str
) -> Iterator[str]:
    """Yield the limits of each key, with their weights, and the shadows of such limits."""
    if of_keys or fields.get("key_weights"):
        yield "[limiter.per_key]"
    for limit in of_keys.values():
        one, because = _changed(limit, by_key, f"per_key.{limit.name}", wholes.get(limit.name))
        yield from because
        yield _in_a_line(one, zone)
    if weights := fields.get("key_weights"):
        pairs = (entry.rpartition("=") for entry in weights.split(";"))
        yield f"weight = {{ {', '.join(f'{_text(_key(key))} = {weight}' for key, _, weight in pairs)} }}"
    shadows = limits_of(fields.get("shadow_key_limits", ""))
    if shadows:
        yield "[limiter.shadow_per_key]"
    yield from (_in_a_line(limit, zone) for limit in shadows.values())


def _in_a_line(limit: Limit, zone: str) -> str:
    return f"{limit.name} = {{ {', '.join(f'{key} = {value}' for key, value in _as_toml(limit, zone).items())} }}"


def _one_of_all(limit: Limit, because: list[str], zone: str, *more: str) -> Iterator[str]:
    yield "[[limiter.limit]]"
    yield f"name = {_text(limit.name)}"
    yield from because
    yield from (f"{key} = {value}" for key, value in _as_toml(limit, zone).items())
    yield from more


def _places(limits: Mapping[str, Limit], of_keys: Mapping[str, Limit]) -> list[str]:
    return [*(f"limit.{name}" for name in limits), *(f"per_key.{name}" for name in of_keys)]


def _changed(
    limit: Limit, proposals: Mapping[str, Proposal], place: str, whole: Limit | None = None
) -> tuple[Limit, list[str]]:
    """Return the limit as it is proposed, that of one key not above that of all, and the reason."""
    proposal = proposals.get(f"{place}.{limit.form}")
    if proposal is None:
        return limit, []
    if proposal.value is None:
        return limit, list(_comment(_stays(proposal)))
    if is_unlimited(limit) or limit.adapt:  # it is only tried, or finds its own
        return limit, list(_comment(f"as it is; {_spelled(proposal)}"))
    value = proposal.value
    if limit.form == "rate":
        value = value if whole is None else min(value, whole.rate or value)
        changed = replace(limit, rate=float(value))
    else:
        changed = replace(limit, most=int(value if whole is None else min(value, whole.most)))
    return changed, list(_comment(f"now {_number(proposal.now)}: {proposal.reason}"))


def _as_toml(limit: Limit, zone: str) -> dict[str, str]:
    if limit.form == "rate":
        return {"rate": _rate(limit.rate or 0.0), "burst": _number(limit.most, mark="_")}
    if limit.adapt:
        least, most = _number(limit.floor, mark="_"), _number(limit.most, mark="_")
        return {"at_once": f"{{ min = {least}, max = {most}, adapt = {_text(limit.adapt)} }}"}
    if limit.form == "at_once":
        return {"at_once": _number(limit.most, mark="_")}
    return {"quota": _text(f"{limit.most}/{limit.window}"), "resets": _text(f"{limit.resets} {zone}")}


def _rate(rate: float) -> str:
    """Return a rate as TOML spells it, exactly: by the shortest time in which it is a whole number."""
    for unit, seconds in (("", 1), ("min", 60), ("h", 3600), ("day", 86400)):
        amount = round(rate * seconds)
        if amount and amount / seconds == rate:
            return _text(f"{amount}/{unit}") if unit else f"{amount:_}"
    return repr(rate)


def _key(encoded: str) -> str:
    return f"{decode_name(encoded[:-1])}*" if encoded.endswith("*") else decode_name(encoded)


def _can_be_named(name: str) -> bool:
    try:
        Pattern.parse(encode_name(name) and name)
    except HeadgateError:
        return False
    return True


def _stays(proposal: Proposal) -> str:
    return f"{proposal.key} = {_number(proposal.now)} stays: {proposal.reason}"


def _spelled(proposal: Proposal) -> str:
    return f"{proposal.key} = {_number(proposal.value)}, now {_number(proposal.now)}: {proposal.reason}"


def _number(value: float | None, mark: str = ",") -> str:
    if value is None:
        return "none"
    return f"{value:{mark}.0f}" if value == int(value) else f"{value:.6g}"


def _comment(text: str) -> Iterator[str]:
    return (f"# {line}" for line in wrap(_quoted(text), 116, break_long_words=False, break_on_hyphens=False))


def _quoted(text: str) -> str:
    """Return text that is safe in a comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _text(text: str) -> str:
    """Return text as TOML spells it; names have no control characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""Proposed settings as a policy document, each with its reason: nothing of it is put in force."""

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final

from headgate.core.addresses.pattern import Pattern
from headgate.core.names import encode_name
from headgate.errors import HeadgateError
from headgate_pipeline.formatting import moment
from headgate_pipeline.recommend.demand import Need
from headgate_pipeline.recommend.limiter_proposals import propose_limits
from headgate_pipeline.recommend.proposals import Bounds, Fields, Proposal, propose

_LINK_RATE: Final = re.compile(r"(bridge|route) (.+): (messages|bytes)/s")
"""Names of the buckets that hold the rates of links."""


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
        of_limits = list(propose_limits(need, bounds))
        rule = _rule(need, propose(need, bounds, (settings or {}).get(need.name)))
        lines += ["", *(_limiter(need, of_limits) if of_limits else rule)]
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
        yield f"# {_quoted(need.name)}: nothing was sent, granted, taken or admitted, so nothing is proposed."
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


def _limiter(need: Need, proposals: list[Proposal]) -> Iterator[str]:
    """Yield proposals as comments: limits come from one rule as a whole, with weights and zones that no ledger has."""
    seen = f"{moment(need.first_ms)} to {moment(need.last_ms)}, {need.entries:,} entries"
    yield f"# {_quoted(need.name)}: {seen}. Its limits are in its own table, [[limiter]]:"
    for proposal in proposals:
        yield from _comment(_stays(proposal) if proposal.value is None else _spelled(proposal))


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

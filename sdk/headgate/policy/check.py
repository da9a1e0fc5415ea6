"""Rules are checked for contradictions that show only when they are merged, and for what needs Redis to be known."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core.addresses.index import PatternIndex
from headgate.core.addresses.pattern import Pattern
from headgate.core.limits.fairness import check_turns
from headgate.core.limits.slices import SLICED_KINDS, check_slices
from headgate.core.policy import Policy, Resolved, Rule
from headgate.errors import PolicyError
from headgate.policy.channels import check_channels
from headgate.policy.compile import key_of
from headgate.policy.descriptors import check_descriptors
from headgate.policy.limiters import check_limiter
from headgate.policy.links import check_links
from headgate.policy.problems import BadDocument, Problem
from headgate.policy.stores import check_spooling, check_stores
from headgate.settings import MOST_POOLS

MOST_DEAD: Final = 100
"""Destinations of a chain of dead letters that are looked at."""
MOST_STEPS: Final = 50_000
STEPS_OF_EACH: Final = 20
"""Looks at patterns, to find those that overlap: at all, and for each more."""
MOST_MERGED: Final = 250_000
MERGED_OF_EACH: Final = 50
"""Rules that are merged for names: at all, and for each pattern, or each name that the document has, more."""


@dataclass(frozen=True, slots=True)
class Example:
    """An example is a name that stands for all names that match the same patterns, with what holds for it."""

    name: str
    resolved: Resolved


def examples(policy: Policy) -> Iterator[Example]:
    """Yield a name, with each kind of its rules, for each pattern and each overlapping pair.

    A contradiction takes at most two rules, so if there is any, there is one at one of these names.
    """
    patterns = list({rule.match: rule.pattern for rule in policy.rules}.values())
    long = 1 + max((len(pattern.words) + 1 for pattern in patterns), default=0)
    used = {word for pattern in patterns for word in pattern.words}
    word = next(word for number in itertools.count() if (word := f"any{number or ''}") not in used)
    seen: set[tuple[str, str | None]] = set()
    merged, most = 0, MOST_MERGED + MERGED_OF_EACH * len(patterns)
    for one, other in _overlapping(patterns):
        name = _name(one, other, word, long)
        if (name, None) in seen:
            continue
        matching = policy.matching(name)
        kinds = {rule.kind for rule in matching if rule.kind}
        merged += len(matching) * (1 + len(kinds))
        if merged > most:
            raise _tangled()
        for kind in (None, *sorted(kinds)):
            if (name, kind) not in seen:
                seen.add((name, kind))
                yield Example(name, policy.resolve(name, kind))


def _overlapping(patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, Pattern]]:
    """Yield each pattern with itself, and each two that overlap."""
    known, steps = PatternIndex(), 0
    for pattern in patterns:
        known.add(pattern)
        for other in known.near(pattern):
            steps += 1 if other is None else 4  # which is looked at closely
            if steps > MOST_STEPS + STEPS_OF_EACH * len(patterns):
                raise _tangled()
            if other is not None:
                yield pattern, other


def _tangled() -> BadDocument:
    text = "its patterns overlap in too many ways to be checked; use fewer of them that match the same names"
    return BadDocument([Problem("", "destination", text)])


def _name(one: Pattern, other: Pattern, word: str, long: int) -> str:
    """Return a name that both match, and no pattern that does not match all that both match."""
    words = [
        a if a != "*" else b if b != "*" else word
        for a, b in itertools.zip_longest(one.words, other.words, fillvalue="*")
    ]
    if one.tail and other.tail:
        words += [word] * (long - len(words))
    return ".".join(words)


def check(policy: Policy) -> list[Problem]:
    """Return what is contradictory in a compiled policy."""
    _bound_names(policy)
    found = [
        *_kinds(policy),
        *_dead_letters(policy),
        *check_links(policy),
        *check_channels(policy),
        *check_descriptors(policy),
        *check_stores(policy),
    ]
    for example in examples(policy):
        found += [*_values(example), *_buckets(policy, example)]
        found += check_spooling(example.name, example.resolved)
        found += _limiters(policy, example)
    return list(dict.fromkeys(found))


def _bound_names(policy: Policy) -> None:
    """Refuse a policy of whose rules too many match the names that it says: each of them is resolved."""
    names = {rule.fields.get("dead_letter", "") for rule in policy.rules}
    names |= {name or "" for link in policy.links for name in (link.source, link.target, link.dead_letters)}
    merged, most = 0, MOST_MERGED + MERGED_OF_EACH * len(names)
    for name in names:
        merged += len(policy.matching(name))
        if merged > most:
            raise _tangled()


def needs_maxmemory(policy: Policy) -> list[str]:
    """Return the pools whose limit is a share of Redis' ``maxmemory``; where that is 0 they cannot be applied."""
    return [pool.name for pool in policy.pools if "percent" in pool.fields and "total_bytes" not in pool.fields]


def place_of(origin: str) -> str:
    """Return ``<file>:<line>`` of an origin ``<rule>@<file>:<line>``."""
    return origin.partition("@")[2]


def _values(example: Example) -> Iterator[Problem]:
    fields, origins = example.resolved.fields, example.resolved.origins
    for low, high, text in (
        ("limit_bytes", "hard_bytes", "{high} is below the limit of {low}"),
        ("resume_bytes", "limit_bytes", "{low} is above the limit of {high}"),
        ("resume_messages", "limit_messages", "{low} is above the limit of {high} messages"),
    ):
        a, b = fields.get(low, ""), fields.get(high, "")
        if not b.isdigit() or not (a == "unlimited" or (a.isdigit() and int(a) > int(b))):
            continue
        about, other = (high, low) if high == "hard_bytes" else (low, high)
        if about in origins and other in origins:
            yield Problem(
                place_of(origins[about]),
                key_of(about),
                f"for destinations such as {example.name!r} {text.format(low=a, high=b)} of rule "
                f"{origins[other].replace('@', ' at ')}; set both in one rule",
            )
    for name in ("fair_weights", "max_overtaken"):
        if fields.get(name) and name in origins:
            try:
                check_turns(fields, {name: fields[name]})
            except PolicyError as error:
                yield Problem(
                    place_of(origins[name]), name, f"for destinations such as {example.name!r}: {error.beside(name)}"
                )
    kind = example.resolved.kind or "queue"
    if "slices" in origins and kind in SLICED_KINDS:
        try:
            check_slices({**fields, "kind": kind}, {"slices": fields["slices"]})
        except PolicyError as error:
            yield Problem(
                place_of(origins["slices"]),
                "slices",
                f"for destinations such as {example.name!r}: {error.beside('slices')}",
            )
    if len(fields.get("pools", "").split()) > MOST_POOLS:
        yield Problem(
            place_of(origins["pools"]),
            "pools",
            f"destinations such as {example.name!r} would be in {len(fields['pools'].split())} pools, shared limits "
            f"included; at most {MOST_POOLS}",
        )


def _buckets(policy: Policy, example: Example) -> Iterator[Problem]:
    if example.resolved.kind == "bucket" and "rate" not in example.resolved.fields:
        rules = [rule for rule in policy.matching(example.name) if rule.kind == "bucket"]
        if rules:
            yield Problem(_line(rules[-1]), "kind", f"the bucket {example.name!r} has no rate; write rate = 100")


def _limiters(policy: Policy, example: Example) -> Iterator[Problem]:
    rules = [rule for rule in policy.matching(example.name) if rule.kind == "limiter"]
    if example.resolved.kind == "limiter" and rules:
        yield from check_limiter(example.name, example.resolved, _line(rules[-1]))


def _kinds(policy: Policy) -> Iterator[Problem]:
    """A name has one kind, so a rule for that name with another kind can match nothing."""
    first: dict[str, Rule] = {}
    for rule in policy.rules:
        if rule.kind and rule.pattern.exact:
            other = first.setdefault(rule.match, rule)
            if other.kind != rule.kind:
                yield Problem(
                    _line(rule),
                    "kind",
                    f"{rule.match!r} is a {other.kind} ({_line(other)}), so a rule for a {rule.kind} of that name can "
                    "match nothing; keep one of them",
                )


def _line(rule: Rule) -> str:
    return rule.origins.get("kind") or next(iter(rule.origins.values()), "?:0")


def _dead_letters(policy: Policy) -> Iterator[Problem]:
    starts = {rule.fields["dead_letter"]: rule for rule in policy.rules if rule.fields.get("dead_letter")}
    for start, rule in starts.items():
        if rule.match == start:
            yield Problem(
                _line_of(rule), "dead_letter", f"{start!r} would be its own dead letter; name another destination"
            )
            continue
        resolved = policy.resolve(start)
        if resolved.kind in ("gate", "bucket", "limiter"):
            yield Problem(
                _line_of(rule), "dead_letter", f"{start!r} is a {resolved.kind}, which holds no messages; name a queue"
            )
        chain = {start: None}
        while (follower := policy.resolve(next(reversed(chain))).fields.get("dead_letter")) and follower not in chain:
            if len(chain) > MOST_DEAD:
                break  # a ring of more is found from none of its names; what is not delivered just goes round
            chain[follower] = None
        if follower == start:
            yield Problem(
                _line_of(rule),
                "dead_letter",
                f"the chain {' -> '.join([*chain, start])} never ends; give one of them dead_letter = 'default' (none)",
            )


def _line_of(rule: Rule) -> str:
    return rule.origins.get("dead_letter", _line(rule))

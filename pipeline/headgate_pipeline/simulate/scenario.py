"""A scenario asks about a period: which rules for which destinations, and which parts of a policy no replay judges."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from headgate.core.names import whole_name
from headgate.core.policy import Policy, Resolved
from headgate.errors import InvalidValue
from headgate.options import DEFAULT_WINDOW
from headgate_pipeline.ledger.limiter_course import read_sides
from headgate_pipeline.live_settings import SettingsInForce
from headgate_pipeline.simulate.rules import Rules, pools_of, rules_of, unjudged

_KINDS: Final = {"bucket": "takes", "queue": "sends", "gate": "grants", "limiter": "admits"}
_HIDDEN: Final = {
    "gate": "permits of a gate are not in the ledger",
    "": "nothing was sent to it or taken",
    "limiter": "its keys are spread over slices, and limits of all of them are in another ledger than what they hold",
}
"""Kinds of which nothing can be replayed, and why; of limiters those with slices."""


@dataclass(frozen=True, slots=True)
class ObservedDestination:
    """An observed destination is one that a ledger has entries of.

    Attributes:
        name: its name.
        kind: ``queue`` (topics too: a ledger does not tell them apart), ``gate``, ``bucket``, ``limiter``, or empty:
            nothing was sent, taken, granted or admitted.
        limit: bytes in force at the end; infinite where there is none, or none is known.
        limit_m: the same in messages.
        limits: of a limiter, as they were last set: of all keys together, and of each.
        slices: that have a ledger of their own, where there are several: they are replayed as one.
    """

    name: str
    kind: str
    limit: float = inf
    limit_m: float = inf
    limits: tuple[str, str] = ("", "")
    slices: tuple[str, ...] = ()


@dataclass(slots=True)
class Scenario:
    """A scenario holds the rules to replay, by name of the destination.

    Attributes:
        asked: the rules that are asked about.
        same: those that held in the period, as far as they are known.
        pools: bytes of the pools that are asked about.
        same_pools: bytes of those that there are.
        buckets: those that are buckets.
        limiters: those that are limiters.
        slices: of destinations with several ledgers, what these are called.
        not_judged: what is no part of the answer: what it is about, and why.
    """

    asked: dict[str, Rules] = field(default_factory=dict)
    same: dict[str, Rules] = field(default_factory=dict)
    pools: dict[str, float] = field(default_factory=dict)
    same_pools: dict[str, float] = field(default_factory=dict)
    buckets: set[str] = field(default_factory=set)
    limiters: set[str] = field(default_factory=set)
    slices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    not_judged: list[tuple[str, str]] = field(default_factory=list)

    def parts(self) -> dict[str, str]:
        """Return what is replayed together: for each that shares a pool, and each slice, one name for all of them."""
        leader: dict[str, str] = {}

        def first(name: str) -> str:
            while leader.setdefault(name, name) != name:
                name = leader[name]
            return name

        for rules, pools in ((self.asked, self.pools), (self.same, self.same_pools)):
            for name, rule in rules.items():
                for pool in rule.pools:
                    if pools.get(pool, inf) < inf:
                        leader[first(f"={name}")] = first(f" {pool}")
        for name, slices in self.slices.items():
            leader.update(dict.fromkeys([f"={one}" for one in slices if one != name], first(f"={name}")))
        return {name[1:]: first(name) for name in leader if name[0] == "="}


def ask(
    seen: Iterable[ObservedDestination],
    policy: Policy | None,
    limits: Mapping[str, float],
    now: SettingsInForce | None = None,
    of_limiters: Mapping[str, Mapping[str, str]] | None = None,
) -> Scenario:
    """Return the question whether a policy, or single limits, would do better.

    Args:
        seen: destinations of the ledger.
        policy: None to change single limits alone.
        limits: bytes of single destinations; they win over the policy.
        now: what is set in Redis now, taken for what held in the period; None where it is not known.
        of_limiters: single limits of limiters, ``<limit>`` or ``per_key.<limit>`` and how it is written, by name of the
            limiter; they win over the policy.

    Raises:
        InvalidValue: one of these is no limit there, or is not written as one of its form.
    """
    question = Scenario(pools=pools_of(policy) if policy else {}, same_pools=dict(now.pools) if now else {})
    if policy is None:
        question.pools = question.same_pools
    for destination in seen:
        name = destination.name
        fields = now.fields.get(name) if now else None
        resolved = _resolved(policy, destination, fields)
        singles = (of_limiters or {}).get(name)
        if resolved is None and name not in limits and not singles:
            if policy:
                question.not_judged.append((name, "no rule matches it: it stays as it is"))
            continue
        if destination.kind in _HIDDEN and (destination.kind != "limiter" or destination.slices):
            question.not_judged.append((name, f"{_HIDDEN[destination.kind]}, so nothing can be replayed"))
            continue
        same = replace(rules_of(fields or {}), limit=destination.limit, limit_m=destination.limit_m)
        window = float((fields or {}).get("producer_window") or DEFAULT_WINDOW) if fields is not None else None
        asked = rules_of(resolved.fields, window) if resolved else same
        if destination.slices:
            question.slices[name] = destination.slices
        if destination.kind == "bucket":
            question.buckets.add(name)
        if destination.kind == "limiter":
            question.limiters.add(name)
            same, asked = _of_limiter(destination, same, asked, singles or {})
            question.not_judged += _unjudged_limits(name, asked)
        if name in limits:
            asked = replace(asked, limit=limits[name])
        question.same[name], question.asked[name] = same, asked
        if resolved:
            question.not_judged += [(name, note) for note in unjudged(resolved, question.pools, fields)]
    question.not_judged += _unjudged_ways(policy)
    return question


def _unjudged_ways(policy: Policy | None) -> Iterator[tuple[str, str]]:
    for what, count in (("links", len(policy.links)), ("channels", len(policy.channels))) if policy else ():
        if count:
            yield what, f"{count} in this policy; what they carry is replayed as it was"


def _of_limiter(
    seen: ObservedDestination, same: Rules, asked: Rules, singles: Mapping[str, str]
) -> tuple[Rules, Rules]:
    """Return the rules of a limiter as its ledger tells them, and as asked, with single limits written anew."""
    name = seen.name
    if seen.limits[0]:
        same = replace(same, limits=read_sides(seen.limits[0])[0], key_limits=read_sides(seen.limits[1])[0])
    whole = asked if asked.limits else same
    limits, of_keys = dict(whole.limits), dict(whole.key_limits)
    for place, text in singles.items():
        limit = place.removeprefix("per_key.")
        if limit not in limits:
            known = ", ".join(limits) or "none that the ledger tells"
            raise InvalidValue(f"--limit {name}:{place}: {name} has no limit {limit!r}; there are {known}")
        (of_keys if place != limit else limits)[limit] = limits[limit].like(text)
    return same, replace(asked, limits=limits, key_limits=of_keys)


def _unjudged_limits(name: str, rules: Rules) -> Iterator[tuple[str, str]]:
    if not rules.limits:
        yield name, "its limits are not in the entries that are left; with --redis they are asked"
    for limit in rules.limits.values():
        if limit.form == "quota" and not rules.zone:
            yield name, f"{limit}: no time zone is known, so its windows are taken for those of UTC"


def _resolved(
    policy: Policy | None, destination: ObservedDestination, fields: Mapping[str, str] | None
) -> Resolved | None:
    if policy is None or not policy.matching(destination.name):
        return None
    kind = (fields or {}).get("kind") or {"queue": None, "": None}.get(destination.kind, destination.kind)
    return policy.resolve(destination.name, kind)


def seen_of(rows: Iterable[Mapping[str, Any]]) -> list[ObservedDestination]:
    """Return the destinations of rows of :func:`headgate_pipeline.simulate.what_if.look`, those of slices as one."""
    together: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        together.setdefault(whole_name(row["destination"]), []).append(row)
    return [
        ObservedDestination(
            name,
            next((kind for kind, column in _KINDS.items() if any(one.get(column) for one in parts)), ""),
            min((one["limit"] for one in parts if one["limit"] is not None), default=inf),
            min((one["limit_m"] for one in parts if one["limit_m"] is not None), default=inf),
            (parts[0].get("limits") or "", parts[0].get("key_limits") or ""),
            tuple(one["destination"] for one in parts) if parts[-1]["destination"] != name else (),
        )
        for name, parts in together.items()
    ]

"""A question about a period: which rules for which destinations, and which parts of a policy no replay can judge."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from headgate.core.policy import Policy, Resolved
from headgate.options import DEFAULT_WINDOW
from headgate_pipeline.live_settings import InForce
from headgate_pipeline.simulate.rules import Rules, pools_of, rules_of, unjudged


@dataclass(frozen=True, slots=True)
class Seen:
    """A destination of a ledger.

    Attributes:
        name: its name.
        kind: ``queue`` (topics too: a ledger does not tell them apart), ``gate``, ``bucket``, or empty: nothing was
            sent, taken or granted.
        limit: bytes in force at the end; infinite where there is none, or none is known.
        limit_m: the same in messages.
    """

    name: str
    kind: str
    limit: float = inf
    limit_m: float = inf


@dataclass(slots=True)
class Question:
    """The rules to replay, by name of the destination.

    Attributes:
        asked: the rules that are asked about.
        same: those that held in the period, as far as they are known.
        pools: bytes of the pools that are asked about.
        same_pools: bytes of those that there are.
        buckets: those that are buckets.
        not_judged: what is no part of the answer: what it is about, and why.
    """

    asked: dict[str, Rules] = field(default_factory=dict)
    same: dict[str, Rules] = field(default_factory=dict)
    pools: dict[str, float] = field(default_factory=dict)
    same_pools: dict[str, float] = field(default_factory=dict)
    buckets: set[str] = field(default_factory=set)
    not_judged: list[tuple[str, str]] = field(default_factory=list)

    def parts(self) -> dict[str, str]:
        """Return what is replayed together: for each destination that shares a pool, one name for all of them."""
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
        return {name[1:]: first(name) for name in leader if name[0] == "="}


def ask(
    seen: Iterable[Seen], policy: Policy | None, limits: Mapping[str, float], now: InForce | None = None
) -> Question:
    """Return the question whether a policy, or single limits, would do better.

    Args:
        seen: destinations of the ledger.
        policy: None to change single limits alone.
        limits: bytes of single destinations; they win over the policy.
        now: what is set in Redis now, taken for what held in the period; None where it is not known.
    """
    question = Question(pools=pools_of(policy) if policy else {}, same_pools=dict(now.pools) if now else {})
    if policy is None:
        question.pools = question.same_pools
    for destination in seen:
        name = destination.name
        fields = now.fields.get(name) if now else None
        resolved = _resolved(policy, destination, fields)
        if resolved is None and name not in limits:
            if policy:
                question.not_judged.append((name, "no rule matches it: it stays as it is"))
            continue
        if destination.kind in ("gate", ""):
            what = "permits of a gate are not in the ledger" if destination.kind else "nothing was sent to it or taken"
            question.not_judged.append((name, f"{what}, so nothing can be replayed"))
            continue
        same = replace(rules_of(fields or {}), limit=destination.limit, limit_m=destination.limit_m)
        window = float((fields or {}).get("producer_window") or DEFAULT_WINDOW) if fields is not None else None
        asked = rules_of(resolved.fields, window) if resolved else same
        if destination.kind == "bucket":
            question.buckets.add(name)
        if name in limits:
            asked = replace(asked, limit=limits[name])
        question.same[name], question.asked[name] = same, asked
        if resolved:
            question.not_judged += [(name, note) for note in unjudged(resolved, question.pools, fields)]
    for what, count in (("links", len(policy.links)), ("channels", len(policy.channels))) if policy else ():
        if count:
            question.not_judged.append((what, f"{count} in this policy; what they carry is replayed as it was"))
    return question


def _resolved(policy: Policy | None, destination: Seen, fields: Mapping[str, str] | None) -> Resolved | None:
    if policy is None or not policy.matching(destination.name):
        return None
    kind = (fields or {}).get("kind") or {"queue": None, "": None}.get(destination.kind, destination.kind)
    return policy.resolve(destination.name, kind)


def seen_of(rows: Iterable[Mapping[str, Any]]) -> list[Seen]:
    """Return the destinations of rows of :func:`headgate_pipeline.simulate.what_if.look`."""
    return [
        Seen(
            row["destination"],
            "bucket" if row["takes"] else "queue" if row["sends"] else "gate" if row["grants"] else "",
            inf if row["limit"] is None else row["limit"],
            inf if row["limit_m"] is None else row["limit_m"],
        )
        for row in rows
    ]

"""A plan lists what a policy would change if it were applied, and whom it would block. Nothing is applied here."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from headgate import Client
from headgate.core.limits.descriptor import Descriptor
from headgate.core.links.channel import Feed
from headgate.core.links.link import Link
from headgate.core.policy import Policy, Pool, Store, origins
from headgate.namespace.policy_follower import apart, due, entries, numbered, says_the_same
from headgate.policy.compile import key_of, shown, title_of
from headgate.redis.keys import Address

LOOKS: Final = 16
"""Destinations looked at at a time."""
MOST_RULES: Final = 100
"""Settings of rules that a plan names; of more it has the number."""
_PLACES: Final = frozenset({"origin", "origins", "source", "version"})
"""Parts of a policy that say where its settings are written, and not what they are."""
_LIMITS: Final = (("limit_bytes", "bytes"), ("limit_messages", "messages"))


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference is one setting that would change; ``old`` and ``new`` are empty where it has its default.

    Attributes:
        field: as the state calls it.
        rule: that says so; empty where no rule sets anything any more.
        place: where the rule is written.
    """

    field: str
    old: str
    new: str
    rule: str
    place: str

    def __str__(self) -> str:
        why = f"{self.rule} at {self.place}" if self.rule else "no rule sets anything"
        old, new = (shown(self.field, value) or "default" for value in (self.old, self.new))
        return f"{title_of(self.field)}: {old} -> {new} ({why})"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        entry = {"field": self.field, "key": key_of(self.field), "old": self.old or None, "new": self.new or None}
        return entry | {"rule": self.rule or None, "place": self.place or None}


@dataclass(frozen=True, slots=True)
class Change:
    """The changes for one destination.

    Attributes:
        over: for each limit that would be exceeded, what of (bytes, messages), how much is pending and leased, and the
            limit: whoever sends next would wait until that is consumed.
        blocked: sessions that wait there now.
    """

    destination: str
    kind: str
    differences: tuple[Difference, ...]
    over: tuple[tuple[str, int, int], ...]
    blocked: int

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        yield f"{self.destination} ({self.kind})"
        for difference in self.differences:
            yield f"  {difference}"
        for unit, held, limit in self.over:
            yield f"  would block: {held} {unit} are pending or leased, above the new limit of {limit}"
        if self.blocked:
            yield f"  {self.blocked} session(s) wait there now"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "destination": self.destination,
            "kind": self.kind,
            "changes": [difference.as_dict() for difference in self.differences],
            "would_block": [{"unit": unit, "held": held, "limit": limit} for unit, held, limit in self.over],
            "blocked": self.blocked,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan lists what a policy would change.

    Attributes:
        version: in force now; 0 for none.
        same: whether that says the same already.
        alike: whether all settings are in force already, wherever they are written.
        destinations: how many there are.
        changes: those of them that would change, by name.
        rules: what would change of the rules that are in force, by rule: the first hundred.
        further_rules: how many more settings of rules would change.
        pools: what would change of the pools that policies set, by pool.
        stores: the same of spool stores.
        asked: what proxies would ask and do not, or ask otherwise.
        unasked: what they ask, and would not, or otherwise.
        begin: links that there would be, and are not.
        end: links that there are, and would not be: what they hold goes back to their sources; of a topic it goes with
            their subscriptions.
    """

    version: int
    same: bool
    destinations: int
    changes: tuple[Change, ...]
    pools: tuple[tuple[str, Difference], ...] = ()
    begin: tuple[Link | Feed, ...] = ()
    end: tuple[Link | Feed, ...] = ()
    stores: tuple[tuple[str, Difference], ...] = ()
    asked: tuple[Descriptor, ...] = ()
    unasked: tuple[Descriptor, ...] = ()
    alike: bool = False
    rules: tuple[tuple[str, Difference], ...] = ()
    further_rules: int = 0

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        for change in self.changes:
            yield from change.lines()
        for name, difference in self.rules:
            old, new = (shown(difference.field, value) or "none" for value in (difference.old, difference.new))
            place = difference.place or "it says so no more"
            yield f"rule {name}: {title_of(difference.field)}: {old} -> {new} ({place})"
        if self.further_rules:
            yield f"and {self.further_rules} further settings of rules"
        for what, differences in (("pool", self.pools), ("store", self.stores)):
            for name, difference in differences:
                old, new = difference.old or "none", difference.new or "none"
                yield f"{what} {name}: {difference.field}: {old} -> {new} ({difference.place or 'no longer named'})"
        for link in self.begin:
            yield f"{link.kind} {link.name}: {link.source} -> {link.where} would begin ({link.origin})"
        for link in self.end:
            yield f"{link.kind} {link.name}: {link.source} -> {link.where} would end (it is no longer named)"
        for descriptors, what in ((self.asked, "asked"), (self.unasked, "asked no more")):
            for one in descriptors:
                for_what = ", ".join(f"{name}={amount}" for name, amount in one.amounts.items()) or "a release"
                yield f"descriptor {one}: {one.limiter} would be {what} for {for_what} ({one.origin})"
        over = sum(bool(change.over) for change in self.changes)
        yield f"{len(self.changes)} of {self.destinations} destination(s) would change, {over} would block"
        if self.same:
            yield f"it is in force already, as version {self.version}"
        elif self.alike:
            yield f"its settings are in force already, as version {self.version}, where they are written otherwise"
        else:
            yield f"it would replace version {self.version}" if self.version else "no policy is in force now"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "version": self.version,
            "same": self.same,
            "alike": self.alike,
            "destinations": self.destinations,
            "changes": [change.as_dict() for change in self.changes],
            "rules": [{"of": name, **difference.as_dict()} for name, difference in self.rules],
            "further_rules": self.further_rules,
            "pools": [{"pool": name, **difference.as_dict()} for name, difference in self.pools],
            "stores": [{"store": name, **difference.as_dict()} for name, difference in self.stores],
            "links": {
                "begin": [link.as_dict() for link in self.begin],
                "end": [link.as_dict() for link in self.end],
            },
            "descriptors": {
                "begin": [one.as_dict() for one in self.asked],
                "end": [one.as_dict() for one in self.unasked],
            },
        }


async def plan(client: Client, policy: Policy) -> Plan:
    """Return what would change if the policy were applied now.

    Raises:
        PolicyError: it could not be applied.
        CoordinatorUnavailable: Redis does not answer.
    """
    await client.check_policy(policy)
    current = await client.policy()
    same = says_the_same(current, policy)
    after = numbered(policy, current.version if same else current.version + 1)
    names = await client.destinations()
    rest, changes = iter(names), list[Change]()

    async def look() -> None:
        for name in rest:
            snapshot = await client.store.snapshot(Address.of(client.namespace, name), waiters=0, consumers=1)
            if snapshot and (change := _change(after, name, snapshot.fields)):
                changes.append(change)

    await asyncio.gather(*(look() for _ in range(LOOKS)))
    changes.sort(key=lambda change: change.destination)
    alike, rules = await apart(entries(policy) + entries(current), partial(_compared, current, policy))
    return Plan(
        current.version,
        same,
        len(names),
        tuple(changes),
        tuple(_named(current.pools, policy.pools)),
        tuple(_only_in(policy, current)),
        tuple(_only_in(current, policy)),
        tuple(_named(current.stores, policy.stores)),
        tuple(_otherwise(policy, current)),
        tuple(_otherwise(current, policy)),
        alike,
        rules[:MOST_RULES],
        len(rules[MOST_RULES:]),
    )


def _compared(before: Policy, after: Policy) -> tuple[bool, tuple[tuple[str, Difference], ...]]:
    """Return whether all settings are the same, and those of rules that would change where a policy is in force."""
    return _settings(before) == _settings(after), tuple(_of_rules(before, after)) if before.version else ()


def _settings(policy: Policy) -> Any:
    """Return what a policy says, without where it is written."""

    def bare(of: Any) -> Any:
        if isinstance(of, dict):
            return {key: bare(one) for key, one in of.items() if key not in _PLACES}
        return [bare(one) for one in of] if isinstance(of, list) else of

    return bare(json.loads(policy.to_json()))


def _of_rules(before: Policy, after: Policy) -> Iterator[tuple[str, Difference]]:
    old, new = _by_rule(before), _by_rule(after)
    for rule in dict.fromkeys([*old, *new]):
        was, becomes = old.get(rule, {}), new.get(rule, {})
        for field in dict.fromkeys([*was, *becomes]):
            (value, _), (other, place) = was.get(field, ("", "")), becomes.get(field, ("", ""))
            if value != other:
                yield rule, Difference(field, value, other, rule if place else "", place)


def _by_rule(policy: Policy) -> dict[str, dict[str, tuple[str, str]]]:
    """Return by rule its settings, each with where it is written; of rules that are there twice the later one."""
    found = dict[str, dict[str, tuple[str, str]]]()
    for rule in policy.rules:
        its = found.setdefault(f"{rule.match} ({rule.kind})" if rule.kind else rule.match, {})
        its.update({field: (value, rule.origins.get(field, "")) for field, value in rule.fields.items()})
    return found


def _only_in(one: Policy, other: Policy) -> Iterator[Link | Feed]:
    known = {*other.every_link, *(link.link for link in other.patterns)}
    of_one = {**one.every_link, **{link.link: link for link in one.patterns}}
    yield from (link for name, link in of_one.items() if name not in known)


def _otherwise(one: Policy, other: Policy) -> Iterator[Descriptor]:
    """Yield the descriptors of one policy that another does not have, wherever they are written."""
    there = [replace(descriptor, origin="") for descriptor in other.descriptors]
    yield from (each for each in one.descriptors if replace(each, origin="") not in there)


def _named(before: Sequence[Pool | Store], after: Sequence[Pool | Store]) -> Iterator[tuple[str, Difference]]:
    old = {named.name: named.fields for named in before}
    new = {named.name: named for named in after}
    for name in sorted({*old, *new}):
        fields, origins = (new[name].fields, new[name].origins) if name in new else ({}, {})
        for field in dict.fromkeys([*old.get(name, {}), *fields]):
            was, becomes = old.get(name, {}).get(field, ""), fields.get(field, "")
            if was != becomes:
                yield name, Difference(field, was, becomes, name if field in origins else "", origins.get(field, ""))


def _change(policy: Policy, name: str, fields: Mapping[str, str]) -> Change | None:
    settings = due(policy, name, fields)
    if settings is None:
        return None
    why = origins(settings.pop("policy"))
    del settings["policy_version"]
    differences = tuple(
        Difference(field, fields.get(field, ""), value, *_split(why.get(field, "")))
        for field, value in settings.items()
        if value != fields.get(field, "")
    )
    if not differences:
        return None
    after = {**fields, **settings}
    over = []
    if after["kind"] != "bucket" and after.get("enforce") != "off":
        for field, unit in _LIMITS:
            held = int(fields[f"pending_{unit}"]) + int(fields[f"leased_{unit}"])
            if after[field].isdigit() and held > int(after[field]):
                over.append((unit, held, int(after[field])))
    return Change(name, fields["kind"], differences, tuple(over), int(fields["blocked"]))


def _split(origin: str) -> tuple[str, str]:
    rule, _, place = origin.partition("@")
    return rule, place

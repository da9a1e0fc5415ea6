"""A user is shown a part of a policy: the rules about destinations that one of its grants is for."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from headgate.core.addresses.index import PatternIndex
from headgate.core.addresses.pattern import Pattern
from headgate.core.policy import Policy, Rule
from headgate_coordinator.security import Action, Grant, Identity
from headgate_coordinator.security.access import Access

MOST_PARTS: Final = 32
"""Parts of a policy that a node remembers, each for users with the same grants."""


class ShownPolicies:
    """Parts of the policy in force, each made once for all connections of users with the same grants.

    Of thousands of rules and hundreds of grants that is half a second of work and more, so a thread does it.
    """

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._parts: dict[tuple[Grant, ...], bytes] = {}
        self._turn = asyncio.Lock()

    async def part(self, policy: Policy, grants: tuple[Grant, ...]) -> bytes:
        """Return the document with what is about destinations that a grant is for, and nothing else."""
        async with self._turn:
            if self._policy is not policy:
                self._policy, self._parts = policy, {}
            if grants not in self._parts:
                if len(self._parts) >= MOST_PARTS:
                    del self._parts[next(iter(self._parts))]
                self._parts[grants] = await asyncio.to_thread(_part_of, policy, grants)
            return self._parts[grants]


def _part_of(policy: Policy, grants: tuple[Grant, ...]) -> bytes:
    access = Access()
    access.identity = Identity("", grants)

    def seen(name: str) -> bool:
        return any(access.may(action, name) for action in Action)

    rules = _Rules(policy.rules)
    shown = rules.near({grant.pattern for grant in grants})
    graves = {name for rule in shown.values() if (name := rule.fields.get("dead_letter"))}
    shown |= rules.of(graves)
    links = [link for link in policy.links if seen(link.source) or (not link.site and seen(link.target))]
    part = Policy(
        policy.version,
        [rule for rule in policy.rules if id(rule) in shown],
        source=policy.source,
        links=[replace(link, site=replace(link.site, url="")) if link.site else link for link in links],
        site=policy.site,
        channels=[channel for channel in policy.channels if any(map(seen, channel.topics))],
    )
    return part.to_json().encode()


class _Rules:
    """`_Rules` finds rules by their patterns."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._index = PatternIndex()
        self._of: dict[Pattern, list[Rule]] = {}
        for rule in rules:
            self._of.setdefault(rule.pattern, []).append(rule)
        for pattern in self._of:
            self._index.add(pattern)

    def near(self, patterns: Iterable[Pattern]) -> dict[int, Rule]:
        """Return the rules, by their ids, for anything that one of these patterns matches too."""
        return self._with({one for pattern in patterns for one in self._index.near(pattern) if one is not None})

    def of(self, names: Iterable[str]) -> dict[int, Rule]:
        """Return the rules for destinations of these names."""
        return self._with({one for name in names for one in self._index.fitting(name.split("."))})

    def _with(self, patterns: Iterable[Pattern]) -> dict[int, Rule]:
        return {id(rule): rule for pattern in patterns for rule in self._of[pattern]}

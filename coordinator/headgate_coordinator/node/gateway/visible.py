"""Lists of a namespace show a client of a node those entries that a grant of its user is for.

A manager of the namespace sees them as they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.core.names import read_name
from headgate.core.policy import Policy, Rule
from headgate.namespace.topics import Entry
from headgate.redis.keys import parse_key
from headgate.redis.replies import pairs
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.gateway.rights import text_of
from headgate_coordinator.security import Action, Grant
from headgate_coordinator.security.access import Access

POLICY_WORDS: Final = ("version", "document", "applied_ms")
"""Parts of the namespace's policy that all may read."""
LISTED: Final = slice(6, 10)
"""Of a limiter's levels: keys, waiters, holds, and holds of the session that was asked for."""
FIELDS, LINE, LEDGER, TURNS = 2, 3, 11, 12
"""Places of a snapshot's answer."""


class Shown:
    """The view of one connection."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._policy: tuple[Policy, tuple[Grant, ...], bytes] | None = None

    def _any(self, name: str) -> bool:
        return any(self._access.may(action, name) for action in Action)

    def destinations(self, keys: Sequence[str]) -> list[str]:
        """Return the keys of destinations that any grant is for; reply queues are nobody's to list."""
        if self._access.manages_all:
            return list(keys)
        named = ((key, parse_key(key[: key.find("}") + 1])) for key in keys)
        return [key for key, at in named if at and not is_reply_queue(at[1]) and self._any(at[1])]

    def topics(self, encoded: Sequence[bytes]) -> list[bytes]:
        """Return the names of topics that the user may receive from."""
        if self._access.manages_all:
            return list(encoded)
        return [name for name in encoded if self._receives(text_of(name))]

    def _receives(self, encoded: str) -> bool:
        name = read_name(encoded)
        return name is not None and self._access.may(Action.CONSUME, name)

    def wildcards(self, flat: Sequence[bytes]) -> list[bytes]:
        """Return the wildcard subscriptions, each with its record, whose pattern the user may receive from."""
        if self._access.manages_all:
            return list(flat)
        shown: list[bytes] = []
        for at in range(0, len(flat), 2):
            entry = Entry.read(text_of(flat[at]), durable=False, ttl_ms=0)
            if entry is not None and self._access.may(Action.CONSUME, entry.pattern.text):
                shown += flat[at : at + 2]
        return shown

    def hint(self, words: Sequence[str]) -> bool:
        """Return whether the user may hear a hint that concerns the namespace."""
        if self._access.manages_all or words[0] == "policy":
            return True
        return words[0] == "created" and self._receives(words[1])

    def policy(self, policy: Policy) -> bytes:
        """Return the policy as a document with what is about destinations that a grant is for, and nothing else."""
        identity = self._access.identity
        grants = identity.grants if identity is not None else ()
        if self._policy is None or self._policy[0] is not policy or self._policy[1] is not grants:
            self._policy = policy, grants, self._part_of(policy, grants).to_json().encode()
        return self._policy[2]

    def _part_of(self, policy: Policy, grants: tuple[Grant, ...]) -> Policy:
        patterns = [grant.pattern for grant in grants]
        rules = [rule for rule in policy.rules if any(rule.pattern.overlaps(pattern) for pattern in patterns)]
        graves = {name for rule in rules if (name := rule.fields.get("dead_letter"))}
        shown = {id(rule) for rule in rules} | {id(rule) for rule in policy.rules if _concerns(rule, graves)}
        links = [link for link in policy.links if self._any(link.source) or (not link.site and self._any(link.target))]
        return Policy(
            policy.version,
            [rule for rule in policy.rules if id(rule) in shown],
            source=policy.source,
            links=[replace(link, site=replace(link.site, url="")) if link.site else link for link in links],
            site=policy.site,
            channels=[channel for channel in policy.channels if any(map(self._any, channel.topics))],
        )


def _concerns(rule: Rule, names: set[str]) -> bool:
    return any(rule.pattern.matches(name) for name in names)


def asks_for_policy(words: Sequence[Any]) -> bool:
    """Return whether a read of the policy asks for nothing but what all may read."""
    return all(text_of(word) in POLICY_WORDS for word in words)


def hide_holds(name: str, reply: list[Any], *, own: bool) -> None:
    """Take keys out of what is read, and of a limiter holds and waiters: a hold's id is all it takes to release it.

    Args:
        name: of the script, ``levels`` or ``snapshot``.
        reply: its answer.
        own: whether the holds of the session that was asked for are the user's own.
    """
    if name == "levels" and len(reply) > LISTED.stop:
        reply[LISTED] = [[], [], [], reply[LISTED.stop - 1] if own else []]
    if name == "snapshot" and len(reply) > TURNS:
        reply[TURNS] = []
    if name == "snapshot" and len(reply) > LEDGER and (fields := pairs(reply[FIELDS]))["kind"] == b"limiter":
        fields.pop("front", None)
        reply[FIELDS] = [word for field, value in fields.items() for word in (field.encode(), value)]
        reply[LINE], reply[LEDGER] = [], []

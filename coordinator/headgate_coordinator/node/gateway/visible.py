"""A client of a node sees those entries of a namespace's lists that a grant of its user is for.

A manager of the namespace sees them as they are.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from headgate.core.names import read_name
from headgate.core.policy import Policy
from headgate.namespace.topics import WildcardSubscription
from headgate.redis.keys import parse_key
from headgate.redis.replies import pairs
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.gateway.required_grants import text_of
from headgate_coordinator.node.shown_policies import ShownPolicies
from headgate_coordinator.security import Action
from headgate_coordinator.security.access import Access

POLICY_WORDS: Final = ("version", "document", "applied_ms")
"""Parts of the namespace's policy that all may read."""
LISTED: Final = slice(6, 10)
"""Of a limiter's levels: keys, waiters, holds, and holds of the session that was asked for."""
FIELDS, LINE, LEDGER, TURNS = 2, 3, 11, 12
"""Places of a snapshot's answer."""
AT_ONCE: Final = 500
"""Entries of a list that are looked through in one turn of the loop."""
E = TypeVar("E")


class VisibleNamespace:
    """A visible namespace is what the user of one connection may see of it."""

    def __init__(self, access: Access, policies: ShownPolicies) -> None:
        self._access = access
        self._policies = policies

    async def destinations(self, keys: Sequence[str]) -> list[str]:
        """Return the keys of destinations that any grant is for; reply queues are nobody's to list."""

        def shown(key: str) -> bool:
            at = parse_key(key[: key.find("}") + 1])
            if at is None or is_reply_queue(at[1]):
                return False
            return any(self._access.may(action, at[1]) for action in Action)

        return await self._those(keys, shown)

    async def topics(self, encoded: Sequence[bytes]) -> list[bytes]:
        """Return the names of topics that the user may receive from."""
        return await self._those(encoded, lambda name: self._receives(text_of(name)))

    async def wildcards(self, flat: Sequence[bytes]) -> list[bytes]:
        """Return the wildcard subscriptions, each with its record, whose pattern the user may receive from."""

        def shown(entry: tuple[bytes, bytes]) -> bool:
            read = WildcardSubscription.read(text_of(entry[0]), durable=False, ttl_ms=0)
            return read is not None and self._access.may(Action.CONSUME, read.pattern.text)

        entries = list(zip(flat[::2], flat[1::2], strict=True))
        return [word for entry in await self._those(entries, shown) for word in entry]

    async def _those(self, entries: Sequence[E], shown: Callable[[E], bool]) -> list[E]:
        """Return those that are shown; others have turns of the loop meanwhile, for a namespace may have any number."""
        if self._access.manages_all:
            return list(entries)
        found: list[E] = []
        for at in range(0, len(entries), AT_ONCE):
            found += filter(shown, entries[at : at + AT_ONCE])
            await asyncio.sleep(0)
        return found

    def _receives(self, encoded: str) -> bool:
        name = read_name(encoded)
        return name is not None and self._access.may(Action.CONSUME, name)

    def hint(self, words: Sequence[str]) -> bool:
        """Return whether the user may hear a hint that concerns the namespace."""
        if self._access.manages_all or words[0] == "policy":
            return True
        return words[0] == "created" and self._receives(words[1])

    async def policy(self, policy: Policy) -> bytes:
        """Return the policy as a document with what is about destinations that a grant is for, and nothing else."""
        while True:
            part = await self._policies.part(policy, grants := self._access.grants)
            if grants == self._access.grants:  # else some were taken away meanwhile
                return part


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

"""A grant permits actions to the identity that a connection acts under. Pure; see ``docs/security.md``."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.core.addresses.pattern import WILDCARDS, Pattern
from headgate.errors import PolicyError

EVERYTHING: Final = "#"
"""The name of the namespace itself: policies and pools need ``manage`` on it, and no other pattern will do."""
REMEMBERED: Final = 4096
"""Destinations for which an identity remembers its answers; names come from clients, so there must be a bound."""
MOST_DESTINATIONS: Final = 1000
"""Destinations that a user may have made, where nothing else is set."""
LONGEST: Final = 1024
"""Of a name that is remembered."""


class Action(StrEnum):
    """An action is what a grant permits; none implies another.

    Attributes:
        PRODUCE: send, take permits of gates and tokens of buckets.
        CONSUME: receive, settle, subscribe and unsubscribe.
        BROWSE: look without taking: browse messages, explain, status.
        MANAGE: apply settings, block, unblock, purge, remove; on ``#`` also what concerns the whole namespace.
    """

    PRODUCE = "produce"
    CONSUME = "consume"
    BROWSE = "browse"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant permits some actions on the destinations that a pattern matches.

    Attributes:
        actions: that it permits.
        match: the pattern, as in policies.

    Raises:
        PolicyError: the pattern cannot be read.
    """

    actions: frozenset[Action]
    match: str
    pattern: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", Pattern.parse(self.match))

    def __str__(self) -> str:
        return f"{','.join(action for action in Action if action in self.actions)}:{self.match}"

    def permits(self, action: Action, destination: str) -> bool:
        """Return whether it permits an action on a destination, or on every one that a pattern matches."""
        if action is Action.MANAGE and destination == EVERYTHING:  # more than all destinations: the namespace itself
            return action in self.actions and self.match == EVERYTHING
        return action in self.actions and _covers(self.pattern, destination)


def _covers(mine: Pattern, destination: str) -> bool:
    if not any(wildcard in destination for wildcard in WILDCARDS):
        return mine.matches(destination)
    try:
        return mine.covers(Pattern.parse(destination))
    except PolicyError:  # neither a name nor a pattern
        return False


ALL: Final = (Grant(frozenset(Action), EVERYTHING),)
"""Grants of somebody who may everything."""


class Identity:
    """Somebody who was let in, for as long as their user is there with the password that they gave.

    Args:
        name: of the user.
        grants: what they may.
        max_connections: that they may have at a time, at one node; None for any number.
        max_destinations: that they may have made over all nodes; None for :data:`MOST_DESTINATIONS`.
    """

    __slots__ = ("__weakref__", "_known", "actions", "grants", "max_connections", "max_destinations", "name", "valid")

    def __init__(
        self,
        name: str,
        grants: Iterable[Grant],
        max_connections: int | None = None,
        max_destinations: int | None = None,
    ) -> None:
        self.name = name
        self.follow(grants, max_connections, max_destinations)

    def __repr__(self) -> str:
        return f"Identity({self.name!r}{'' if self.valid else ', not valid'})"

    def may(self, action: Action, destination: str) -> bool:
        """Return whether an action is permitted now.

        Args:
            action: what they want to do.
            destination: its name; a pattern asks for all that it matches, which one grant must cover; ``#`` is the
                namespace itself.
        """
        try:
            return action in self._known[destination]
        except KeyError:
            return action in self._look(destination)

    def why(self, action: Action, destination: str) -> Grant | None:
        """Return the first grant that permits an action, None when it is not permitted."""
        return next((grant for grant in self.grants if grant.permits(action, destination)), None)

    def follow(
        self, grants: Iterable[Grant], max_connections: int | None = None, max_destinations: int | None = None
    ) -> None:
        """Act by other grants from now on."""
        self.grants = tuple(grants)
        self.actions = frozenset(action for grant in self.grants for action in grant.actions)
        self.max_connections = max_connections
        self.max_destinations = MOST_DESTINATIONS if max_destinations is None else max_destinations
        self.valid = True
        self._known: dict[str, frozenset[Action]] = {}

    def revoke(self) -> None:
        """Permit nothing from now on: the user is gone, or has another password."""
        self.follow(())
        self.valid = False

    def _look(self, destination: str) -> frozenset[Action]:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        found = frozenset(action for action in Action if self.why(action, destination))
        if len(destination) <= LONGEST:
            self._known[destination] = found
        return found

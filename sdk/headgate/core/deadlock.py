"""A graph of waits, and which of them can never end. No I/O and no clock.

A party is a session, a link, a destination, or a limit of a limiter. A party's wait is a conjunction of choices: it
goes on once, of each group, any one goes on. A queue with room missing needs any of its consumers; a topic, of every
subscription, any consumer; a session that waits to send needs room in a destination that it sends to; a link needs room
in all of its targets; a gate, and a limit of what is held at once, needs any of its holders. A party that waits for
nobody goes on, and so does, step by step, one that needs only those. The rest waits for itself: that is a deadlock.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["session", "link", "queue", "topic", "gate", "limiter"]


@dataclass(frozen=True, slots=True, order=True)
class Party:
    """A party is one that others may wait for.

    Attributes:
        kind: what it is.
        name: unique within its kind, with ``at``.
        at: where it waits, for a session that may wait at several destinations, each by another task; its step tells
            it, so its text does not. Of a limiter the limit in question.
    """

    kind: Kind
    name: str
    at: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}{f' ({self.at})' if self.kind == 'limiter' else ''}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait is over once, of each group of parties, any one goes on.

    Attributes:
        needs: of each group, any one; an empty group is nobody's to fulfil and holds nothing up here: who may come and
            fulfil it is not known.
        epoch: changes with everything that shows that the party got on, or that it is another wait.
        needed: group by group, why: the names of the subscriptions of a topic.
    """

    needs: tuple[tuple[Party, ...], ...]
    epoch: Hashable = ()
    needed: tuple[str, ...] = ()


Graph = Mapping[Party, Wait]
"""The wait of each party that waits. All others go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step is one wait of a cycle: ``who`` waits for ``what``; ``others`` would do as well, and are as stuck."""

    who: Party
    what: Party
    others: tuple[Party, ...] = ()
    needed: str = ""

    def __str__(self) -> str:
        if self.who.kind in ("session", "link"):
            room = "room in " if self.what.kind in ("queue", "topic") else ""
            text = f"{self.who} waits for {room}{self.what}"
        elif self.who.kind in ("gate", "limiter"):
            text = f"{self.who} waits for {self.what} to release"
        else:
            which = f" (subscription {self.needed})" if self.needed else ""
            text = f"{self.who}{which} waits for {self.what} to consume"
        return f"{text}, or {', '.join(map(str, self.others))}" if self.others else text


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A cycle of waits, each step for the party of the next and the last for that of the first.

    Attributes:
        steps: in order. Where a step has others that would do, they lead to this cycle too, or to another deadlock.
    """

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Deadlock":
        """Return the inverse of :meth:`as_dict`.

        Raises:
            KeyError, TypeError: it is something else.
        """
        return cls(
            tuple(
                Step(
                    Party(**step["who"]),
                    Party(**step["what"]),
                    tuple(Party(**other) for other in step["others"]),
                    step["needed"],
                )
                for step in entry["steps"]
            )
        )

    @property
    def parties(self) -> tuple[Party, ...]:
        """The parties of the ring, in order."""
        return tuple(step.who for step in self.steps)


def stuck(graph: Graph) -> frozenset[Party]:
    """Return all that can never go on: those of a deadlock, and those who wait for them."""
    open_groups = {party: sum(1 for group in wait.needs if group) for party, wait in graph.items()}
    served: set[tuple[Party, int]] = set()
    who_needs: dict[Party, list[tuple[Party, int]]] = {}
    for party, wait in graph.items():
        for i, group in enumerate(wait.needs):
            for other in group:
                who_needs.setdefault(other, []).append((party, i))
    goes_on = deque(other for other in who_needs if other not in graph)
    goes_on.extend(party for party, count in open_groups.items() if not count)
    while goes_on:
        for party, i in who_needs.get(goes_on.popleft(), ()):
            if (party, i) not in served:
                served.add((party, i))
                open_groups[party] -= 1
                if not open_groups[party]:
                    goes_on.append(party)
    return frozenset(party for party, count in open_groups.items() if count)


def deadlocks(graph: Graph) -> tuple[Deadlock, ...]:
    """Return the cycles of what is stuck: from every stuck party, its waits lead to one of them.

    The order of parties decides what is named, so two looks at one graph say the same.
    """
    left = stuck(graph)
    follower = {party: _step(party, graph[party], left) for party in left}
    found, seen = [], set[Party]()
    for party in sorted(left):
        path: dict[Party, None] = {}
        at = party
        while at not in path and at not in seen:
            path[at] = None
            at = follower[at].what
        if at in path:
            found.append(Deadlock(tuple(follower[one] for one in _from_smallest([*path][[*path].index(at) :]))))
        seen.update(path)
    return tuple(found)


def unchanged(before: Graph, now: Graph) -> dict[Party, Wait]:
    """Return the waits that were there before and got on in nothing since; all others may end yet."""
    return {party: wait for party, wait in now.items() if before.get(party) == wait}


@dataclass(slots=True)
class ConfirmedDeadlocks:
    """A deadlock is confirmed once two looks, one after the other, show nothing about it changed."""

    _before: Graph = field(default_factory=dict)

    def look(self, graph: Graph) -> tuple[Deadlock, ...]:
        """Take in one more look; returns the deadlocks that were there the last time already."""
        before, self._before = self._before, graph
        return deadlocks(unchanged(before, graph))


def session(destinations: Iterable[Party], epoch: Hashable = ()) -> Wait:
    """Return the wait of a session that waits to send to these: once any of its sends goes on, it does."""
    return Wait((_group(destinations),), epoch)


def link(targets: Iterable[Party], epoch: Hashable = ()) -> Wait:
    """Return the wait of a link that needs room in all of its targets."""
    return Wait(tuple((target,) for target in sorted(set(targets))), epoch)


def queue(consumers: Iterable[Party], epoch: Hashable = ()) -> Wait:
    """Return the wait of a full queue: any of its consumers can make room."""
    return Wait((_group(consumers),), epoch)


def topic(subscriptions: Mapping[str, Iterable[Party]], epoch: Hashable = ()) -> Wait:
    """Return the wait of a full topic: every subscription has to settle, which any of its consumers can do."""
    names = sorted(subscriptions)
    return Wait(tuple(_group(subscriptions[name]) for name in names), epoch, tuple(names))


def held(holders: Iterable[Party], epoch: Hashable = ()) -> Wait:
    """Return the wait of a gate, or of a limit of what is held at once: any of its holders can release."""
    return Wait((_group(holders),), epoch)


def _group(parties: Iterable[Party]) -> tuple[Party, ...]:
    return tuple(sorted(set(parties)))


def _step(party: Party, wait: Wait, left: frozenset[Party]) -> Step:
    """Return what a stuck party waits for: the first group that nobody can fulfil."""
    for i, group in enumerate(wait.needs):
        if group and left.issuperset(group):
            return Step(party, group[0], group[1:], wait.needed[i] if wait.needed else "")
    raise AssertionError(f"{party} is not stuck")


def _from_smallest(cycle: list[Party]) -> Iterator[Party]:
    begin = cycle.index(min(cycle))
    return iter(cycle[begin:] + cycle[:begin])

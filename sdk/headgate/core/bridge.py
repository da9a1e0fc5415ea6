"""Bridges of a policy: which destination forwards to which."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class Bridge:
    """One link between two destinations of a namespace. A table of a policy with several targets is several of these.

    Attributes:
        name: as the policy calls it.
        source: where messages are taken from.
        target: where they go.
        max_hops: places that a message may come through, the source included; None where nobody said.
        dead_letters: where copies go of what can never be delivered; None stops the link there.
        origin: where it was written: ``<file>:<line>``.
    """

    name: str
    source: str
    target: str
    max_hops: int | None = None
    dead_letters: str | None = None
    origin: str = ""

    @property
    def link(self) -> str:
        """The name of its lease, and what its link is known by: a bridge that is renamed is the same link.

        >>> Bridge("to billing", "orders", "billing").link
        'orders>billing'
        """
        return f"{quote(self.source, safe='')}>{quote(self.target, safe='')}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as the compiled policy keeps it."""
        told = {"name": self.name, "from": self.source, "to": self.target, "origin": self.origin}
        more = {"max_hops": self.max_hops, "dead_letters": self.dead_letters}
        return told | {key: value for key, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Bridge":
        """Return what :meth:`as_dict` told; KeyError where it lacks something."""
        return cls(
            told["name"], told["from"], told["to"], told.get("max_hops"), told.get("dead_letters"), told["origin"]
        )


def ends_of(link: str) -> tuple[str, str]:
    """Return source and target of a :attr:`Bridge.link`.

    >>> ends_of("orders>billing")
    ('orders', 'billing')
    """
    source, _, target = link.partition(">")
    return unquote(source), unquote(target)


def cycle(bridges: Iterable[Bridge]) -> tuple[Bridge, ...]:
    """Return bridges that lead from a destination back to it, none of which limits the hops; nothing if there are none.

    >>> [one.target for one in cycle([Bridge("there", "a", "b"), Bridge("back", "b", "a")])]
    ['b', 'a']
    """
    onward: dict[str, list[Bridge]] = {}
    for bridge in bridges:
        if bridge.max_hops is None:
            onward.setdefault(bridge.source, []).append(bridge)
    done: set[str] = set()
    for start, first in onward.items():
        if start in done:
            continue
        path: list[Bridge] = []
        ways: list[Iterator[Bridge]] = [iter(first)]
        while ways:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                done.add(path.pop().target if path else start)
                continue
            passed = [start, *(one.target for one in path)]
            if step.target in passed:
                return (*path[passed.index(step.target) :], step)
            if step.target not in done:
                path.append(step)
                ways.append(iter(onward.get(step.target, ())))
    return ()

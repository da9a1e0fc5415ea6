"""A report says how a process that serves clients is; the processes at an address are added up. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Protocol, Self

from headgate_coordinator.fleet.node_facts import LinkFacts, NodeFacts, NodeState

MOST_LINKS: Final = 200
"""Links of a report: those that wait the longest."""
DIRECTIONS: Final = {"from client": "in", "to client": "out"}
Series = dict[tuple[str, ...], list[float]]
"""Numbers by a word that says what they are of, and by the values of its labels."""
Unready = Literal["starting", "draining", "unavailable", "silent"]
"""Why a worker takes no clients: it begins or stops, it cannot reach Redis, or does not answer."""


def add(sums: Series, more: Series) -> None:
    """Add numbers to sums, each to its own."""
    for key, numbers in more.items():
        before = sums.get(key)
        sums[key] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]


@dataclass(frozen=True, slots=True)
class Report:
    """A report shows a process at one instant.

    Attributes:
        id: of its node.
        address: ``host:port`` where AMQP clients reach it.
        started: when, in seconds since 1970.
        state: as its node's.
        links: that wait the longest, up to :data:`MOST_LINKS`.
        levels: that rise and fall, such as connections.
        counts: that only rise, such as messages carried.
    """

    id: str
    address: str
    started: float
    state: NodeState
    links: tuple[LinkFacts, ...] = ()
    levels: Series = field(default_factory=dict)
    counts: Series = field(default_factory=dict)

    @classmethod
    def of(cls, facts: NodeFacts, *, counted: bool = True) -> Self:
        """Return the report of a node, with its counts or without."""
        links = sorted(facts.links, key=lambda link: (-(link.waiting_seconds or -1.0), link.id))[:MOST_LINKS]
        counts = _counts(facts) if counted else {}
        return cls(facts.id, facts.address, facts.started, facts.state, tuple(links), _levels(facts), counts)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; :meth:`read` reads it."""
        return asdict(self) | {"levels": written(self.levels), "counts": written(self.counts)}

    @classmethod
    def read(cls, report: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` wrote, without what only a newer version says."""
        known = {name: value for name, value in report.items() if name in cls.__dataclass_fields__}
        links = tuple(
            LinkFacts(**{name: value for name, value in link.items() if name in LinkFacts.__dataclass_fields__})
            for link in known["links"]
        )
        return cls(**known | {"links": links, "levels": read(known["levels"]), "counts": read(known["counts"])})


@dataclass(frozen=True, slots=True)
class Address:
    """All processes at one address.

    Attributes:
        reports: of those that answered.
        counts: of all that there were, those included that have ended.
        started: when the first process there did, in seconds since 1970.
        workers: how many there are to be; 1 where nobody watches over it, too.
        replaced: how many ended without having been asked to, and had another one begin in their place.
    """

    reports: tuple[Report, ...] = ()
    counts: Series = field(default_factory=dict)
    started: float = 0.0
    workers: int = 1
    replaced: int = 0

    @property
    def levels(self) -> Series:
        """Sums over all."""
        sums: Series = {}
        for report in self.reports:
            add(sums, report.levels)
        return sums

    @property
    def links(self) -> list[LinkFacts]:
        """Links that wait the longest, of all."""
        found = [link for report in self.reports for link in report.links]
        return sorted(found, key=lambda link: (-(link.waiting_seconds or -1.0), link.id))[:MOST_LINKS]

    @property
    def links_total(self) -> int:
        """How many links there are."""
        return int(sum(numbers[0] for key, numbers in self.levels.items() if key[0] == "links"))


class ReportingWorker(Protocol):
    """A worker, as it answers what is asked about it."""

    def report(self, *, counted: bool) -> Report:
        """Return how it is, with its counts or without: there may be thousands."""

    async def unready(self) -> Unready | None:
        """Return why it takes no clients; None when it does."""


class Siblings(Protocol):
    """The workers at one address, as one of them sees them.

    Attributes:
        oneself: answers what others ask about this one; None while nobody can.
    """

    oneself: ReportingWorker | None

    async def reports(self, *, counted: bool) -> Address:
        """Return how all of them are, with counts or without; never raises, and leaves out who does not answer."""

    async def unready(self) -> list[tuple[int, Unready]]:
        """Return the numbers of those that take no clients, each with the reason; never raises."""


def written(series: Series) -> list[list[Any]]:
    """Return numbers as JSON has them."""
    return [[list(key), numbers] for key, numbers in series.items()]


def read(series: Iterable[Any]) -> Series:
    """Return what :func:`written` wrote."""
    return {tuple(key): list(numbers) for key, numbers in series}


def _levels(facts: NodeFacts) -> Series:
    levels: Series = {
        ("connections",): [facts.connections],
        ("bridges",): [sum(one.works for one in facts.bridges)],
        ("stalled_bridges",): [sum(one.trouble is not None and one.trouble.stalls for one in facts.bridges)],
        ("deadlocks",): [facts.deadlocks.current],
    }
    for direction, word in DIRECTIONS.items():
        links = [link for link in facts.links if link.direction == direction]
        levels["links", word] = [len(links)]
        levels["waiting_links", word] = [sum(link.waiting_seconds is not None for link in links)]
        levels["unsettled", word] = [sum(link.unsettled for link in links)]
    for one in facts.bridges:
        if one.works and one.backlog is not None:
            levels["channel_backlog", one.source, one.target] = [one.backlog]
    return levels


def _counts(facts: NodeFacts) -> Series:
    counters = facts.counters
    counts: Series = {("messages", DIRECTIONS[one]): [n] for one, n in counters.messages.items()}
    counts |= {("bytes", DIRECTIONS[one]): [n] for one, n in counters.bytes.items()}
    counts |= {("rejected", reason): [n] for reason, n in counters.rejected.items()}
    counts |= {("found_deadlocks", action): [n] for action, n in facts.deadlocks.found.items()}
    for one in facts.bridges:
        counts["forwarded", one.source, one.target] = [one.messages]
        counts["forwarded_bytes", one.source, one.target] = [one.bytes]
        if one.backlog is not None:
            counts["channel_packets", one.source, one.target] = [one.packets]
    return counts

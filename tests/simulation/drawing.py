"""What happens in a history, drawn from its seed, and the fewest events of it that break the same promise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulation.cluster import RESHARD
from tests.simulation.judge.alone import LARGE
from tests.simulation.judge.lease import TTL
from tests.simulation.nodes import NODE_FAULTS
from tests.simulation.shards import SHARD_FAULTS

SPAN: Final = 8.0
"""Seconds in which all happens that is drawn; then nothing fails any more, and all must come to its end."""
PROCESSES: Final = 3
TAKES: Final = 12
"""Kinds of what is taken of a limiter."""
FAULTS: Final = (
    "freeze",
    "kill",
    "cut",
    "reset",
    "slow",
    "down",
    "failover",
    "jump",
    "forget",
    "hang",
    "repeat",
    "silent",
)


SITE_CUT: Final = "site cut"
FAULTS_OF: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "alone": {},
    "sites": {"failover": (0, 2), "down": (0, 1), SITE_CUT: (0, 3), **dict.fromkeys(NODE_FAULTS, (0, 1))},
    "sentinels": {"failover": (0, 2), "usurp": (0, 2), "hand over": (0, 2)},
    "cluster": {"failover": (0, 2), "usurp": (0, 1), "hand over": (0, 1), RESHARD: (0, 3)},
}
"""What befalls servers of a kind beside all else, and how often."""
OF_SERVERS: Final = (*SHARD_FAULTS, RESHARD)


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a history takes place.

    Attributes:
        servers: the kind of deployment.
        nodes: through which all goes; 0 for clients that come to Redis themselves.
        holds: whether there is a limiter, and nothing else.
        rule: that the queue has beside its limit: a ``rate`` of sends, ``large`` messages that go alone, a ``level`` to
            resume at, a ``ticket`` for rings, a ``store``, or ``turns`` of values.
    """

    servers: str = "alone"
    nodes: int = 0
    holds: bool = False
    rule: str = ""


SCENES: Final = {
    "alone": Scene(),
    "nodes": Scene(nodes=2),
    "sentinels": Scene("sentinels"),
    "cluster": Scene("cluster"),
    "nodes of a cluster": Scene("cluster", nodes=2),
    "sites": Scene("sites"),
    "limiters of a cluster": Scene("cluster", holds=True),
    "rates of a cluster": Scene("cluster", rule="rate"),
    "large ones of a cluster": Scene("cluster", rule="large"),
    "levels of a cluster": Scene("cluster", rule="level"),
    "tickets of a cluster": Scene("cluster", rule="ticket"),
    "stores of a cluster": Scene("cluster", rule="store"),
    "turns of a cluster": Scene("cluster", rule="turns"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens: a call of an application, or a fault."""

    at: float
    what: str
    who: int = 0
    much: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:6.3f} s  {self.what} p{self.who} {self.much:g}"


def drawn(seed: int, scene: Scene) -> list[Event]:
    """Return what happens by a seed, to all that there is."""
    chance = Random(f"events {seed}")

    def some(count: int, what: Sequence[str], much: Callable[[], float]) -> list[Event]:
        return [
            Event(round(chance.uniform(0.3, SPAN), 3), chance.choice(what), chance.randrange(PROCESSES), much())
            for _ in range(count)
        ]

    calls = some(chance.randint(8, 16), ("send",), lambda: chance.choice((12, 20, 30, 60)))
    calls += some(chance.randint(1, 4), ("admit",), lambda: chance.choice((5, 15, 30)))
    calls += some(chance.randint(0, 2), ("limit",), lambda: chance.choice((70, 90, 150)))
    faults = some(chance.randint(1, 5), FAULTS, lambda: round(chance.uniform(0.1, 1.5 * TTL), 2))
    if scene.nodes:
        calls += some(chance.randint(4, 8), ("forward",), lambda: chance.choice((12, 20, 30)))
        faults += some(chance.randint(1, 4), NODE_FAULTS, lambda: round(chance.uniform(0.1, 1.5 * TTL), 2))
    for what, (least, most) in FAULTS_OF[scene.servers].items():
        faults += some(chance.randint(least, most), (what,), lambda: round(chance.uniform(0.1, 1.5 * TTL), 2))
    if scene.servers == "sites":  # whose policies say the limits
        calls = [event for event in calls if event.what != "limit"]
        calls += some(chance.randint(8, 16), ("send",), lambda: chance.choice((20, 30, 60)))
    if scene.servers == "cluster":
        calls += some(chance.randint(1, 3), ("slices",), lambda: chance.choice((1, 2, 3, 4, 6)))
        calls += some(chance.randint(0, 2), ("order",), lambda: chance.choice((0, 1)))
    if scene.rule == "rate":
        calls += some(chance.randint(12, 24), ("send",), lambda: 12)
    if scene.rule == "level":
        calls += some(chance.randint(8, 16), ("send",), lambda: chance.choice((20, 30)))
    if scene.rule == "store":
        calls += some(chance.randint(12, 24), ("send",), lambda: chance.choice((20, 30, 60)))
    if scene.rule == "large":
        calls += some(chance.randint(4, 8), ("send",), lambda: chance.choice(LARGE))
    if scene.holds:
        calls = [event for event in calls if event.what == "slices"]
        calls += some(chance.randint(12, 24), ("take",), lambda: chance.randrange(TAKES))
    return sorted(calls + faults, key=lambda event: event.at)


def shortest(events: Sequence[Event], fails: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """Return as few of the events as fail, by leaving out more and more of them."""
    left, size = list(events), max(1, len(events) // 2)
    while True:
        at, before = 0, len(left)
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if fails(fewer):
                left = fewer
            else:
                at += size
        if size == 1 and len(left) == before:
            return left
        size = max(1, size // 2)

"""A graph of a namespace's waits, read from the notes of waits and from their destinations.

Nothing is changed by looking.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.core.deadlock import Party, Wait
from headgate.explain.explainer import leased
from headgate.explain.hold_edges import Holds
from headgate.explain.wait_edges import graph_of, suspects
from headgate.redis.keys import Address
from headgate.redis.replies import Snapshot
from headgate.redis.store import Store
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.notes import Tie

MOST: Final = 100
"""Waiters and consumers that a snapshot names. A destination with more consumers counts as going on."""
MOST_HOLDS: Final = 1000
"""Holds and waits of a limiter that are read. One that has more counts as going on."""
AT_ONCE: Final = 16
"""Destinations that are read at a time."""


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """A wait graph shows who waits for whom, as one look found it.

    Attributes:
        graph: who waits for whom.
        ties: that may be part of a cycle.
        snapshots: of the destinations where they wait, by name.
        holds: what is held of those that are gates and limiters.
    """

    graph: Mapping[Party, Wait] = field(default_factory=dict)
    ties: tuple[Tie, ...] = ()
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    holds: Mapping[str, Holds] = field(default_factory=dict)


async def look(store: Store, namespace: str, ties: Iterable[Tie]) -> WaitGraph:
    """Read the destinations that the ties are about, as far as they may be part of a cycle.

    They are not read at one instant, so two looks are needed: see :class:`headgate.core.deadlock.ConfirmedDeadlocks`.

    Args:
        store: of the server where they lie.
        namespace: theirs.
        ties: consumers that are tied to sends that wait.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    found = tuple(suspects(ties))
    snapshots: dict[str, Snapshot] = {}
    holds: dict[str, Holds] = {}
    rest = iter(sorted({tie.at for tie in found}))

    async def read() -> None:
        for name in rest:
            address = Address.of(namespace, name)
            snapshot = await store.snapshot(address, waiters=MOST, consumers=MOST)
            if snapshot is None:
                continue
            if snapshot.fields["kind"] == "limiter":
                slices = int(snapshot.fields.get("sliced") or 1)
                holds[name] = Holds(await LimiterStore(store.server).levels(address, most=MOST_HOLDS, slices=slices))
            elif snapshot.fields["kind"] == "gate":
                holds[name] = Holds(sessions=await store.lessees(address, *leased(snapshot)))
            snapshots[name] = snapshot

    await asyncio.gather(*(read() for _ in range(AT_ONCE if found else 0)))
    return WaitGraph(graph_of(found, snapshots, holds), found, snapshots, holds)

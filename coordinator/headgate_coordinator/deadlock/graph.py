"""Who waits for whom, from snapshots of many destinations. Nothing is changed by looking."""

from collections.abc import Iterable, Mapping
from typing import Final

from headgate.core import deadlock
from headgate.core.deadlock import Party, Wait
from headgate.redis.keys import Address
from headgate.redis.replies import Snapshot
from headgate.redis.store import Store
from headgate.waits import destination, owner_of, party_of, wait_for_consumers

MOST: Final = 100
"""Waiters and consumers that a snapshot names. A destination with more consumers counts as going on."""
HEARD_WITHIN_MS: Final = 3000
"""Who waits asks again each second; who was not heard of for so long may be gone, and what it holds goes to others."""

Records = dict[str, dict[str, str]]


async def read_graph(store: Store, namespace: str, names: Iterable[str]) -> dict[Party, Wait]:
    """Read the destinations, and return who waits there for whom.

    They are read one after the other, so two looks are needed: see :class:`headgate.core.deadlock.Passes`. What a
    session consumes at destinations that are not among them is not seen, and so not taken for progress of it.

    Args:
        store: of the server where they lie.
        namespace: theirs.
        names: of the destinations; those that are gone are passed over.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    snapshots = {}
    for name in names:
        snapshot = await store.snapshot(Address.of(namespace, name), waiters=MOST, consumers=MOST)
        if snapshot is not None:
            snapshots[name] = snapshot
    return graph_of(snapshots)


def graph_of(snapshots: Mapping[str, Snapshot]) -> dict[Party, Wait]:
    """Return who waits for whom.

    Args:
        snapshots: of each destination, with up to :data:`MOST` waiters and consumers, by a name that is its own among
            all of them, such as ``<site>:<name>``.
    """
    graph: dict[Party, Wait] = {}
    settled: dict[Party, int] = {}
    lines: dict[Party, Records] = {}
    for name, snapshot in snapshots.items():
        for consumer, record in snapshot.consumers.items():
            owner = owner_of(consumer)
            settled[owner] = settled.get(owner, 0) + int(record["settled"])
        for sid, record in snapshot.waiters:
            if record and snapshot.now_ms - int(record["seen"]) <= HEARD_WITHIN_MS:
                lines.setdefault(party_of(sid), {})[name] = record
        for head, record in snapshot.waiters[:1]:
            if wait := wait_for_consumers(snapshot, head, record, 1):
                graph[destination(name, snapshot)] = wait
    for party, line in lines.items():
        at = [destination(name, snapshots[name]) for name in line]
        epoch = (settled.get(party, 0), tuple(sorted((name, *_account(record)) for name, record in line.items())))
        graph[party] = deadlock.link(at, epoch) if party.kind == "link" else deadlock.session(at, epoch)
    return graph


def _account(record: Mapping[str, str]) -> tuple[str, ...]:
    """Return what changes when a session that waits was served, sent something, or waits with another message."""
    return tuple(record[name] for name in ("inc", "granted", "used", "need", "since"))

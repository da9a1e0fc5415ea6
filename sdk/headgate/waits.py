"""Who waits at a destination and for whom, as one snapshot of it tells. No I/O, and no clock.

Only what is certain is a wait: what might go on for a reason that a snapshot does not show counts as going on.
"""

from collections.abc import Mapping
from dataclasses import replace

from headgate.core import deadlock
from headgate.core.deadlock import Party, Wait
from headgate.explain import explain
from headgate.explanation import CONSUMERS_HOLD
from headgate.facts import read
from headgate.link_ends import LINK
from headgate.redis.replies import Snapshot


def party_of(sid: str) -> Party:
    """Return the session or the link of that id."""
    return Party("link" if sid.startswith(LINK) else "session", sid)


def owner_of(consumer: str) -> Party:
    """Return the session or the link that a consumer belongs to."""
    return party_of(consumer.rpartition(".")[0])


def destination(name: str, snapshot: Snapshot) -> Party:
    """Return the destination, under that name."""
    return Party("topic" if snapshot.fields["kind"] == "topic" else "queue", name)


def wait_for_consumers(snapshot: Snapshot, session: str, record: Mapping[str, str], place: int) -> Wait | None:
    """Return what a destination waits for, where nothing but its consumers can end the wait of a session there.

    Args:
        snapshot: with all its consumers; None is returned where some are missing.
        session: that waits there.
        record: its record.
        place: its place in line.
    """
    fields = snapshot.fields
    if fields["kind"] not in ("queue", "topic") or not place or not record:
        return None
    if len(snapshot.consumers) != int(fields.get("consumers") or 0) or fields.get("message_ttl_ms"):
        return None
    told = explain("", replace(snapshot, own=dict(record), place=place), session=session)
    if told.cause not in CONSUMERS_HOLD:
        return None
    consumers: dict[str, list[Party]] = {}
    for consumer, one in snapshot.consumers.items():
        consumers.setdefault(one["sub"], []).append(owner_of(consumer))
    records = snapshot.consumers.values()
    moved = tuple(sum(int(one[name]) for one in records) for name in ("delivered", "settled"))
    epoch = (fields["epoch"], fields["pending_bytes"], fields["pending_messages"], *moved)
    if fields["kind"] == "queue":
        return deadlock.queue([party for parties in consumers.values() for party in parties], epoch)
    behind = [one.subscription for one in read("", snapshot, {}, "", None).backlogs if one.messages]
    return deadlock.topic({name: consumers.get(name, []) for name in behind}, epoch)

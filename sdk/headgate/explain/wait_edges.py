"""Waits at a destination as edges between parties, from snapshots and notes. No I/O, and no clock.

Only what is certain is a wait: what might go on for a reason that a snapshot does not show counts as going on. So does
a consumer that nobody reported as tied to a send that waits.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from headgate.core import deadlock
from headgate.core.deadlock import Party, Wait
from headgate.core.links.link import known_by
from headgate.explain.destination_facts import read
from headgate.explain.explainer import explain
from headgate.explain.hold_edges import Holds, gate_wait, limiter_waits
from headgate.explain.link_view import LINK
from headgate.explain.model import CONSUMERS_HOLD
from headgate.redis.replies import Snapshot
from headgate.redis.stores.notes import Tie

HEARD_WITHIN_MS: Final = 3000
"""Seconds of silence after which a waiter may be gone, for waiters ask again each second; its credit goes to others."""


def party_of(sid: str) -> Party:
    """Return the session or the link of that id."""
    return Party("link" if sid.startswith(LINK) else "session", sid)


def owner_of(consumer: str) -> Party:
    """Return the session or the link that a consumer belongs to."""
    return party_of(consumer.rpartition(".")[0])


def waiter(tie: Tie) -> Party:
    """Return who waits in the send that a consumer is tied to: a session, or a link by the name that it is known by."""
    if tie.session.startswith(LINK):
        return Party("link", known_by(tie.destination, tie.at), tie.at)
    return Party("session", tie.session, tie.at)


def destination(name: str, snapshot: Snapshot) -> Party:
    """Return the destination, under that name."""
    kind = snapshot.fields["kind"]
    return Party("topic" if kind == "topic" else "gate" if kind == "gate" else "queue", name)


def wait_for_consumers(
    snapshot: Snapshot,
    session: str,
    record: Mapping[str, str],
    place: int,
    who: Callable[[str], Party] = owner_of,
) -> Wait | None:
    """Return what a destination waits for, where nothing but its consumers can end the wait of a session there.

    Args:
        snapshot: with all its consumers; None is returned where some are missing.
        session: that waits there.
        record: its record.
        place: its place in line.
        who: returns who consumes with the consumer of that id.
    """
    fields = snapshot.fields
    if fields["kind"] not in ("queue", "topic") or not place or not record:
        return None
    if len(snapshot.consumers) != int(fields.get("consumers") or 0) or fields.get("message_ttl_ms"):
        return None
    explanation = explain("", replace(snapshot, own=dict(record), place=place), session=session)
    if explanation.cause not in CONSUMERS_HOLD:
        return None
    records = snapshot.consumers.values()
    moved = tuple(sum(int(one[name]) for one in records) for name in ("delivered", "settled"))
    epoch = (fields["epoch"], fields["pending_bytes"], fields["pending_messages"], *moved)
    if fields["kind"] == "queue" and len(snapshot.subscriptions) < 2:
        return deadlock.queue(map(who, _settlers(snapshot.consumers, int(fields["pending_messages"]))), epoch)
    behind = {}
    for one in read("", snapshot, {}, "", None).backlogs:
        own = {name: record for name, record in snapshot.consumers.items() if record["sub"] == one.subscription}
        if one.messages:
            behind[one.subscription] = map(who, _settlers(own, one.messages))
    return deadlock.topic(behind, epoch)


def _settlers(consumers: Mapping[str, Mapping[str, str]], messages: int) -> list[str]:
    """Return those of the consumers of a subscription that can settle one of its messages.

    Where consumers have all of them in hand, one that has none gets none before the others let go of theirs.
    """
    in_hand = {name: int(record["delivered"]) - int(record["settled"]) for name, record in consumers.items()}
    is_any_ready = sum(in_hand.values()) < messages
    return [name for name, count in in_hand.items() if count or is_any_ready]


def suspects(ties: Iterable[Tie]) -> list[Tie]:
    """Return the ties that may be part of a cycle of waits; nothing of a cycle is left out.

    A cycle waits for destinations with tied consumers, and these are tied to such destinations
    again. All others are taken out until there are none, so a line of slow ones, however long, is nobody's suspect.
    """
    found = list(ties)
    while True:
        within = {tie.at for tie in found} & {tie.destination for tie in found}
        left = [tie for tie in found if tie.at in within and tie.destination in within]
        if len(left) == len(found):
            return found
        found = left


def graph_of(
    ties: Iterable[Tie], snapshots: Mapping[str, Snapshot], holds: Mapping[str, Holds] | None = None
) -> dict[Party, Wait]:
    """Return who waits for whom.

    Args:
        ties: the consumers that are tied to sends that wait.
        snapshots: of the destinations where they wait, by name, with their first waiters and all their consumers; who
            is not among those goes on.
        holds: what is held of those that are gates and limiters.
    """
    graph: dict[Party, Wait] = {}
    tied: dict[tuple[str, str], list[Party]] = {}
    sends: dict[Party, tuple[str, set[str]]] = {}
    at_limiters: dict[str, list[Tie]] = {}
    for tie in ties:
        party = waiter(tie)
        tied.setdefault((tie.destination, tie.holder), []).append(party)
        sends.setdefault(party, (tie.session, set()))[1].add(tie.wait)
        at_limiters.setdefault(tie.at, []).append(tie)
    for name, snapshot in snapshots.items():

        def those(holder: str, name: str = name) -> list[Party]:
            return tied.get((name, holder)) or [owner_of(holder)]

        def who(consumer: str, name: str = name) -> Party:
            return those(consumer, name)[0]

        held = (holds or {}).get(name)
        if held is not None and held.levels is not None:
            graph |= limiter_waits(name, snapshot, held.levels, at_limiters[name], those)
        elif held is not None and (release := gate_wait(snapshot, held.sessions or {}, those)):
            graph[destination(name, snapshot)] = release
        for head, record in snapshot.waiters[:1]:
            if wait := wait_for_consumers(snapshot, head, record, 1, who):
                graph[destination(name, snapshot)] = wait
    for party, (session, waits) in sends.items():
        at = snapshots.get(party.at)
        own = dict(at.waiters).get(at.in_line(session)) if at else None
        if at and own and at.now_ms - int(own["seen"]) <= HEARD_WITHIN_MS:
            epoch = (*sorted(waits), *_account(own))
            make = deadlock.link if party.kind == "link" else deadlock.session
            graph[party] = make([destination(party.at, at)], epoch)
    return graph


def _account(record: Mapping[str, str]) -> tuple[str, ...]:
    """Return what changes when a session that waits was served, sent something, or waits with another message."""
    return tuple(record[name] for name in ("inc", "granted", "used", "need", "since"))

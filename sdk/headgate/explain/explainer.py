"""Explains why something waits, from what was read of a destination."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headgate.core.deadlock import Deadlock
from headgate.errors import AccessDenied, CoordinatorUnavailable, InvalidValue
from headgate.explain.causes import judge
from headgate.explain.destination_facts import DestinationFacts, read, stores_of
from headgate.explain.idle_consumers import ELSEWHERE, beside
from headgate.explain.levels import read_tried
from headgate.explain.model import Cause, Explanation, State
from headgate.explain.rate_causes import waits_for_rate
from headgate.explain.turns import Turns
from headgate.explain.views import Holder, count
from headgate.figures import plain, rounded
from headgate.redis.replies import Snapshot

TOP: Final = 5
"""How many consumers, subscriptions and holders of credit an explanation names."""


def explain(
    name: str,
    snapshot: Snapshot,
    sessions: Mapping[str, Mapping[str, str]] | None = None,
    *,
    session: str = "",
    need: int | None = None,
    paid: bool = False,
    durable: bool | None = None,
    deadlock: Deadlock | None = None,
) -> Explanation:
    """Return why a destination is as it is, from what was read of it at one instant.

    Args:
        name: the destination's.
        snapshot: what was read, with the record of ``session``.
        sessions: records of sessions that hold credit, read a moment later, to name them.
        session: whose view it is; nobody's when empty.
        need: bytes of the message that waits; that of the session, or of the first in line, when None.
        paid: whether it has its credit: then limits do not hold it up, only the rate does.
        durable: whether the message is, where that decides which store it goes to; None where that is not known.
        deadlock: that it is known to be part of.
    """
    facts = read(name, snapshot, sessions or {}, session, need, paid=paid, durable=durable)
    if need is None and waits_for_rate(facts):
        facts = replace(facts, paced=True)
    causes = judge(facts)
    first, fields, in_hand = causes[0], snapshot.fields, facts.in_hand(session)
    stores = [store for _, store in stores_of(snapshot)]
    return Explanation(
        destination=name,
        kind=fields["kind"],
        state=_state(facts, first.cause, binds=first.limit is not None),
        cause=first.cause,
        reason=first.text,
        binding=first.limit,
        limits=facts.limits,
        blocked=facts.count("blocked"),
        rule=first.rule,
        remedy=first.remedy,
        unblocks_in=first.seconds,
        settle=first.settle,
        raise_to=first.raise_to,
        causes=causes,
        waiters=facts.waiters,
        consumers=tuple(sorted(facts.consumers, key=lambda one: (-one.bytes, one.consumer))[:TOP]),
        leasers=facts.leasers[:TOP],
        backlogs=facts.backlogs[:TOP] if facts.is_shared else (),
        dropped_messages=facts.count("dropped_messages"),
        dropped_bytes=facts.count("dropped_bytes"),
        freed_per_second=facts.pace.freed if facts.pace else None,
        settled_per_second=facts.pace.freed_messages if facts.pace else None,
        store=stores[0] if stores else None,
        store_nonpersistent=stores[1] if len(stores) > 1 else None,
        pools=facts.pools,
        session=session,
        place=snapshot.place or first.place,
        holds=in_hand[0],
        holds_messages=in_hand[1] if facts.fields.get("limit_messages", "unlimited") != "unlimited" else 0,
        deadlock=deadlock,
        later=facts.count("later"),
        next_due_in=facts.due_in,
        turns=Turns.of(snapshot),
        shadows=read_tried(fields, snapshot.now_ms),
        fields=fields,
    )


def _state(facts: DestinationFacts, cause: Cause, *, binds: bool) -> State:
    if cause in ("stopped", "spread-anew", "held-off", "learning"):
        return "learning" if cause == "learning" else "stopped"
    if facts.count("blocked"):
        return "blocked"
    return "full" if binds else "open"


def leased(snapshot: Snapshot) -> tuple[int, int, int]:
    """Return the bytes and messages of credit that all sessions together hold, and over how many slices."""
    fields = snapshot.fields
    return int(fields["leased_bytes"]), int(fields["leased_messages"]), int(fields.get("sliced", 1))


def as_consumer(explanation: Explanation, consumer: str, snapshot: Snapshot) -> Explanation:
    """Return the view of one consumer: why it gets messages, or does not.

    Raises:
        InvalidValue: it is not attached there.
    """
    record = snapshot.consumers.get(consumer)
    if record is None:
        raise InvalidValue(
            f"no consumer {consumer!r} is attached to {explanation.destination!r}; headgate explain "
            f"{explanation.destination} lists those that are"
        )
    facts = read(explanation.destination, snapshot, {}, "", None)
    mine = next(one for one in facts.consumers if one.consumer == consumer)
    backlog = next((one for one in facts.backlogs if one.subscription == mine.subscription), None)
    cause, text = _delivers(mine, backlog.ready if backlog else 0)
    remedy = ""
    if cause == "consumer-empty" and not mine.messages and (others := beside(facts, mine.subscription)):
        cause, text, remedy = "consumer-beside", f"has none, for others hold what there is: {others}", ELSEWHERE
    return replace(
        explanation,
        cause=cause,
        reason=f"{consumer} {text}",
        binding=None,
        rule=None,
        remedy=remedy,
        unblocks_in=None,
        settle=None,
        raise_to=None,
        causes=(),
        consumers=(mine,),
        session=mine.session,
    )


def _delivers(mine: Holder, ready: int) -> tuple[Cause, str]:
    if mine.window == "paused":
        return "consumer-paused", f"is paused; {count(ready)} ready for its subscription"
    if mine.at_capacity:
        return "consumer-full", f"is at capacity: it holds {count(mine.messages)} unsettled, {ready} more ready"
    if not ready:
        return "consumer-empty", f"has nothing more to get; it holds {mine.messages} unsettled"
    if mine.window == "pull":
        return "consumer-idle", f"takes a message when asked, and was not asked; {ready} are ready"
    return "open", f"gets messages; {ready} are ready, it holds {mine.messages}"


def unreachable(name: str, session: str, seconds: float, trouble: object) -> Explanation:
    """Return the explanation of a wait for Redis itself, or for the right to use it.

    Where a call has not failed yet there is no ``trouble`` to tell of.
    """
    answered = isinstance(trouble, AccessDenied) or (isinstance(trouble, CoordinatorUnavailable) and trouble.answered)
    why = f": {trouble}" if trouble else ""
    text = f"Redis has {'refused it' if answered else 'not answered'} for {rounded(seconds)} s{why}"
    remedy = "see to what it says" if answered else "see that Redis is reachable from here"
    return Explanation(name, "", "unknown", "redis-unavailable", text, remedy=remedy, session=session)


def unsafe(name: str, session: str, reason: str) -> Explanation:
    """Return the explanation of a wait for replicas, or for the disk."""
    return Explanation(
        name, "", "open", "not-durable", reason, remedy="see to the replicas or the disk", session=session
    )


def own_rate(name: str, session: str, seconds: float, rate: float) -> Explanation:
    """Return the explanation of a wait for a producer's own rate."""
    text = f"its own rate allows it in {rounded(seconds)} s, at {plain(rate)} messages/s"
    remedy = "wait, or open the producer with a higher rate"
    return Explanation(name, "", "open", "producer-rate", text, remedy=remedy, unblocks_in=seconds, session=session)

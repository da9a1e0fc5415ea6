"""A destination is held up by causes, judged from facts, the most important first. No I/O and no clock."""

from collections.abc import Iterator

from headgate.core.limits.slices import is_shut
from headgate.core.names import decode_name
from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.gate_causes import bucket, hold_off, spread_anew
from headgate.explain.idle_consumers import ELSEWHERE, NAMED, beside
from headgate.explain.limiter_words import duration
from headgate.explain.model import Cause, Reason
from headgate.explain.rate_causes import rate, until_token
from headgate.explain.spool_causes import spool
from headgate.explain.views import Limit, PoolView, Unit, amount, count
from headgate.figures import plain, rounded


def judge(facts: DestinationFacts) -> tuple[Reason, ...]:
    """Return all that holds the destination up, what matters most first; if nothing does, one that says so."""
    if facts.fields["kind"] == "bucket":
        return (*hold_off(facts), bucket(facts))
    found = [*_by_hand(facts), *_rules(facts)]
    if not found and facts.count("blocked"):
        found.append(Reason("serving", f"{count(facts.count('blocked'), 'session')} about to be served"))
    return tuple(found) or (_open(facts),)


def _open(facts: DestinationFacts) -> Reason:
    text, without = _room(facts), [one for one in facts.consumers if not one.messages and one.window != "paused"]
    for subscription in sorted({one.subscription for one in without}):
        backlog = next((one for one in facts.backlogs if one.subscription == subscription), None)
        if not (backlog and backlog.ready) and (others := beside(facts, subscription)):
            idle = count(sum(one.subscription == subscription for one in without), "consumer")
            return Reason(
                "open", f"{text}; of {subscription}, {idle} has none, and others hold {others}", remedy=ELSEWHERE
            )
    return Reason("open", text)


def _room(facts: DestinationFacts) -> str:
    for encoded, size in facts.lent_bytes:
        name = decode_name(encoded)
        if size <= facts.limits[0].pending + facts.limits[0].leased and facts.fields.get("enforce", "always") != "off":
            return f"all {size} bytes that pool {name} lends here are taken; who sends next asks it for more"
    return "there is room"


def _by_hand(facts: DestinationFacts) -> Iterator[Reason]:
    yield from hold_off(facts)
    if reason := facts.fields.get("stopped"):
        yield Reason(
            "stopped",
            f"it was stopped by hand: {reason}",
            rule=facts.rule("stopped"),
            remedy=f"lift it with: headgate unblock {facts.name}",
        )
    yield from spread_anew(facts)
    learning = facts.count("learning_until") - facts.now_ms
    if learning > 0:
        yield Reason(
            "learning",
            f"Redis may have lost state; for {learning / 1000:.1f} s holders claim, and only what they give "
            "back is granted",
            remedy="wait until holders have claimed what they had",
            seconds=learning / 1000,
        )


def _rules(facts: DestinationFacts) -> Iterator[Reason]:
    if facts.paid:
        yield from (*rate(facts), *_channel(facts))
        return
    enforce = facts.fields.get("enforce", "always")
    if enforce == "off" or (enforce == "with-consumers" and not facts.count("active")):
        why = "enforcement is off" if enforce == "off" else "no consumer is active, so limits are not enforced"
        yield from (*rate(facts), *_channel(facts))
        yield Reason("enforcement-off", why, rule=facts.rule("enforce"))
        return
    if facts.paced:
        yield from rate(facts)
    yield from _hysteresis(facts)
    yield from spool(facts)
    by_limit = [reason for reason in _limits(facts) if not facts.stores or reason.limit is not facts.limits[0]]
    by_pool = list(_pools(facts))
    least = min((reason.limit.free or 0 for reason in by_limit if reason.limit), default=None)
    if by_pool and least is not None and (by_pool[0].limit is None or (by_pool[0].limit.free or 0) >= least):
        yield from (*by_limit, *by_pool)
    else:
        yield from (*by_pool, *by_limit)
    if not facts.paced:
        yield from rate(facts)


def _channel(facts: DestinationFacts) -> Iterator[Reason]:
    """Return the channel that has to send what was stored before its senders get their receipts."""
    link, _, name = facts.fields.get("confirm", "").partition(" ")
    backlog = next((one.messages for one in facts.backlogs if one.subscription == link), 0)
    if backlog:
        yield Reason(
            "channel",
            f"waits for channel {decode_name(name)}: backlog {count(backlog)}",
            rule=facts.rule("confirm"),
            remedy="raise its maxrate, see that a node works on it (headgate links), or turn flow_control off",
        )


def _level(text: str, limit: int | None) -> int:
    """Return a level, or the share that it is of a limit."""
    return int((limit or 0) * float(text[:-1]) / 100) if text.endswith("%") else int(text or 0)


def _hysteresis(facts: DestinationFacts) -> Iterator[Reason]:
    for limit in facts.limits:
        field = f"resume_{limit.unit}"
        resume = _level(facts.fields.get(field, ""), limit.limit)
        if field in facts.fields and limit.pending > resume and is_shut(facts.fields, limit.unit):
            over = limit.pending - resume
            yield Reason(
                "hysteresis",
                f"it was full and serves again at {resume} {limit.unit} pending; {limit.pending} are",
                limit,
                facts.rule(field),
                f"settle {over} {limit.unit}, or raise {field.replace('resume', 'resume_at').replace('_bytes', '')}",
                _soon(facts, limit, over),
                settle=over,
            )


def _pools(facts: DestinationFacts) -> Iterator[Reason]:
    """Return the slice that leaves the least room, if it does not leave enough."""
    if not (facts.session or facts.count("blocked")):
        return  # only a send shows whether the pool, which lies in another slot, has more
    taken = facts.limits[0].pending + facts.limits[0].leased
    if facts.alone and facts.is_lent_less_than_others:
        lacks = "the rest of its limit is lent to other slices of it, or free, and a master of these does not answer"
        yield Reason("pool", lacks, remedy="see that every master of the cluster answers")
    names = facts.fields.get("pools", "").split()
    slices = sorted((facts.slices.get(name, 0), name) for name in names)
    if not slices:
        return
    in_bytes = facts.limits[0]
    size, encoded = slices[0]
    name = decode_name(encoded)
    if size - taken < facts.need:
        short = facts.need - size + taken
        pool = next((one for one in facts.pools if one.name == name and (one.exists or not size)), None)
        lends = f"{taken} of the {size} bytes that it lends here are taken" if size else "it lends nothing here"
        frees = "release" if facts.fields["kind"] == "gate" else "settle"
        less = f"{frees} {_amount(facts, short)} here or elsewhere in pool {name}"
        remedy = f"{less}, or enlarge the pool"
        if pool and not pool.exists:
            lends = "there is no such pool in the namespace"
            remedy = f"create pool {name}, or correct the setting pools; headgate status lists the pools there are"
        if pool and pool.remedy:
            remedy = f"{less}, or {pool.remedy}"
        part = f", {pool.part}," if pool and pool.part else ""
        yield Reason(
            "pool",
            f"pool {name}{part} {_pool_state(pool, short)}: {lends}{_pool_holders(pool)}",
            Limit("bytes", size, in_bytes.pending, in_bytes.leased),
            facts.rule("pools"),
            remedy,
            None if pool and not pool.exists else _soon(facts, in_bytes, short),
            settle=short,
        )


def _pool_state(pool: PoolView | None, short: int) -> str:
    if pool is not None and not pool.exists:
        return "does not exist"
    if pool is not None and (pool.limit is None or pool.limit - pool.granted >= short):
        return "is being asked for more"  # it has room: the slice is on its way, or those before in its line take it
    return "is exhausted"


def _pool_holders(pool: PoolView | None) -> str:
    if pool is None or not pool.exists:
        return ""  # nothing is known of it
    total = "" if pool.limit is None else f" of its {pool.limit} bytes"
    others = pool.granted - pool.here
    named = ", ".join(f"{name} {held}" for name, held in pool.holders)
    return f";{total} others hold {max(0, others)}{f': {named}' if named else ''}"


def _limits(facts: DestinationFacts) -> Iterator[Reason]:
    for limit in facts.limits:
        need = facts.need if limit.unit == "bytes" else 0 if _in_hand(facts, limit) else 1
        if limit.limit is not None and limit.free is not None and limit.free < need:
            yield _reached(facts, limit, need)
    head = facts.waiters[0] if facts.waiters else None
    in_bytes = facts.limits[0]
    if facts.place > 1 and head and in_bytes.free is not None and facts.need <= in_bytes.free < head.needs:
        needs = _amount(facts, head.needs)
        text = f"{head.session} is before it and needs {needs}, of which {in_bytes.free} are free"
        yield _shortage(facts, "behind-larger", text, in_bytes, head.needs)


def _reached(facts: DestinationFacts, limit: Limit, need: int) -> Reason:
    cause, why = _why(facts, limit, need)
    if cause == "oversize":
        return _alone(facts, why, limit, need)
    return _shortage(facts, cause, f"{limit.reached(facts.fields['kind'])}: {why}", limit, need)


def _alone(facts: DestinationFacts, why: str, limit: Limit, need: int) -> Reason:
    """Return what a message above the whole limit waits for: that all else is gone, and not that it fits."""
    total = limit.pending + limit.leased + need
    of_others = max(0, total - limit.pending - max(facts.size, need))  # what it has in hand itself is for it
    ways = [
        f"{verb} {_amount(facts, size)}" for verb, size in (("settle", limit.pending), ("release", of_others)) if size
    ]
    return Reason(
        "oversize",
        f"{limit.reached(facts.fields['kind'])}: {why}",
        limit,
        limit.rule,
        f"{' and '.join(ways) or 'wait until it is served'}, or raise limit to {total}",
        _soon(facts, limit, limit.pending + of_others),
        settle=limit.pending + of_others,
        raise_to=total,
    )


def _shortage(facts: DestinationFacts, cause: Cause, text: str, limit: Limit, need: int) -> Reason:
    field = "limit" if limit.unit == "bytes" else "limit_messages"
    total = limit.pending + limit.leased + need
    short = total - (limit.limit or 0)
    first = {
        "no-consumer": "attach a consumer, ",
        "all-paused": "resume a consumer, ",
        "same-session": "consume in another session or task, ",
        "leased": "wait until they use it or give it back, ",
        "holder-lost": "wait until its lease is over, ",
        "pull-idle": "receive, ",
        "slow-subscription": "consume that subscription, or remove it, ",
    }.get(cause, "")
    verb = "release" if cause in ("leased", "holder-lost") else "settle"
    unserved = cause == "slow-subscription" and not facts.backlogs[0].consumers  # the pace was that of others
    return Reason(
        cause,
        text,
        limit,
        limit.rule,
        f"{first}{verb} {_amount(facts, short, limit.unit)}, or raise {field} to {total}",
        None if cause in ("leased", "no-consumer", "all-paused") or unserved else _soon(facts, limit, short),
        settle=short,
        raise_to=total,
    )


def _soon(facts: DestinationFacts, limit: Limit, short: int) -> float | None:
    """Estimate the seconds until enough is freed for this waiter and those ahead of it, from the recent settle rate.

    Messages that wait for their time are not settled at that rate: where the rest is too little, the first is due then.
    """
    pace = 0.0
    if facts.pace is not None:
        pace = facts.pace.freed if limit.unit == "bytes" else facts.pace.freed_messages
    if facts.place > 1:
        short += (
            sum(w.needs for w in facts.waiters if w.place < facts.place) if limit.unit == "bytes" else facts.place - 1
        )
    seconds = short / pace if pace > 0 else None
    if facts.due_in is not None and short > limit.pending * (
        1 - facts.count("later") / max(1, facts.count("pending_messages"))
    ):
        return max(seconds or 0.0, facts.due_in)
    return seconds


def _why(facts: DestinationFacts, limit: Limit, need: int) -> tuple[Cause, str]:
    whole = max(facts.size, need)
    if limit.unit == "bytes" and limit.limit is not None and whole > limit.limit - limit.kept:
        one, there = ("call", "admitted") if facts.fields["kind"] == "gate" else ("message", "pending")
        text = f"a {one} of {_amount(facts, whole)} is larger than that, and goes alone once nothing else is {there}"
        return "oversize", text
    if limit.pending + _in_hand(facts, limit) + need <= (limit.limit or 0) or facts.fields["kind"] == "gate":
        return _leased(facts, limit)
    if facts.fields["kind"] == "store":
        return "unsettled", "messages in its segments are not settled yet"
    if not facts.count("consumers"):
        return "no-consumer", "no consumer is attached"
    return _consumers(facts, limit, need)


def _amount(facts: DestinationFacts, number: int | None, unit: Unit = "bytes") -> str:
    return amount(number or 0, unit, facts.fields["kind"])


def _subject(facts: DestinationFacts) -> str:
    """Return the waiter in question: the session whose view it is, or the first in line."""
    return facts.session or (facts.waiters[0].session if facts.waiters else "")


def _in_hand(facts: DestinationFacts, limit: Limit) -> int:
    """Return how much credit of that unit a waiter has already: it lacks only the rest."""
    return facts.in_hand(_subject(facts))[0 if limit.unit == "bytes" else 1]


def _leased(facts: DestinationFacts, limit: Limit) -> tuple[Cause, str]:
    gate = facts.fields["kind"] == "gate"
    subject = _subject(facts)
    others = [one for one in facts.leasers if one.session != subject] or list(facts.leasers)
    whom = " to other sessions" if subject and any(one.session != subject for one in facts.leasers) else ""
    what = "is admitted or kept ready" if gate else f"is leased{whom} and not used yet"
    if not others:
        return "leased", f"what is missing {what}"
    doubt = facts.number("ttl_ms") * 0.6 / 1000
    top = others[0]
    if top.silent > doubt:
        return "holder-lost", f"{top.held(facts.fields['kind'])} and was not heard of for {top.silent:.1f} s"
    amounts = [(one.session, one.bytes if limit.unit == "bytes" else one.messages) for one in others[:NAMED]]
    named = ", ".join(f"{session} {_amount(facts, number, limit.unit)}" for session, number in amounts)
    return "leased", f"what is missing {what}: {named}"


def _consumers(facts: DestinationFacts, limit: Limit, need: int) -> tuple[Cause, str]:
    """Say why consumers do not make room."""
    consumers = facts.consumers
    complete = len(consumers) >= facts.count("consumers")
    if facts.is_shared and (cause := _slow_subscription(facts)):
        return cause
    active = [one for one in consumers if one.window != "paused"]
    if complete and not active:
        return "all-paused", "all consumers are paused"
    subject = _subject(facts)
    if complete and subject and all(one.session == subject and not one.rate for one in active):
        return "same-session", "only the session that waits to send consumes it, so it may be waiting for itself"
    unsettled = max(sum(one.messages for one in consumers), sum(one.unsettled for one in facts.backlogs[:1]))
    if unsettled >= facts.count("pending_messages") > 0:
        most = sorted((one for one in consumers if one.messages), key=lambda one: -one.bytes)[:NAMED]
        names = ", ".join(f"{one.consumer} {one.messages}" for one in most)
        return "unsettled", f"consumers hold all messages unsettled{': ' + names if names else ''}"
    if facts.due_in is not None and facts.count("later") + unsettled >= facts.count("pending_messages"):
        return "not-due", f"all messages wait for their time, the first for {duration(facts.due_in)}"
    if active and all(one.at_capacity for one in active):
        most = sorted(active, key=lambda one: -one.bytes)[:NAMED]
        names = ", ".join(f"{one.consumer} {one.messages} of {one.window}" for one in most)
        return "at-capacity", f"all consumers are at capacity: {names}"
    if complete and all(one.window == "pull" and not one.messages for one in active):
        return "pull-idle", "its consumers take one message when asked, and none is asked"
    pace = facts.number("delivery_rate")
    if pace and (seconds := until_token(facts, "delivery", pace, 1)) > 0:
        text = f"delivery is limited to {plain(pace)} messages/s; the next is due in {rounded(seconds)} s"
        return "delivery-rate", text
    if slow := [one for one in active if one.slow]:
        names = ", ".join(f"{one.consumer} {rounded(one.rate or 0)}/s" for one in slow[:NAMED])
        return "slow-consumer", f"a consumer is slow: {names}"
    if limit.unit == "bytes" and limit.free is not None and limit.free > 0 and need > 1:
        return "head-needs", f"the message needs {need} bytes and {limit.free} are free"
    return "slow-consumers", "consumers are slower than producers"


def _slow_subscription(facts: DestinationFacts) -> tuple[Cause, str] | None:
    """Return the one subscription that still has to settle what the others have settled."""
    if not facts.backlogs:
        return None
    worst, *others = facts.backlogs
    rest = others[0].messages if others else 0
    if (not others and worst.consumers) or worst.messages <= 2 * rest or not worst.messages:
        return None
    why = "no consumer of it is attached" if not worst.consumers else f"its consumers hold {worst.unsettled} unsettled"
    return (
        "slow-subscription",
        f"subscription {worst.subscription} has {count(worst.messages)} to settle, others at most {rest}; {why}",
    )

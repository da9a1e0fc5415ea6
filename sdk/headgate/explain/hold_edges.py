"""Waits for what is held of gates and limiters, as edges between parties. No I/O, and no clock.

Only what nobody but a holder can end is a wait: a rate, a quota, a hold-off and a lease that is over end by themselves.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.core import deadlock
from headgate.core.deadlock import Party, Wait
from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limiting.pins import hold_of_part, key_of_part
from headgate.core.limits.limit import limits_of
from headgate.core.names import decode_name
from headgate.explain.destination_facts import held
from headgate.explain.explainer import explain, leased
from headgate.explain.levels import held_off, read_limits
from headgate.redis.replies import Snapshot
from headgate.redis.stores.limiter_levels import LimiterLevels
from headgate.redis.stores.notes import Tie

Who = Callable[[str], Iterable[Party]]
"""Returns the parties that can release what a holder holds, by the holder's id."""
_AMOUNT: Final = re.compile(r"(\w+):(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Holds:
    """A gate or a limiter has these holders, read beside its snapshot.

    Attributes:
        levels: of a limiter, with all its holds; None of a gate.
        sessions: of a gate, records of those that hold its credit.
    """

    levels: LimiterLevels | None = None
    sessions: Mapping[str, Mapping[str, str]] | None = None


def gate_wait(snapshot: Snapshot, sessions: Mapping[str, Mapping[str, str]], who: Who) -> Wait | None:
    """Return what a gate waits for, where nothing but its holders can let the first in line in."""
    fields = snapshot.fields
    if not snapshot.waiters or fields.get("pools"):
        return None
    head, record = snapshot.waiters[0]
    explanation = explain("", replace(snapshot, own=dict(record), place=1), sessions, session=head)
    if explanation.cause != "leased" or explanation.binding is None:
        return None
    which = 0 if explanation.binding.unit == "bytes" else 1
    amounts = {session: amount for session, one in sessions.items() if (amount := held(one)[which]) > 0}
    if sum(amounts.values()) != leased(snapshot)[which]:
        return None  # there are holders that were not read
    epoch = (fields["epoch"], fields["limit_bytes"], fields["limit_messages"], *sorted(amounts.items()))
    return deadlock.held([party for session in amounts for party in who(f"{session}.0")], epoch)


def limiter_waits(
    name: str, snapshot: Snapshot, levels: LimiterLevels, ties: Iterable[Tie], who: Who
) -> dict[Party, Wait]:
    """Return what sessions wait for there that are tied, and what the limits that they wait for do.

    Args:
        name: of the limiter.
        snapshot: of it, for its settings.
        levels: with all its holds, else nothing is returned.
        ties: consumers and holds that are tied to waits there.
        who: returns who can release a hold.
    """
    fields = snapshot.fields
    if levels.learning_ms or held_off(levels.limits) or fields.get("stopped") or len(levels.holds) < levels.all_holds:
        return {}
    found: dict[Party, Wait] = {}
    waits: dict[Party, dict[str, Party | None]] = {}
    for tie in ties:
        party = Party("session", tie.session, tie.at)
        limit = _limit(name, fields, levels, tie, who, found)
        waits.setdefault(party, {})[tie.wait] = limit
    for party, limits in waits.items():
        needed = [limit for limit in limits.values() if limit is not None]
        if len(needed) == len(limits):  # else one of them goes on
            found[party] = deadlock.session(needed, tuple(sorted(limits)))
    return found


def _limit(
    name: str, fields: Mapping[str, str], levels: LimiterLevels, tie: Tie, who: Who, found: dict[Party, Wait]
) -> Party | None:
    """Return the limit that holds a wait up, with its own wait in ``found``; None where it may end by itself."""
    own = _Record.read(levels.holds.get(tie.wait, ""))
    rule, _, limit = tie.limit.partition(":")
    if own is None or own.state != "W":
        return None
    records = ((hold, _Record.read(text)) for hold, text in levels.holds.items())
    holders = {
        hold: one.amounts[limit]
        for hold, one in records
        if one and one.state == "H" and one.amounts.get(limit)
        if (hold not in levels.beside if rule == "all" else one.key == own.key)
    }
    if rule == "all":
        state = read_limits(levels.limits).get(limit)
        most = state.limit if state is not None and state.form == "at_once" and not state.withheld else None
    else:
        keyed = limits_of(fields.get("key_limits", "")).get(limit)
        most = keyed.most if keyed is not None and keyed.form == "at_once" else None
    if most is None or not holders or own.amounts.get(limit, 0) <= most - sum(holders.values()):
        return None
    of_key = f" of key {decode_name(key_of_part(own.key))}" if rule == "key" and own.key != NO_KEY else ""
    party = Party("limiter", name, f"{limit}{of_key}")
    parties = [one for hold in holders for one in who(hold_of_part(hold))]
    found[party] = deadlock.held(parties, (fields["epoch"], most, *sorted(holders.items())))
    return party


@dataclass(frozen=True, slots=True)
class _Record:
    """A hold, or a waiter, has this record, as ``lua/lib/hold.lua`` writes it."""

    state: str
    key: str
    amounts: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> "_Record | None":
        words = text.split(" ")
        if len(words) != 8:
            return None
        return cls(words[0], words[4], {name: int(number) for name, number in _AMOUNT.findall(words[6])})

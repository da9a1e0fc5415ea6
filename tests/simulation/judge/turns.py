"""Whose turn it is in the lines of a limiter, counted from when calls came to a slice and what they asked for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.simulation.judge.sight import Sight
from tests.simulation.server import OF_LIMITERS, Call

ARGUMENTS, WORDS_OF_ONE = 4, 6
"""Words of a call of ``admit`` before its operations, and of each of these."""
PART: Final = "%."
"""Before the name of a key whose part of limits of all keys this is."""
UNKNOWN: Final = 0
USUAL: Final = 3
"""The band of a call that names none."""
MOST_TAKEN: Final = 2
"""Slots that one call asks for, at the most."""
_AMOUNT: Final = re.compile(r"(\w+)[:=](\d+)")
_BAND: Final = re.compile(r"~(\d)")


class Rule(NamedTuple):
    """By what calls take turns.

    Attributes:
        by_deadline: whether the earliest deadline goes first.
        bands: that calls name.
        aging: seconds, or times a limit of all keys, by which a band is passed for each band before it.
        reserve: the part of limits of all keys that is for the best band alone.
    """

    by_deadline: bool = False
    bands: tuple[int, ...] = ()
    aging: float = 0.2
    reserve: float = 0.0


@dataclass(eq=False, slots=True)
class Asked:
    """What a call asks for, which holds it or waits for it.

    Attributes:
        came: its number among those that came to a slice; UNKNOWN for who was there before it was looked at.
        ticket: that it has there: who lost its place, and asks anew, has another.
        at_ms, due_ms: when it came there, and when it is late, by the server's calendar.
        passed, passed_by_bands: slots that others were given while it waited, and those of other bands.
    """

    key: str
    amounts: Mapping[str, int]
    band: int
    ticket: str
    came: int
    at_ms: int
    due_ms: int
    passed: int = 0
    passed_by_bands: int = 0

    @property
    def slots(self) -> int:
        return self.amounts.get("slots", 0)

    @property
    def wants_of_all(self) -> bool:
        """Whether it waits for slots of all keys, and for nothing else."""
        return self.key.startswith(PART) and self.amounts.keys() == {"slots"}


@dataclass(eq=False, slots=True)
class HoldSight(Sight):
    """What lay at a slice after a script; ``leased`` are the slots of holds."""

    held: dict[str, Asked] = field(default_factory=dict)
    waiting: dict[str, Asked] = field(default_factory=dict)

    def slots_of(self, key: str) -> int:
        return sum(one.slots for one in self.held.values() if one.key == key)


def _asked_in(call: Call) -> dict[str, tuple[int, int]]:
    """Return the holds that a call asks for, in its order: the band of each, and for how many ms it waits."""
    words = call.words[1 + int(call.words[0]) + ARGUMENTS :] if call.script == "admit" else ()
    found: dict[str, tuple[int, int]] = {}
    for at in range(0, len(words), WORDS_OF_ONE):
        what, hold, _, amounts, _, wait = (word.decode() for word in words[at : at + WORDS_OF_ONE])
        if what == "admit":
            band = _BAND.search(amounts)
            found[hold] = int(band[1]) if band else USUAL, int(wait)
    return found


def read(call: Call, before: HoldSight | None) -> HoldSight:
    """Return what lies at a slice, and who came first of those who wait there; a failover may forget that."""
    if before and int(call.words[0]) < OF_LIMITERS:
        return before  # of a script that knows no holds
    flat, holds, *_ = call.seen
    fields = {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}
    sight = HoldSight(epoch=fields["epoch"], sliced=True)
    known = before.held | before.waiting if before and before.epoch == sight.epoch else {}
    last, asked = max((one.came for one in known.values()), default=UNKNOWN), _asked_in(call)
    order = {hold: last + number for number, hold in enumerate(asked, 1)}
    for name, text in zip(holds[::2], holds[1::2], strict=True):
        hold, (state, _, _, _, key, _, amounts, ticket) = name.decode(), text.decode().split(" ")
        much = {limit: int(number) for limit, number in _AMOUNT.findall(amounts)}
        one = known.get(hold)
        if one is None or (state == "W" and one.ticket != ticket):
            band, wait_ms = asked.get(hold, (USUAL, 0))
            one = Asked(key, much, band, ticket, order.get(hold, UNKNOWN), call.at_ms, call.at_ms + wait_ms)
        one.amounts = much
        (sight.held if state == "H" else sight.waiting)[hold] = one
        if state == "H":
            sight.leased[hold] = one.slots
    return sight


class Turns:
    """What must hold of who is let in at a slice, of those who came there; ``slots_of_all`` may be held by all keys."""

    def __init__(self, rule: Rule, slots_of_all: int | None) -> None:
        self._rule, self._slots_of_all = rule, slots_of_all

    def broken(self, call: Call, before: HoldSight, sight: HoldSight, *, clock_was_set: bool) -> Iterator[str]:
        """Return who was let in before somebody whose turn it was; of times nothing is known once a clock was set."""
        of_all = self._slots_of_all is not None and "%" not in call.words[1].decode()
        let_in = [
            name for name in {**_asked_in(call), **before.waiting} if name in sight.held.keys() - before.held.keys()
        ]
        for name in let_in:
            for other_name, other in before.waiting.items():
                one = sight.held[name]
                other.passed += one.slots if other_name != name else 0
                other.passed_by_bands += one.slots if other.band != one.band else 0
        if of_all and self._rule.reserve:
            yield from self._beyond_reserve([sight.held[name] for name in let_in], sight)
        if not clock_was_set or not (self._rule.by_deadline or self._rule.bands):
            for name in let_in:
                yield from self._passed(name, before, sight, of_all=of_all)
        for name, one in sight.waiting.items() if of_all and self._rule.bands else ():
            others = [other for other in sight.waiting.values() if other.band == one.band]
            if one.wants_of_all and others == [one] and one.passed_by_bands > self._most_passed(one.band):
                yield f"others with {one.passed_by_bands} slots before {name} of band {one.band}"

    def _beyond_reserve(self, let_in: Sequence[Asked], sight: HoldSight) -> Iterator[str]:
        """Return of which band one was let in to what is kept for the best, which may have come in the same call."""
        best = min(self._rule.bands)
        others = [one for one in let_in if one.band > best and one.slots]
        taken = sight.total - sum(one.slots for one in let_in if one.band == best)
        if others and taken > (self._slots_of_all or 0) * (1 - self._rule.reserve):
            yield f"one of band {others[0].band} where {taken} slots are held, to what is kept for band {best},"

    def _passed(self, name: str, before: HoldSight, sight: HoldSight, *, of_all: bool) -> Iterator[str]:
        """Return before whom one was let in, whose turn it was."""
        one, is_new = sight.held[name], name not in before.waiting
        for other_name, other in sight.waiting.items():
            is_there = other_name in before.waiting or (is_new and other.came < one.came)
            if not is_there or UNKNOWN in (one.came, other.came) or not other.amounts.keys() <= one.amounts.keys():
                continue
            if other.key == one.key:
                if not (of_all and one.band != other.band) and self._is_earlier(other, one):
                    yield f"{name} before {other_name} of the same key"
            elif other.wants_of_all and self._goes_first(other, one, before, sight, is_new):
                yield f"{name} before {other_name}, whose key holds no more"

    def _is_earlier(self, other: Asked, one: Asked) -> bool:
        """Return whether one comes first of two of one key that wait for a limit of that."""
        if other.band != one.band:
            ahead = self._rule.aging * 1000 * (other.band - one.band)
            return other.at_ms + ahead < one.at_ms
        return other.due_ms < one.due_ms if self._rule.by_deadline else other.came < one.came

    def _goes_first(self, other: Asked, one: Asked, before: HoldSight, sight: HoldSight, is_new: bool) -> bool:
        """Return whether one goes before another key's that came later, or was passed by too little."""
        if other.band < one.band:
            passed = max(own.passed for own in (one, *sight.waiting.values()) if own.band == one.band)
            return is_new or (one.wants_of_all and passed < self._ahead_of(one.band))
        if other.band > one.band:
            return False
        if self._rule.by_deadline:
            return other.due_ms < one.due_ms
        least = sum(was.slots for name, was in before.held.items() if was.key == one.key and name in sight.held)
        return other.came < one.came and max(before.slots_of(other.key), sight.slots_of(other.key)) <= least

    def _ahead_of(self, band: int) -> float:
        return band * self._rule.aging * (self._slots_of_all or 0)

    def _most_passed(self, band: int) -> float:
        """Return the slots that may go before a band: so much by its number, and once more of each other band.

        What is kept for a better one goes before it as long once more.
        """
        return self._ahead_of(band) * (2 if self._rule.reserve else 1) + MOST_TAKEN * (len(self._rule.bands) - 1)

"""A limiter is shown as people see it: its limits, whoever holds most of them, and whoever waits for which."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limiting.pins import is_part, key_of_part
from headgate.core.limits.bands import USUAL_BAND
from headgate.core.limits.limit import limits_of
from headgate.core.names import decode_name
from headgate.explain.levels import LimitState, ShadowState, counts_of, held_off, read_limits, read_shadows
from headgate.explain.limiter_words import duration, limit_text, shadow_text, shown
from headgate.figures import rounded
from headgate.redis.stores.limiter_levels import LimiterLevels

TOP: Final = 10
"""How many keys, holders and waiting keys are named."""
_LEVEL: Final = re.compile(r"([a-z]\w*)([=:])(\d+)(?:@(\d+))?", re.ASCII)
_AMOUNT: Final = re.compile(r"(\w+)[=:](\d+)", re.ASCII)
_OFF: Final = re.compile(r"OFF=(\d+)@")
_WITHOUT_PLACE: Final = 9  # words of a wait, as nodes write it that do not estimate
_WINDOW_MS: Final = {"hour": 3_600_000, "day": 86_400_000, "week": 604_800_000, "month": 2_678_400_000}


@dataclass(slots=True)
class KeyUse:
    """A key has this part of a limiter; ``key`` is None for admissions without one.

    Attributes:
        key: its name.
        held: of limits of what is held at once, by name.
        holds: how many, of those that were looked at.
        waiting: admissions in line.
        taken: of its own rates and quotas, by name.
        held_off: seconds for which nothing more of it is admitted.
    """

    key: str | None
    held: dict[str, int] = field(default_factory=dict)
    holds: int = 0
    waiting: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    held_off: float = 0.0

    def __str__(self) -> str:
        amounts = [f"{name} {number}" for name, number in sorted({**self.held, **self.taken}.items())]
        more = [f"{self.waiting} waiting"] if self.waiting else []
        more += [f"held off for {rounded(self.held_off)} s"] if self.held_off else []
        return f"{shown(self.key)}: {', '.join([*amounts, *more]) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Admissions of one key are waiting for the same limits; one limit keeps the first of them waiting.

    Attributes:
        key: its name; None for admissions without one.
        waiting: how many of them wait.
        session: that asked for the first.
        seconds: for which the first has waited.
        limit: that it waits for; ``hold_off`` during one, ``line`` where others are first.
        rule: ``all`` for the limit of all keys together, ``key`` for that of its own.
        needs: its amounts, by limit.
        next_in: seconds until its limits let it in, were nobody before it; None where nobody knows.
        band: 0 goes first, 7 last.
        place: how many go before it as keys take turns, and itself; None where that was not looked at.
        turn_in: seconds until it is admitted, as estimated from those before it, the rates, and how fast what is held
            at once came back lately; None where nobody knows, or it was not looked at.
    """

    key: str | None
    waiting: int
    session: str
    seconds: float
    limit: str
    rule: Literal["all", "key"]
    needs: dict[str, int]
    next_in: float | None
    band: int = USUAL_BAND
    place: int | None = None
    turn_in: float | None = None

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Wait":
        """Return it as the script writes it, or one of another version: without its place and turn, or with more."""
        words = text.split(" ")
        words[5:5] = ["-", "-"] if len(words) == _WITHOUT_PLACE else []
        _, key, waiting, hold, since, place, turn_us, wait_us, limit, rule, amounts, *_ = words
        return cls(
            _name(key), int(waiting), hold.rpartition(".")[0], max(0.0, (now_ms - int(since)) / 1000), limit,
            "key" if rule == "key" else "all", _amounts(amounts), _seconds(wait_us),
            int(amounts.partition("~")[2] or USUAL_BAND), None if place == "-" else int(place), _seconds(turn_us),
        )  # fmt: skip

    def __str__(self) -> str:
        what = {"line": "those before it", "hold_off": "the end of a hold-off"}.get(self.limit, self.limit)
        own = " of its own" if self.rule == "key" else ""
        soon = f", next in {rounded(self.next_in)} s" if self.next_in and self.limit != "line" else ""
        first = f"the first ({self.session}) for {self.seconds:.1f} s, for {what}{own}{soon}"
        band = "" if self.band == USUAL_BAND else f" in band {self.band}"
        turn = f", place {self.place}" if self.place is not None else ""
        turn += f", its turn in about {duration(self.turn_in)}" if self.turn_in else ""
        return f"{shown(self.key)}: {self.waiting} waiting{band}, {first}{turn}"


@dataclass(frozen=True, slots=True)
class BandUse:
    """A band's admissions are counted as they ended or wait.

    Attributes:
        band: 0 goes first, 7 last.
        waiting: in line.
        admitted: so far; what a session takes in hand counts once.
        shed: refused so far, for the limiter was filled above what its ``shed`` says.
    """

    band: int
    waiting: int
    admitted: int
    shed: int

    def __str__(self) -> str:
        return f"band {self.band}: {self.waiting} waiting, {self.admitted} admitted, {self.shed} shed"


@dataclass(frozen=True, slots=True)
class Held:
    """A session has these holds for one key: its amounts by limit, and the seconds since the oldest was admitted."""

    session: str
    key: str | None
    amounts: dict[str, int]
    seconds: float
    holds: int = 1

    def __str__(self) -> str:
        return self._text(", ".join(f"{name} {number}" for name, number in self.amounts.items()) or "nothing more")

    def of(self, limit: str) -> str:
        """Return in words what it has of one limit."""
        return self._text(str(self.amounts.get(limit, 0)))

    def _text(self, amounts: str) -> str:
        whose = f" for {shown(self.key)}" if self.key is not None else ""
        since = f"in {self.holds} holds, the oldest for" if self.holds > 1 else "for"
        return f"{self.session} has {amounts}{whose}, {since} {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class LimiterView:
    """A limiter view shows a limiter at one instant.

    Of many keys and holds some are looked at; how many say ``keys_seen`` and ``holds_seen``.

    Attributes:
        limits: of all keys together.
        waiting: admissions in line.
        keys: how many are in use.
        holds: how many holds and waits there are.
        held_off: seconds for which nothing is admitted; 0 without a hold-off.
        off_reason: of the hold-off, for people.
        learning: seconds for which nothing new is held at once, for state may have been lost.
        admitted: holds so far; what a session takes in hand counts once.
        refused: admissions that were refused, or gave up waiting, so far.
        binding: the limit that the first in line waits for; empty where nobody waits.
        rule: ``all`` for the limit of all keys together, ``key`` for that of one key.
        needs: amounts of the first in line.
        next_in: seconds until it could be admitted; None where nobody knows.
        key: that was asked about; None for all.
        key_limits: of that key.
        key_held_off: seconds for which nothing of that key is admitted.
        line: who waits, by key and limits: the first of each limit, then as they come, and those of which most wait.
        holders: holds that have most of what binds.
        own: holds of the session that was asked about.
        top: keys that have most.
        shadows: shadow limits, those of each key only where one was asked about.
        would_wait: admissions so far that a shadow limit would have kept waiting, or refused.
        shadowed: the same of each, by ``<limit> of <all|key>``; an admission may count for several.
        bands: those that were ever named, and the usual one; none where nobody named one.
    """

    limits: tuple[LimitState, ...]
    waiting: int
    keys: int
    holds: int
    held_off: float
    off_reason: str
    learning: float
    admitted: int
    refused: int
    binding: str = ""
    rule: Literal["all", "key"] = "all"
    needs: dict[str, int] = field(default_factory=dict)
    next_in: float | None = None
    key: str | None = None
    key_limits: tuple[LimitState, ...] = ()
    key_held_off: float = 0.0
    line: tuple[Wait, ...] = ()
    holders: tuple[Held, ...] = ()
    own: tuple[Held | Wait, ...] = ()
    top: tuple[KeyUse, ...] = ()
    keys_seen: int = 0
    holds_seen: int = 0
    shadows: tuple[ShadowState, ...] = ()
    would_wait: int = 0
    shadowed: dict[str, int] = field(default_factory=dict)
    bands: tuple[BandUse, ...] = ()

    @classmethod
    def of(cls, levels: LimiterLevels, key: str | None, key_limits: str) -> "LimiterView":
        """Return it from what was read, and the limits of each key as the state spells them."""
        limits = read_limits(levels.limits)
        line = tuple(Wait.read(text, levels.now_ms) for text in levels.line)
        held = {hold: text for hold, text in levels.holds.items() if text.startswith("H ")}
        holds = [_held(hold, text, levels.now_ms) for hold, text in held.items() if not _is_part(text)]
        of_all = [_held(hold, text, levels.now_ms) for hold, text in held.items() if hold not in levels.beside]
        own = [Wait.read(text, levels.now_ms) for text in levels.own.values() if _is_wait(text)]
        its = {hold: text for hold, text in levels.own.items() if not _is_wait(text) and not _is_part(text)}
        mine = [_held(hold, text, levels.now_ms) for hold, text in its.items()]
        wait_us, binding, rule, amounts, *_ = (levels.head or "-  all -").split(" ")
        whose = key if key is not None or rule != "key" or not line else line[0].key
        return cls(
            limits=tuple(limits.values()), waiting=levels.waiting, keys=levels.keys, holds=levels.all_holds,
            held_off=held_off(levels.limits), off_reason=levels.reason if held_off(levels.limits) else "",
            learning=levels.learning_ms / 1000, admitted=levels.admitted, refused=levels.refused, binding=binding,
            rule="key" if rule == "key" else "all", needs=_amounts(amounts),
            next_in=_seconds(wait_us), key=key,
            key_limits=tuple(read_limits(levels.of_key).values()), key_held_off=held_off(levels.of_key), line=line,
            holders=_holders(holds if rule == "key" else of_all, limits, binding, whose),
            own=(*sorted(own, key=lambda one: -one.seconds), *_together(mine)),
            top=_top(levels, holds, line, limits, key_limits), keys_seen=len(levels.records),
            holds_seen=len(levels.holds), shadows=read_shadows(levels), would_wait=levels.would_wait,
            shadowed={f"{name} of {rule}": times for name, rule, times, _ in counts_of(levels.shadowed)},
            bands=_bands(levels),
        )  # fmt: skip

    @property
    def used(self) -> float:
        """How much of its narrowest limit is taken; 1.0 for all of it."""
        return max((limit.used for limit in self.limits), default=0.0)

    @property
    def waiting_for(self) -> dict[str, int]:
        """How many wait for each limit; those behind others, and those that were not looked at, wait for the first."""
        found: Counter[str] = Counter()
        for wait in self.line:
            found[self.binding if wait.limit == "line" else wait.limit] += wait.waiting
        if (rest := self.waiting - found.total()) > 0:
            found[self.binding] += rest
        return dict(found)

    @property
    def seen(self) -> str:
        """How much of it was looked at, where that is not all; empty where it is."""
        parts = [f"{self.keys_seen} of {self.keys} keys"] if self.keys_seen < self.keys else []
        parts += [f"{self.holds_seen} of {self.holds} holds and waits"] if self.holds_seen < self.holds else []
        return " and ".join(parts)

    def rows(self) -> Iterator[str]:
        """Yield all of it in words, a line each."""
        if self.held_off:
            yield f"held off for {rounded(self.held_off)} s more: {self.off_reason or 'no reason was given'}"
        yield from (limit_text(limit) for limit in self.limits)
        yield from (f"of {shown(self.key)}: {limit_text(limit)}" for limit in self.key_limits)
        yield from (shadow_text(shadow, self.key) for shadow in self.shadows)
        if self.shadows:
            yield f"{self.would_wait} admitted so far would have waited for shadow limits"
        so_far = f"{self.admitted} admitted, {self.refused} refused so far"
        yield f"{self.waiting} waiting, {self.keys} keys in use, {so_far}"
        yield from map(str, self.bands)
        yield from dict.fromkeys(map(str, self.own))
        yield from (f"{number}. {wait}" for number, wait in enumerate(self.line[:TOP], 1))
        yield from map(str, self.holders)
        if self.seen:
            yield f"looked at: {self.seen}"


def _bands(levels: LimiterLevels) -> tuple[BandUse, ...]:
    """Return the bands that were named, the first ones first; what is not theirs is of the usual one."""
    named = {use.band: use for use in (BandUse(*map(int, row.split(" ")[:4])) for row in levels.by_band)}
    if named:
        others = [use for use in named.values() if use.band != USUAL_BAND]
        waiting = max(0, levels.waiting - sum(use.waiting for use in others))
        admitted = max(0, levels.admitted - sum(use.admitted for use in others))
        shed = named[USUAL_BAND].shed if USUAL_BAND in named else 0
        named[USUAL_BAND] = BandUse(USUAL_BAND, waiting, admitted, shed)
    return tuple(use for _, use in sorted(named.items()))


def _name(encoded: str) -> str | None:
    return None if encoded == NO_KEY else decode_name(key_of_part(encoded))


def _amounts(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in _AMOUNT.findall(text)}


def _seconds(us: str) -> float | None:
    return None if us == "-" else int(us) / 1e6


def _is_part(text: str) -> bool:
    """Return whether a hold is the part that a key of another slice has of limits of all keys together."""
    return is_part(text.split(" ")[4])


def _is_wait(text: str) -> bool:
    return text.startswith("W ")


def _held(hold: str, text: str, now_ms: int) -> Held:
    _, _, _, since, key, _, amounts, *_ = text.split(" ")
    return Held(hold.rpartition(".")[0], _name(key), _amounts(amounts), max(0.0, (now_ms - int(since)) / 1000))


def _together(holds: Iterable[Held]) -> list[Held]:
    """Return the holds of each session for each key as one."""
    found: dict[tuple[str, str | None], Held] = {}
    for one in holds:
        before = found.get((one.session, one.key), Held(one.session, one.key, {}, 0.0, 0))
        amounts = dict(Counter(before.amounts) + Counter(one.amounts))
        seconds = max(before.seconds, one.seconds)
        found[one.session, one.key] = Held(one.session, one.key, amounts, seconds, before.holds + 1)
    return list(found.values())


def _holders(holds: list[Held], limits: Mapping[str, LimitState], binding: str, key: str | None) -> tuple[Held, ...]:
    """Return the holders that have most of what binds, or, where nothing does, of what is held at once."""
    fullest = max((one for one in limits.values() if one.form == "at_once"), key=lambda one: one.used, default=None)
    name = binding if binding in limits else fullest.name if fullest else ""
    found = _together(one for one in holds if name in one.amounts and key in (None, one.key))
    return tuple(sorted(found, key=lambda one: (-one.amounts[name], -one.seconds))[:TOP])


def _top(
    levels: LimiterLevels, holds: list[Held], line: tuple[Wait, ...], limits: Mapping[str, LimitState], of_keys: str
) -> tuple[KeyUse, ...]:
    own = limits_of(of_keys)
    uses: dict[str | None, KeyUse] = {}
    for encoded, record in levels.records.items():
        use = uses[_name(encoded)] = KeyUse(_name(encoded))
        for name, sign, value, since in _LEVEL.findall(record):
            if sign == ":":
                use.held[name] = int(value)
            elif since and name in own and levels.now_ms - int(since) < _WINDOW_MS.get(own[name].window, 0):
                use.taken[name] = int(value)
            elif not since and name in own and (rate := own[name].rate):
                paid_us = (levels.clock_ms + 1) * 1000  # by the end of the millisecond: there is no finer clock here
                owed = round((int(value) - paid_us) / 1e6 * rate)
                use.taken |= {name: owed} if owed > 0 else {}
        if off := _OFF.search(record):
            use.held_off = max(0.0, (int(off[1]) - levels.clock_ms) / 1000)
    for hold in holds:
        uses.setdefault(hold.key, KeyUse(hold.key)).holds += 1
    waiting = Counter(_name(text.split(" ")[4]) for text in levels.holds.values() if _is_wait(text))
    listed: Counter[str | None] = Counter()
    for wait in line:
        listed[wait.key] += wait.waiting
    for key, number in {**waiting, **listed}.items():
        uses.setdefault(key, KeyUse(key)).waiting = number

    def share(use: KeyUse) -> tuple[float, int, int]:
        amounts = {**use.taken, **use.held}.items()
        most = max((number / limits[name].limit for name, number in amounts if name in limits), default=0.0)
        return most, use.waiting, use.holds

    return tuple(sorted(uses.values(), key=share, reverse=True)[:TOP])

"""The levels of a limiter, as a script tells them; those of its slices are read as those of one limiter."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.core.limiting.pins import is_part
from headgate.core.limits.limit import SHADOW, UNLIMITED

_OFF: Final = "hold_off "


@dataclass(frozen=True, slots=True)
class LimiterLevels:
    """These levels say how much of a limiter's limits is taken, by whom, and who waits, as ``lua/levels.lua`` read it.

    A node of a later version may say more: whatever follows the fields that are known here is left aside.

    Attributes:
        limits: ``<name> <form> <most> <left> <us until whole> <taken> <withheld>`` of each;
            ``hold_off off <ms>`` while it lasts.
        of_key: the same of the key that was asked for.
        keys: how many keys have a record.
        waiting: how many wait.
        records: of some keys: those that hold or wait for something first.
        line: of some keys that wait, the first one's text, the head of the line before the others.
        holds: some holds and waits, with their records; those whose leases end last.
        own: holds of the session that was asked for, with their records, or with texts as ``line`` has them.
        learning_ms: how long it still learns after state may have been lost.
        reason: why it is held off, for people.
        now_ms: of Redis' clock.
        clock_ms: of the limiter's own clock, in which ``records`` count.
        head: ``<us or -> <limit> <all|key> <amounts>`` of the first in line; empty where nobody waits.
        admitted: holds that were admitted so far.
        refused: admissions that were refused, or gave up waiting, so far.
        all_holds: how many holds and waits there are.
        by_band: ``<band> <waiting> <admitted> <shed>`` of those that were named; of band 3 only what was shed.
        shadows: shadow limits, as ``limits``; the names of those that have a level of their own begin with ``S_``.
        of_key_shadows: the same of the key that was asked for.
        would_wait: admissions so far that a shadow limit would have kept waiting, or refused.
        shadowed: ``<limit>:<all|key>:<times>:<most above it>`` of each shadow limit that would have.
        beside: of a whole limiter, ids of holds at other slices than the first: what they have of limits of all keys
            together is held a second time, by a part at the first.
    """

    limits: tuple[str, ...]
    of_key: tuple[str, ...]
    keys: int
    waiting: int
    records: dict[str, str]
    line: tuple[str, ...]
    holds: dict[str, str]
    own: dict[str, str]
    learning_ms: int
    reason: str
    now_ms: int
    clock_ms: int
    head: str
    admitted: int
    refused: int
    all_holds: int
    by_band: tuple[str, ...] = ()
    shadows: tuple[str, ...] = ()
    of_key_shadows: tuple[str, ...] = ()
    would_wait: int = 0
    shadowed: tuple[str, ...] = ()
    beside: frozenset[str] = frozenset()


def levels_together(slices: Sequence[LimiterLevels]) -> LimiterLevels:
    """Return the levels of a whole limiter from those of its slices, the first of them first.

    Limits that bound all keys together are the first slice's, and levels of the others are added up. Of a key the one
    counts that is taken most: its own slice has all of it.
    """
    first = replace(slices[0], records=_without_parts(slices[0].records))
    found = [first, *slices[1:]]
    of_all = _of_all(first)
    busy = sorted((one for one in found if one.line), key=lambda one: _since(one.line[0]))
    return replace(
        first,
        limits=_added([one.limits for one in found], of_all),
        of_key=_most([one.of_key for one in found]),
        keys=sum(one.keys for one in found),
        waiting=sum(one.waiting for one in found),
        records=_records([one.records for one in found]),
        line=(*(one.line[0] for one in busy), *(row for one in busy for row in one.line[1:])),
        holds={name: text for one in found for name, text in one.holds.items()},
        own={name: text for one in found for name, text in one.own.items()},
        learning_ms=max(one.learning_ms for one in found),
        reason=next((one.reason for one in found if one.reason), ""),
        head=busy[0].head if busy else next((one.head for one in found if one.head), ""),
        admitted=sum(one.admitted for one in found),
        refused=sum(one.refused for one in found),
        all_holds=sum(one.all_holds for one in found),
        by_band=_counted((one.by_band for one in found), " "),
        of_key_shadows=_most([one.of_key_shadows for one in found]),
        would_wait=sum(one.would_wait for one in found),
        shadowed=_shadowed(found),
        beside=frozenset(name for one in found[1:] for name in one.holds if of_all),
    )


def _without_parts(records: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in records.items() if not is_part(key)}


def _of_all(first: LimiterLevels) -> frozenset[str]:
    """Return the names of limits of which the first slice knows all that is taken: they bind, or count, all keys."""
    limits = [row.split(" ") for row in first.limits if not row.startswith(_OFF)]
    shadows = {row.split(" ", 1)[0].removeprefix(SHADOW) for row in first.shadows}
    return frozenset(words[0] for words in limits if int(words[2]) < UNLIMITED or words[0] in shadows)


def _since(row: str) -> int:
    words = row.split(" ")
    return int(words[4]) if len(words) > 4 and words[4].isdigit() else 0


def _added(found: Sequence[tuple[str, ...]], of_all: frozenset[str]) -> tuple[str, ...]:
    """Return rows of limits of all keys together: what is taken of those that the first slice does not know whole."""
    rows: dict[str, list[str]] = {}
    for row in (row for rows_of_one in found for row in rows_of_one):
        words = row.split(" ")
        into = rows.setdefault(words[0], words)
        if into is words:
            continue
        if row.startswith(_OFF):
            into[2] = str(max(int(into[2]), int(words[2])))
        elif words[0] not in of_all:
            into[5] = str(int(into[5]) + int(words[5]))
            into[3] = str(int(into[2]) - int(into[5]))
            into[4] = str(max(int(into[4]), int(words[4])))
            into[6] = str(max(int(into[6]), int(words[6])))
    return tuple(" ".join(words) for words in rows.values())


def _most(found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return rows of limits of one key: of each the one with the most taken, or the longest hold-off."""
    rows: dict[str, str] = {}
    for row in (row for rows_of_one in found for row in rows_of_one):
        at = 2 if row.startswith(_OFF) else 5
        name, words = row.split(" ", 1)[0], row.split(" ")
        if name not in rows or int(words[at]) > int(rows[name].split(" ")[at]):
            rows[name] = row
    return tuple(rows.values())


def _records(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return records of keys: what a key holds at several slices is added up, and counted once."""
    records: dict[str, dict[str, str]] = {}
    for key, text in ((key, text) for one in found for key, text in one.items()):
        into = records.setdefault(key, {})
        for entry in filter(None, text.split(";")):
            name, sign, value = (*entry.partition(":"),) if ":" in entry else (*entry.partition("="),)
            if sign == ":" and name[:1] == "A":
                continue  # the other slice says it too
            before = into.get(name)
            is_count = sign == ":" and before is not None
            into[name] = f"{sign}{int(value) + int((before or ':0')[1:])}" if is_count else before or f"{sign}{value}"
    return {key: ";".join(f"{name}{value}" for name, value in entries.items()) for key, entries in records.items()}


def _counted(found: Iterable[tuple[str, ...]], sign: str) -> tuple[str, ...]:
    """Return rows of a name and counts, those of one name added up."""
    rows: dict[str, Counter[int]] = {}
    for row in (row for rows_of_one in found for row in rows_of_one):
        name, *counts = row.split(sign)
        rows.setdefault(name, Counter()).update(dict(enumerate(map(int, counts))))
    return tuple(sign.join([name, *(str(counts[at]) for at in range(len(counts)))]) for name, counts in rows.items())


def _shadowed(found: Sequence[LimiterLevels]) -> tuple[str, ...]:
    rows: dict[str, tuple[int, int]] = {}
    for row in (row for one in found for row in one.shadowed):
        of, times, most = row.rsplit(":", 2)
        before = rows.get(of, (0, 0))
        rows[of] = before[0] + int(times), max(before[1], int(most))
    return tuple(f"{of}:{times}:{most}" for of, (times, most) in rows.items())

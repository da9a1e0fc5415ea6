"""What processes wrote down of their holds, judged without Headgate: never above a limit, in any window of time."""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np

APPLIED_WITHIN: Final = 5.0
"""Seconds within which a settlement is known to Redis."""
_AMOUNT: Final = re.compile(r"(\w+)=(\d+)")


@dataclass
class Seen:
    """A hold as its process knew it.

    Attributes:
        key: for which it was admitted, ``*`` for none.
        asked: not later than Redis admitted it; of one that came out of a slice in hand that was earlier.
        heard: not earlier than that.
        until: when it was surely held at the latest, as far as its process ever knew.
        amounts: what it reserved.
        in_hand: whether it came out of a slice.
        less: when it settled for less, of what, and how much less that was.
    """

    key: str
    asked: float
    heard: float
    until: float
    amounts: dict[str, int]
    in_hand: bool
    less: list[tuple[float, str, int]] = field(default_factory=list)


def read(path: Path) -> list[Seen]:
    """Return all holds that processes wrote down."""
    seen: dict[tuple[str, str], Seen] = {}
    for line in path.read_text().splitlines():
        pid, event, number, *words = line.split(" ")
        if event == "begin":
            asked, heard, until = map(float, words[:3])
            amounts = {name: int(value) for name, value in _AMOUNT.findall(words[5])}
            seen[pid, number] = Seen(words[4], asked, heard, until, amounts, words[3] == "-")
            continue
        one, at = seen[pid, number], float(words[0])
        if event == "until":
            one.until = max(one.until, float(words[1]))
        elif event == "end":
            one.until = min(one.until, at)
        else:
            for name, value in _AMOUNT.findall(words[1]):
                one.less.append((at, name, max(0, one.amounts[name] - int(value))))
    return list(seen.values())


def most_at_once(holds: list[Seen], name: str) -> dict[str, int]:
    """Return the most that was surely held at one time, of all together (``*``) and of each key."""
    steps: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in holds:
        number = one.amounts.get(name, 0)
        if number and one.until > one.heard:
            changes = [(one.heard, number)]
            for at, of, less in one.less:
                if of == name and at < one.until:
                    changes.append((at, -less))
                    number -= less
            changes.append((one.until, -number))
            for whose in {"*", one.key}:
                steps[whose] += changes
    return {whose: max(accumulate(number for _, number in sorted(some))) for whose, some in steps.items()}


def most_beyond(holds: list[Seen], name: str, rate: float) -> dict[str, float]:
    """Return the most that was surely used in a window of time beyond what the rate gives in it, and for whom.

    What was reserved before a window and came back in it may be used again there, and does not count.
    """
    used: dict[str, list[tuple[float, float, int, float, int]]] = defaultdict(list)
    for one in holds:
        if one.amounts.get(name):
            at, back = next(((at, less) for at, of, less in one.less if of == name), (one.heard, 0))
            for whose in {"*", one.key}:
                used[whose].append((one.heard, one.asked, one.amounts[name] - back, at + APPLIED_WITHIN, back))
    return {whose: _beyond(sorted(some), rate) for whose, some in used.items()}


def _beyond(used: list[tuple[float, float, int, float, int]], rate: float) -> float:
    heard, asked, amounts, back_by, back = (np.array(column, dtype=float) for column in zip(*used, strict=True))
    most = 0.0
    for begin in asked:
        first = bisect_left(heard, begin)  # none that was heard before was asked for later
        inside = np.cumsum(np.where(asked[first:] >= begin, amounts[first:], 0.0)) - rate * (heard[first:] - begin)
        most = max(most, float(inside.max()) - float(back[(asked < begin) & (back_by > begin)].sum()))
    return most

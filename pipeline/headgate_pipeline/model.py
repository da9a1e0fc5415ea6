"""One destination as a model: senders that go on when they are let in, consumers of a known capacity, and a limit.

A sender's time stands still while it waits: what it sends after a wait comes later by as long. So a larger limit brings
its messages sooner, and a smaller one later, as with senders that await each send. Consumers take what they took in the
period whenever something was pending then; where nothing was, their mean. Credit that senders hold unused takes room.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
PATIENCE: Final = 20
"""A model goes on for so many times the period; what is not sent by then, never is."""
QUANTILE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Period:
    """What was seen of a destination, in bins of ``step`` ms; all amounts are bytes.

    Attributes:
        step: ms of a bin.
        sends: what each sender sent, by the bin of its own time; a row each.
        published: what all sent, by the bin in which it was let in.
        settled: what left.
        pending: at the end of a bin.
        least: that was pending within the bin.
        idle: credit that senders held unused.
        waited: ms that senders waited, all together.
        began_with: pending before the period.
    """

    step: int
    sends: Array
    published: Array
    settled: Array
    pending: Array
    least: Array
    idle: float
    waited: float
    began_with: float

    @property
    def busy(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """The bins in which something was pending all the time."""
        before = np.concatenate(([self.began_with], self.pending[:-1]))
        return (self.least > 0) & (before > 0)

    @property
    def rate(self) -> float:
        """Bytes that consumers take in a bin when there is something: the mean; or if they never were, the most."""
        busy = self.busy
        if busy.sum() >= 5 and self.settled[busy].sum() > 0:
            return float(self.settled[busy].mean())
        return float(self.settled.max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        waited: ms that senders waited for room, all together.
        peak: the most that was pending, in bytes.
        delay: ms from being let in to being settled, on average by bytes.
        delay_p99: of all but 1 % of the bytes.
        took: ms until all was settled.
        unsent: bytes that were not let in at all.
        levels: pending at the end of each bin.
    """

    waited: float
    peak: float
    delay: float
    delay_p99: float
    took: float
    unsent: float
    levels: Array


def recorded(period: Period) -> Outcome:
    """Return what came of it in fact."""
    return _outcome(
        period, period.published, period.settled, period.pending, period.waited, unsent=0.0, peak=period.pending.max()
    )


def replay(period: Period, limit: float) -> Outcome:
    """Return what would have come of it under another limit of pending and leased bytes."""
    senders, bins = period.sends.shape
    rate, capacity = period.rate, np.where(period.busy, period.settled, period.rate)
    room_for = limit - min(period.idle, limit / 2)
    at = np.zeros(senders, dtype=np.int64)
    left = np.zeros(senders)
    pending, waited = period.began_with, 0.0
    came, went, levels = [], [], []
    everyone = np.arange(senders)
    for now in range(bins * PATIENCE):
        free = at < bins
        sending = free & (left <= 0)
        left[sending] = period.sends[everyone[sending], at[sending]]
        at[sending] += 1
        granted = shared(left, max(0.0, room_for - pending))
        left -= granted
        pending += granted.sum()
        freed = min(pending, capacity[now] if now < bins else rate)
        pending -= freed
        waited += period.step * np.count_nonzero(left > 1e-6)
        left[left <= 1e-6] = 0
        came.append(granted.sum())
        went.append(freed)
        levels.append(pending)
        if now >= bins and pending < 1 and not left.any() and not (at < bins).any():
            break
    unsent = left.sum() + sum(period.sends[n, at[n] :].sum() for n in range(senders))
    peak = max((level + freed for level, freed in zip(levels, went, strict=True)), default=0.0)
    return _outcome(period, np.array(came), np.array(went), np.array(levels), waited, unsent=float(unsent), peak=peak)


def shared(wanted: Array, room: float) -> Array:
    """Return what each gets of the room: what it wants, or where that is too much, none more than who wants more."""
    if wanted.sum() <= room:
        return wanted.copy()
    ordered = np.sort(wanted)
    before = np.cumsum(ordered) - ordered
    levels = (room - before) / np.arange(len(ordered), 0, -1)
    most: float = levels[np.argmax(ordered > levels)]
    return np.minimum(wanted, most)


def _outcome(
    period: Period, came: Array, went: Array, levels: Array, waited: float, *, unsent: float, peak: float
) -> Outcome:
    total_in, total_out = period.began_with + np.cumsum(came), np.cumsum(went)
    settled = total_out[-1] if len(total_out) else 0.0
    delays = np.zeros(1)
    if settled > 0:
        points = (np.arange(1000) + 0.5) / 1000 * settled
        ended = np.searchsorted(total_out, points - 1e-6)
        delays = np.maximum(0, ended - np.searchsorted(total_in, points - 1e-6)) * float(period.step)
    moving = np.flatnonzero(went)
    took = float(moving[-1] + 1) * period.step if len(moving) else 0.0
    p99 = float(np.quantile(delays, QUANTILE))
    return Outcome(waited, float(peak), float(delays.mean()), p99, took, unsent, levels)


def bound(values: Sequence[float] | Array, quantile: float, confidence: float) -> tuple[float, float]:
    """Return a value that the quantile does not exceed, and with which confidence.

    It is the smallest of the values above which the quantile is with at most ``1 - confidence``, whatever their
    distribution is, if they are independent. With too few values it is the largest, and the confidence is lower.

    Args:
        values: that were seen, at least one.
        quantile: between 0 and 1.
        confidence: between 0 and 1.
    """
    ordered, count = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    rank, reached = rank_of(count, quantile, confidence)
    return float(ordered[rank - 1]), reached


def rank_of(count: int, quantile: float, confidence: float) -> tuple[int, float]:
    """Return which of ``count`` values in order bounds a quantile, from 1, and with which confidence it does.

    The chance that at most ``rank - 1`` of them are below the quantile is that of a binomial distribution.
    """
    if count > 20_000:  # as good as exact, and no sum of so many terms
        spread = (count * quantile * (1 - quantile)) ** 0.5
        return min(count, ceil(count * quantile + _normal(confidence) * spread) + 1), confidence
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    at = np.arange(count)
    terms = logs[count] - logs[at] - logs[count - at] + at * np.log(quantile) + (count - at) * np.log1p(-quantile)
    chances = np.cumsum(np.exp(terms))  # of at most 0, 1, ... values below the quantile
    enough = np.flatnonzero(chances >= confidence)
    return (int(enough[0]) + 1, confidence) if len(enough) else (count, float(chances[-1]))


def _normal(confidence: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(confidence)

"""A period is what was observed of a destination, and an outcome is what a replay of it led to.

A quantile has a confidence, too.

:mod:`headgate_pipeline.simulate.flow` replays a period under other rules.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
QUANTILE: Final = 0.99
"""Of a demand, in windows of a second (0.1 s where the period is under a minute)."""
CONFIDENCE: Final = 0.95
_ADDED: Final = ("published", "settled", "pending", "least", "idle", "waited", "began_with")


@dataclass(frozen=True, slots=True)
class Period:
    """A period holds the observations of a destination, in bins of ``step`` ms; all amounts are bytes.

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
        messages: of ``sends``; None where they are not known, and limits in messages do not bind.
        began_ms: time of the first bin.
        consumers: that settled something.
        causes: ms of ``waited``, by what was lacking.
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
    messages: Array | None = None
    began_ms: int = 0
    consumers: int = 0
    causes: Mapping[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """The bins in which something was pending all the time."""
        before = np.concatenate(([self.began_with], self.pending[:-1]))
        return (self.least > 0) & (before > 0)

    @property
    def rate(self) -> float:
        """Bytes that consumers take in a bin while there is something, on average: no more than they could."""
        before = np.concatenate(([self.began_with], self.pending[:-1]))
        some = (before > 0) | (self.pending > 0) | (self.published > 0)
        return float(self.settled[some].mean()) if some.any() else 0.0

    @property
    def capacity(self) -> Array:
        """Bytes that consumers can take in each bin: what they took, and where nothing was left at least the mean."""
        return np.where(self.busy, self.settled, np.maximum(self.settled, self.rate))


def together(parts: Sequence[Period]) -> Period:
    """Return the period of a destination with slices from those of its slices, whose bins are the same.

    A session that sends to several of them is as many senders.
    """
    if len(parts) == 1:
        return parts[0]
    added = {name: sum(getattr(part, name) for part in parts) for name in _ADDED}
    messages = [part.messages for part in parts if part.messages is not None]
    return replace(
        parts[0],
        sends=np.vstack([part.sends for part in parts]),
        messages=np.vstack(messages) if len(messages) == len(parts) else None,
        consumers=max(part.consumers for part in parts),
        causes=dict(sum((Counter(part.causes) for part in parts), Counter[str]())),
        **added,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome says how long the senders of a replay waited and for what, and how much was pending.

    Attributes:
        waited: ms that senders waited for room, all together.
        peak: the most that was pending, in bytes.
        delay: ms from being let in to being settled, on average by bytes.
        delay_p99: of all but 1 % of the bytes.
        took: ms until all was settled.
        unsent: bytes that were not let in at all.
        levels: pending at the end of each bin.
        refused: bytes that found no room and were given up or dropped, as ``when_full`` says.
        causes: ms of ``waited``, by what bound: ``bytes``, ``messages``, ``resume``, ``rate``, ``own rate`` (of a
            sender) or ``pool <name>``; of what happened in fact, as
            :data:`~headgate_pipeline.ledger.events.CAUSES` says.
    """

    waited: float
    peak: float
    delay: float
    delay_p99: float
    took: float
    unsent: float
    levels: Array
    refused: float = 0.0
    causes: Mapping[str, float] = field(default_factory=dict)


def recorded(period: Period) -> Outcome:
    """Return what came of it in fact."""
    flow = (period.published, period.settled, period.pending)
    dropped = max(0.0, float(period.sends.sum() - period.published.sum()))
    peak = float(period.pending.max())
    return outcome(period, *flow, waited=period.waited, peak=peak, refused=dropped, causes=period.causes)


def outcome(
    period: Period,
    came: Array,
    went: Array,
    levels: Array,
    *,
    waited: float,
    peak: float,
    unsent: float = 0.0,
    refused: float = 0.0,
    causes: Mapping[str, float],
) -> Outcome:
    """Return what came of it, from what was let in and what left in each bin, in bytes."""
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
    return Outcome(waited, float(peak), float(delays.mean()), p99, took, unsent, levels, refused, dict(causes))


def bound(values: Sequence[float] | Array, quantile: float, confidence: float) -> tuple[float, float]:
    """Return a value that the quantile does not exceed, and with which confidence (both between 0 and 1).

    It is the smallest of the values above which the quantile is with at most ``1 - confidence``, whatever their
    distribution is, if they are independent. With too few values it is the largest, and the confidence is lower.
    """
    ordered, count = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    rank, reached = rank_of(count, quantile, confidence)
    return float(ordered[rank - 1]), reached


def rank_of(count: int, quantile: float, confidence: float) -> tuple[int, float]:
    """Return which of ``count`` values in order bounds a quantile, from 1, and with which confidence it does.

    The chance that at most ``rank - 1`` of them are below the quantile is that of a binomial distribution.
    """
    if count > 20_000:  # as good as exact, and no sum of that many terms
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

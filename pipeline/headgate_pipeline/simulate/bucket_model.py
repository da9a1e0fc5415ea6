"""A model of a bucket replays a period: tokens are asked for when they were, and waited for under another rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate_pipeline.simulate.model import QUANTILE, Array
from headgate_pipeline.simulate.rules import Bucket


@dataclass(frozen=True, slots=True)
class BucketOutcome:
    """An outcome says how long the tokens of a replay were waited for, and how many were refused.

    Attributes:
        waited: ms until their tokens, of all calls together.
        delay: ms that a token was waited for, on average.
        delay_p99: of all but 1 % of the tokens.
        peak: tokens that were waited for at once, at most.
        took: ms until the last of them.
        refused: tokens.
    """

    waited: float
    delay: float
    delay_p99: float
    peak: float
    took: float
    refused: float


def recorded(ms: Array, taken: Array, refused: Array, tat: Array, bucket: Bucket | None) -> BucketOutcome:
    """Return what came of it in fact; where the rate is not known, no waits are known either.

    Args:
        ms: of each call that took something.
        taken: tokens.
        refused: tokens.
        tat: microseconds of Redis' clock at which all that was taken is paid off.
        bucket: that held.
    """
    waits = np.maximum(0.0, tat / 1000 - bucket.burst / bucket.rate * 1000 - ms) if bucket else np.zeros(len(ms))
    return _outcome(ms, taken, waits, bucket.rate if bucket else 0.0, float(refused.sum()))


def replay(ms: Array, asked: Array, bucket: Bucket | None) -> BucketOutcome:
    """Return the outcome under another rate, if nobody is refused and everybody waits."""
    waits = np.zeros(len(ms))
    if bucket:
        cost, tolerance, tat = 1000 / bucket.rate, bucket.burst * 1000 / bucket.rate, 0.0
        for at, (now, tokens) in enumerate(zip(ms, asked, strict=True)):
            tat = max(tat, now) + tokens * cost
            waits[at] = max(0.0, tat - tolerance - now)
    return _outcome(ms, asked, waits, bucket.rate if bucket else 0.0, 0.0)


def _outcome(ms: Array, tokens: Array, waits: Array, rate: float, refused: float) -> BucketOutcome:
    order = np.argsort(waits)
    so_far = np.cumsum(tokens[order])
    total = float(so_far[-1]) if len(so_far) else 0.0
    p99 = float(waits[order][np.searchsorted(so_far, QUANTILE * total)]) if total else 0.0
    mean = float((waits * tokens).sum() / total) if total else 0.0
    took = float((ms + waits).max() - ms[0] + 1) if len(ms) else 0.0
    return BucketOutcome(float(waits.sum()), mean, p99, float(waits.max(initial=0.0)) * rate / 1000, took, refused)


def arrays(*columns: Sequence[float]) -> tuple[Array, ...]:
    """Return columns as arrays of numbers."""
    return tuple(np.asarray(column, dtype=np.float64) for column in columns)

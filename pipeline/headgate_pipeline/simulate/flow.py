"""A model of destinations has senders that go on once let in, consumers of known capacity, limits and rates.

A sender's time stands still while it waits: what it sends after a wait comes later by as long. So a larger limit brings
its messages sooner, and a smaller one later, as with senders that await each send. Consumers take what they took in the
period whenever something was pending then; where nothing was, their mean. Credit that senders hold unused takes room.
Destinations that share a pool are replayed together; messages of a bin are as large as their mean.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import numpy as np

from headgate_pipeline.simulate.model import Array, Outcome, Period, outcome
from headgate_pipeline.simulate.rules import Bucket, Rules

PATIENCE: Final = 20
"""A model goes on for that many times the period; what is not sent by then, never is."""
_TINY: Final = 1e-6
"""Of a byte: less than that is nothing."""


def replay(period: Period, limit: float) -> Outcome:
    """Return what would have come of a destination under another limit of pending and leased bytes, and no other."""
    if limit == inf:
        return _unlimited(period)
    return replay_all([period], [Rules(limit=limit)])[0]


def replay_all(
    periods: Sequence[Period], rules: Sequence[Rules], pools: Mapping[str, float] | None = None
) -> list[Outcome]:
    """Return what would have come of destinations under other rules.

    Args:
        periods: of bins that are equally long and begin together.
        rules: for each of them.
        pools: bytes of each pool; one that is not among them binds nobody.
    """
    flow = _Flow(periods, rules, pools or {})
    bins = periods[0].sends.shape[1]
    for now in range(bins * PATIENCE):
        if now >= bins and flow.ended():
            break
        flow.step(now)
    return flow.outcomes()


class _Tokens:
    """Tokens of several rate buckets are kept here: what may go in this bin, and what is left of it for the next."""

    def __init__(self, buckets: Sequence[Bucket | None], step: int) -> None:
        self.burst = np.array([bucket.burst if bucket else inf for bucket in buckets])
        self._more = np.array([bucket.rate * step / 1000 if bucket else inf for bucket in buckets])
        self.left = self.burst + self._more
        self.binds = bool(np.isfinite(self._more).any())

    def take(self, amounts: Array) -> None:
        self.left = np.minimum(self.burst, self.left - amounts) + self._more


class _Flow:
    """A flow holds the state of all destinations at a moment: arrays by destination, or by sender."""

    def __init__(self, periods: Sequence[Period], rules: Sequence[Rules], pools: Mapping[str, float]) -> None:
        self.periods, self.rules = periods, rules
        self.bins, self.ms = periods[0].sends.shape[1], periods[0].step
        count = len(periods)
        self.owner = np.repeat(np.arange(count), [len(period.sends) for period in periods])
        self.senders = len(self.owner)
        self.sends = np.vstack([period.sends for period in periods])
        self.sizes = np.vstack([_sizes(period) for period in periods])
        self.capacity = np.vstack([period.capacity for period in periods])
        self.mean = np.array([period.rate for period in periods])
        held = np.array(
            [min(period.idle * rule.idle, rule.limit / 2) for period, rule in zip(periods, rules, strict=True)]
        )
        self.idle = held
        self.limit = np.array([rule.limit for rule in rules]) - held
        mean_sizes = np.array([_mean_size(period) for period in periods])
        limits_m = np.array([rule.limit_m for rule in rules])
        self.limit_m = limits_m - np.minimum(held / mean_sizes, limits_m / 2)
        self.resume = np.array([rule.resume for rule in rules])
        self.resume_m = np.array([rule.resume_m for rule in rules])
        self.patience = np.array([rule.patience for rule in rules])[self.owner]
        self.rate = _Tokens([rule.sends for rule in rules], self.ms)
        self.byte_rate = _Tokens([rule.send_bytes for rule in rules], self.ms)
        self.deliveries = _Tokens([rule.deliveries for rule in rules], self.ms)
        self.takes = np.array([
            rule.each_takes.rate * max(period.consumers, 1) * self.ms / 1000 if rule.each_takes else inf
            for period, rule in zip(periods, rules, strict=True)
        ])  # fmt: skip
        each = [rules[int(owner)] for owner in self.owner]
        self.own = _Tokens([rule.each_sends for rule in each], self.ms)
        self.own_bytes = _Tokens([rule.each_bytes for rule in each], self.ms)
        self.pools = {
            name: (limit, np.array([at for at, rule in enumerate(rules) if name in rule.pools], dtype=np.int64))
            for name, limit in pools.items()
        }
        self.pools = {name: pool for name, pool in self.pools.items() if len(pool[1]) and pool[0] < inf}
        self.at = np.zeros(self.senders, dtype=np.int64)
        self.got = np.zeros(self.senders)
        self.left, self.size, self.age = np.zeros(self.senders), np.ones(self.senders), np.zeros(self.senders)
        self.pending = np.array([float(period.began_with) for period in periods])
        self.pending_m = self.pending / mean_sizes
        self.shut = np.zeros(count, dtype=bool)
        self.waited: list[dict[str, float]] = [{} for _ in periods]
        self.refused = np.zeros(count)
        self.came: list[Array] = []
        self.went: list[Array] = []
        self.levels: list[Array] = []

    def ended(self) -> bool:
        """Nothing is left to send, and nothing is pending."""
        return not (self.pending >= 1).any() and not self.left.any() and not (self.at < self.bins).any()

    def step(self, now: int) -> None:
        """Let a bin pass: send, let in, settle, wait or give up."""
        sending = np.flatnonzero((self.at < self.bins) & (self.left <= 0))
        self.left[sending] = self.sends[sending, self.at[sending]]
        self.size[sending] = self.sizes[sending, self.at[sending]]
        self.age[sending] = self.got[sending] = 0
        self.at[sending] += 1
        granted = self._let_in() if self.left.any() else np.zeros(self.senders)
        self._pay(granted)
        came = self._sum(granted)
        self.pending += came
        self.pending_m += self._sum(granted / self.size)
        went = self._settle(now)
        self.came.append(came)
        self.went.append(went)
        self.levels.append(self.pending.copy())

    def _sum(self, of_senders: Array) -> Array:
        by_owner: Array = np.bincount(self.owner, of_senders, len(self.periods)).astype(np.float64)
        return by_owner

    def _let_in(self) -> Array:
        want = np.minimum(self.left, np.minimum(self.own.left * self.size, self.own_bytes.left))
        wanted, wanted_m = self._sum(want), self._sum(want / self.size)
        mean = np.divide(wanted, wanted_m, out=np.ones(len(wanted)), where=wanted_m > 0)
        with np.errstate(invalid="ignore"):
            rooms = np.stack([
                self.limit - self.pending,
                (self.limit_m - self.pending_m) * mean,
                np.where(self.shut, 0.0, inf),
                self.rate.left * mean,
                self.byte_rate.left,
            ])  # fmt: skip
        binding = rooms.argmin(0)
        room = np.maximum(rooms.min(0), 0.0)
        get = np.minimum(wanted, room)
        pooled: dict[int, str] = {}
        for name, (limit, members) in self.pools.items():
            free = max(0.0, limit - min(self.idle[members].sum(), limit / 2) - self.pending[members].sum())
            less = shared(get[members], free)
            pooled |= dict.fromkeys(members[less < get[members] - _TINY].tolist(), name)
            get[members] = less
        granted: Array = want.copy()
        for at in np.flatnonzero(get < wanted - _TINY):
            of = self.owner == at
            granted[of] = shared(want[of], get[at])
        self.left -= granted
        self.left[self.left <= _TINY] = 0
        self._wait(want, granted, binding, pooled)
        return granted

    def _pay(self, granted: Array) -> None:
        for tokens, amount in ((self.rate, granted / self.size), (self.byte_rate, granted)):
            if tokens.binds:
                tokens.take(self._sum(amount))
        for tokens, amount in ((self.own, granted / self.size), (self.own_bytes, granted)):
            if tokens.binds:
                tokens.take(amount)

    def _wait(self, want: Array, granted: Array, binding: Any, pooled: Mapping[int, str]) -> None:
        """Note who waits and for what; refuse what has waited for room for too long."""
        self.got += granted
        served = self.got >= self.size - _TINY  # a whole message: the next one's time begins
        self.got[served] = 0
        self.age[served] = 0
        waiting = self.left > 0
        own = waiting & (granted >= want - _TINY)  # it sends no faster, whatever room there is
        full = np.zeros(len(self.periods), dtype=bool)
        for of, paced in ((own, True), (waiting & ~own, False)):
            for at in np.unique(self.owner[of]):
                cause = "own rate" if paced else f"pool {pooled[at]}" if at in pooled else _CAUSES[binding[at]]
                self.waited[at][cause] = self.waited[at].get(cause, 0.0) + self.ms * float(
                    (of & (self.owner == at)).sum()
                )
                full[at] |= "rate" not in cause
        self.shut |= full & ((self.pending > self.resume) | (self.pending_m > self.resume_m))
        lacking = waiting & ~own & full[self.owner]
        self.age[lacking] += self.ms
        over = lacking & (self.age > self.patience)
        if over.any():
            gone = np.where(over, np.where(self.patience > 0, np.minimum(self.left, self.size), self.left), 0.0)
            self.left -= gone
            self.refused += self._sum(gone)
            self.age[over] = 0

    def _settle(self, now: int) -> Array:
        some = (self.pending > 0) & (self.pending_m > 0)
        size = np.divide(self.pending, self.pending_m, out=np.ones(len(self.pending)), where=some)
        most = np.minimum(self.capacity[:, now] if now < self.bins else self.mean, self.takes * size)
        went: Array = np.minimum(self.pending, np.minimum(most, self.deliveries.left * size))
        self.pending -= went
        self.pending_m = np.maximum(0.0, self.pending_m - went / size)
        if self.deliveries.binds:
            self.deliveries.take(went / size)
        if self.shut.any():
            self.shut &= (self.pending > self.resume) | (self.pending_m > self.resume_m)
        return went

    def outcomes(self) -> list[Outcome]:
        """Return what came of each destination."""
        came, went, levels = (np.array(rows) for rows in (self.came, self.went, self.levels))
        later = np.arange(self.bins)[None, :] >= self.at[:, None]
        unsent = self._sum(self.left + np.where(later, self.sends, 0.0).sum(1))
        return [
            outcome(
                period, came[:, at], went[:, at], levels[:, at], waited=sum(self.waited[at].values()),
                peak=(levels[:, at] + went[:, at]).max(initial=0.0), unsent=float(unsent[at]),
                refused=float(self.refused[at]), causes=self.waited[at],
            )
            for at, period in enumerate(self.periods)
        ]  # fmt: skip


_CAUSES: Final = ("bytes", "messages", "resume", "rate", "rate")


def _sizes(period: Period) -> Array:
    """Return bytes of a message, on average, of each sender and bin."""
    if period.messages is None:
        return np.full(period.sends.shape, inf)  # none of them counts as a message
    return np.divide(period.sends, period.messages, out=np.ones(period.sends.shape), where=period.messages > 0)


def _mean_size(period: Period) -> float:
    if period.messages is None or not period.messages.sum():
        return inf
    return float(period.sends.sum() / period.messages.sum())


def _unlimited(period: Period) -> Outcome:
    """Return what comes of it when nobody waits: the levels are sums, but where they would be below nothing."""
    came = period.sends.sum(0)
    rest = max(0.0, period.began_with + came.sum())
    more = int(min(PATIENCE * len(came), rest / max(period.rate, _TINY) + 1))
    came = np.concatenate((came, np.zeros(more)))
    capacity = np.concatenate((period.capacity, np.full(more, period.rate)))
    walk = period.began_with + np.cumsum(came - capacity)
    levels = walk - np.minimum(0.0, np.minimum.accumulate(walk))
    ended = max(period.sends.shape[1], len(np.trim_zeros(levels, "b")) + 1)
    came, levels = came[:ended], levels[:ended]
    went = np.concatenate(([period.began_with], levels[:-1])) + came - levels
    return outcome(period, came, went, levels, waited=0.0, peak=float((levels + went).max(initial=0.0)), causes={})


def shared(wanted: Array, room: float) -> Array:
    """Return what each gets of the room: what it wants, or where that is too much, none more than who wants more."""
    if wanted.sum() <= room:
        return wanted.copy()
    ordered = np.sort(wanted)
    before = np.cumsum(ordered) - ordered
    levels = (room - before) / np.arange(len(ordered), 0, -1)
    most: float = levels[np.argmax(ordered > levels)]
    return np.minimum(wanted, most)

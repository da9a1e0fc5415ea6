"""Proves runs of entries as columns, where every equation holds; what it cannot prove is replayed entry by entry.

The equations are those of :mod:`~headgate_pipeline.audit.replay`, on whole columns: counters are the running sums of
what entries add; what a session was granted is the difference of its totals. A run that is proven leaves the replay as
it would be had it stepped through it. An unproven entry is not yet a violation: the replay judges it.
"""

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from headgate_pipeline.audit.columns import (
    DROP,
    FETCHED,
    LEAVE,
    PUBLISH,
    SETTLE,
    SETTLED,
    TAKE,
    Columns,
    Marks,
    Numbers,
    shifted,
)
from headgate_pipeline.audit.credit import Credit
from headgate_pipeline.audit.findings import Finding, Settings
from headgate_pipeline.audit.rates import MOST_PAIRS
from headgate_pipeline.audit.replay import MOST_SETTLED, Replay

SHORT: Final = 100
"""In the time that columns take to begin with, this many entries are replayed one by one."""


class DestinationAudit:
    """An audit of one destination takes batches in and gives findings out."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.replay = Replay(settings)
        self.proven = 0
        """Entries that columns proved."""

    def follow(self, batch: pa.RecordBatch) -> None:
        """Replay entries in order, given as :data:`~headgate_pipeline.audit.findings.ROW` names their columns."""
        columns = Columns(batch)
        odd = np.concatenate([[-1], np.flatnonzero(columns.odd), [columns.count]])
        long = np.flatnonzero(np.diff(odd) > SHORT)
        at = 0
        for first, last in zip((odd[long] + 1).tolist(), odd[long + 1].tolist(), strict=True):
            self._step(columns, at, first)
            self._follow_run(columns, first, last)
            at = last
        self._step(columns, at, columns.count)

    def finish(self) -> list[Finding]:
        """Return all findings; the last is ``audited``."""
        return self.replay.finish()

    def _follow_run(self, columns: Columns, at: int, last: int) -> None:
        """Replay a run. A proof that fails often is not tried often."""
        pace = 1
        while at < last:
            if last - at <= SHORT:
                upto = last
            elif self.replay.unclosed or self.replay.last is None:
                upto = at + 1
            else:
                proven = self._prove(columns, at, last)
                pace = 1 if proven > pace else 2 * pace
                at += proven
                upto = min(last, at + pace)
            self._step(columns, at, upto)
            at = upto

    def _step(self, columns: Columns, first: int, last: int) -> None:
        if first < last:
            for row in columns.rows(first, last):
                self.replay.step(row)

    def _prove(self, columns: Columns, first: int, last: int) -> int:
        """Return how many entries are proven; the replay is after them then."""
        run = _Run(self.replay, columns, first, last)
        proven = run.proven()
        if 0 < proven < last - first:
            run = _Run(self.replay, columns, first, first + proven)
            proven = run.proven()
        if proven:
            run.commit()
            self.proven += proven
        return proven


class _Run:
    """A run holds the entries of a batch from ``first`` to before ``last``, none of them odd.

    Rows are counted from ``first`` on.
    """

    def __init__(self, replay: Replay, columns: Columns, first: int, last: int) -> None:
        self.replay, self.columns, self.first, self.last = replay, columns, first, last
        self.count = last - first
        self.of = {name: column[first:last] for name, column in columns.number.items()}
        self.op = columns.op[first:last]
        self.credit = Credit(replay, columns, first, last)
        self.excused = 0

    def proven(self) -> int:
        """Return how many of the entries hold, from the first on."""
        doubts = (
            self._order(), self._amounts(), self.credit.doubt, self._pending(), self._within_limits(), self._numbered(),
            self._delivered(), self._taken(), self._tried(),
        )  # fmt: skip
        return min(self._first(doubt) for doubt in doubts if doubt is not None)

    def _tried(self) -> Marks:
        """Where there are shadow limits, what they judge is replayed entry by entry."""
        judged: Marks = (self.op == PUBLISH) | (self.op == TAKE)
        return judged if self.replay.tried.is_tried else np.zeros(self.count, bool)

    def _first(self, doubt: Marks) -> int:
        """Return the first row that is marked."""
        at = int(doubt.argmax()) if len(doubt) else 0
        return at if len(doubt) and doubt[at] else self.count

    def _rows(self, rows: Numbers) -> Marks:
        marks = np.zeros(self.count, bool)
        marks[rows] = True
        return marks

    # What is asked of each entry.

    def _order(self) -> Marks:
        """One follows the other, the clock does not go back, and no counter is below zero."""
        of, replay = self.of, self.replay
        doubt: Marks = of["seq"] != np.arange(replay.seq + 1, replay.seq + 1 + self.count)
        doubt |= (of["epoch"] != replay.epoch) | (shifted(of["ms"], replay.ms) > of["ms"])
        return doubt | ((of["pending_bytes"] | of["pending_messages"] | of["leased_bytes"] | of["leased_messages"]) < 0)

    def _amounts(self) -> Marks:
        of, op = self.of, self.op
        size, messages, first = of["bytes"], of["messages"], of["first"]
        doubt: Marks = np.where(
            op == SETTLE, (first < 0) | (first > MOST_SETTLED) | (size < 0) | (messages < 0), first != 0
        )
        doubt &= (op != PUBLISH) & (op != TAKE)
        doubt |= (op > LEAVE) & ((size != 0) | (messages != 0))  # attach, detach, reap
        doubt |= (op == DROP) & ((size < 0) | (messages < 1))
        return doubt

    def _numbered(self) -> Marks:
        """Messages have their numbers once, and none is skipped but where numbers were given anew."""
        replay, sent = self.replay, np.flatnonzero(self.op == PUBLISH)
        doubt, anew = np.zeros(self.count, bool), self._released
        self.next, self.renumbered = replay.next, replay.renumbered or len(anew) > 0
        if not len(sent):
            return doubt
        first = self.of["first"][sent]
        after = first + self.of["messages"][sent]
        begin = (1 if replay.accounts.whole else int(first[0])) if replay.next is None else replay.next
        expected = shifted(after, begin)
        so_far = np.searchsorted(anew, sent, "right")
        may_skip = so_far > np.concatenate([[-1 if replay.renumbered else 0], so_far[:-1]])
        if replay.next is None and may_skip[0]:
            expected[0] = first[0]
        doubt[sent] = (first < expected) | ((first > expected) & ~may_skip)
        self.next, self.renumbered = int(after[-1]), len(anew) > so_far[-1]
        return doubt

    @cached_property
    def _released(self) -> Numbers:
        rows = self.columns.released
        return rows[slice(*np.searchsorted(rows, (self.first, self.last)))] - self.first

    def _pending(self) -> Marks:
        of, replay = self.of, self.replay
        doubt: Marks = np.zeros(self.count, bool)
        unsent: Marks = np.zeros(self.count, bool)
        freed = self.columns.freed
        part = slice(*np.searchsorted(freed.row, (self.first, self.last)))
        for name, before, amount, expired in (
            ("pending_bytes", replay.pending, of["bytes"], freed.bytes),
            ("pending_messages", replay.pending_m, of["messages"], freed.messages),
        ):
            more = of[name] - shifted(of[name], before) + np.where(self.op == SETTLE, amount, 0)
            if part.stop > part.start:
                np.add.at(more, freed.row[part] - self.first, expired[part])
            unsent |= more != 0
            doubt |= more != np.where(self.op == PUBLISH, amount, 0)
        doubt &= (self.op != PUBLISH) | unsent  # a topic without subscriptions keeps nothing
        return doubt

    def _within_limits(self) -> Marks:
        replay, of = self.replay, self.of
        rows, rows_m = self.credit.grown
        if replay.limit is None or replay.limit_m is None:
            return np.zeros(self.count, bool) if replay.limit_asked else self._rows(np.append(rows, rows_m))
        over = rows[of["pending_bytes"][rows] + of["leased_bytes"][rows] > replay.limit]
        over_m = rows_m[of["pending_messages"][rows_m] + of["leased_messages"][rows_m] > replay.limit_m]
        doubt = self._rows(np.append(over, over_m))
        if replay.unbound:
            self.excused = int(doubt.sum())
            return np.zeros(self.count, bool)
        return doubt

    def _delivered(self) -> Marks | None:
        """Nobody settles more than was delivered to the consumers of the subscription."""
        self.in_hand: list[tuple[list[int], Numbers]] = []
        events, taken = self.columns.deliveries, self.replay.taken
        part = slice(*np.searchsorted(events.row, (self.first, self.last)))
        if not taken or part.start == part.stop:
            return None
        row, kind = events.row[part], events.kind[part]
        who = self.columns.who[row]
        of_name: dict[int, int] = {}
        group_of = np.full(len(self.columns.names), -1)
        groups: list[list[int]] = []
        for number in np.flatnonzero(np.bincount(who)).tolist():
            if (hand := taken.get(self.columns.names[number])) is not None:
                if id(hand) not in of_name:
                    of_name[id(hand)] = len(groups)
                    groups.append(hand)
                group_of[number] = of_name[id(hand)]
        bad = np.zeros(len(row), bool)
        sign = np.where(kind == FETCHED, 1, -1)
        for number, hand in enumerate(groups):
            mine = np.flatnonzero(group_of[who] == number)
            size = hand[0] + np.cumsum(sign[mine] * events.bytes[part][mine])
            messages = hand[1] + np.cumsum(sign[mine] * events.messages[part][mine])
            bad[mine] = (kind[mine] == SETTLED) & ((size < 0) | (messages < 0))
            self.in_hand.append((hand, np.array([size[-1], messages[-1]])))
        return self._rows(row[bad] - self.first)

    def _taken(self) -> Marks | None:
        """Check that tokens cost the same time each, as far as entries tell; see `Takes.step`."""
        rows = np.flatnonzero(self.op == TAKE)
        takes = self.replay.takes
        self.takes = rows
        if not len(rows):
            return None
        tokens, refused, tat, ms = (self.of[name][rows] for name in ("bytes", "messages", "first", "ms"))
        if takes.tat is None:
            return self._rows(rows)
        before = shifted(tat, takes.tat)
        most = tat - np.maximum(before, ms * 1000)
        least = tat - np.maximum(before, ms * 1000 + 999) - np.minimum(tokens, MOST_PAIRS)
        rate_least, rate_most = _rate(tokens, most), _rate(tokens, least)
        self.least = np.maximum.accumulate(np.concatenate([[takes.least], rate_least]))
        self.most = np.minimum.accumulate(np.concatenate([[takes.most], rate_most]))
        bad = (tokens < 1) | (refused < 0) | (tat <= before) | (ms < shifted(ms, takes.ms))
        bad |= (rate_least > self.most[:-1]) | (rate_most < self.least[:-1])
        return self._rows(rows[bad])

    # What follows.

    def commit(self) -> None:
        """Leave the replay as it is after these entries."""
        replay, of = self.replay, self.of
        self.credit.commit()
        for hand, now in self.in_hand:
            hand[:] = now.tolist()
        replay.next, replay.renumbered = self.next, self.renumbered
        replay.excused += self.excused
        replay.entries += self.count
        for name in ("seq", "ms", "epoch"):
            setattr(replay, name, int(of[name][-1]))
        replay.pending, replay.pending_m = int(of["pending_bytes"][-1]), int(of["pending_messages"][-1])
        replay.leased, replay.leased_m = int(of["leased_bytes"][-1]), int(of["leased_messages"][-1])
        (replay.last,) = self.columns.rows(self.last - 1, self.last)
        replay.row = replay.last
        self._commit_rates()

    def _commit_rates(self) -> None:
        takes, sends = self.replay.takes, self.replay.sends
        if len(self.takes):
            at = int(self.takes[-1])
            takes.tat, takes.ms = int(self.of["first"][at]), int(self.of["ms"][at])
            takes.least, takes.most = float(self.least[-1]), float(self.most[-1])
            (takes.row,) = self.columns.rows(self.first + at, self.first + at + 1)
        if sends.buckets:
            for at in np.flatnonzero((self.op == PUBLISH) & (self.of["messages"] != 0)).tolist():
                (row,) = self.columns.rows(self.first + at, self.first + at + 1)
                sends.step(row, row[4], row[5])


def _rate(tokens: Numbers, cost: Numbers) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where(cost > 0, tokens * 1e6 / np.where(cost > 0, cost, 1), np.inf)

"""Accounts of sessions are followed over a run of entries, as columns; see :mod:`~headgate_pipeline.audit.proof`."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from headgate_pipeline.audit.accounts import LEFT, RECLAIMED, Account
from headgate_pipeline.audit.columns import (
    END,
    GRANT,
    OPEN,
    RECLAIM,
    RETURN,
    TOTALS,
    USE,
    Columns,
    Marks,
    Numbers,
    shifted,
)
from headgate_pipeline.audit.replay import Replay

UNKNOWN: Final = -(1 << 62)
"""Held by an account from before the period."""


@dataclass(slots=True)
class _Life:
    """A life is an account from its opening, or the run's first entry, to its end, or the last entry."""

    session: str
    granted: int = 0
    granted_m: int = 0
    held: int = 0
    held_m: int = 0
    opened: bool = False
    ended: bool = False


class Credit:
    """`Credit` computes what entries from ``first`` to before ``last`` do to accounts: by session, each life apart.

    A session's grant is the difference of its totals; leased is the sum of what all hold.

    Attributes:
        doubt: the entries that are not proven.
        grown: those that granted bytes, and those that granted messages.
    """

    def __init__(self, replay: Replay, columns: Columns, first: int, last: int) -> None:
        self._accounts = replay.accounts
        acts, names = columns.acts, columns.names
        part = slice(*np.searchsorted(acts.row, (first, last)))
        row, kind, who = acts.row[part] - first, acts.kind[part], acts.who[part]
        over = np.flatnonzero((kind == END) | (kind == RECLAIM))
        self._ended = [(names[who[at]], LEFT if kind[at] == END else RECLAIMED) for at in over.tolist()]
        order = np.argsort(who.astype(np.uint16) if len(names) < 1 << 16 else who, kind="stable")
        who, self._kind = who[order], kind[order]
        opens, self._ends = self._kind == OPEN, (self._kind == END) | (self._kind == RECLAIM)
        begins = np.concatenate([[True], (who[1:] != who[:-1]) | opens[1:] | self._ends[:-1]])[: len(who)]
        self._starts, self._group = np.flatnonzero(begins), np.cumsum(begins) - 1
        self._lasts = np.append(self._starts[1:], len(who))[: len(self._starts)] - 1
        self._lives = [_Life(names[number]) for number in who[self._starts].tolist()]
        self._bad = ~self._known(opens[self._starts], self._ends[self._lasts])[self._group]
        changes = (
            self._follow(acts.bytes[part][order], "granted", "held"),
            self._follow(acts.messages[part][order], "granted_m", "held_m"),
        )
        grants = self._kind == GRANT
        self._bad |= grants & (changes[0] <= 0) & (changes[1] <= 0)
        self.grown: list[Numbers] = [row[order][grants & (change > 0)] for change in changes]
        self.doubt: Marks = np.zeros(last - first, bool)
        self.doubt[row[order][self._bad]] = True
        upto = np.searchsorted(row, np.arange(last - first), "right")
        for change, leased, name in zip(
            changes, (replay.leased, replay.leased_m), ("leased_bytes", "leased_messages"), strict=True
        ):
            so_far = np.empty(len(change) + 1, np.int64)
            so_far[0] = leased
            so_far[order + 1] = change
            self.doubt |= columns.number[name][first:last] != np.cumsum(so_far)[upto]

    def _follow(self, amount: Numbers, granted: str, held: str) -> Numbers:
        """Follow bytes or messages; return what each act adds to what is leased."""
        had, held_before = (
            np.array([getattr(life, name) for life in self._lives], np.int64) for name in (granted, held)
        )
        group, starts, kind = self._group, self._starts, self._kind
        spends = (kind == USE) | (kind == RETURN)
        change = np.where(spends | self._ends, -amount, 0)
        totals = np.flatnonzero((kind == GRANT) | (kind == TOTALS))
        total, of_total = amount[totals], group[totals]
        begins = np.concatenate([[True], of_total[1:] != of_total[:-1]])[: len(totals)]
        change[totals] = total - np.where(begins, had[of_total], shifted(total, 0))
        sums = np.cumsum(change)
        left = sums - (sums[starts] - change[starts])[group] + held_before[group]
        bad = ((spends & (left < 0)) | (self._ends & (left != 0))) & (held_before[group] != UNKNOWN)
        self._bad |= bad | ((kind == GRANT) & (change < 0)) | ((kind == TOTALS) & (change != 0))
        had[of_total] = total  # the last one of each stays
        for life, now, hold, unknown in zip(
            self._lives, had.tolist(), left[self._lasts].tolist(), (held_before == UNKNOWN).tolist(), strict=True
        ):
            setattr(life, granted, now)
            setattr(life, held, UNKNOWN if unknown else hold)
        return change

    def _known(self, opens: Marks, ends: Marks) -> Marks:
        """Take over what is known of each account before its first act here; return whether it is."""
        accounts, known, before = self._accounts, np.zeros(len(self._lives), bool), None
        for at, life in enumerate(self._lives):
            account = accounts.of.get(life.session)
            anew = before is not None and before.session == life.session
            if opens[at]:
                there = not before.ended if before and anew else account and (account.held or account.granted)
                known[at] = not there and not accounts.learning
            elif account is not None and not anew and account.granted is not None and account.granted_m is not None:
                known[at] = not account.doubted
                life.granted, life.granted_m = account.granted, account.granted_m
                life.held = UNKNOWN if account.held is None else account.held
                life.held_m = UNKNOWN if account.held_m is None else account.held_m
            life.opened, life.ended, before = bool(opens[at]), bool(ends[at]), life
        return known & (accounts.granted is None)

    def commit(self) -> None:
        """Leave the accounts as they are after these entries."""
        for session, why in self._ended:
            self._accounts.end(session, why)
        for life in self._lives:
            if not life.ended:
                if life.opened:
                    self._accounts.of[life.session] = Account(0)
                account = self._accounts.of[life.session]
                account.granted, account.granted_m = life.granted, life.granted_m
                if life.held != UNKNOWN:
                    account.held, account.held_m = life.held, life.held_m

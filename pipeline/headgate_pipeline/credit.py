"""The accounts of sessions over a run of entries, as columns; see :mod:`~headgate_pipeline.proof`."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from headgate_pipeline.accounts import LEFT, RECLAIMED, Account
from headgate_pipeline.columns import END, GRANT, OPEN, RECLAIM, RETURN, TOTALS, USE, Columns, Marks, Numbers, shifted
from headgate_pipeline.replay import Replay

UNKNOWN: Final = -(1 << 62)
"""Held by an account from before the period."""


@dataclass(slots=True)
class _Life:
    """An account from its opening, or from the first entry of the run, to its end, or the last one."""

    session: str
    granted: int = 0
    granted_m: int = 0
    held: int = 0
    held_m: int = 0
    opened: bool = False
    ended: bool = False


class Credit:
    """What entries from ``first`` to before ``last`` do to accounts.

    Attributes:
        doubt: the entries that are not proven.
        grown: those that granted bytes, and those that granted messages.
    """

    def __init__(self, replay: Replay, columns: Columns, first: int, last: int) -> None:
        self._replay, self._columns = replay, columns
        self.grown: list[Numbers] = []
        self.doubt = self._doubt(first, last)

    def _doubt(self, first: int, last: int) -> Marks:
        """What each session was granted is the difference of its totals; leased is the sum of what all hold."""
        acts, replay, names, count = self._columns.acts, self._replay, self._columns.names, last - first
        part = slice(*np.searchsorted(acts.row, (first, last)))
        row, kind, who = acts.row[part] - first, acts.kind[part], acts.who[part]
        over = np.flatnonzero((kind == END) | (kind == RECLAIM))
        self._ended = [(names[who[at]], LEFT if kind[at] == END else RECLAIMED) for at in over.tolist()]
        order = np.argsort(who.astype(np.uint16) if len(names) < 1 << 16 else who, kind="stable")
        in_order, kind, who = row[order], kind[order], who[order]
        opens, ends = kind == OPEN, (kind == END) | (kind == RECLAIM)
        others = who[1:] != who[:-1]
        starts = np.flatnonzero(np.concatenate([[True], others | opens[1:] | ends[:-1]])[: len(who)])
        group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(who))))
        lasts = np.append(starts[1:], len(who))[: len(starts)] - 1
        self._lives = [_Life(names[number]) for number in who[starts].tolist()]
        bad = ~self._known(opens[starts], ends[lasts])[group]
        spends = (kind == USE) | (kind == RETURN)
        totals = np.flatnonzero((kind == GRANT) | (kind == TOTALS))
        answered, grown = kind[totals] == TOTALS, np.zeros(len(totals), bool)
        doubt = np.zeros(count, bool)
        upto = np.searchsorted(row, np.arange(count), "right")
        for amount, granted_name, held_name, leased, name in (
            (acts.bytes[part][order], "granted", "held", replay.leased, "leased_bytes"),
            (acts.messages[part][order], "granted_m", "held_m", replay.leased_m, "leased_messages"),
        ):
            before, held_before = (
                np.array([getattr(life, each) for life in self._lives], np.int64) for each in (granted_name, held_name)
            )
            change = np.where(spends | ends, -amount, 0)
            total, of_total = amount[totals], group[totals]
            begins = np.concatenate([[True], of_total[1:] != of_total[:-1]])[: len(totals)]
            more = total - np.where(begins, before[of_total], shifted(total, 0))
            bad[totals] |= (more < 0) | (answered & (more != 0))
            grown |= more > 0
            change[totals] = more
            sums = np.cumsum(change)
            held = sums - (sums[starts] - change[starts])[group] + held_before[group]
            bad |= ((spends & (held < 0)) | (ends & (held != 0))) & (held_before[group] != UNKNOWN)
            self.grown.append(in_order[totals[(more > 0) & ~answered]])
            before[of_total] = total  # the last one of each stays
            for life, granted, left, unknown in zip(
                self._lives, before.tolist(), held[lasts].tolist(), (held_before == UNKNOWN).tolist(), strict=True
            ):
                setattr(life, granted_name, granted)
                setattr(life, held_name, UNKNOWN if unknown else left)
            so_far = np.empty(len(change) + 1, np.int64)
            so_far[0] = leased
            so_far[order + 1] = change
            doubt |= self._columns.number[name][first:last] != np.cumsum(so_far)[upto]
        bad[totals] |= ~answered & ~grown
        doubt[in_order[bad]] = True
        return doubt

    def _known(self, opens: Marks, ends: Marks) -> Marks:
        """Take over what is known of each account before its first act here; return whether it is."""
        accounts, known, before = self._replay.accounts, np.zeros(len(self._lives), bool), None
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
        return known & (accounts.told is None)

    def commit(self) -> None:
        """Leave the accounts as they are after these entries."""
        for session, why in self._ended:
            self._replay.accounts.end(session, why)
        for life in self._lives:
            if not life.ended:
                if life.opened:
                    self._replay.accounts.of[life.session] = Account(0)
                account = self._replay.accounts.of[life.session]
                account.granted, account.granted_m = life.granted, life.granted_m
                if life.held != UNKNOWN:
                    account.held, account.held_m = life.held, life.held_m

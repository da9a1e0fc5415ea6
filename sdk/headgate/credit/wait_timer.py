"""Sees to those who wait at one account when their time comes: one timer, and callbacks where somebody gives up."""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from headgate.core.account.machine import Account
from headgate.core.account.waiters import SILENT, SLOW
from headgate.core.deadlock import Deadlock
from headgate.core.outbox import Outgoing
from headgate.credit.failures import Failures
from headgate.credit.observer import Observer
from headgate.explain.self_wait import CONFIRM_AFTER


class WaitTimer:
    """A wait timer ends waits whose time is over, and gives those who wait the news meanwhile.

    Args:
        account: at which they wait.
        failures: tells them why nothing was stored.
        observer: tells listeners of waits, and finds those that would never end.
        wake: has the account look for a call that is due.
    """

    def __init__(self, account: Account, failures: Failures, observer: Observer, wake: Callable[[], None]) -> None:
        self._account, self._waiters = account, account.waiters
        self._failures, self._observer = failures, observer
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.at = math.inf
        """When the timer is due."""
        self.gave_up: Callable[[Outgoing], None] | None = None
        """Hears of each sender that gives up while it waits for credit, where somebody times waits."""
        observer.listeners.stirs.append(self.stir)

    def expect(self, item: Outgoing) -> None:
        """Have the place of one who waits free as soon as he gives up."""
        for future in (item.done, item.credited):
            if future is not None and (call := getattr(future, "add_done_callback", None)):
                call(self._left if self.gave_up is None else partial(self._timed_left, item))

    def _left(self, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self.left()

    def _timed_left(self, item: Outgoing, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() and self.gave_up is not None and not item.paid:
            self.gave_up(item)
        self._left(future)

    def abandoned(self, item: Outgoing | None) -> None:
        """Note that one of them gave up whose fate is known at once, and not by a future."""
        if item is not None and self.gave_up is not None and not item.paid:
            self.gave_up(item)
        self.left()

    def left(self) -> None:
        """Note that one of them gave up."""
        self._waiters.left()
        self.arrange()
        self._wake()  # the place in line is for others now

    def stir(self) -> None:
        """See to them at once, if anybody waits, or has heard that somebody does."""
        if len(self._waiters.outbox) or self._waiters.announced:
            self._waiters.stir()
            self.arrange()

    def arrange(self) -> None:
        """Set the timer to when somebody's time is over, or a wait is worth telling of."""
        if self._waiters.attend_at < self.at:
            self.at = self._waiters.attend_at
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self.at, self._soon)

    def _soon(self) -> None:
        """Wait for the next turn of the loop: an answer that came in this one is heard before."""
        self._timer = self._loop.call_soon(self._see_to_them)

    def _see_to_them(self) -> None:
        self._timer, self.at = None, math.inf
        now = self._loop.time()
        stuck, silent = (self._account.silent_since(now, slow) is not None for slow in (SLOW, SILENT))
        first = self._waiters.see_to(now, stuck=stuck, silent=silent)
        self.notice(now, first)
        self.arrange()
        self._wake()  # places in line may be for others now

    def notice(self, now: float, first: Outgoing | None) -> None:
        """Tell listeners of a wait that has lasted, or has ended; ``first`` is the first that waits."""
        notices = self._observer.notices
        if first is not None:
            first.since = first.since or now
        notices.look(now, first.since if first else None, lambda: self._failures.why(first) if first else None)
        self._waiters.announced = notices.announced
        if first is not None:
            self._waiters.announce_at(notices.due(first.since))

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = -math.inf  # and set it no more
        if self.stir in self._observer.listeners.stirs:
            self._observer.listeners.stirs.remove(self.stir)

    # Waits that would never end.

    def break_deadlock(self) -> None:
        """See whether the line waits for itself, and fail the newest send of it where the settings say so."""
        now, self_wait = self._loop.time(), self._observer.self_wait
        if self_wait.action == "none" and not (self_wait.suspects or self_wait.deadlock):
            return
        doomed = self._observer.find_deadlock(self._waiters.outbox.waiting)
        if doomed is not None:
            self._doom(doomed, self_wait.deadlock, now)
        if self_wait.suspects:
            self._waiters.look_by(now + CONFIRM_AFTER)
        self.arrange()

    def heed_deadlock(self, wait: str, cycle: str) -> None:
        """Fail a send of which somebody who looks at many sessions found that it is part of a deadlock."""
        item = self._observer.doomed(wait)
        if item is not None:
            self._doom(item, Deadlock.from_dict(json.loads(unquote(cycle))), self._loop.time())

    def _doom(self, item: Outgoing, deadlock: Deadlock | None, now: float) -> None:
        why = self._failures.why(item)
        self._failures.doomed(item, deadlock, replace(why, deadlock=deadlock) if why else None, now)
        self._account.ask()
        self.stir()

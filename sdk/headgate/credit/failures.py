"""Ends waits where nothing was stored, with errors that say why, with their facts. No calls are made here."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from headgate.core.account.machine import Account
from headgate.core.account.waiters import SILENT, SLOW
from headgate.core.deadlock import Deadlock
from headgate.core.outbox import Outgoing
from headgate.credit.confirmations import Confirmations
from headgate.credit.durable_writes import DurableWrites
from headgate.credit.observer import Observer
from headgate.errors import (
    AccessDenied,
    CoordinatorUnavailable,
    CreditTimeout,
    DeadlockDetected,
    DestinationFull,
    HeadgateError,
    MessageTooLarge,
)
from headgate.explain.explainer import unreachable, unsafe
from headgate.explain.model import Explanation
from headgate.message import Receipt
from headgate.spool.overflow import OverflowWriter

_TIMED: Final = frozenset({"held-off", "learning", "send-rate"})
"""Causes of which it is known when they end."""


class Failures:
    """Tells the callers of one account why nothing was stored.

    Args:
        name: the destination's.
        session: the session's id.
        observer: what is known of the destination.
        confirmations: receipts that wait for a channel.

    Attributes:
        account: set before anybody waits.
        gate: whether the destination is a gate, which counts what its callers count.
        trouble: why Redis does not answer; None while it does.
        writer: what writes payloads to a spool store; None where there is none.
        durable_writes: what is not as safe yet as the durability asks; None where none is asked for.
        unserved: hears of each that waited for credit in vain, where somebody times waits.
    """

    account: Account

    def __init__(self, name: str, session: str, observer: Observer, confirmations: Confirmations) -> None:
        self.gate = False
        self.trouble: BaseException | None = None
        self.writer: OverflowWriter | None = None
        self.durable_writes: DurableWrites | None = None
        self.unserved: Callable[[Outgoing, HeadgateError], None] | None = None
        self._name, self._session = name, session
        self._observer = observer
        self._confirmations = confirmations
        self._loop = asyncio.get_running_loop()

    def full(self, item: Outgoing, now: float) -> None:
        """Say that there is no room, or that Redis does not answer."""
        lost = self.account.lost_since is not None
        self._fail(item, self._lost(item, unknown=False) if lost else self._full(item, now))

    def timeout(self, item: Outgoing, now: float) -> None:
        """Say that there was no room in time."""
        if self.account.waiters.how(item).patience is not None and self.account.lost_since is None:
            self._fail(item, self._full(item, now))
            return
        if isinstance(self.trouble, AccessDenied) and self.account.lost_since is not None:
            self._fail(item, self.trouble)
            return
        waited, place = now - (item.since or now), self.account.last.place
        reason, why = self.reason(item), self.why(item)
        self._fail(
            item,
            CreditTimeout(
                self._name, waited, item.size, place=place, reason=reason, explanation=why, gate=self.gate,
                limit=_binding(why) if self.gate else "", retry_after=_retry_after(why), paid=item.paid,
            ),
        )  # fmt: skip

    def lost(self, item: Outgoing, *, unknown: bool) -> None:
        """Say that Redis did not answer in time."""
        tell(item, self._lost(item, unknown=unknown))

    def too_large(self, item: Outgoing, limit: int, pool: str = "") -> None:
        """Say that it can never fit."""
        tell(item, MessageTooLarge(self._name, item.size, limit, pool=pool, gate=self.gate))

    def above_hard(self, item: Outgoing, stored: int, limit: int) -> None:
        """Say that not even the hard limit has room."""
        reason = f"{stored} bytes are stored or promised, and its hard limit is {limit}"
        tell(item, DestinationFull(self._name, item.size, reason, waited=0.0))

    def dropped(self, item: Outgoing) -> None:
        """Give the receipt of a message that is dropped, and count it."""
        self._observer.drop(item.size)
        if item.credited is not None and not item.credited.done():
            item.credited.set_result(None)
        item.done.set_result(Receipt(0, item.size, dropped=True))

    def doomed(self, item: Outgoing, deadlock: Deadlock | None, why: Explanation | None, now: float) -> None:
        """Say that its wait would never end."""
        waited = max(0.0, now - (item.since or now))
        self._fail(
            item,
            DeadlockDetected(self._name, self._session, item.size, waited, deadlock=deadlock, explanation=why),
        )

    def why(self, item: Outgoing) -> Explanation | None:
        """Return why there is no credit for a message, as last seen; None when that is not known."""
        held_up = item.paid and not self.account.waiters.rate_at  # by Redis alone, however short a time
        if (silence := self._silence(SLOW if held_up else math.inf)) is not None:
            return silence
        if self.gate and self.durable_writes is not None and (why := self.durable_writes.reason):
            return unsafe(self._name, self._session, why)
        in_hand = 0 if item.paid else max(0, self.account.credit.in_hand)
        seen = self._observer.why(item.size - in_hand, paid=item.paid, durable=item.durable)
        return seen or self._silence(SILENT)

    def reason(self, item: Outgoing | None = None) -> str:
        """Say why there is no credit, for that message, as far as is known without asking."""
        if (silence := self._silence(math.inf)) is not None:
            return str(self.trouble) if isinstance(self.trouble, AccessDenied) else silence.reason
        if self.writer is not None and self.writer.store and (why := self.writer.reason):
            explanation = self.why(item) if item is not None and self.writer.crowded else None
            return explanation.reason if explanation else why
        if item is not None and (explanation := self.why(item)):
            return explanation.reason
        if self.account.last.place:
            return f"the destination is full; {self.account.last.blocked} session(s) wait"
        return self._confirmations.reason or (self.durable_writes.reason if self.durable_writes is not None else "")

    def _silence(self, slow: float) -> Explanation | None:
        """Return that Redis does not answer, or has not for that many seconds; None where it does."""
        if (since := self.account.silent_since(now := self._loop.time(), slow)) is None:
            return None
        return unreachable(self._name, self._session, now - since, self.trouble)

    def _fail(self, item: Outgoing, error: HeadgateError) -> None:
        if self.unserved is not None and not item.paid and not item.done.done():
            self.unserved(item, error)
        tell(item, error)

    def _full(self, item: Outgoing, now: float) -> HeadgateError:
        waited = max(0.0, now - (item.since or now))
        reason, why = self.reason(item), self.why(item)
        return DestinationFull(self._name, item.size, reason, waited=waited, explanation=why, gate=self.gate)

    def _lost(self, item: Outgoing, *, unknown: bool) -> HeadgateError:
        if isinstance(self.trouble, AccessDenied) and self.account.lost_since is not None:
            return self.trouble
        if unknown:
            why = f" ({reason})" if (reason := self.reason(item)) else ""
            return CoordinatorUnavailable(
                f"no answer about a message to {self._name!r}{why}: it may have been stored; "
                f"send it again only if twice is harmless"
            )
        return CoordinatorUnavailable(f"a message to {self._name!r} was not sent: {self.reason(item) or 'closed'}")


def tell(item: Outgoing, error: HeadgateError) -> None:
    """Fail a message, unless its fate is known."""
    for future in (item.credited, item.done):
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # whoever does not look at it has not lost anything
            if future is item.credited:
                item.done.cancel()


def _binding(why: Explanation | None) -> str:
    """Return the name of the limit of a gate that binds, as its state has it; empty where none is known."""
    if why is not None and why.cause == "held-off":
        return "hold_off"
    return {"bytes": "bytes", "messages": "calls"}[why.binding.unit] if why is not None and why.binding else ""


def _retry_after(why: Explanation | None) -> float | None:
    """Return the seconds after which it goes on by itself; None where that is an estimate, or not known."""
    return why.unblocks_in if why is not None and why.cause in _TIMED else None

"""What those who wait for credit are told in the end: errors that say why, with their facts. No calls are made here."""

import asyncio

from headgate.core.credit import CreditLine
from headgate.core.full import WhenFull
from headgate.core.outbox import Outbox, Outgoing
from headgate.credit.confirmations import Confirming
from headgate.credit.observer import Outlook
from headgate.credit.securing import Securing
from headgate.errors import (
    AccessDenied,
    CoordinatorUnavailable,
    CreditTimeout,
    DestinationFull,
    HeadgateError,
)
from headgate.explain.explainer import unreachable, unsafe
from headgate.explain.model import Explanation
from headgate.redis.keys import Address
from headgate.redis.replies import Credit
from headgate.spool.writer import Writer


class Answers:
    """What is known of one account's credit, in words and errors.

    Args:
        address: the destination.
        session: the session's id.
        credit: the line of credit.
        outlook: what is known of the destination.
    """

    def __init__(self, address: Address, session: str, credit: CreditLine, outlook: Outlook) -> None:
        self.address = address
        self.session = session
        self.credit = credit
        self.outlook = outlook
        self.outbox = Outbox(credit)
        self.confirming = Confirming(outlook)
        self.writer: Writer | None = None
        """What writes payloads to a spool store; None for a gate."""
        self.gate = False
        """Whether the destination is a gate, which counts what its callers count."""
        self.topic = False
        """Whether the destination is a topic."""
        self.securing: Securing | None = None
        """What is stored, or granted, and not as safe yet as the durability asks; None where none is asked for."""
        self.last = Credit("NONE")
        self.lost_since: float | None = None
        self.trouble: BaseException | None = None
        self._loop = asyncio.get_running_loop()

    def _how(self, item: Outgoing) -> WhenFull:
        how = item.when_full or self.outlook.when_full
        return self.writer.when_full if how.spools and self.writer is not None else how

    def _full(self, item: Outgoing, now: float) -> HeadgateError:
        waited = max(0.0, now - (item.since or now))
        return DestinationFull(
            self.address.name,
            item.size,
            self.reason(item),
            waited=waited,
            explanation=self.why(item),
            gate=self.gate,
        )

    def _timeout(self, item: Outgoing, now: float) -> HeadgateError:
        if self._how(item).patience is not None and self.lost_since is None:
            return self._full(item, now)
        return CreditTimeout(
            self.address.name,
            now - (item.since or now),
            item.size,
            place=self.last.place,
            reason=self.reason(item),
            explanation=self.why(item),
            gate=self.gate,
        )

    def why(self, item: Outgoing) -> Explanation | None:
        """Return why there is no credit for a message, as last seen; None when that is not known."""
        if self.lost_since is not None:
            return unreachable(self.address.name, self.session, self._loop.time() - self.lost_since, self.trouble)
        if self.gate and self.securing is not None and (why := self.securing.reason):
            return unsafe(self.address.name, self.session, why)
        return self.outlook.why(item.size if item.paid else item.size - max(0, self.credit.in_hand), paid=item.paid)

    def reason(self, item: Outgoing | None = None) -> str:
        """Say why there is no credit, for that message, as far as is known without asking."""
        if self.lost_since is not None:
            if isinstance(self.trouble, AccessDenied):
                return str(self.trouble)
            return unreachable("", "", self._loop.time() - self.lost_since, self.trouble).reason
        if self.writer is not None and self.writer.store and (why := self.writer.reason):
            explanation = self.why(item) if item is not None and self.writer.crowded else None
            return explanation.reason if explanation else why
        if item is not None and (explanation := self.why(item)):
            return explanation.reason
        if self.last.place:
            return f"the destination is full; {self.last.blocked} session(s) wait"
        return self.confirming.reason or (self.securing.reason if self.securing is not None else "")

    def _lost(self, *, unknown: bool) -> HeadgateError:
        if isinstance(self.trouble, AccessDenied) and self.lost_since is not None:
            return self.trouble
        if unknown:
            return CoordinatorUnavailable(
                f"no answer about a message to {self.address.name!r}: it may have been stored; "
                f"send it again only if twice is harmless"
            )
        return CoordinatorUnavailable(f"a message to {self.address.name!r} was not sent: {self.reason() or 'closed'}")

    @staticmethod
    def _tell(item: Outgoing, error: HeadgateError) -> None:
        for future in (item.credited, item.done):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever does not look at it has not lost anything
                if future is item.credited:
                    item.done.cancel()

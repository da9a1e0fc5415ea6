"""A broker in front of Redis sends through an inflow: the account of its own session, shared by all its clients."""

from collections.abc import Sequence
from typing import cast

from headgate._util.tasks import StepCallbacks
from headgate.core.outbox import Outgoing
from headgate.credit.account import CreditAccount
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.spread_account import SpreadAccount
from headgate.errors import Closed, InvalidValue
from headgate.message import MAX_MESSAGE
from headgate.namespace.defaults import Defaults


def check_stored(size: int, ttl_ms: int | None) -> None:
    """See that a message may be stored so.

    Raises:
        InvalidValue: it is too long, or its ttl cannot be used.
    """
    if size > MAX_MESSAGE:
        raise InvalidValue(f"a message of {size} bytes; at most {MAX_MESSAGE} can be stored")
    if ttl_ms is not None and ttl_ms < 1:
        raise InvalidValue(f"ttl_ms: {ttl_ms!r}; use at least 1 ms")


class Inflow:
    """An inflow takes messages into one destination that are encoded already. Get one from :meth:`Session.inflow`.

    Nothing here waits: the sender learns what became of a message, and reads here how much more there is room for.

    Attributes:
        account: its credit, its line, and what is on its way.
        kind: whether the destination is a queue or a topic.
        rates: messages and bytes a second that each client may send, None for no bound.
    """

    def __init__(
        self, account: CreditAccount | SpreadAccount, requested: RequestedTerms, kind: str, *, rate: float | None
    ) -> None:
        self.account = cast("CreditAccount", account)  # but for their room both are alike
        self._spread = account if isinstance(account, SpreadAccount) else None
        self.kind = kind
        self.rates: tuple[float | None, float | None] = (None, None)
        self._requested = requested
        self._own_rate = rate
        self._closed = False

    def adopt(self, defaults: Defaults) -> None:
        """Go by what the destination's settings say."""
        self.rates = (defaults.rate if self._own_rate is None else self._own_rate, defaults.byte_rate)

    def switch(self, account: SpreadAccount) -> None:
        """Send through that from now on: values say which slice a message goes to."""
        self.account, self._spread = cast("CreditAccount", account), account
        self._requested = account.join(self._requested)

    @property
    def destination(self) -> str:
        """The destination's name."""
        return self.account.address.shown

    def room(self, size: float) -> float | None:
        """Return how many more messages of that many bytes there is room for; None where one would wait for others.

        That is credit in hand, or what a spool store is about to take; without any, a message may still ask for some.
        """
        if self._spread is not None:
            rooms = [self._room_at(account, size) for account in self._spread.accounts]
            known = [room for room in rooms if room is not None]
            return min(known) if len(known) == len(rooms) > 0 and not self._spread.is_unplaced else None
        return self._room_at(self.account, size)

    @staticmethod
    def _room_at(account: CreditAccount, size: float) -> float | None:
        line, outbox = account.credit, account.outbox
        if (outbox.waiting or account.state.exceeded) and account.state.full:
            return None
        room = (line.granted - line.spent) / size
        if account.writer is not None and account.writer.store:
            room = max(room, account.waiters.ahead / size - len(outbox))
        return None if outbox.waiting and room < 1 else room

    @property
    def is_blocked(self) -> bool:
        """Whether messages wait for credit right now."""
        return self.account.wants

    @property
    def steps(self) -> StepCallbacks:
        """Add a callback for messages that may newly be on their way, stored or given up."""
        return self.account.steps

    @property
    def queued(self) -> int:
        """Messages that came and are not known to be stored."""
        return self.account.queued

    @property
    def reason(self) -> str:
        """Why messages wait, as far as that is known without asking; empty when it is not."""
        return self.account.explained()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed or self.account.closed

    def put(self, items: Sequence[Outgoing]) -> None:
        """Put messages without a deadline in line, each seen by :func:`check_stored`; ``paid`` says which have credit.

        The ``done`` of each hears its :class:`Receipt` or its error at once, not a turn of the loop later. Cancelling
        it gives the message up if it has not gone out: say so with :meth:`left`, unless it is a future.

        Raises:
            Closed: it is closed, and has none of them.
        """
        if self.is_closed:
            raise Closed(f"the producer of {self.destination!r} {self.account.why_closed}")
        self.account.submit_all(items)

    def left(self, item: Outgoing | None) -> None:
        """Note that somebody gave up who waited with that, as it was given to :meth:`put`; None where it was not."""
        self.account.left(item)

    def seek(self) -> None:
        """See whether there is room again while :attr:`is_full` and nothing waits; returns at once."""
        self.account.seek()

    def weigh(self, weight: int) -> None:
        """Change its share, from 1 to 1000."""
        self._requested.change(None, weight)

    def confirm(self) -> None:
        """Give at once all receipts that wait for a channel: nobody will wait for them any more."""
        self.account.let_go()

    async def close(self) -> None:
        """Send what has its credit, and give the rest of the credit back; never longer than 1 s."""
        if not self._closed:
            self._closed = True
            await self.account.part()

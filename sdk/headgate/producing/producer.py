"""A producer puts messages into a queue or a topic, and pays with credit."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Final, cast

from headgate._util.keywords import explains
from headgate._util.pacing import Pacing
from headgate.core.due_time import due
from headgate.core.outbox import Outgoing
from headgate.core.when_full import WhenFull
from headgate.credit.account import CreditAccount
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.spread_account import SpreadAccount
from headgate.errors import Closed, CreditTimeout, InvalidValue
from headgate.explain.explainer import own_rate
from headgate.message import Headers, Receipt, encode, with_priority
from headgate.namespace.defaults import Defaults
from headgate.options import read_weight, read_window
from headgate.units import parse_duration, parse_timeout

BYTES_AHEAD: Final = 0.1
"""Seconds' worth of a producer's own rate in bytes that may go at once."""
Asked = tuple[
    bytes | str, Headers | None, float | str | None, float | str | None, datetime | float | None, float | str | None
]
"""The body, headers, timeout, ttl, at and delay of a message that is to be sent."""


class Producer:
    """A producer sends to one destination. Get one from :meth:`Session.producer`; close it, or its session.

    All sends of one turn of the event loop go to Redis together; a send with credit in hand waits for nobody else.
    """

    def __init__(
        self,
        account: CreditAccount | SpreadAccount,
        requested: RequestedTerms,
        *,
        timeout: float | None,
        rate: float | None,
        when_full: WhenFull | None = None,
    ) -> None:
        self._account = cast("CreditAccount", account)  # for a producer both are alike
        self._requested = requested
        self._when_full = when_full
        self._own_timeout, self._own_rate = timeout, rate
        self._pacing, self._byte_pacing = Pacing(), Pacing(ahead=BYTES_AHEAD)
        self.adopt(Defaults())
        self._loop = asyncio.get_running_loop()
        self._future, self._time = self._loop.create_future, self._loop.time
        self._credited = self._future()
        """Of all posts that have their credit at once."""
        self._credited.set_result(None)
        self._closed = False

    def __repr__(self) -> str:
        return f"Producer({self.destination!r}, {'closed' if self._closed else f'{self.in_hand} bytes in hand'})"

    def adopt(self, defaults: Defaults) -> None:
        """Go by what the destination's settings say, but for what the producer was opened with."""
        self._timeout = defaults.timeout if self._own_timeout is None else self._own_timeout
        self._pacing.set(defaults.rate if self._own_rate is None else self._own_rate)
        self._byte_pacing.set(defaults.byte_rate)

    def switch(self, account: SpreadAccount) -> None:
        """Send through that from now on: values say which slice a message goes to."""
        self._account, self._requested = cast("CreditAccount", account), account.join(self._requested)

    @property
    def destination(self) -> str:
        """The destination's name."""
        return self._account.address.shown

    @property
    def in_hand(self) -> int:
        """Bytes that can be sent without asking."""
        return self._account.in_hand

    @property
    def resumed(self) -> int:
        """How many messages earlier sessions of the same name and key have stored; see :meth:`Client.session`."""
        return self._account.resumed

    @property
    def is_blocked(self) -> bool:
        """Whether sends wait for credit right now."""
        return self._account.wants

    @property
    def reason(self) -> str:
        """Why sends wait, as far as that is known without asking; empty when it is not."""
        return self._account.explained()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed or self._account.closed

    async def send(
        self,
        body: bytes | str,
        *,
        headers: Headers | None = None,
        timeout: float | str | None = None,
        ttl: float | str | None = None,
        at: datetime | float | None = None,
        delay: float | str | None = None,
        priority: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is stored, or dropped where ``when_full`` says so.

        Args:
            body: bytes, or text that arrives as text.
            headers: names and values that travel with it.
            timeout: seconds to wait, or ``"unlimited"``; the producer's own (30 s unless set) when None. A message that
                has its room goes at once, and its answer has half a second, however short that is.
            ttl: seconds after it is stored at which it expires unless it is settled; the destination's
                ``message_ttl`` when None or when that is shorter. It runs while the message waits for its time too.
            at: the moment before which it is not delivered, by Redis' clock: a datetime with a time zone, or seconds
                since 1970, at most 366 days ahead. In the past it is delivered as any other.
            delay: seconds after it is stored before which it is not delivered, at most 366 days; in place of ``at``.
            priority: 0 to 9, by which a queue with ``fair_by = "priority"`` delivers; 4 when None.

        Raises:
            CreditTimeout: there was no room in time; nothing was sent.
            DestinationFull: there was no room, and ``when_full`` says ``fail``, or ``fail-after`` and that is over.
            DeadlockDetected: who could make room waits for this send, and ``deadlock`` says ``fail``; nothing was sent.
            MessageTooLarge: it can never fit.
            NotDurable: it is stored, and was not as safe in time as its durability asks; do not send it again.
            CoordinatorUnavailable: Redis did not answer in time; the text says whether it may be stored all the same.
            InvalidValue: the body or a header cannot be stored, or an argument cannot be used.
            Closed: the producer is closed.
        """
        if priority is not None:
            headers = with_priority(headers, priority)
        item = self._item(body, headers, timeout, ttl, at, delay)
        if self._pacing.rate is not None or self._byte_pacing.rate is not None:
            await self._pace(item)
        account = self._account
        if account.submit(item, tells=True):
            receipt: Receipt = await item.done
            return receipt
        account.awaits(item)
        try:
            receipt = await item.done
        except asyncio.CancelledError:
            account.left(item)
            raise
        return receipt

    async def post(
        self,
        body: bytes | str,
        *,
        headers: Headers | None = None,
        timeout: float | str | None = None,
        ttl: float | str | None = None,
        at: datetime | float | None = None,
        delay: float | str | None = None,
        priority: int | None = None,
    ) -> Awaitable[Receipt]:
        """Send a message and wait for its credit only; awaiting what is returned waits until it is stored.

        At most the producer's window of bytes is on its way at a time. Arguments and errors are those of :meth:`send`.
        """
        if priority is not None:
            headers = with_priority(headers, priority)
        item = await self._paid(body, headers, timeout, ttl, at, delay)
        done: Awaitable[Receipt] = item.done
        return done

    @explains("producer")
    def configure(self, *, window: int | str | None = None, weight: int | None = None) -> Awaitable[None]:
        """Change the window, the weight or both, effective at once: what is in hand above the window goes back.

        Producers of one session at one destination share their credit; the largest window and weight of them hold.

        Args:
            window: bytes of credit to keep in hand; as it is when None.
            weight: its share, 1 to 1000; as it is when None.

        Returns:
            What can be awaited, as that of :meth:`Consumer.configure`, and need not be: it is done.

        Raises:
            InvalidValue: not a window or a weight; nothing was changed.
            Closed: the producer is closed.
        """
        if self._closed or self._account.closed:
            raise self._ended()
        self._requested.change(read_window(window), read_weight(weight))
        done: asyncio.Future[None] = self._future()
        done.set_result(None)
        return done

    async def close(self) -> None:
        """Send what has its credit, give the rest of the credit back; never flow-controlled, never longer than 1 s."""
        if not self._closed:
            self._closed = True
            await self._account.part()

    def _item(
        self,
        body: bytes | str,
        headers: Headers | None,
        timeout: float | str | None,
        ttl: float | str | None,
        at: datetime | float | None,
        delay: float | str | None,
    ) -> Outgoing:
        if self._closed or self._account.closed:
            raise self._ended()
        later = due(at, delay, time.time) if at is not None or delay is not None else ""
        payload = encode(body, headers)
        patience = self._timeout if timeout is None else parse_timeout(timeout)
        ttl_ms = None if ttl is None else int(parse_duration(ttl, "ttl") * 1000)
        if ttl_ms == 0:
            raise InvalidValue(f"ttl: {ttl!r}; use at least 1 ms")
        done: Any = self._future()
        now = self._time()
        item = Outgoing(payload, len(payload), now + patience, done, ttl_ms, self._when_full, None, now)
        if later:
            item.later = later
        return item

    def _ended(self) -> Closed:
        return Closed(f"the producer of {self.destination!r} {self._account.why_closed}")

    async def _paid(self, *asked: *Asked) -> Outgoing:
        """Put a message in line and wait for its credit."""
        item = self._item(*asked)
        if self._pacing.rate is not None or self._byte_pacing.rate is not None:
            await self._pace(item)
        account = self._account
        if account.submit(item, tells=True):
            item.credited = self._credited
            return item
        item.credited = self._future()
        account.awaits(item)
        try:
            await item.credited
        except asyncio.CancelledError:
            account.left(item)
            raise
        return item

    async def _pace(self, item: Outgoing) -> None:
        """Wait for the turn of a message under the producer's own rates."""
        for pacing, amount in ((self._pacing, 1), (self._byte_pacing, item.size)):
            if pacing.rate is not None:
                patience = item.deadline - self._time()
                if delay := await pacing.turn(amount, patience=patience):
                    why = own_rate(self.destination, self._account.session, delay, pacing.rate)
                    raise CreditTimeout(self.destination, 0.0, item.size, reason=why.reason, explanation=why)

"""Producers: messages into a queue or a topic, paid with credit."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from headgate.account import CreditAccount
from headgate.core.outbox import Outgoing
from headgate.defaults import Defaults
from headgate.errors import Closed, CreditTimeout, InvalidValue
from headgate.message import Headers, Receipt, encode
from headgate.pacing import Pacing
from headgate.units import parse_duration

BYTES_AHEAD: Final = 0.1
"""Seconds' worth of a producer's own rate in bytes that may go at once."""


class Producer:
    """Sends to one destination. Get one from :meth:`Session.producer`; close it, or its session.

    All sends of one turn of the event loop go to Redis together; a send with credit in hand waits for nobody else.
    """

    def __init__(self, account: CreditAccount, *, timeout: float | None, rate: float | None) -> None:
        self._account = account
        self._said_timeout, self._said_rate = timeout, rate
        self._pacing, self._byte_pacing = Pacing(), Pacing(ahead=BYTES_AHEAD)
        self.adopt(Defaults())
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def __repr__(self) -> str:
        return f"Producer({self.destination!r}, {'closed' if self._closed else f'{self.in_hand} bytes in hand'})"

    def adopt(self, defaults: Defaults) -> None:
        """Go by what the destination's settings say, but for what the producer was opened with."""
        self._timeout = defaults.timeout if self._said_timeout is None else self._said_timeout
        self._pacing.set(defaults.rate if self._said_rate is None else self._said_rate)
        self._byte_pacing.set(defaults.byte_rate)

    @property
    def destination(self) -> str:
        """The destination's name."""
        return self._account.address.name

    @property
    def in_hand(self) -> int:
        """Bytes that can be sent without asking."""
        return self._account.credit.in_hand

    @property
    def is_blocked(self) -> bool:
        """Whether sends wait for credit right now."""
        return self._account.wants

    async def send(
        self,
        body: bytes | str,
        *,
        headers: Headers | None = None,
        timeout: float | str | None = None,
        ttl: float | str | None = None,
    ) -> Receipt:
        """Send a message and wait until it is stored.

        Args:
            body: bytes, or text that arrives as text.
            headers: names and values that travel with it.
            timeout: seconds to wait; the producer's own (30 s unless set) when None.
            ttl: seconds after it is stored at which it expires unless it is settled; the destination's
                ``message_ttl`` when None or when that is shorter.

        Raises:
            CreditTimeout: there was no room in time; nothing was sent.
            MessageTooLarge: it can never fit.
            CoordinatorUnavailable: Redis did not answer in time; the text says whether it may be stored all the same.
            InvalidValue: the body or a header cannot be stored, or an argument cannot be used.
            Closed: the producer is closed.
        """
        item, _ = await self._submit(body, headers, timeout, ttl)
        receipt: Receipt = await item.done
        return receipt

    async def post(
        self,
        body: bytes | str,
        *,
        headers: Headers | None = None,
        timeout: float | str | None = None,
        ttl: float | str | None = None,
    ) -> Awaitable[Receipt]:
        """Send a message and wait for its credit only; awaiting what is returned waits until it is stored.

        At most the producer's window of bytes is on its way at a time. Arguments and errors are those of :meth:`send`.
        """
        item, paid = await self._submit(body, headers, timeout, ttl, credited=True)
        if not paid:
            await item.credited
        done: Awaitable[Receipt] = item.done
        return done

    async def close(self) -> None:
        """Send what has its credit, give the rest of the credit back; never flow-controlled, never longer than 1 s."""
        if not self._closed:
            self._closed = True
            await self._account.part()

    async def _submit(
        self,
        body: bytes | str,
        headers: Headers | None,
        timeout: float | str | None,
        ttl: float | str | None,
        *,
        credited: bool = False,
    ) -> tuple[Outgoing, bool]:
        if self._closed or self._account.closed:
            raise Closed(f"the producer of {self.destination!r} is closed")
        payload = encode(body, headers)
        loop = self._loop
        patience = self._timeout if timeout is None else parse_duration(timeout, "timeout")
        ttl_ms = None if ttl is None else int(parse_duration(ttl, "ttl") * 1000)
        if ttl_ms == 0:
            raise InvalidValue(f"ttl: {ttl!r}; use at least 1 ms")
        now = loop.time()
        for pacing, amount in ((self._pacing, 1), (self._byte_pacing, len(payload))):
            if pacing.rate is not None and (delay := await pacing.turn(amount, patience=now + patience - loop.time())):
                raise CreditTimeout(
                    self.destination, 0.0, len(payload), reason=f"its own rate allows it in {delay:.3g} s"
                )
        done: Any = loop.create_future()
        item = Outgoing(payload, len(payload), now + patience, done, ttl_ms=ttl_ms)
        if credited:
            item.credited = loop.create_future()
        paid = self._account.submit(item)
        if paid and credited:
            item.credited.set_result(None)
        return item, paid

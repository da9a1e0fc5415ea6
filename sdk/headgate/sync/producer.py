"""A producer for threads sends without ``await``."""

import concurrent.futures
import math
from datetime import datetime

import headgate.producing.producer
from headgate._util.inner_property import InnerProperty
from headgate.errors import CoordinatorUnavailable
from headgate.message import Headers, Receipt, with_priority
from headgate.producing.producer import Asked
from headgate.sync.faces import Face, blocking
from headgate.units import parse_timeout


class PendingReceipt:
    """A pending receipt is the result of :meth:`Producer.post`: its message has its credit and is on its way."""

    __slots__ = ("_destination", "_future")

    def __init__(self, destination: str, future: "concurrent.futures.Future[Receipt]") -> None:
        self._destination = destination
        self._future = future

    def __repr__(self) -> str:
        return f"PendingReceipt({self._destination!r}, {'done' if self.done() else 'on its way'})"

    def done(self) -> bool:
        """Return whether :meth:`result` would return, or raise, at once."""
        return self._future.done()

    def result(self, timeout: float | str | None = None) -> Receipt:
        """Wait until the message is stored.

        Args:
            timeout: seconds to wait here; None, or ``"unlimited"``, waits as long as the message itself was given.

        Raises:
            CoordinatorUnavailable: not stored in time; it may be stored all the same.
            CreditTimeout, Closed: it was not stored.
        """
        patience = math.inf if timeout is None else parse_timeout(timeout)
        try:
            return self._future.result(None if patience == math.inf else patience)
        except concurrent.futures.TimeoutError as error:
            if self._future.done():
                raise
            raise CoordinatorUnavailable(
                f"a message to {self._destination!r} is not confirmed yet; ask again, it is still on its way"
            ) from error


class Producer(Face[headgate.producing.producer.Producer]):
    """This is :class:`headgate.Producer` for threads. Get one from :meth:`Session.producer`."""

    destination = InnerProperty(headgate.producing.producer.Producer.destination)
    in_hand = InnerProperty(headgate.producing.producer.Producer.in_hand)
    resumed = InnerProperty(headgate.producing.producer.Producer.resumed)
    is_blocked = InnerProperty(headgate.producing.producer.Producer.is_blocked)
    send = blocking(headgate.producing.producer.Producer.send)

    def post(
        self,
        body: bytes | str,
        *,
        headers: Headers | None = None,
        timeout: float | str | None = None,
        ttl: float | str | None = None,
        at: datetime | float | None = None,
        delay: float | str | None = None,
        priority: int | None = None,
    ) -> PendingReceipt:
        """Send a message and wait for its credit only; ``.result()`` of what is returned waits until it is stored."""
        if priority is not None:
            headers = with_priority(headers, priority)
        return self._thread.run(self._post(body, headers, timeout, ttl, at, delay))

    def configure(self, *, window: int | str | None = None, weight: int | None = None) -> None:
        """Change the window, the weight or both; arguments and errors as :meth:`headgate.Producer.configure`."""
        self._thread.run(self._configure(window, weight))

    def close(self) -> None:
        """Send what has its credit, give the rest of the credit back; never longer than 1 s."""
        self._thread.finish(self._inner.close())

    async def _configure(self, window: int | str | None, weight: int | None) -> None:
        self._inner.configure(window=window, weight=weight)

    async def _post(self, *asked: *Asked) -> PendingReceipt:
        item = await self._inner._paid(*asked)  # noqa: SLF001 -- one producer, for threads
        return PendingReceipt(self.destination, self._thread.future(item.done))

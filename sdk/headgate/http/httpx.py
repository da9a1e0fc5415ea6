"""A transport makes httpx's requests wait for a limit."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

from headgate._util.extras import extra
from headgate.charge import Charge, Cost, Held, Key, Settle, Source, SyncCharge, SyncSource, Timeout, answered, failed
from headgate.http.fields import read_retry_after

with extra("httpx"):
    import httpx


class _Body(httpx.AsyncByteStream):
    """A body releases what its request held when it ends or is closed."""

    def __init__(self, inner: httpx.AsyncByteStream, held: Held) -> None:
        self._inner, self._held = inner, held

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._inner:
                yield part
        finally:
            self._held.release()

    async def aclose(self) -> None:
        self._held.release()
        await self._inner.aclose()


class _SyncBody(httpx.SyncByteStream):
    """A body releases what its request held when it ends or is closed."""

    def __init__(self, inner: httpx.SyncByteStream, held: Held) -> None:
        self._inner, self._held = inner, held

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._inner
        finally:
            self._held.release()

    def close(self) -> None:
        self._held.release()
        self._inner.close()


class AsyncLimitedTransport(httpx.AsyncBaseTransport):
    """``httpx.AsyncClient(transport=AsyncLimitedTransport(limiter, requests=1))``: its requests wait to be admitted.

    Args:
        on: a limiter, gate or bucket, or what returns it when a request comes.
        inner: sends the requests; httpx's own when None.
        key: for whom; or what returns it, of the ``httpx.Request``.
        timeout: seconds to wait, or what returns them as for ``key``; the limiter's own when None.
        settle: returns the amounts that were used, of the ``httpx.Response``, whose body is not read yet.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the request.

    Raises:
        InvalidValue: such a thing has no such amounts. Requests raise the errors of :meth:`headgate.Limiter.admit`.
    """

    def __init__(
        self, on: Source | Callable[[], Source], *, inner: httpx.AsyncBaseTransport | None = None, key: Key = None,
        timeout: Timeout = None, settle: Settle | None = None, **cost: Cost,
    ) -> None:  # fmt: skip
        self._charge = Charge(on, key=key, timeout=timeout, settle=settle, **cost)
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it once it is admitted."""
        held = await self._charge.admit(request)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            failed(held, error, httpx.TimeoutException)
            raise
        answered(held, response.status_code)
        response.stream = _Body(cast("httpx.AsyncByteStream", response.stream), self._charge.keep(held))
        try:
            seconds = read_retry_after(response.status_code, response.headers.get("retry-after"))
            if seconds is not None:
                await self._charge.hold_off(seconds, f"{response.status_code} of {request.url.host}", request)
            self._charge.settled(held, response)
        except BaseException:
            await response.aclose()  # nobody else can, and what it held goes back with it
            raise
        return response

    async def aclose(self) -> None:
        """Close what sends."""
        await self._inner.aclose()


class LimitedTransport(httpx.BaseTransport):
    """Limits blocking requests: ``httpx.Client(transport=LimitedTransport(limiter, requests=1))``.

    The limiter, gate or bucket is one of :mod:`headgate.sync`.
    """

    def __init__(
        self, on: SyncSource | Callable[[], SyncSource], *, inner: httpx.BaseTransport | None = None, key: Key = None,
        timeout: Timeout = None, settle: Settle | None = None, **cost: Cost,
    ) -> None:  # fmt: skip
        self._charge = SyncCharge(on, key=key, timeout=timeout, settle=settle, **cost)
        self._inner = inner or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it once it is admitted."""
        held = self._charge.admit(request)
        try:
            response = self._inner.handle_request(request)
        except BaseException as error:
            failed(held, error, httpx.TimeoutException)
            raise
        answered(held, response.status_code)
        response.stream = _SyncBody(cast("httpx.SyncByteStream", response.stream), self._charge.keep(held))
        try:
            seconds = read_retry_after(response.status_code, response.headers.get("retry-after"))
            if seconds is not None:
                self._charge.hold_off(seconds, f"{response.status_code} of {request.url.host}", request)
            self._charge.settled(held, response)
        except BaseException:
            response.close()  # nobody else can, and what it held goes back with it
            raise
        return response

    def close(self) -> None:
        """Close what sends."""
        self._inner.close()

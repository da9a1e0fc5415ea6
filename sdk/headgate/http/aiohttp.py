"""A client middleware for aiohttp: requests that wait for a limit."""

from collections.abc import Callable

from headgate._util.extras import extra
from headgate.charge import Charge, Cost, Key, Settle, Source, Timeout, answered, failed
from headgate.http.fields import read_retry_after

with extra("aiohttp"):
    from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse


def limited(
    on: Source | Callable[[], Source], *, key: Key = None, timeout: Timeout = None,
    settle: Settle | None = None, **cost: Cost,
) -> ClientMiddlewareType:  # fmt: skip
    """Return a middleware: ``aiohttp.ClientSession(middlewares=[limited(limiter, requests=1)])``.

    Args:
        on: a limiter, gate or bucket, or what returns it when a request comes.
        key: for whom; or what returns it, of the ``aiohttp.ClientRequest``.
        timeout: seconds to wait, or what returns them as for ``key``; the limiter's own when None.
        settle: returns the amounts that were used, of the ``aiohttp.ClientResponse``, whose body is not read yet.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the request.

    Raises:
        InvalidValue: such a thing has no such amounts. Requests raise the errors of :meth:`headgate.Limiter.admit`.
    """
    charge = Charge(on, key=key, timeout=timeout, settle=settle, **cost)

    async def send(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        held = await charge.admit(request)
        try:
            response = await handler(request)
        except BaseException as error:
            failed(held, error)
            raise
        answered(held, response.status)
        try:
            seconds = read_retry_after(response.status, response.headers.get("Retry-After"))
            if seconds is not None:
                await charge.hold_off(seconds, f"{response.status} of {request.url.host}", request)
            charge.settled(held, response)
        except BaseException:
            response.close()  # nobody else can
            held.release()
            raise
        if response.connection is None:  # the body was so short that it is here
            held.release()
        else:
            response.connection.add_callback(held.release)
        return response

    return send

"""A client middleware makes aiohttp's requests wait for a limit."""

import functools
from collections.abc import Callable
from typing import Any

from headgate._util.extras import extra
from headgate.charge import Charge, Cost, Kept, Key, Settle, Source, Timeout, answered, failed
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
            return response
        response.connection.add_callback(held.release)
        return _second_self(response, charge.keep(held))

    return send


def _second_self(response: ClientResponse, kept: Kept) -> ClientResponse:
    """Return an answer with the same state that is garbage once nobody has it; its connection keeps the first one."""
    kind: Any = type(response)
    second: Any = object.__new__(_forgettable(kind))
    second.__dict__ = response.__dict__
    second.first, second.kept = response, kept  # not in what they share
    answer: ClientResponse = second
    return answer


@functools.cache
def _forgettable(kind: Any) -> Any:
    """Return a class of answers whose end leaves the connection to the first self."""
    members = {"__module__": kind.__module__, "__slots__": ("first", "kept"), "__del__": lambda _: None}
    return type(kind.__name__, (kind,), members)

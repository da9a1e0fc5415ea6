"""A FastAPI dependency puts single routes under a limit."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from headgate._util.extras import extra
from headgate.charge import Charge, Cost, Held, Key, Source, Timeout, answered
from headgate.http.admission import RequestRefused
from headgate.http.admission import admitted as admit
from headgate.http.asgi import WaitingRequest

with extra("fastapi"):
    from fastapi import HTTPException, Request

GONE: Final = 499
"""Status of an answer that nobody reads."""


def admitted(
    on: Source | Callable[[], Source], *, key: Key = None, timeout: Timeout = 0, **cost: Cost
) -> Callable[[Request], AsyncIterator[Held]]:
    """Return a dependency: ``Depends(admitted(lambda: limiter, requests=1))`` is held until the answer has ended.

    Args:
        on: a limiter, gate or bucket, or what returns it when a request comes.
        key: for whom; or what returns it, of the ``fastapi.Request``.
        timeout: seconds that a request may stand in line, or what returns them, of the request; it leaves the line when
            its client hangs up, and when its headers say that its caller waits no longer; 0 refuses at once.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the request.

    Raises:
        InvalidValue: such a thing has no such amounts. Requests that are not admitted get an ``HTTPException``.
    """
    charge = Charge(on, key=key, timeout=timeout, settle=None, **cost)

    async def hold(request: Request) -> AsyncIterator[Held]:
        line = WaitingRequest(request._receive)  # noqa: SLF001 -- else what is heard meanwhile is lost for the route
        try:
            held = await (line.stand(admit(charge, request)) if timeout else admit(charge, request))
        except RequestRefused as refusal:
            raise HTTPException(refusal.code, refusal.title, refusal.headers) from refusal
        finally:
            line.leave()
        request._receive = line.receive  # noqa: SLF001 -- as above
        if held is None:
            raise HTTPException(GONE, "the client hung up while it stood in line")
        try:
            yield held
        except BaseException as error:
            answered(held, error.status_code if isinstance(error, HTTPException) else 500)
            raise
        finally:
            held.release()

    return hold

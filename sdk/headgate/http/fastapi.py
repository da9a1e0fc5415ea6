"""A dependency for FastAPI: single routes that a limit protects."""

from collections.abc import AsyncIterator, Callable

from fastapi import HTTPException, Request

from headgate.charge import Charge, Cost, Held, Key, Source
from headgate.http.admission import Turned
from headgate.http.admission import admitted as admit


def admitted(
    on: Source | Callable[[], Source], *, key: Key = None, timeout: float | str = 0, **cost: Cost
) -> Callable[[Request], AsyncIterator[Held]]:
    """Return a dependency: ``Depends(admitted(lambda: limiter, requests=1))`` is held until the answer has ended.

    Args:
        on: a limiter, gate or bucket, or what returns it when a request comes.
        key: for whom; or what returns it, of the ``fastapi.Request``.
        timeout: seconds that a request may stand in line; 0 refuses at once.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the request.

    Raises:
        InvalidValue: such a thing has no such amounts. Requests that are not admitted get an ``HTTPException``.
    """
    charge = Charge(on, key=key, timeout=timeout, settle=None, **cost)

    async def hold(request: Request) -> AsyncIterator[Held]:
        try:
            held = await admit(charge, request)
        except Turned as refusal:
            raise HTTPException(refusal.code, refusal.title, refusal.headers) from refusal
        try:
            yield held
        finally:
            held.release()

    return hold

"""A middleware for any ASGI application refuses requests that are not admitted."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from headgate.charge import Charge, Cost, Held, Key, Source, Timeout, answered, failed
from headgate.errors import InvalidValue
from headgate.http.admission import RequestRefused, admitted
from headgate.limiting.hold import Hold

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def _release(admission: "asyncio.Task[Held]") -> None:
    """Give back what nobody waits for any more."""
    if not admission.cancelled() and admission.exception() is None:
        admission.result().release()


class WaitingRequest:
    """A request stands in line: its client is heard, and what it sent meanwhile is kept for the application."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[MutableMapping[str, Any]] = deque()
        self._hearing: asyncio.Task[bool] | None = None
        self._stands = True

    async def stand(self, admission: Coroutine[Any, Any, Held]) -> Held | None:
        """Return what a request is admitted with; None once its client has hung up: then it has left the line."""
        waiting = asyncio.create_task(admission)
        held = None
        try:
            await asyncio.sleep(0)
            if not waiting.done():  # most are admitted from what is in hand
                self._hearing = asyncio.create_task(self._has_gone())
                await asyncio.wait((waiting, self._hearing), return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done() and self._hearing.result():
                    return None
            held = await waiting
            return held
        finally:
            self._stands = False
            if held is None:
                waiting.cancel()
                waiting.add_done_callback(_release)

    async def _has_gone(self) -> bool:
        """Return whether the client hung up; a body in parts is left to the application, so nobody hears it then."""
        for _ in range(2):  # a request without a body in parts, and then nothing but that
            event = await self._receive()
            self._kept.append(event)
            if event["type"] != "http.request" or event.get("more_body") or not self._stands:
                return bool(event["type"] == "http.disconnect")
        return False

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next event, as ASGI has it."""
        if not self._kept and self._hearing is not None:
            await asyncio.wait((self._hearing,))  # whoever gives up waiting here does not end it
            self._hearing = None
        return self._kept.popleft() if self._kept else await self._receive()

    def leave(self) -> None:
        """Hear nobody any more."""
        if self._hearing is not None:
            self._hearing.cancel()


class LimitedApp:
    """A limited app holds each request until its answer ends.

    ``app.add_middleware(LimitedApp, on=lambda: limiter, requests=1)`` puts it before an application.

    An application sees what it was admitted with as ``scope["headgate.held"]``. WebSockets pass.

    Args:
        app: the application.
        on: a limiter, gate or bucket, or what returns it when a request comes.
        key: for whom; or what returns it, of the scope of ASGI.
        timeout: seconds that a request may stand in line, or what returns them, of the scope; 0 refuses at once. A
            request that says how long its caller waits (:mod:`headgate.http.deadline`) stands there no longer.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the scope.

    Raises:
        InvalidValue: such a thing has no such amounts.
    """

    def __init__(
        self, app: App, on: Source | Callable[[], Source], *, key: Key = None, timeout: Timeout = 0, **cost: Cost
    ) -> None:
        if not callable(app):
            raise InvalidValue(
                f"{app!r:.80} is not an ASGI application; give that first, then the limiter", setting="app"
            )
        self._app = app
        self._charge = Charge(on, key=key, timeout=timeout, settle=None, **cost)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, once it is admitted."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        line, held = WaitingRequest(receive), None
        try:
            admission = admitted(self._charge, scope)
            held = await (line.stand(admission) if self._charge.timeout else admission)
            if held is not None:
                scope["headgate.held"] = held
                await self._app(scope, line.receive, _noting(held, send))
        except RequestRefused as refusal:
            if held is not None:  # of something that the application asked
                raise
            await _refuse(refusal, send)
        except BaseException as error:
            if held is not None:
                failed(held, error)
            raise
        finally:
            line.leave()
            if held is not None:
                held.release()


def _noting(held: Held, send: Send) -> Send:
    """Return what sends an answer, and notes what its status says, for a limit that adapts."""
    if not isinstance(held, Hold):
        return send

    async def noting(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            answered(held, event["status"])
        await send(event)

    return noting


async def _refuse(refusal: RequestRefused, send: Send) -> None:
    body = refusal.body()
    fields = {"content-type": "application/problem+json", "content-length": str(len(body)), **refusal.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": refusal.code, "headers": headers})
    await send({"type": "http.response.body", "body": body})

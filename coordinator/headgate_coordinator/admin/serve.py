"""Admin HTTP is served in the event loop that is running: no signal handlers, no settings of the log."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from headgate import InvalidValue
from headgate_coordinator.admin.http_connection import PATIENCE, HttpConnection

GRACE: Final = 2
"""Seconds that requests have to end when it is closed."""
BACKLOG: Final = 1024
"""Connections that wait to be taken on."""
A_TURN: Final = 32
"""Of these, what one turn of the loop takes on: requests are read before so many more have come that the oldest go."""


class _Quiet(uvicorn.Server):
    """A quiet server leaves signals to the process, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


class AdminServer:
    """An admin server serves an application on one address.

    Args:
        app: from :func:`create_app`.
        host: name or address to bind to.
        port: 0 for any that is free.
        token: as :func:`create_app` got it; without one only loopback is bound to.
        insecure: whether another address may be bound to without a token.
        shared: whether other processes may listen there too.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, host: str = "127.0.0.1", port: int = 0, insecure: bool = False,
        shared: bool = False,
    ) -> None:  # fmt: skip
        self._app = app
        self._host = host
        self._port = port
        self._shared = shared
        self._guarded = token is not None or insecure
        self._server: _Quiet | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            InvalidValue: the address cannot be bound to, or needs a token.
        """
        listening = await self._bind()
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            http=HttpConnection,
            backlog=A_TURN,
            proxy_headers=False,  # whoever comes from this host would say from where else, and be a crowd of many peers
            timeout_keep_alive=int(PATIENCE),
            timeout_graceful_shutdown=GRACE,
        )
        self._server = _Quiet(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="headgate admin http")
        listens = asyncio.create_task(self._server.listens.wait())
        try:
            await asyncio.wait((listens, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listens.cancel()
        if self._task.done():
            await self._task
        listening.listen(BACKLOG)  # the loop took its part of a turn for the length of the system's queue
        return int(listening.getsockname()[1])

    async def close(self) -> None:
        """Stop listening; requests that are being answered have :data:`GRACE` seconds."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await self._task

    async def _bind(self) -> socket.socket:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise InvalidValue(f"admin HTTP: host {self._host!r} cannot be found: {error.strerror}") from None
        family, kind, protocol, _, place = found[0]
        if not self._guarded and not ipaddress.ip_address(str(place[0]).partition("%")[0]).is_loopback:
            raise InvalidValue(
                f"admin HTTP on {self._host!r} can be reached from other hosts and has no token; set a token, or bind "
                f"to 127.0.0.1"
            )
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind(place)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise InvalidValue(
                f"admin HTTP cannot listen on {self._host}:{self._port}: {error.strerror}; choose another address"
            ) from None
        return listening

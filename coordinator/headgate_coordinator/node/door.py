"""A node's door accepts connections from the kernel at once, and admits a few at a time, in turn."""

import asyncio
import contextlib
import errno
import functools
import logging
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from headgate_coordinator.security.password_queue import network_of

_log = logging.getLogger("headgate.node")
BACKLOG: Final = 1024
"""Connections that the kernel keeps for us."""
AT_ONCE: Final = 256
"""Connections that leave the kernel's line in one turn of the loop; that costs little."""
TAKEN_ON: Final = 64
"""Connections that are taken on in one turn of the loop: those that are in are served between them."""
WAITING: Final = 1000
"""Connections that wait to be taken on, or for the end of their TLS handshake; of more, the oldest is cut off."""
PAUSE: Final = 1.0
"""Seconds without new connections after the process had no file for one."""
_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Door:
    """A door takes connections on: one of each network after the other, and of a network the newest first.

    The client of the newest most likely still waits. A turn of the loop takes some on and no more, because all who are
    in wait for the turn's end.

    Args:
        protocol: makes the protocol of one connection.
        context: of TLS; None for none.
        handshake: seconds for TLS.
    """

    def __init__(
        self, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None, handshake: float
    ) -> None:
        self._protocol = protocol
        self._context = context
        self._handshake = handshake if context else None
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._networks: OrderedDict[str, deque[socket.socket]] = OrderedDict()
        self._waiting = 0
        self._beginning: dict[asyncio.Task[None], None] = {}
        self._serving = False

    async def listen(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listen; returns the port, which other processes may listen at too if it is shared.

        Raises:
            OSError: the address cannot be had.
        """
        server = await self._loop.create_server(asyncio.Protocol, host, port, reuse_port=shared, start_serving=False)
        self._listening = [each.dup() for each in server.sockets]
        server.close()
        for each in self._listening:
            each.listen(BACKLOG)
            self._loop.add_reader(each, self._accept, each)
        return int(self._listening[0].getsockname()[1])

    def close(self) -> None:
        """Take on nobody any more; those that are in stay."""
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        for waiting in self._networks.values():
            for each in waiting:
                each.close()
        self._networks.clear()
        self._waiting = 0
        for task in tuple(self._beginning):
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, (host, *_) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                _log.error("no connections are accepted for %g s: %s", PAUSE, error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE, self._resume, listening)
                break
            accepted.setblocking(False)
            self._join(accepted, network_of(f"{host}:0"))
        self._go()

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _join(self, accepted: socket.socket, network: str) -> None:
        self._networks.setdefault(network, deque()).append(accepted)
        self._waiting += 1
        if self._waiting > WAITING:
            longest = max(self._networks, key=lambda name: len(self._networks[name]))
            self._pop(longest, newest=False).close()

    def _pop(self, network: str, *, newest: bool) -> socket.socket:
        waiting = self._networks[network]
        self._waiting -= 1
        taken = waiting.pop() if newest else waiting.popleft()
        if not waiting:
            del self._networks[network]
        return taken

    def _go(self) -> None:
        if self._networks and not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = False
        for _ in range(min(TAKEN_ON, self._waiting)):
            network = next(iter(self._networks))
            self._networks.move_to_end(network)
            accepted = [self._pop(network, newest=True)]
            task = self._loop.create_task(self._begin(accepted))
            self._beginning[task] = None
            task.add_done_callback(functools.partial(self._begun, accepted))
            if len(self._beginning) > WAITING:
                oldest = next(iter(self._beginning))
                del self._beginning[oldest]
                oldest.cancel()
        self._go()

    async def _begin(self, accepted: list[socket.socket]) -> None:
        with contextlib.suppress(OSError):  # it hung up, or does not speak TLS
            await self._loop.connect_accepted_socket(
                self._protocol, accepted.pop(), ssl=self._context, ssl_handshake_timeout=self._handshake
            )

    def _begun(self, accepted: list[socket.socket], task: "asyncio.Task[None]") -> None:
        self._beginning.pop(task, None)
        for each in accepted:  # cancelled before it began; else the transport has it
            each.close()
        if not task.cancelled() and (error := task.exception()):
            _log.error("a connection could not be accepted: %r", error, exc_info=error)

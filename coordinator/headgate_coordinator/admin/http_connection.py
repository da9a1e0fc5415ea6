"""A connection of admin HTTP gives up a client that says nothing, and so makes room for those that do."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from headgate_coordinator.admin.guard import IDENTIFIES

MOST: Final = 128
"""Connections at a time; above that the oldest that waits for its client, or for a password's check, is cut off."""
HEAD: Final = 8192
"""Bytes of a request before its body, and of what stands between the pieces of a body."""
AHEAD: Final = 8
"""Requests of one connection that are read while the one before them is being answered."""
PIECE: Final = 2048
"""Bytes that are read between two looks at how many requests these were."""
PATIENCE: Final = 10.0
"""Seconds for a request to come, and for its body after that."""
SLOW_READER: Final = 30.0
"""Seconds after which a client that does not read its answer is cut off."""
LARGEST_WRITE: Final = 1 << 16
"""Bytes of answers that are not put off until the turn of the loop ends."""
EXCHANGE: Final = "headgate.exchange"
"""Stands in the scope of a request with its :class:`HttpExchange`."""


class HttpConnection(HttpToolsProtocol):
    """An HTTP connection reads requests and bounds each wait: for a request, and for its client to read the answer."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.parser = Parser(self)
        self.since = 0.0
        self.hung_up: Callable[[], object] | None = None
        """Hears that the client is gone, as long as that is of use to the request that is being answered."""
        self._later = bytearray()
        """Data that came and is not read: there are requests enough to answer."""
        self._waits: asyncio.TimerHandle | None = None
        self._waits_until: float | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._in_head = self._declining = False
        self._head = 0
        """Bytes of the head that were read in whole lines."""
        self._moved = False
        """Whether a request began or ended with the latest data, or a piece of its body came."""
        self._unread = 0
        """Bytes since that was so: the parser keeps those of a line until it ends."""

    @property
    def idle(self) -> bool:
        """Whether nothing of it can go on before its client does something, or it is not known who that is."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused:
            return True
        return IDENTIFIES in cycle.scope

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait; the oldest of too many goes."""
        self.both = JoinedWrites(cast("asyncio.Transport", transport), self.loop)
        super().connection_made(cast("asyncio.Transport", self.both))
        self.since = self.loop.time()
        self._wait()
        if len(self.connections) > MOST:
            visits = (cast("HttpConnection", visit) for visit in self.connections)
            oldest = min((visit for visit in visits if visit.idle), key=lambda visit: visit.since)
            self.connections.discard(oldest)  # it is not there any more for the next that comes in this turn
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on; a request that trickles in gets no more time by that, and no more room."""
        if len(data) > PIECE or self._later or self.pipeline:
            self._later += data
            self._read_on()
        else:
            self._read(data)
        self._wait()

    def _read_on(self) -> None:
        """Read as many requests as may be ahead, and nothing more before the first of them is answered."""
        while self._later and len(self.pipeline) < AHEAD and not self.transport.is_closing():
            piece = bytes(self._later[:PIECE])
            del self._later[:PIECE]
            self._read(piece)
        self.both.hold_back(bool(self._later) and not self.transport.is_closing())

    def _read(self, data: bytes) -> None:
        self._moved = False
        super().data_received(data)
        self._unread = 0 if self._moved else self._unread + len(data)
        if self._unread > HEAD and not self.transport.is_closing():
            self.send_400_response(f"more than {HEAD} bytes of a head, or between the pieces of a body")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; where an answer is on its way, no other one may come into it."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    # What the parser found.

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._declining:
            return
        super().on_message_begin()
        self._moved = self._in_head = True
        self._head = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the first line."""
        if not self._declining:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those that come after a body are nobody's."""
        self._count(len(name) + len(value) + 4)
        if self._in_head and not self._declining:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, where it is clear which host is asked."""
        self._in_head = False
        self._head = 0
        if self._declining:
            self._declining = False
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise HttpParserError("a request must name one host")
        super().on_headers_complete()
        self.scope[EXCHANGE] = HttpExchange(self, self.cycle)  # type: ignore[typeddict-unknown-key]

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._moved = True
        if not self.parser.should_upgrade():  # else its body follows
            super().on_message_complete()

    def decline_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 with a request whose head asked for another protocol, as Java's client does of itself."""
        framing = [one for one in self.headers if one[0] in (b"content-length", b"transfer-encoding")]
        self._declining = True
        self.parser = Parser(self)
        self.parser.feed_data(
            b"POST / HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % one for one in framing) + b"\r\n" + rest
        )

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > HEAD:
            raise HttpParserError("the head is too large")

    # How its client keeps up.

    def on_response_complete(self) -> None:
        """Begin to wait for the next request; that has its end here, so the library arms no timer for each request."""
        if self.pipeline:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            if not self.transport.is_closing():
                self.flow.resume_reading()
        if self._later:
            self._read_on()
        self._wait()

    def pause_writing(self) -> None:
        """Wait for the client to read, for some time."""
        super().pause_writing()
        self._stuck = self.loop.call_later(SLOW_READER, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        for timer in (self._waits, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self.hung_up is not None:
            self.hung_up()

    def _wait(self) -> None:
        """Go on to wait for the client, or begin, or end that; the timer is one for many requests."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._waits_until = None
        elif self._waits_until is None:
            self._waits_until = self.loop.time() + PATIENCE
            if self._waits is None:
                self._waits = self.loop.call_at(self._waits_until, self._waited)

    def _waited(self) -> None:
        self._waits, until = None, self._waits_until
        if until is not None and until > self.loop.time():
            self._waits = self.loop.call_at(until, self._waited)
        elif until is not None:
            self.transport.abort()


class HttpExchange:
    """An exchange answers one request without the messages of ASGI: each would cost as much as what is asked for.

    Args:
        visit: the connection.
        cycle: the request.
    """

    __slots__ = ("_cycle", "_visit")

    def __init__(self, visit: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._visit, self._cycle = visit, cycle

    @property
    def body(self) -> bytes | None:
        """The body, once all of it has come; None before."""
        return None if self._cycle.more_body else bytes(self._cycle.body)

    @property
    def over(self) -> bool:
        """Whether nobody hears an answer any more."""
        return self._visit.transport.is_closing()

    def when_hung_up(self, hear: Callable[[], object] | None) -> None:
        """Have that called when the client hangs up; None for nothing any more."""
        self._visit.hung_up = hear

    async def answer(self, status: int, head: bytes, body: bytes) -> None:
        """Answer at once; ``head`` has a line for each header, and nobody else says anything."""
        cycle = self._cycle
        if cycle.flow.write_paused and not self.over:
            await cycle.flow.drain()
        cycle.response_started = cycle.response_complete = True
        if not self.over:
            own = b"".join([b"%s: %s\r\n" % one for one in cycle.default_headers])
            end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
            self._visit.both.end(b"".join((STATUS_LINE[status], own, head, end, body)))
            if not cycle.keep_alive:
                cycle.transport.close()
        cycle.on_response()


class Parser(HttpRequestParser):
    """Reads the requests of one connection; it stops at a head that asks for another protocol, and goes on anew."""

    def __init__(self, visit: HttpConnection) -> None:
        super().__init__(visit)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # the last request is answered, as by uvicorn
        self._visit = visit

    def feed_data(self, data: Any) -> None:
        """Read on."""
        try:
            super().feed_data(data)
        except HttpParserUpgrade as asked:
            self._visit.decline_upgrade(data[asked.args[0] :])


class JoinedWrites:
    """`JoinedWrites` sends together what is written in one turn of the loop: an answer's head with its body.

    It does not go on to read either while its owner has enough to read.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._held_back = self._paused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it with the end of this turn."""
        self._pieces.append(data)
        if len(data) > LARGEST_WRITE:
            self._send()
        elif len(self._pieces) == 1:
            self._loop.call_soon(self._send)

    def end(self, data: bytes) -> None:
        """Send it now, after what was written before."""
        self._pieces.append(data)
        self._send()

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Cut it off; who was answered in this turn gets its answer."""
        self._send()
        self._transport.abort()

    def hold_back(self, held_back: bool) -> None:  # noqa: FBT001
        """Have nothing more read, whoever goes on; or not any more."""
        if held_back != self._held_back:
            self._held_back = held_back
            self._follow()

    def pause_reading(self) -> None:
        """Read nothing for now."""
        self._paused = True
        self._follow()

    def resume_reading(self) -> None:
        """Go on to read, unless it is held back."""
        self._paused = False
        self._follow()

    def _follow(self) -> None:
        if self._held_back or self._paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _send(self) -> None:
        if self._pieces:
            self._transport.write(b"".join(self._pieces))
            self._pieces.clear()

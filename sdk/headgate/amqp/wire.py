"""A wire moves an AMQP connection's bytes between socket and engine; it does the handshake first, and the heartbeat."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from headgate.amqp.engine import Engine
from headgate.amqp.sasl import SaslClient, SaslServer
from headgate.errors import HeadgateError

_log = logging.getLogger("headgate")
WRITE_AHEAD: Final = 1 << 20
"""Bytes that may wait in the socket's buffer before nothing more is offered to it."""
MOST_AHEAD: Final = 4 * WRITE_AHEAD
"""Bytes that may wait before nothing more is read: a peer that does not read asks no more questions either."""
PIECE: Final = 64 << 10
"""Bytes that are read in one turn of the loop: more of them wait for the next, so that others have their turns."""
LINGER: Final = 5.0
"""Seconds that a peer has to read the last words."""


_OVER: Final = SaslServer(())
"""The handshake of connections that are through it."""


class Wire(asyncio.Protocol):
    """A wire has one socket. Its subclass is also the engine's handler.

    Output of the engine goes out at the end of the loop's turn, once :meth:`flush_soon` was called.
    """

    __slots__ = (
        "_flushing", "_handshake", "_linger", "_loop", "_secured", "_timer", "_transport", "_unread", "congested",
        "engine", "lost", "most_ahead", "on_flush", "sasl",
    )  # fmt: skip

    def __init__(self, sasl: SaslServer | SaslClient, *, handshake: float) -> None:
        self.engine: Engine
        self.sasl = sasl
        self.congested = False
        """Whether the peer reads too slowly: nothing more should be sent."""
        self.lost = False
        self.most_ahead = MOST_AHEAD
        self.on_flush: Callable[[], None] | None = None
        """Called after each :meth:`flush`, at the end of a turn in which something came or was answered."""
        self._handshake = handshake
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._flushing = False
        self._secured = False
        self._unread = b""

    def make_engine(self) -> Engine:
        """Return the engine, now that the handshake is over."""
        raise NotImplementedError

    def identified(self) -> None:
        """Note that :attr:`sasl` has something to decide on; by default, nothing is to be decided."""

    def went(self, error: Exception | None) -> None:
        """Note that the socket is closed; links and deliveries are gone after this."""

    def relieved(self) -> None:
        """Note that the peer reads again."""

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_AHEAD)
        self._timer = self._loop.call_later(self._handshake, self._too_slow)
        self._send_sasl()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what comes after the end is dropped."""
        if self._linger:
            return
        if self._secured:
            if self._unread or len(data) > PIECE:
                self._put_off(data)
            else:
                self.engine.receive(data)
                self.flush_soon()
            return
        try:
            self.sasl.feed(data)
        except HeadgateError as error:
            self._send_sasl()
            self.hang_up(error)
            return
        self._send_sasl()
        if self.sasl.done:
            self.secure()
        else:
            self.identified()

    def _put_off(self, data: bytes) -> None:
        """Read a piece of what came in each turn of the loop, and nothing else from the socket meanwhile."""
        if not self._unread:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)
        self._unread += data

    def _read_on(self) -> None:
        if self.lost or self._linger or not self._unread:
            self._unread = b""
            return
        piece, self._unread = self._unread[:PIECE], self._unread[PIECE:]
        self.engine.receive(piece)
        self.flush_soon()
        if self._unread:
            self._loop.call_soon(self._read_on)
        elif not self._transport.is_closing() and not (self.congested and self._is_far_behind):
            self._transport.resume_reading()

    def _read_rest(self) -> None:
        """Read at once what came before an end."""
        rest, self._unread = self._unread, b""
        if rest and not self._linger:
            self.engine.receive(rest)

    def secure(self) -> None:
        """Begin with AMQP: the handshake is over."""
        if self.lost:
            return
        self._send_sasl()
        self._secured = True
        self.engine = self.make_engine()
        rest, self.sasl = self.sasl.rest(), _OVER  # nobody needs a password any more
        if rest:
            self.data_received(rest)
        self.flush()
        if not self.lost:
            self._beat()

    def settled_in(self) -> None:
        """Stop the clock of the handshake: the connection is open."""
        if self._timer:
            self._timer.cancel()
        self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        if self.lost or not self._secured:
            return
        again = self.engine.tick(self._loop.time())
        self.flush()
        if self._opened() and again is not None:
            if self._timer:
                self._timer.cancel()
            self._timer = self._loop.call_at(again, self._beat)

    def _opened(self) -> bool:
        return bool(self._secured and self.engine.alive and self.engine.is_open)

    def _too_slow(self) -> None:
        if not self._opened():
            self.hang_up(TimeoutError(f"no AMQP connection within {self._handshake:g} s"))

    def flush_soon(self) -> None:
        """Send what the engine has to say, at the end of this turn of the loop."""
        if not self._flushing and not self.lost:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what the engine has to say."""
        self._flushing = False
        if self.lost or not self._secured:
            return
        pieces = self.engine.outgoing()
        if pieces and not self._linger:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            if self.congested and self._is_far_behind:
                self._transport.pause_reading()
        if self.engine.ended:
            self.end()
        if self.on_flush is not None:
            self.on_flush()

    @property
    def _is_far_behind(self) -> bool:
        return bool(self._transport.get_write_buffer_size() > self.most_ahead)

    def pause_writing(self) -> None:
        """Note that the peer reads more slowly than we send."""
        self.congested = True

    def resume_writing(self) -> None:
        """Note that the peer has read what waited."""
        self.congested = False
        if not self.lost:
            if not self._transport.is_closing() and not self._unread:
                self._transport.resume_reading()
            self.relieved()

    def eof_received(self) -> bool:
        """Note that the peer will say nothing more."""
        if self._secured and not self.lost:
            self._read_rest()
            self.engine.hung_up()
            self.flush()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Let go of everything."""
        if self.lost:
            return
        self._read_rest()
        self.lost = True
        for timer in (self._timer, self._linger):
            if timer:
                timer.cancel()
        try:
            self.went(error)
        finally:
            if self._secured:
                self.engine.free()

    def hang_up(self, error: Exception) -> None:
        """Close the socket without a word of AMQP; earlier output still goes out."""
        _log.info("%s: %s", self.peername, error)
        self.end()

    def end(self) -> None:
        """Say nothing more, and close the socket when the peer does, or after :data:`LINGER` seconds."""
        if self._transport is None or self.lost or self._linger:
            return
        self._linger = self._loop.call_later(LINGER, self.abort)
        if self._transport.can_write_eof():  # closed with bytes unread, a socket takes back the last output
            with contextlib.suppress(OSError):  # it is gone already, and that will be reported
                self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._unread = b""
        if self._transport is not None:
            with contextlib.suppress(OSError, AttributeError):  # Python 3.11.2: after TLS was closed twice
                self._transport.abort()

    @property
    def peername(self) -> str:
        """Where the peer is: ``host:port``."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "nowhere")

    def _send_sasl(self) -> None:
        if self.sasl.outgoing:
            self._transport.write(self.sasl.outgoing)
            self.sasl.outgoing = b""

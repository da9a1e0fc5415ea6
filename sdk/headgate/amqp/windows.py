"""A session of the peer has a window: the frames that it takes, whatever credit its links have.

The library keeps what it cannot pass on, and nobody else can have what it keeps. So it is to be handed no more than the
window takes. It has no event for a window that is wider than before; links that wait for one are kept here.
"""

from typing import TYPE_CHECKING, Any, Final

from headgate.amqp.proton import lib, remote_window

if TYPE_CHECKING:
    from headgate.amqp.handler import Handler
    from headgate.amqp.link import Link
    from headgate.amqp.streaming import Streams
    from headgate.amqp.transport import InputChunks

WIDE: Final = 1 << 20
"""Frames that are room for whatever is handed over before it is written."""
UNBOUNDED: Final = 1 << 40
OVERHEAD: Final = 100
"""Bytes of a frame, at most, that are no part of a message."""


class SessionWindows:
    """The windows of one connection's sessions say how much room there is, and which links wait for more.

    Args:
        transport: of the connection.
        chunks: write what was handed over.
        streams: messages that are handed over a piece at a time.

    Attributes:
        waiting: links that wait for more room, and the frames of room that they had.
    """

    __slots__ = ("_chunks", "_streams", "_transport", "waiting")

    def __init__(self, transport: Any, chunks: "InputChunks", streams: "Streams") -> None:
        self._transport = transport
        self._chunks, self._streams = chunks, streams
        self.waiting: dict[Link, int] = {}

    @property
    def frame(self) -> int:
        """Bytes of a message that one frame takes, at least."""
        return (int(lib.pn_transport_get_remote_max_frame(self._transport)) or UNBOUNDED) - OVERHEAD

    def room(self, link: "Link") -> int:
        """Return how many frames the session of a link takes, beside all that was handed over."""
        session = lib.pn_link_session(link.raw)
        window = int(remote_window(session))
        if window >= WIDE:
            return UNBOUNDED
        if lib.pn_session_outgoing_bytes(session) > 0:
            self._chunks.write_ahead()  # only what is written is off the window
            window = int(remote_window(session))
        unsent = self._streams.unsent(session)
        return window - 1 - unsent // self.frame if unsent else window

    def wait(self, link: "Link", room: int) -> None:
        """Have :meth:`tell` say when there is more room than this."""
        self.waiting[link] = room

    def tell(self, handler: "Handler") -> None:
        """Tell of links for which there is more room, as if their credit had changed."""
        for link, room in tuple(self.waiting.items()):
            if link.credit <= 0:
                del self.waiting[link]
            elif self.room(link) > room:
                del self.waiting[link]
                handler.flowed(link)

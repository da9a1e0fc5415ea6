"""The library's ends of a connection, and the strides in which bytes of a peer go in.

Objects that a peer begins and ends in one stride are in memory together, however few may be open at a time: the library
lets go of them only once the answer is written.
"""

from typing import Any, Final

from headgate.amqp.limits import Limits
from headgate.amqp.proton import SCRATCH, ffi, lib, put_symbols, put_text_map

STRIDE: Final = 4096
"""Bytes that are taken at once of a peer that begins and ends links and sessions."""


def begun(
    *,
    server: bool,
    container: str,
    limits: Limits,
    hostname: str | None,
    offered: tuple[str, ...],
    properties: dict[str, str],
) -> tuple[Any, Any, Any]:
    """Return a transport, its connection and the collector of its events; the arguments are those of an engine."""
    transport, connection, collector = lib.pn_transport(), lib.pn_connection(), lib.pn_collector()
    if server:
        lib.pn_transport_set_server(transport)
    lib.pn_connection_collect(connection, collector)
    lib.pn_connection_set_container(connection, container.encode())
    if hostname:
        lib.pn_connection_set_hostname(connection, hostname.encode())
    put_symbols(lib.pn_connection_offered_capabilities(connection), offered)
    put_text_map(lib.pn_connection_properties(connection), properties)
    lib.pn_transport_set_max_frame(transport, limits.frame)
    lib.pn_transport_set_channel_max(transport, limits.sessions - 1)
    lib.pn_transport_set_idle_timeout(transport, int(limits.idle * 1000))
    lib.pn_transport_bind(transport, connection)
    return transport, connection, collector


class InputChunks:
    """How much is taken next, and how many sessions wait for the answer to their end.

    Args:
        transport: that bytes go into and come out of.
        scratch: memory that they pass through.

    Attributes:
        next: bytes of the next stride.
        stepped: whether links or sessions were begun or ended in this one.
        sessions: those that are open, and those that ended whose end is not answered.
        ended: the latter.
    """

    def __init__(self, transport: Any, scratch: Any) -> None:
        self.next = STRIDE
        self.stepped = False
        self.sessions = self.ended = 0
        self._transport = transport
        self._scratch = scratch
        self._pieces: list[bytes] = []

    def taken(self, most: int, *, alive: bool) -> None:
        """Choose the next stride, of a frame of ``most`` bytes or little more, and answer what was begun and ended."""
        if self.stepped:
            self.stepped, self.next = False, STRIDE
            if alive:
                self.write_ahead()
        elif self.next < most:
            self.next *= 2

    def write_ahead(self) -> None:
        """Write what the library has to say, to be taken with :meth:`written`."""
        self.write(self._pieces)

    def written(self) -> list[bytes]:
        """Return what was written between strides, and forget it."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def write(self, pieces: list[bytes]) -> None:
        """Add what the library has to say."""
        transport = self._transport
        while (size := lib.pn_transport_pending(transport)) > 0:  # at once: what is left would be moved each time
            buffer = self._scratch if size <= SCRATCH else ffi.new("char[]", size)
            lib.pn_transport_peek(transport, buffer, size)
            pieces.append(ffi.unpack(buffer, size))
            lib.pn_transport_pop(transport, size)
        self.sessions, self.ended = self.sessions - self.ended, 0

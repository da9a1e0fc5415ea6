"""The library's ends of a connection, and how bytes go through them.

Objects that a peer begins and ends in one stride are in memory together, however few may be open at a time: the library
lets go of them only once the answer is written.

The buffers take 20 KiB by themselves, and never less again, so they are made small at rest; likewise the tables of
channels, links and deliveries, six for a connection with one session, of which each has room for 16 from its beginning.
The library has no call for that: the module looks for the places of their sizes once, in a connection of our own. Where
these are not exactly as expected, all stay as the library makes them (ADR 50).
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from headgate.amqp.limits import Limits
from headgate.amqp.proton import SCRATCH, ffi, head, lib, put_symbols, put_text_map, tail

SMALL: Final = 256
"""Bytes of each buffer of a connection that idles: more than a heartbeat, and most of what begins a link."""
MUCH: Final = 1024
"""Bytes that come at once for which the buffers are made large; less goes through small ones in pieces."""
_MUCH_GOING: Final = 4096
"""The same of what goes out: more than the answers to what begins a connection and its links."""
LARGE: Final = 8192
"""Bytes of each buffer of others, as the library makes them."""
_QUEUED: Final = 4096
"""Bytes that the library makes room for in its queue of frames."""
_WORDS: Final = 64
"""Words of a transport, or of a session, among which the sizes are looked for."""
_ENTRIES, _ROOM, _ADDRESSED, _USED = 2, 3, 4, 5
"""Words of a table: the memory of its entries; for how many there is room, how many are addressed, and are used."""
_NEW_TABLE: Final = (16, 13, 0)
_ENTRY: Final = 4
"""Words of an entry, of which the first has its number, and the second what it is."""
_FEW: Final = 4
"""Entries of a table that is made small."""
_realloc: Any = ctypes.CDLL(None).realloc
_realloc.restype, _realloc.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
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
    _shrink(transport, _TABLES[0])
    return transport, connection, collector


def open_session(session: Any, window: int) -> None:
    """Open a session that takes so many bytes."""
    lib.pn_session_set_incoming_capacity(session, window)
    lib.pn_session_open(session)
    _shrink(session, _TABLES[1])


def _shrink(owner: Any, places: tuple[int, ...]) -> None:
    """Make tables small in which there is little; the library makes them larger when more is put in."""
    words = _words(owner)
    for at in places:
        table = ffi.cast("uintptr_t *", words[at])
        used, entries = table[_USED], ffi.cast("uintptr_t *", table[_ENTRIES])
        room = 1 << (used - 1).bit_length() if used else 1
        if used <= _FEW and room < table[_ROOM] and _in_place(entries, room) == used:
            table[_ENTRIES] = _resized(table[_ENTRIES], room * _ENTRY * ffi.sizeof("uintptr_t"))
            table[_ROOM] = table[_ADDRESSED] = room


def _in_place(entries: Any, room: int) -> int:
    """Return how many of the first entries are where their numbers say: others would have to be moved."""
    return sum(entries[_ENTRY * at] == at and entries[_ENTRY * at + 1] > 0 for at in range(room))


def _words(owner: Any) -> Any:
    return ffi.cast("uintptr_t *", owner)


def _queue(words: Any, at: int) -> tuple[Any, Any]:
    """Return the queue of frames: its memory as a word; and its capacity, start and size."""
    queue = words[at - 5]
    return ffi.cast("uintptr_t *", queue), ffi.cast("uint32_t *", queue) + 2


def _found() -> int:
    """Return the first of six words: size, bytes in use and memory of the buffer that goes out, and of the other.

    0 where there are no such words.
    """
    transport, connection = lib.pn_transport(), lib.pn_connection()
    try:
        lib.pn_transport_bind(transport, connection)
        words = _words(transport)
        coming = int(ffi.cast("uintptr_t", tail(transport)))
        places = [at for at in range(5, _WORDS) if words[at + 5] == coming]
        if ffi.sizeof("uintptr_t") != ctypes.sizeof(ctypes.c_size_t) or len(places) != 1:
            return 0
        (at,) = places
        if [words[at + step] for step in (0, 1, 3, 4)] != [LARGE, 0, LARGE, 0] or not words[at - 5]:
            return 0
        if list(_queue(words, at)[1][0:3]) != [_QUEUED, 0, 0]:
            return 0
        pending = lib.pn_transport_pending(transport)  # its header and its open
        going = int(ffi.cast("uintptr_t", head(transport)))
        return at if pending > 0 and (words[at + 1], words[at + 2]) == (pending, going) else 0
    finally:
        lib.pn_transport_unbind(transport)
        lib.pn_decref(connection)
        lib.pn_decref(transport)


_AT: Final = _found()


def _found_tables() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which words of a transport lead to its tables, and which of a session; none where that is not certain."""
    transport, connection = lib.pn_transport(), lib.pn_connection()
    try:
        lib.pn_transport_bind(transport, connection)
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:  # what is no address is an error there, no crash
            of_transport = tuple(_tables(memory.fileno(), transport))
            of_session = tuple(_tables(memory.fileno(), lib.pn_session(connection)))
    except OSError:
        return (), ()
    else:
        apart = [tuple(at - places[0] for at in places) for places in (of_transport, of_session)]
        return (of_transport, of_session) if _AT and apart == [(0, 1), (0, 2, 3, 4)] else ((), ())
    finally:
        lib.pn_transport_unbind(transport)
        lib.pn_decref(connection)
        lib.pn_decref(transport)


def _tables(memory: int, owner: Any) -> Iterator[int]:
    """Yield which words of an object of the library lead to a table."""
    for at, word in enumerate(_peek(memory, int(ffi.cast("uintptr_t", owner)), _WORDS)):
        try:
            table = _peek(memory, word, _USED + 1)
        except (OSError, OverflowError):
            continue
        if table[_ROOM:] == _NEW_TABLE:
            yield at


def _peek(memory: int, address: int, words: int) -> tuple[int, ...]:
    read = os.pread(memory, 8 * words, address)
    return struct.unpack_from(f"{len(read) // 8}Q", read)


_TABLES: Final = _found_tables()


class Buffers:
    """A connection has buffers that are made small at once.

    Attributes:
        is_small: whether they are small now.
        used: whether they had to be large since the last rest.
    """

    __slots__ = ("_transport", "is_small", "used")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.is_small = self.used = False
        self.rest(())

    def grow(self) -> None:
        """Make them large, for more goes through them now than the small ones take at once."""
        self.used = True
        if self.is_small:
            self._resize(LARGE)
            self.is_small = False

    def rest(self, sessions: Iterable[Any]) -> None:
        """Make them small unless they were used since the last rest, and tables of sessions; called now and then."""
        for session in sessions:
            _shrink(session, _TABLES[1])
        if not self.used and _AT:
            words = _words(self._transport)
            memory, queue = _queue(words, _AT)
            if words[_AT] == words[_AT + 3] == queue[0] == SMALL:
                return  # for the library makes them larger as frames need that
            if words[_AT + 1] or words[_AT + 4] or queue[2]:
                return  # something waits in them, for a peer that does not read or for the rest of a frame
            self._resize(SMALL)
            memory[0] = _resized(memory[0], SMALL)
            queue[0], queue[1] = SMALL, 0
            self.is_small = True
        self.used = False

    def _resize(self, size: int) -> None:
        words = _words(self._transport)
        for at in (_AT, _AT + 3):
            if size < LARGE or words[at] < size:  # the library itself may have made it larger
                words[at + 2] = _resized(words[at + 2], size)
                words[at] = size


def _resized(memory: int, size: int) -> int:
    if not (resized := _realloc(memory, size)):
        raise MemoryError
    return int(resized)


class InputChunks:
    """Says how much is taken next, and how many sessions wait for the answer to their end.

    Args:
        transport: that bytes go into and come out of.
        scratch: memory that they pass through.
        buffers: of the transport.

    Attributes:
        next: bytes of the next stride.
        stepped: whether links or sessions were begun or ended in this one.
        sessions: those that are open, and those that ended whose end is not answered.
        ended: the latter.
    """

    __slots__ = ("_buffers", "_pieces", "_scratch", "_transport", "ended", "next", "sessions", "stepped")

    def __init__(self, transport: Any, scratch: Any, buffers: Buffers) -> None:
        self.next = STRIDE
        self.stepped = False
        self.sessions = self.ended = 0
        self._transport = transport
        self._scratch, self._buffers = scratch, buffers
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
        transport, much = self._transport, _MUCH_GOING
        while (size := lib.pn_transport_pending(transport)) > 0:  # at once: what is left would be moved each time
            if size >= SMALL and self._buffers.is_small and (much := much - size) <= 0:  # there is more, it seems
                self._buffers.grow()
            buffer = self._scratch if size <= SCRATCH else ffi.new("char[]", size)
            lib.pn_transport_peek(transport, buffer, size)
            pieces.append(ffi.unpack(buffer, size))
            lib.pn_transport_pop(transport, size)
        self.sessions, self.ended = self.sessions - self.ended, 0

"""The line between the supervisor and a worker is a pair of sockets: both say JSON over it, one message a frame.

The supervisor says ``begin`` (first of all), ``tell``, ``answer``, ``drain`` and ``end``; a worker says ``beats`` each
second, ``listens``, ``told``, ``ask`` and ``left`` (its last counts). The end of the line says that the other side is
gone.
"""

import asyncio
import contextlib
import json
import socket
import struct
from typing import Any, Final, Self

MOST: Final = 64 << 20
"""Bytes of a message, and of those that wait for the other side to read."""
REPLY: Final = "told"
"""The word for what a worker says of itself; a supervisor may be older than its workers."""
_SIZE: Final = struct.Struct(">I")
Message = dict[str, Any]


class PipeEnd:
    """A pipe's end reads and writes one end of the line, in the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Return the line over a connected socket, which it closes."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end))

    def say(self, word: str, **facts: object) -> None:
        """Say something; of what the other side leaves unread too long, nothing more is sent."""
        if not self._writer.is_closing() and self._writer.transport.get_write_buffer_size() < MOST:
            self._writer.write(frame(word, **facts))

    async def flush(self) -> None:
        """Wait until most of what was sent is on its way; the other side may be gone."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def hear(self) -> Message | None:
        """Return the next message; None when the other side is gone."""
        try:
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            return _read(await self._reader.readexactly(size)) if size <= MOST else None
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def frame(word: str, **facts: object) -> bytes:
    """Return a message as it is sent."""
    text = json.dumps({"word": word} | facts, separators=(",", ":")).encode()
    return _SIZE.pack(len(text)) + text


def hear_first(end: socket.socket) -> Message:
    """Return the first message, before there is an event loop.

    Raises:
        ConnectionError: the other side is gone.
    """
    with end.dup().makefile("rb", buffering=0) as stream:
        head = stream.read(_SIZE.size) or b""
        size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        text = stream.read(size) or b""
    if not text or len(text) != size:
        raise ConnectionError("the supervisor is gone")
    return _read(text)


def _read(text: bytes) -> Message:
    message: Message = json.loads(text)
    return message

"""Calls of gRPC at a given pace, whether or not earlier ones were answered: the latencies that a proxy sees.

A client of a gRPC library takes as much of a processor as what it measures. This one speaks as much HTTP/2 as one
method needs, with the same headers each time, and takes a tenth.
"""

import asyncio
import gc
import json
import select
import socket
import struct
import sys
import time
from asyncio.subprocess import PIPE
from typing import Final

FRAME: Final = 9
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
WINDOW: Final = 1 << 30
"""Bytes that the server may send before it is given more: more than any run takes."""
STREAMS: Final = 200
"""Calls without an answer on one connection, after which the next waits, as it does in proxies: its time goes on."""
PATIENCE: Final = 10.0
"""Seconds after the last call within which all are answered."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Return a header that no table remembers, so that each call has the same bytes."""
    return bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode()


class Calls:
    """One connection, of which each call is the same.

    Args:
        port: at this host.
        method: its path.
        message: what it is called with.

    Attributes:
        times: seconds from when each call was due until it was answered.
        late: seconds after which each was made, from when it was due: how well this client keeps pace.
    """

    def __init__(self, port: int, method: str, message: bytes) -> None:
        fields = {
            ":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost",
            "content-type": "application/grpc", "te": "trailers",
        }  # fmt: skip
        self._headers = b"".join(_literal(*field) for field in fields.items())
        self._data = b"\0" + struct.pack(">I", len(message)) + message
        self._stream = -1
        self._due: dict[int, float] = {}
        self._rest = b""
        self.times: list[float] = []
        self.late: list[float] = []
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = struct.pack(">HI", 4, WINDOW)  # the window of each stream
        greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, settings)
        self._socket.sendall(greeting + _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)))

    @property
    def open(self) -> int:
        """Calls without an answer."""
        return len(self._due)

    def call(self, due: float) -> None:
        """Call, as it was due at a moment of :func:`time.perf_counter`."""
        self._stream += 2
        self._due[self._stream] = due
        begins = _frame(HEADERS, END_HEADERS, self._stream, self._headers)
        self.late.append(time.perf_counter() - due)
        self._socket.sendall(begins + _frame(DATA, END_STREAM, self._stream, self._data))

    def listen(self, seconds: float) -> None:
        """Read answers that come within so long, or are here already."""
        if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            return
        data = self._socket.recv(1 << 18)
        now = time.perf_counter()
        if not data:
            raise RuntimeError("the server has hung up")
        data, at = self._rest + data, 0
        while len(data) - at >= FRAME:
            size = int.from_bytes(data[at : at + 3])
            kind, flags, stream = struct.unpack_from(">BBI", data, at + 3)
            if len(data) - at < FRAME + size:
                break
            payload = data[at + FRAME : at + FRAME + size]
            at += FRAME + size
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.times.append(now - self._due.pop(stream))
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self._socket.sendall(_frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind in (RST_STREAM, GOAWAY):
                raise RuntimeError(f"the server ends stream {stream}: {payload!r}")
        self._rest = data[at:]


def _call(port: int, method: str, message: bytes, pace: float, seconds: float) -> list[list[float]]:
    gc.disable()  # a pause of this process would be taken for one of the server
    calls = Calls(port, method, message)
    calls.listen(1)
    began, count = time.perf_counter() + 0.1, int(pace * seconds)
    for number in range(count):
        due = began + number / pace
        calls.listen(0)
        while (wait := due - time.perf_counter()) > 0:
            calls.listen(wait)
        while calls.open >= STREAMS:
            calls.listen(PATIENCE)
        calls.call(due)
    until = time.perf_counter() + PATIENCE
    while calls.open and time.perf_counter() < until:
        calls.listen(0.1)
    if calls.open:
        raise RuntimeError(f"{calls.open} of {count} calls were not answered")
    return [calls.times[count // 10 :], calls.late[count // 10 :]]


async def latencies(port: int, method: str, message: bytes, *, pace: float, seconds: float) -> list[list[float]]:
    """Call so often a second, in a process of its own.

    Returns:
        The seconds of each call from when it was due until it was answered, and until it was made; the first tenth of
        the calls is left out.
    """
    words = (str(port), method, message.hex(), str(pace), str(seconds))
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.traffic.paced", *words, stdout=PIPE)
    out, _ = await process.communicate()
    found: list[list[float]] = json.loads(out)
    return found


if __name__ == "__main__":
    print(json.dumps(_call(int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3]), *map(float, sys.argv[4:]))))

"""The side of a connection that is a server's: it reads commands, and says answers and what comes over channels."""

import asyncio
from collections.abc import Sequence
from typing import Any

import hiredis


def encoded(value: Any) -> bytes:
    """Return a reply as it is on the wire."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, list):
        if set(map(type, value)) == {bytes}:
            return hiredis.pack_command(tuple(value))  # type: ignore[no-any-return]  # the same, in C
        return b"*%d\r\n%b" % (len(value), b"".join(map(encoded, value)))
    if value is None:
        return b"$-1\r\n"
    return b"-%b\r\n" % str(value).encode()


class Door(asyncio.Protocol):
    """One connection to a Redis, or to a Sentinel."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._reader = hiredis.Reader()
        self.asks = False
        """Whether the next command is for a slot on its way here."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.caller = transport.peer.owner.name

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self._server.do(self, words)

    def connection_lost(self, _: Exception | None) -> None:
        self._server.channels.leave(self)

    def say(self, reply: Any) -> None:
        self.transport.write(encoded(reply))


class Channels:
    """Those who listen at one server."""

    def __init__(self) -> None:
        self._doors: dict[bytes, dict[Door, None]] = {}

    def publish(self, channel: bytes, text: bytes) -> None:
        for door in tuple(self._doors.get(channel, ())):
            door.say([b"message", channel, text])

    def leave(self, door: Door) -> None:
        for doors in self._doors.values():
            doors.pop(door, None)

    def clear(self) -> None:
        self._doors.clear()

    def do(self, door: Door, words: Sequence[bytes]) -> bool:
        """Do a command of a connection alone, and answer it; returns whether it is one."""
        match words[0].upper():
            case b"SUBSCRIBE":
                for channel in words[1:]:
                    self._doors.setdefault(channel, {})[door] = None
                    door.say([b"subscribe", channel, 1])
            case b"UNSUBSCRIBE":
                for channel in words[1:]:
                    self._doors.get(channel, {}).pop(door, None)
                    door.say([b"unsubscribe", channel, 0])
            case b"PING":
                door.say([b"pong", b""])
            case b"CLIENT":
                door.say(b"OK")
            case b"ASKING":
                door.asks = True
                door.say(b"OK")
            case _:
                return False
        return True

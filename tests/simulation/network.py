"""A network that delays, holds back and cuts connections; between two connections it keeps no order."""

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from tests.simulation.loop import Process, VirtualLoop

QUICKEST: Final = 0.0002
USUALLY_WITHIN: Final = 0.002
UNANSWERED: Final = 3600.0
"""Seconds after which a connection is refused that nobody answers."""


class End(asyncio.Transport):
    """One end of a connection; what is written comes out of the other, in order, later."""

    def __init__(self, network: "Network", owner: Process, context: Context, protocol: Any) -> None:
        super().__init__()
        self.network, self.owner, self.context, self.protocol = network, owner, context, protocol
        self.peer: End
        self.arrived_at = 0.0
        """When the last of what was written here comes out of the other end."""
        self.lost = self.closing = self._paused = False
        self._held: deque[Any] = deque()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (str(self.peer.owner), 1), "sockname": (str(self.owner), 1)}.get(name, default)

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def write(self, data: Any) -> None:
        if not self.closing:
            self.network.send(self, bytes(data))

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        while self._held and not self._paused:
            self._take(self._held.popleft())

    def is_reading(self) -> bool:
        return not self._paused

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.network.send(self, None)
            self.network.loop.call_soon(self.lose, None, context=self.context)

    abort = close

    def arrive(self, data: bytes | None) -> None:
        """Take what came from the other end; None: there is no more."""
        if self._paused:
            self._held.append(data)
        else:
            self._take(data)

    def _take(self, data: bytes | None) -> None:
        if self.closing or self.lost:
            return
        if data is not None:
            self.protocol.data_received(data)
        elif not self.protocol.eof_received():
            self.close()

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, that this was all."""
        self.closing = True
        if not self.lost:
            self.lost = True
            self.network.ends.pop(self, None)
            self.protocol.connection_lost(error)


class Network:
    """All connections of a world."""

    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self.loop, self._chance = loop, chance
        self.ends: dict[End, None] = {}
        self.slow = 1.0
        """How many times as long as usual all takes."""
        self.sum = 0
        """A sum of all that anybody wrote, and when."""
        self._doors: dict[str, tuple[Process, Context, Callable[[], Any]]] = {}
        self._cuts: dict[tuple[str, str], float] = {}
        loop.connect, loop.listen = self._connect, self._listen

    def listen(self, host: str, owner: Process, context: Context, factory: Callable[[], Any]) -> None:
        """Accept connections to a host with what the factory makes."""
        self._doors[host] = owner, context, factory

    def refuse(self, host: str) -> None:
        """Accept no more."""
        self._doors.pop(host, None)

    def cut(self, one: Process, other: Process, until: float) -> None:
        """Keep what both write until then."""
        for pair in ((one.name, other.name), (other.name, one.name)):
            self._cuts[pair] = max(until, self._cuts.get(pair, 0.0))

    def heal_speed(self) -> None:
        """Be as quick as usual."""
        self.slow = 1.0

    def heal(self) -> None:
        """Keep nothing back from now on, and be as quick as usual."""
        self.slow = 1.0
        self._cuts.clear()

    def reset(self, owner: Process) -> None:
        """Break the connections of a process, with what is on its way."""
        for end in tuple(self.ends):
            if end.owner is owner and end in self.ends:
                self.break_off(end)

    def break_off(self, end: End) -> None:
        """Break one connection, with what is on its way."""
        for half in (end, end.peer):
            half.closing = True
            error = ConnectionResetError("the connection was reset")
            self.loop.call_soon(half.lose, error, context=half.context)

    def hang_up(self, owner: Process) -> None:
        """Close the connections of a process that died, as its system does."""
        for end in tuple(self.ends):
            if end.owner is owner and not end.closing:
                end.closing = True
                self.send(end, None)

    def end(self) -> None:
        """Have no connection left that anybody could close."""
        for end in self.ends:
            end.closing = True
        self.ends.clear()

    def send(self, end: End, data: bytes | None) -> None:
        """Have it come out of the other end."""
        end.arrived_at = max(end.arrived_at, self._comes(end.owner, end.peer.owner))
        self.sum = zlib.crc32(data or b"", self.sum ^ hash(end.arrived_at) & 0xFFFF_FFFF)
        self.loop.at(end.arrived_at, end.peer.arrive, data, context=end.peer.context)

    def _comes(self, one: Process, other: Process) -> float:
        begins = max(self.loop.now, self._cuts.get((one.name, other.name), 0.0))
        return begins + (QUICKEST + self._chance.random() * USUALLY_WITHIN) * self.slow

    async def _connect(self, owner: Process, factory: Callable[[], Any], host: str, port: int) -> Any:
        there = self._doors.get(host)
        reached = self.loop.create_future()
        if there is None:
            comes = self.loop.now + QUICKEST
        else:  # it asks, and is answered
            comes = self._comes(owner, there[0]) + self._comes(there[0], owner) - self.loop.now
        self.loop.at(comes, _answer, reached, context=copy_context())
        await reached
        if there is None or self._doors.get(host) is not there:
            raise ConnectionRefusedError(f"{host}:{port} refuses connections")
        process, context, accept = there
        ours = End(self, owner, copy_context(), factory())
        theirs = End(self, process, context, accept())
        ours.peer, theirs.peer = theirs, ours
        self.ends |= {ours: None, theirs: None}
        self.loop.call_soon(theirs.protocol.connection_made, theirs, context=context)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    async def _listen(self, owner: Process, factory: Callable[[], Any], host: str, _port: int) -> Any:
        self.listen(host, owner, copy_context(), factory)
        return _Listening(self, host)


def _answer(reached: "asyncio.Future[None]") -> None:
    if not reached.done():
        reached.set_result(None)


class _Listening:
    """What ``create_server`` returns."""

    sockets = ()

    def __init__(self, network: Network, host: str) -> None:
        self._network, self._host = network, host

    def close(self) -> None:
        self._network.refuse(self._host)

    async def wait_closed(self) -> None:
        pass

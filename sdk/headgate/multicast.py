"""Read what channels send: topics by UDP multicast, without a connection to Redis or to a node.

``async with headgate.multicast.reader("239.1.2.3", 7000) as reader: async for message in reader: ...``. Messages of a
topic come once and in order. A message that the network lost is not sent again: it is counted, and reported.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, Self

from headgate.core.links.packet_reader import MEMORY, Loss, Reception
from headgate.errors import Closed, InvalidValue
from headgate.message import Stored
from headgate.units import parse_size

__all__ = ["Loss", "MulticastMessage", "Reader", "reader"]

BUFFER: Final = 8 << 20
"""Bytes that the system is asked to keep of packets that wait to be read."""
LARGEST: Final = 65536
TURN: Final = 64
"""Packets that are read in one turn of the event loop."""
ANY: Final = "0.0.0.0"  # noqa: S104 -- the system's choice


class MulticastMessage(Stored):
    """A multicast message is one that a channel sent.

    Attributes:
        channel: name of the channel.
        topic: name of the topic.
        seq: number of the message at its topic.
        born: which topic of that name it was: one that is made anew has a higher number.
    """

    __slots__ = ("born", "channel", "seq", "topic")

    def __init__(self, channel: str, topic: str, born: int, seq: int, stored: bytes) -> None:
        super().__init__(stored)
        self.channel, self.topic, self.born, self.seq = channel, topic, born, seq

    def __repr__(self) -> str:
        return f"MulticastMessage({self.topic!r}, {self.seq}, {self.size} bytes)"

    @property
    def id(self) -> str:
        """The message's id at its topic."""
        return f"{self.seq}-{self.size}"


class Reader:
    """A reader receives the channels of one group and port. Get one from :func:`reader`.

    While ``memory`` bytes wait to be taken from it, it reads no more, and what the system has no room for is lost.
    """

    def __init__(
        self,
        group: str,
        port: int,
        *,
        interface: str | None,
        topics: frozenset[str] | None,
        on_loss: Callable[[Loss], None] | None,
        memory: int,
    ) -> None:
        self.group, self.port = group, port
        self._interface = interface or ANY
        self._on_loss = on_loss
        self._memory = memory
        self._reception = Reception(topics, memory=memory)
        self._messages: deque[MulticastMessage] = deque()
        self._held = 0
        self._reading = False
        self._closed = False
        self._arrived = asyncio.Event()
        self._socket: socket.socket | None = None

    def __repr__(self) -> str:
        return f"Reader({self.group}:{self.port}{', closed' if self._closed else ''})"

    @property
    def lost(self) -> Counter[str]:
        """Messages that did not get here, by topic; ``lost.total()`` is their sum.

        Only since it began, and exact unless the numbers of a topic had gaps there, as after a failover: then too many.
        """
        return self._reception.lost

    @property
    def duplicates(self) -> Counter[str]:
        """Messages that came again and were dropped, by topic; also those that another one overtook."""
        return self._reception.duplicates

    @property
    def refused(self) -> int:
        """Packets that are not of a channel, or that there was no room for."""
        return self._reception.refused

    async def __aenter__(self) -> Self:
        if self._socket is None and not self._closed:
            self._socket = joined(self.group, self.port, self._interface)
            self._read(on=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MulticastMessage:
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self) -> MulticastMessage:
        """Return the next message; waits for it.

        Raises:
            Closed: the reader is closed, and nothing is left.
        """
        while not self._messages:
            if self._closed or self._socket is None:
                raise Closed(f"the reader of {self.group}:{self.port} is closed")
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._held -= message.size
        if not self._reading and self._held < self._memory:
            self._read(on=True)
        return message

    def close(self) -> None:
        """Leave the group. Messages already read can still be received."""
        self._closed = True
        self._read(on=False)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._arrived.set()

    def _read(self, *, on: bool) -> None:
        if self._socket is None or on == self._reading:
            return
        self._reading = on
        loop = asyncio.get_running_loop()
        if on:
            loop.add_reader(self._socket, self._take)
        else:
            loop.remove_reader(self._socket)

    def _take(self) -> None:
        """Take in the packets that are there."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(TURN):
                if self._socket is None:  # closed by the callback of a loss
                    return
                self._handle(self._socket.recv(LARGEST))
        if self._held >= self._memory:
            self._read(on=False)

    def _handle(self, packet: bytes) -> None:
        for event in self._reception.take(packet):
            if not isinstance(event, Loss):
                message = MulticastMessage(event.channel, event.topic, event.born, event.seq, event.stored)
                self._messages.append(message)
                self._held += message.size
                self._arrived.set()
            elif self._on_loss is not None:
                self._on_loss(event)


def reader(
    group: str,
    port: int,
    *,
    interface: str | None = None,
    topics: Iterable[str] | None = None,
    on_loss: Callable[[Loss], None] | None = None,
    memory: int | str = MEMORY,
) -> Reader:
    """Return a reader of what channels send to a group; ``async with`` joins it.

    Args:
        group: the multicast address, as the channel says.
        port: likewise.
        interface: address of the interface to join at; the system's choice when None.
        topics: names of those that are wanted; all when None.
        on_loss: called with each :class:`Loss`, before the message after it.
        memory: bytes of messages that may wait here, and of those that are not whole yet.

    Raises:
        InvalidValue: an argument cannot be used.
        OSError: the group cannot be joined; raised by ``async with``.
    """
    if not _is_ipv4(group) or not ipaddress.IPv4Address(group).is_multicast:
        raise InvalidValue(
            f"{group!r} is not a multicast address; use one of 224.0.0.0/4, such as '239.1.2.3'", setting="group"
        )
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise InvalidValue(f"{port!r}; write a whole number from 1 to 65535", setting="port")
    if interface is not None and not _is_ipv4(interface):
        raise InvalidValue(f"{interface!r} is not an IPv4 address", setting="interface")
    wanted = None if topics is None else frozenset(topics)
    size = parse_size(memory, "memory")
    return Reader(group, port, interface=interface, topics=wanted, on_loss=on_loss, memory=max(1, size))


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return isinstance(text, str)


def joined(group: str, port: int, interface: str) -> socket.socket:
    """Return a socket that gets what is sent to the group, and may share the port with other readers."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        made.bind((group, port))
        membership = socket.inet_aton(group) + socket.inet_aton(interface)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except BaseException:
        made.close()
        raise
    return made

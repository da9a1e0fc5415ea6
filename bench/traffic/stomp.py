"""The STOMP 1.2 client that the bench measures ActiveMQ with: a socket, frames, receipts, and little else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bench.traffic.amqp import Noted

AHEAD = 1 << 18
"""Bytes that may wait in our own buffer before the client stops writing, as a blocking client would."""


def header(frame: bytes, name: bytes) -> bytes:
    """Return a header's value."""
    start = frame.index(b"\n" + name + b":") + len(name) + 2
    return frame[start : frame.index(b"\n", start)]


class Peer(asyncio.Protocol):
    """One connection. Bodies without zero bytes are all it knows, so that a frame ends at the next one."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready = loop.create_future()
        self.congested = False
        self.senders: dict[bytes, Sender] = {}
        self.receivers: dict[bytes, Receiver] = {}
        self.answers: dict[bytes, Noted] = {}
        """The callback of each receipt, by its name."""
        self._rest = b""
        self._transport: Any = None
        self._out: list[bytes] = []

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        """Return an open connection."""
        _, peer = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        await peer.ready
        return peer

    def connection_made(self, transport: Any) -> None:
        """Ask to be let in."""
        self._transport = transport
        transport.set_write_buffer_limits(high=AHEAD)
        transport.write(b"CONNECT\naccept-version:1.2\nhost:bench\nheart-beat:0,0\n\n\0")

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        frames = (self._rest + data).split(b"\0")
        self._rest = frames.pop()
        messages: dict[Receiver, list[bytes]] = {}
        for raw in frames:
            frame = raw.lstrip(b"\r\n")
            if frame.startswith(b"MESSAGE"):
                receiver = self.receivers[header(frame, b"subscription")]
                messages.setdefault(receiver, []).append(frame)
            elif frame.startswith(b"RECEIPT"):
                self.answers[header(frame, b"receipt-id")]()
            elif frame.startswith(b"CONNECTED"):
                self.ready.set_result(None)
            elif frame.startswith(b"ERROR"):
                raise RuntimeError(f"ActiveMQ says {frame[:300]!r}")
        for receiver, those in messages.items():
            receiver.received(those)
        for sender in self.senders.values():
            sender.pump()

    def write(self, frame: bytes) -> None:
        """Send at the end of this turn."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self.flush)
        self._out.append(frame)

    def flush(self) -> None:
        """Send now."""
        self._transport.writelines(self._out)
        self._out.clear()

    @property
    def waiting(self) -> int:
        """Bytes that the kernel did not take yet."""
        return int(self._transport.get_write_buffer_size()) + sum(map(len, self._out))

    def pause_writing(self) -> None:
        """Note that the broker reads more slowly than we write."""
        self.congested = True

    def resume_writing(self) -> None:
        """Go on."""
        self.congested = False
        for sender in self.senders.values():
            sender.pump()

    def close(self) -> None:
        """End it."""
        self._transport.abort()


class Sender:
    """Sends; with receipts it has a bounded number of messages unanswered, as a link's credit would have it."""

    def __init__(self, peer: Peer, destination: str, size: int, *, window: int | None, persistent: bool) -> None:
        self.peer, self.window = peer, window
        name = b"s%d" % len(peer.senders)
        start = b"SEND\ndestination:/queue/%s\npersistent:%s\n" % (
            destination.encode(), b"true" if persistent else b"false",
        )  # fmt: skip
        end = b"\n%s\0" % (b"x" * size)
        self._last = start + b"receipt:%s\n" % name + end
        """It asks for a receipt always, so that it is known when the broker has everything."""
        self.message = self._last if window else start + end
        peer.senders[name] = self
        peer.answers[name] = self.answered
        self.to_send = self.unanswered = self.accepted = self.written = 0
        self.done = asyncio.Event()
        self.noted: Noted = lambda: None

    def push(self, count: int) -> None:
        """Send so many more."""
        self.done.clear()
        self.to_send += count
        self.pump()

    async def run(self, count: int) -> None:
        """Send so many, until the broker has them."""
        self.push(count)
        await self.done.wait()

    def pump(self) -> None:
        """Send as far as the window reaches and the broker reads."""
        batch = 64  # then the transport says whether the kernel took it
        while self.to_send and not self.peer.congested and (not self.window or self.unanswered < self.window):
            self.to_send -= 1
            self.peer.write(self.message if self.to_send else self._last)
            self.written += 1
            self.unanswered += self.window is not None or not self.to_send
            batch -= 1
            if not batch:
                self.peer.flush()
                batch = 64
        self._look()

    def answered(self) -> None:
        """Count what the broker has."""
        self.unanswered -= 1
        self.accepted += 1
        self.noted()
        self._look()

    def _look(self) -> None:
        if not self.to_send and not self.unanswered:
            self.done.set()


class Receiver:
    """Receives; where it acknowledges, each message by itself, as AMQP's dispositions do."""

    def __init__(self, peer: Peer, destination: str, prefetch: int, *, settled: bool, keep: bool = False) -> None:
        self.peer, self.keep, self.presettled = peer, keep, settled
        self.missing = 0
        self.kept: list[bytes] = []
        self.done = asyncio.Event()
        self.noted: Noted = lambda: None
        name = b"r%d" % len(peer.receivers)
        peer.receivers[name] = self
        peer.answers[name] = self.done.set
        mode = b"auto" if settled else b"client-individual"
        self._subscribe = b"SUBSCRIBE\nid:%s\ndestination:/queue/%s\nack:%s\nactivemq.prefetchSize:%d\n\n\0" % (
            name, destination.encode(), mode, prefetch,
        )  # fmt: skip
        self._receipt = b"receipt:%s\n" % name
        self._unsubscribe = b"UNSUBSCRIBE\nid:%s\n%s\n\0" % (name, self._receipt)

    async def run(self, count: int) -> None:
        """Subscribe, receive so many, unsubscribe once the broker knows that they were received."""
        self.done.clear()
        self.missing = count
        self.peer.write(self._subscribe)
        await self.done.wait()  # what is acknowledged right before the end of a subscription comes again
        self.done.clear()
        self.peer.write(self._unsubscribe)
        await self.done.wait()

    def received(self, messages: list[bytes]) -> None:
        """Acknowledge messages, the last of them with a receipt."""
        for message in messages:
            self.missing -= 1
            receipt = b"" if self.missing else self._receipt
            if self.keep:
                self.kept.append(b"ACK\nid:%s\n%s\n\0" % (header(message, b"ack"), receipt))
            elif not self.presettled:
                self.peer.write(b"ACK\nid:%s\n%s\n\0" % (header(message, b"ack"), receipt))
            elif receipt:
                self.done.set()
            self.noted()

    def settle_one(self) -> None:
        """Acknowledge the oldest that is kept, and send the word at once."""
        self.peer.write(self.kept.pop(0))
        self.peer.flush()


async def sender(
    port: int, destination: str, size: int, window: int, *, settled: bool, persistent: bool
) -> Callable[[int], Awaitable[None]]:
    """Return what sends so many messages, over a connection of its own."""
    peer = await Peer.connect(port)
    return Sender(peer, destination, size, window=None if settled else window, persistent=persistent).run


async def receiver(port: int, destination: str, prefetch: int, *, settled: bool) -> Callable[[int], Awaitable[None]]:
    """Return what receives so many messages, over a connection of its own."""
    return Receiver(await Peer.connect(port), destination, prefetch, settled=settled).run

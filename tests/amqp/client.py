"""A client of AMQP nodes: one that behaves (`Peer`), and one that says any bytes whatever (`Rude`)."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import headgate.amqp.peer
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import Fate, Link, Outcome, Terminus
from headgate.amqp.peer import Disconnected
from headgate.core.amqp.message import AmqpMessage, decode, encode
from tests.amqp import raw
from tests.support.waiting import wait_until

PATIENCE = 60.0
Take = Callable[[Link, bytes, Any], None]


def written(body: str, annotations: dict[Any, Any] | None = None) -> bytes:
    """A message as clients send it."""
    return encode(AmqpMessage(kind="data", body=body.encode(), message_annotations=annotations or {}))


def read(message: bytes) -> str:
    """The body of a message, of a client or of the SDK."""
    found = decode(message)
    return found.body if isinstance(found.body, str) else bytes(found.body).decode()


class Peer(headgate.amqp.peer.Peer):
    """One connection of a client that keeps the rules."""

    def __init__(
        self, name: str, limits: Limits | None = None, user: str | None = None, password: str = "secret"
    ) -> None:
        super().__init__(name, user=user, password=password if user else None, limits=limits, patience=PATIENCE)
        self.gone: list[Link] = []
        self.takes: dict[Link, Take] = {}
        self.waits: dict[Any, asyncio.Future[tuple[Outcome, str]]] = {}

    @classmethod
    async def connect(
        cls, port: int, name: str = "a-client", limits: Limits | None = None, user: str | None = None
    ) -> Self:
        """Connect, as a user with the password `secret` if one is named; return when the connection is open.

        Raises:
            Gone: there is no node, or it refuses.
        """
        peer = cls(name, limits, user)
        await peer.reach("127.0.0.1", port, within=2)
        return peer

    def received(self, link: Link, messages: list[Incoming]) -> None:
        take = self.takes[link]
        for message, delivery in messages:
            take(link, message, delivery)
        self.flush_soon()

    def settled(self, link: Link, fates: list[Fate]) -> None:
        super().settled(link, fates)
        for delivery, outcome, reason, _ in fates:
            if (wait := self.waits.pop(delivery, None)) and not wait.done():
                wait.set_result((outcome, reason))

    def detached(self, link: Link) -> None:
        self.gone.append(link)
        super().detached(link)

    def went(self, error: Exception | None) -> None:
        for link in self.engine.links.values() if self._secured else ():
            link.alive = False
        for wait in self.waits.values():
            if not wait.done():
                wait.set_exception(Disconnected("the connection is lost"))
                wait.exception()
        super().went(error)

    async def sender(self, address: str | None, name: str = "s", *, presettled: bool = False) -> Link:
        """Attach a link to send over; returns when there is credit or the link is answered."""
        link = self.link(name, Terminus(address), receives=False, presettled=presettled)
        await self.until(lambda: link.credit > 0, link)
        return link

    async def receiver(
        self, address: str | None, take: Take, *, credit: int = 50, name: str = "r", **more: Any
    ) -> Link:
        """Attach a link to receive over; what else its source says is that of a `Terminus`."""
        link = self.link(name, Terminus(address, **more), receives=True)
        self.takes[link] = take
        link.set_credit(credit)
        return link

    async def put(
        self, link: Link, body: str, annotations: dict[Any, Any] | None = None
    ) -> "asyncio.Future[tuple[Outcome, str]]":
        """Send a message once there is credit; what is returned tells its outcome."""
        return await self.put_raw(link, written(body, annotations))

    async def put_raw(self, link: Link, message: bytes) -> "asyncio.Future[tuple[Outcome, str]]":
        """Send what is encoded already; see :meth:`put`."""
        await self.until(lambda: link.credit > 0, link)
        wait: asyncio.Future[tuple[Outcome, str]] = self._loop.create_future()
        self.waits[link.send(message)] = wait
        self.flush_soon()
        return wait

    async def send(self, link: Link, body: str, annotations: dict[Any, Any] | None = None) -> tuple[Outcome, str]:
        """Send a message and return its outcome."""
        return await (await self.put(link, body, annotations))


class Rude:
    """A socket on which anything may be said, and what the node answers to that."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard = b""

    async def say(self, data: bytes) -> None:
        """Write, and wait until the node's machine has taken it, or hung up."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def greet(self, *frames: bytes, window: int = 1 << 14) -> Self:
        """Open the connection and a session that takes so many transfers."""
        await self.say(raw.opening() + raw.begin(window=window) + b"".join(frames))
        return self

    async def until(self, wanted: bytes) -> bytes:
        """Read until that has come."""
        async with asyncio.timeout(PATIENCE):
            while wanted not in self.heard:
                data = await self._read()
                assert data, f"hung up before {wanted!r}: {self.heard[-300:]!r}"
        return self.heard

    async def granted(self) -> None:
        """Read until a link has credit: a flow that names one, and some."""
        async with asyncio.timeout(PATIENCE):
            while not re.search(rb"\x00S\x13\xc0.[\x07-\x0b]", self.heard, re.DOTALL):
                assert await self._read(), f"hung up: {self.heard[-300:]!r}"

    async def end(self) -> str:
        """Read until the node hangs up; returns the last AMQP error that it told."""
        async with asyncio.timeout(PATIENCE):
            while await self._read():
                pass
        return self.told

    @property
    def told(self) -> str:
        """The last AMQP error that the node told."""
        found = re.findall(
            rb"amqp:[a-z:-]+(?:exceeded|error|state|forced|implemented|allowed|timeout|violation)", self.heard
        )
        return found[-1].decode() if found else ""

    async def _read(self) -> bytes:
        try:
            data = await self.reader.read(1 << 20)
        except ConnectionError:
            return b""
        self.heard += data
        return data


@asynccontextmanager
async def rude(port: int) -> AsyncIterator[Rude]:
    """A socket to a node."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Rude(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError, OSError):
            await writer.wait_closed()


class Pulse:
    """A sender and a receiver on connections of their own, that go on all the while."""

    def __init__(self, port: int, address: str = "healthy") -> None:
        self._port, self._address = port, address
        self.sent: list[str] = []
        self.got: list[str] = []
        self._counted = False
        self._task: asyncio.Task[None]

    async def _run(self) -> None:
        link = await self._sends.sender(self._address)
        while True:
            body = f"{len(self.sent)}"
            outcome, reason = await self._sends.send(link, body)
            assert outcome == "accepted", reason
            self.sent.append(body)
            await asyncio.sleep(0.005 if self._counted else 0.05)  # as fast as it can, it would take a processor

    def _take(self, link: Link, message: bytes, delivery: Any) -> None:
        self.got.append(read(message))
        link.settle(delivery)
        link.set_credit(50)

    async def _reached(self, name: str) -> Peer:
        """Return a connection; on a busy machine a node may hang up on one whose handshake has but a second."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Disconnected):
                    return await Peer.connect(self._port, name)
                await asyncio.sleep(0.05)

    async def beats(self, more: int = 20) -> None:
        """Wait for so many messages more to come through."""
        wanted, self._counted = len(self.got) + more, True
        await wait_until(lambda: len(self.got) >= wanted or self._task.done(), timeout=PATIENCE, description="a pulse")
        self._counted = False
        if self._task.done():
            self._task.result()

    async def __aenter__(self) -> Self:
        self._sends = await self._reached("healthy-sender")
        self._receives = await self._reached("healthy-receiver")
        await self._receives.receiver(self._address, self._take)
        self._task = asyncio.create_task(self._run())
        await self.beats()
        return self

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            await self.beats()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if error[0] is None:
            await wait_until(lambda: len(self.got) >= len(self.sent))
            assert self.got[: len(self.sent)] == self.sent, "each once, in order"
        await self._sends.close()
        await self._receives.close()

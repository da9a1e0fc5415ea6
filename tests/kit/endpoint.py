"""The endpoint that the kit tries, and connections to it, by the AMQP client of the tests."""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.amqp.limits import Limits
from headgate.amqp.link import Link, Outcome, Terminus
from headgate.amqp.peer import Disconnected
from headgate.amqp.proton import lib, read_text_map
from headgate.amqp.sasl import SaslClient
from headgate.core.amqp.message import AmqpMessage, decode, encode
from headgate.core.amqp.sections import Header
from headgate.core.printable import printable
from tests.amqp.client import Peer, Rude, Take

STILL: Final = 2.0
"""Seconds without anything after which nothing more is expected."""
MOST_PATIENCE: Final = 600
FORM: Final = "amqp://[user:password@]host[:port]"


class Unusable(Exception):
    """The kit cannot begin; the text is the whole error."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where it is, and how its addresses are written.

    Attributes:
        host: its name or address.
        port: of AMQP.
        user: to log in as; None for nobody.
        password: theirs.
        queue: how the address of a queue is written, with `{}` for its name.
        topic: the same of a topic; empty where there is none to try.
        patience: seconds that something may take.
    """

    host: str
    port: int = 5672
    user: str | None = None
    password: str = field(default="", repr=False)
    queue: str = "{}"
    topic: str = "{}"
    patience: float = 10.0

    @classmethod
    def parse(cls, url: str, **more: Any) -> "Endpoint":
        """Return the endpoint of a URL.

        Raises:
            Unusable: it is none.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or 5672
        except ValueError:
            raise Unusable(f"the port or the host is none; write {FORM}") from None
        if parts.scheme != "amqp" or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise Unusable(f"no URL of an endpoint; write {FORM}")
        for template in filter(None, (more.get("queue"), more.get("topic"))):
            if re.sub(r"\{\}", "", template, count=1) != re.sub(r"[{}]", "", template) or "{}" not in template:
                raise Unusable(f"an address is written with one {{}} for the name, not {printable(template, 80)}")
        if not 0 < more.get("patience", 1) <= MOST_PATIENCE:
            raise Unusable(f"a patience is of seconds, above 0 and up to {MOST_PATIENCE}")
        user = unquote(parts.username) if parts.username else None
        return cls(parts.hostname, port, user, unquote(parts.password or ""), **more)

    def __str__(self) -> str:
        return f"amqp://{self.host}:{self.port}"

    async def connect(self, name: str) -> "Client":
        """Return an open connection.

        Raises:
            Gone: it is not reached, or refuses, or does not answer in time.
        """
        client = Client(name, Limits(window=8 << 20), self.user, self.password)
        client.spare = self.queue.format("kit.none")
        await client.reach(self.host, self.port, within=self.patience)
        return client

    async def socket(self) -> Rude:
        """Return a socket on which anything may be said, with the log-in done.

        Raises:
            OSError: it is not reached, or hangs up.
        """
        rude = Rude(*await asyncio.open_connection(self.host, self.port))
        sasl = SaslClient(self.user, self.password, self.host)
        while True:
            words, sasl.outgoing = sasl.outgoing, b""
            await rude.say(words)
            if sasl.done:
                return rude
            if not (data := await rude.reader.read(1 << 16)):
                raise ConnectionError("it hangs up instead of letting a client in")
            sasl.feed(data)


class Client(Peer):
    """One connection to an endpoint, whose links have the capability of what they are for.

    Attributes:
        spare: address of a queue that stays empty.
    """

    spare = ""
    _session: Any = None

    @property
    def product(self) -> str:
        """What the endpoint says it is, with its version; empty when it does not."""
        said = read_text_map(lib.pn_connection_remote_properties(self.engine._connection))
        return printable(" ".join(filter(None, (said.get("product"), said.get("version")))), 80)

    async def writes(self, address: str, *, kind: str = "queue", name: str = "s") -> Link:
        """Attach a sender, and wait for its first credit."""
        link = self.link(name, Terminus(address, capabilities=(kind,)), receives=False)
        await self.until(lambda: link.credit > 0, link)
        return link

    async def reads(self, address: str, credit: int, *, kind: str = "queue", name: str = "r") -> "Inbox":
        """Attach a receiver with so much credit, and wait until it is answered."""
        inbox = Inbox(self)
        inbox.link = await self._receiver(address, name, kind, inbox.take)
        inbox.allow(credit)
        return inbox

    async def _receiver(self, address: str, name: str, kind: str, take: Take) -> Link:
        # The library sends the first flow of a session before the endpoint's delivery-count can be known, and an
        # endpoint whose count begins elsewhere than at 0 reads credit out of it: so that one is for a link of no use.
        if self._session is None:
            self._session = self.engine.session()
            await self._receiver(self.spare, "first", "queue", lambda *_: None)
        link = self.engine.attach(self._session, name, receives=True)
        link.accept(Terminus(address, capabilities=(kind,)), Terminus(self.name))
        self.takes[link] = take
        self.flush_soon()
        await self.until(lambda: link.source.address is not None, link)
        return link

    def offer(
        self, link: Link, body: str, *, priority: int = 4, delay: int = 0
    ) -> "asyncio.Future[tuple[Outcome, str]]":
        """Send a message over credit that is there; what is returned tells its outcome."""
        annotations = {"x-opt-delivery-delay": delay} if delay else {}
        message = AmqpMessage(Header(priority=priority), {}, annotations, kind="data", body=body.encode())
        wait: asyncio.Future[tuple[Outcome, str]] = self._loop.create_future()
        self.waits[link.send(encode(message))] = wait
        self.flush_soon()
        return wait

    async def put_all(self, link: Link, bodies: Sequence[str], **more: Any) -> int:
        """Send messages as far as credit comes; returns how many are accepted once nothing moves any more."""
        waits = []
        for body in bodies:
            try:
                async with asyncio.timeout(STILL):
                    await self.until(lambda: link.credit > 0, link)
            except (TimeoutError, Disconnected):
                break
            waits.append(self.offer(link, body, **more))
        return (await outcomes(waits)).count("accepted")


async def outcomes(waits: Sequence["asyncio.Future[tuple[Outcome, str]]"]) -> list[str]:
    """Return what became of messages, once no more of it is heard."""
    while left := [wait for wait in waits if not wait.done()]:
        if not (await asyncio.wait(left, timeout=STILL, return_when=asyncio.FIRST_COMPLETED))[0]:
            break
    return [wait.result()[0] for wait in waits if wait.done() and not wait.cancelled() and wait.exception() is None]


class Inbox:
    """What a receiver has got and not settled, in order."""

    link: Link

    def __init__(self, client: Client) -> None:
        self.client = client
        self.bodies: list[str] = []
        self.counts: list[int] = []
        """How often the delivery of each had failed before."""
        self.deliveries: list[Any] = []

    def take(self, link: Link, message: bytes, delivery: Any) -> None:
        """Note a message that came in."""
        read = decode(message)
        self.bodies.append(bytes(read.body).decode() if isinstance(read.body, bytes) else str(read.body))
        self.counts.append(read.header.delivery_count)
        self.deliveries.append(delivery)
        self.client.changed.set()

    def __len__(self) -> int:
        return len(self.bodies)

    def allow(self, credit: int) -> None:
        """Let so many more come, from now on."""
        self.link.set_credit(credit)
        self.client.flush()

    def settle(self, count: int, outcome: Outcome = "accepted") -> None:
        """Settle the oldest that are not settled."""
        for _ in range(min(count, len(self.deliveries))):
            self.link.settle(self.deliveries.pop(0), outcome)
        self.client.flush()

    async def has(self, count: int, patience: float) -> int:
        """Wait until so many have come; returns how many did, which is fewer after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self.client.until(lambda: len(self) >= count, self.link)
        return len(self)

    async def is_still(self) -> int:
        """Wait until nothing more comes; returns how many came."""
        while True:
            before = len(self)
            if await self.has(before + 1, STILL) == before:
                return before


def told(heard: bytes) -> str:
    """Return the first AMQP error among the bytes that an endpoint sent; empty where there is none."""
    found = re.findall(rb"amqp:[a-z:-]+", heard)
    return found[0].decode() if found else ""

"""The demo has a second site: a topic that a bridge takes to an archive here, and a route to a Redis of its own."""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

import headgate
from headgate import Client, Consumer, HeadgateError
from headgate._util.tasks import stop
from headgate.policy import loads
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address

TOPIC: Final = "news"
ARCHIVE: Final = "news.archive"
HERE, THERE = "paris", "berlin"
URL: Final = "HEADGATE_SITE_DEMO"
"""Environment variable of the nodes: the URL of the second site."""
LIMIT: Final = 32 << 10
SIZE: Final = 1000
RATE: Final = 200
"""Messages a second that are published; more than the subscriber at the second site takes."""
WORK: Final = 0.02
"""Seconds that it takes for each."""
HELD: Final = 0.03
"""Seconds after which a send has waited for room; its own rate makes it wait less."""
PATIENCE: Final = 20.0
POLICY: Final = f"""
site_name = "{HERE}"

[[destination]]
match = "{TOPIC}.#"
limit = {LIMIT}
ledger_keep = 10_000_000

[[site]]
name = "{THERE}"
url = "env:{URL}"

[[bridge]]
name = "archive"
from = "{TOPIC}"
to = "{ARCHIVE}"

[[route]]
name = "to {THERE}"
to = "{THERE}"
topics = "{TOPIC}"
"""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """`Forwarded` records what was seen of the links.

    Attributes:
        sent: numbers of the messages that were accepted for the topic.
        arrived: for each target, the numbers that arrived, in order.
        peaks: the most that was ever pending and leased, by place; each has the limit ``limit``.
        limit: bytes.
        waits: how many sends had to wait for room.
        errors: what went wrong on our side.
    """

    sent: tuple[int, ...] = ()
    arrived: dict[str, tuple[int, ...]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    limit: int = LIMIT
    waits: int = 0
    errors: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return it as plain data, the messages as numbers."""
        return {
            "sent": len(self.sent),
            "arrived": {name: len(got) for name, got in self.arrived.items()},
            "peak_bytes": self.peaks,
            "limit_bytes": self.limit,
            "waits": self.waits,
            "errors": list(self.errors),
        }


class Forwarding:
    """The second site, who publishes here, and who consumes at both targets. The client stays the caller's."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._redis: EmbeddedRedis | None = None
        self._there: Client
        self._stack = contextlib.AsyncExitStack()
        self._hurry = asyncio.Event()
        self._sent: list[int] = []
        self._waits = 0
        self._arrived: dict[str, list[int]] = {THERE: [], ARCHIVE: []}
        self._tasks: list[asyncio.Task[None]] = []
        self._errors: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """Options for the nodes."""
        return {URL: self._redis.url} if self._redis else {}

    @property
    def summary(self) -> str:
        """How it goes, in a line."""
        waiting = {name: len(self._sent) - len(got) for name, got in self._arrived.items()}
        return (
            f"{TOPIC}: {len(self._sent)} published; over a bridge to {ARCHIVE}, over a route to site {THERE}; "
            f"on their way {waiting[ARCHIVE]} and {waiting[THERE]}"
        )

    async def __aenter__(self) -> Self:
        """Start the site."""
        logging.getLogger("headgate").addHandler(logging.NullHandler())  # that our publisher waits is shown at the end
        self._redis = await asyncio.to_thread(EmbeddedRedis.start)
        self._there = await self._stack.enter_async_context(
            headgate.connect(self._redis.url, namespace=self._client.namespace)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all of it."""
        for task in self._tasks:
            await stop(task)
        with contextlib.suppress(HeadgateError):
            await self._stack.aclose()
        if self._redis:
            await asyncio.to_thread(self._redis.stop)

    async def govern(self) -> None:
        """Set what holds at both sites."""
        await self._there.apply(TOPIC, kind="topic", limit=LIMIT)
        await self._client.apply_policy(loads(POLICY, "demo"))

    async def begin(self) -> None:
        """Publish and consume from now on; the links may still be on their way."""
        there = await self._stack.enter_async_context(self._there.session("subscriber"))
        here = await self._stack.enter_async_context(self._client.session("archivist"))
        targets = ((THERE, await there.consumer(TOPIC, window=8), WORK), (ARCHIVE, await here.consumer(ARCHIVE), 0.0))
        self._tasks = [asyncio.create_task(self._consume(*target), name=f"demo {target[0]}") for target in targets] + [
            asyncio.create_task(self._publish(), name="demo publisher")
        ]

    async def finish(self) -> Forwarded:
        """Publish no more, wait until all has arrived, and say what was seen."""
        *consuming, publishing = self._tasks
        self._hurry.set()
        await asyncio.wait([publishing], timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(len(got) < len(self._sent) for got in self._arrived.values()) and time.monotonic() < deadline:
            if self._errors:
                break
            await asyncio.sleep(0.02)
        peaks = {
            TOPIC: await self._field(self._client, TOPIC, "peak"),
            ARCHIVE: await self._field(self._client, ARCHIVE, "peak"),
            f"{TOPIC} at {THERE}": await self._field(self._there, TOPIC, "peak"),
        }
        for task in consuming:
            await stop(task)
        arrived = {name: tuple(got) for name, got in self._arrived.items()}
        return Forwarded(tuple(self._sent), arrived, peaks, LIMIT, self._waits, tuple(self._errors))

    @staticmethod
    async def _field(client: Client, name: str, field: str) -> int:
        snapshot = await client.store.snapshot(Address.of(client.namespace, name))
        return int(snapshot.fields.get(field, 0)) if snapshot else 0

    async def _publish(self) -> None:
        """Publish once both links have subscribed: a topic keeps nothing for who is not there."""
        try:
            async with self._client.session("publisher") as session:
                producer = await session.producer(TOPIC, kind="topic", rate=RATE)
                while await self._field(self._client, TOPIC, "subscriptions") < len(self._arrived):
                    if self._hurry.is_set():
                        return
                    await asyncio.sleep(0.05)
                while not self._hurry.is_set():
                    number = len(self._sent) + 1
                    sending = asyncio.ensure_future(producer.send(b"%d " % number + b"." * SIZE, timeout=PATIENCE))
                    try:
                        await asyncio.wait([sending], timeout=HELD)
                        self._waits += not sending.done()
                        await sending
                    finally:
                        sending.cancel()
                    self._sent.append(number)
        except HeadgateError as error:
            self._errors.append(f"publisher: {error}")

    async def _consume(self, name: str, consumer: Consumer, work: float) -> None:
        try:
            async for message in consumer:
                self._arrived[name].append(int(bytes(message.body).split()[0]))  # type: ignore[arg-type]  # as we sent it
                if work and not self._hurry.is_set():
                    await asyncio.sleep(work)
                await message.accept()
        except HeadgateError as error:
            self._errors.append(f"{name}: {error}")

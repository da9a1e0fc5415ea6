"""Wake-up hints, heard on one pub/sub connection for a whole client.

Nothing depends on them but speed: whoever waits also looks again by itself, at least every two seconds. Thousands
who wait may ask whether hints come for certain, which heartbeats tell, and then look less often.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import redis.exceptions as rx
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headgate._util.tasks import stop
from headgate.redis.backend import AGAIN, ChannelListeners, Listener, Words

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_CONNECT_WITHIN: Final = 3.0
_CONFIRM_WITHIN: Final = 0.25
"""Seconds for which a subscription waits to be confirmed: a hint before that is lost, and costs its receiver a poll."""
HEARTBEAT: Final = 1.0
"""Seconds between two heartbeats, which are sent from when somebody asks whether hints come for certain."""
_GIVEN_UP: Final = 2.5 * HEARTBEAT
"""Seconds after which a connection is given up that answers none."""
_BROKEN: Final = (rx.RedisError, OSError, AttributeError)
"""AttributeError: redis-py trips over its own None where one task writes and another finds the connection broken."""
ONE_TRY: Final = Retry(NoBackoff(), 0, supported_errors=())
"""How a connection that listens is made: by the task that listens alone. With errors that redis-py supports, it would
make a broken one anew before it raises, in each task that writes to it too, and all but one would stay open."""


class PubSubWakeUps:
    """Subscriptions to channels, restored whenever the connection is; ``dial`` returns a client for one connection."""

    def __init__(self, dial: Callable[[], Awaitable[Any]]) -> None:
        self._dial = dial
        self._listeners = ChannelListeners()
        self._wanted = asyncio.Event()
        self._unconfirmed: dict[str, asyncio.Future[None]] = {}
        self._fresh: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._pubsub: Any = None
        """The connection once it is made; until then nobody else may write to it."""
        self._making: Any = None
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._answered_at: float | None = None
        """When the connection answered a heartbeat; None when it has not yet."""
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False

    async def subscribe(self, channels: tuple[str, ...], listener: Listener, words: Words = None) -> None:
        """Call ``listener`` with the hints there that it cares for; on loss of Redis, from its return on."""
        fresh = self._listeners.add(channels, listener, words)
        for channel in fresh:
            self._unconfirmed.setdefault(channel, asyncio.get_running_loop().create_future())
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="headgate wake-ups")
        elif fresh:
            self._fresh += fresh
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(), name="headgate wake-ups, more")
        if coming := [self._unconfirmed[channel] for channel in channels if channel in self._unconfirmed]:
            await asyncio.wait(coming, timeout=_CONFIRM_WITHIN)

    async def _ask(self) -> None:
        """Subscribe to what came in one turn of the loop, in one write: thousands of consumers may open at a time."""
        while self._fresh:
            fresh = [channel for channel in self._fresh if channel in self._listeners]
            self._fresh = []
            if fresh and (pubsub := self._writable) is not None:  # else all are subscribed to as it is connected
                with contextlib.suppress(*_BROKEN):
                    async with asyncio.timeout(_CONFIRM_WITHIN):
                        await pubsub.subscribe(*fresh)

    async def unsubscribe(self, channels: tuple[str, ...], listener: Listener) -> None:
        """Stop calling ``listener``."""
        gone = self._listeners.drop(channels, listener)
        for channel in gone:
            self._confirm(channel)
        if gone and (pubsub := self._writable) is not None:
            with contextlib.suppress(*_BROKEN):
                async with asyncio.timeout(0.2):
                    await pubsub.unsubscribe(*gone)

    def sure(self, channels: tuple[str, ...]) -> bool:
        """Return whether hints on these channels come for certain; the word ``again`` reports a later loss.

        It is so where the channels are subscribed to, and the connection answered a heartbeat a moment ago.
        """
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="headgate heartbeats")
        return self._answered_at is not None and all(
            channel in self._listeners and channel not in self._unconfirmed for channel in channels
        )

    def reconnect(self) -> None:
        """Listen elsewhere: another server is in charge, and this one may hang.

        A connection that is only ended would be made again by redis-py, to the same host.
        """
        if self._task is not None and (self._leaving is None or self._leaving.done()):
            self._leaving = asyncio.create_task(self._move(self._task), name="headgate wake-ups, moved")

    async def _move(self, listening: "asyncio.Task[None]") -> None:
        await stop(listening)
        await self._hang_up()
        if listening.done() and not self._closed:
            self._task = asyncio.create_task(self._listen(), name="headgate wake-ups")

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        await stop(self._leaving)
        await stop(self._beating)
        await stop(self._asking)
        await stop(self._task)
        await self._hang_up()

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                await self._wanted.wait()
                pubsub = await self._connect()
                while not self._closed:
                    message = await pubsub.get_message(timeout=None)
                    pause = _FIRST_PAUSE
                    if message and message["type"] == "message":
                        self._dispatch(message["channel"].decode(), message["data"].decode())
                    elif message and message["type"] == "subscribe":
                        self._subscribed(message["channel"].decode())
                    elif message and message["type"] == "pong":
                        self._answered_at = asyncio.get_running_loop().time()
            except _BROKEN:
                await self._hang_up()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connect(self) -> Any:
        async with asyncio.timeout(_CONNECT_WITHIN):  # a server that hangs takes the connection and does not greet
            self._client = await self._dial()
            self._making = self._client.pubsub()
            known = tuple(self._listeners) or ("hg",)  # all have gone meanwhile, and none is no command
            await self._making.subscribe(*known)
            self._pubsub = self._making
            if late := [channel for channel in self._listeners if channel not in known]:
                await self._pubsub.subscribe(*late)
        return self._pubsub

    async def _beat(self) -> None:
        """Ask each connection whether it is alive, and end one that does not say so."""
        loop = asyncio.get_running_loop()
        pubsub, since = None, 0.0
        while True:
            if pubsub is not self._pubsub:
                pubsub, since = self._pubsub, loop.time()
            with contextlib.suppress(*_BROKEN):
                if pubsub is not None and loop.time() - max(since, self._answered_at or 0.0) > _GIVEN_UP:
                    pubsub = None
                    self.reconnect()
                elif self._writable is not None and self._listeners:
                    await self._writable.ping()
            await asyncio.sleep(HEARTBEAT)

    @property
    def _writable(self) -> Any:
        """The connection while it is up: one that broke is made again by the task that listens, with all channels."""
        pubsub = self._pubsub
        return pubsub if pubsub is not None and pubsub.connection and pubsub.connection.is_connected else None

    def _subscribed(self, channel: str) -> None:
        if channel in self._unconfirmed:
            self._confirm(channel)
        else:
            self._dispatch(channel, AGAIN)

    def _confirm(self, channel: str) -> None:
        waiting = self._unconfirmed.pop(channel, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _dispatch(self, channel: str, text: str) -> None:
        self.tell(channel, text.split())

    def tell(self, channel: str, words: list[str]) -> None:
        """Have those who listen to a channel here hear a hint, as if it had come."""
        for listener, cared in tuple(self._listeners.get(channel, {}).items()):
            if cared is None or words[0] in cared:
                listener(words)

    async def _hang_up(self) -> None:
        self._pubsub = self._answered_at = None
        # The client last: it closes what its subscriptions, in the middle of a call, did not in time.
        client = self._client
        for opened in (self._making, client):
            if opened is not None:
                with contextlib.suppress(*_BROKEN):
                    async with asyncio.timeout(0.2):
                        await opened.aclose()
        if self._client is client:  # only now: whoever is cancelled on the way leaves them to the next
            self._making = self._client = None

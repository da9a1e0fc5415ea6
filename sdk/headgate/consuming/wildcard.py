"""Wildcard consumers: one subscription on every topic that a pattern matches, the ones to come included."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Final

from headgate._util.tasks import in_background, stop
from headgate.consuming.consumer import MAX_SETTLED, Consumer
from headgate.consuming.inbox import BREATH
from headgate.core.names import read_name
from headgate.core.sharing import Rotation, Share, SharedWindow
from headgate.core.window import Window
from headgate.credit.account import CLOSE_WITHIN
from headgate.credit.calls import Ensure
from headgate.errors import HeadgateError, PolicyError
from headgate.message import Message, Outcome
from headgate.namespace.topics import Entry, Index
from headgate.redis.keys import Address, namespace_channel
from headgate.redis.replies import Deliveries

LOOK_EVERY: Final = 5.0
"""Seconds between looks at the topics there are; a quarter of the session's TTL if that is less."""

AT_ONCE: Final = 64
"""Topics that are joined at a time."""


class TopicRemovedError(HeadgateError):
    """A topic that a wildcard consumer was on was removed; it goes on without it."""


OpenPart = Callable[["WildcardConsumer", str], Awaitable["Part"]]


class WildcardConsumer(Consumer):
    """A consumer of all topics that a pattern matches. Get one from :meth:`Session.consumer` with a pattern.

    It is used like any consumer: one window for all topics together, which take turns; :attr:`Message.destination` says
    where a message comes from. New topics are joined and removed ones left while it is open.
    """

    def __init__(self, *, index: Index, entry: Entry, open_part: OpenPart, **named: Any) -> None:
        super().__init__(ensure=_no_destination, number=lambda: 0, **named)
        self.shared = SharedWindow(self._holding.window)
        self._holding = self.shared.total
        self.rotation: Rotation[Message] = Rotation()
        self._buffer = self.rotation
        self._index = index
        self._entry = entry
        self._holder = f"{self.session}~{secrets.token_hex(2)}"
        self._open_part = open_part
        self._parts: dict[str, Part] = {}
        self._created: set[str] = set()
        self._ended_parts: list[Part] = []
        self._opened = False
        self._taken = 0

    @property
    def id(self) -> str:
        """What the consumer is called in the namespace's index."""
        return self._holder

    @property
    def topics(self) -> list[str]:
        """The topics that it is on."""
        return sorted(self._parts)

    async def start(self) -> None:
        """Subscribe, attach to every topic there is, and begin to fetch.

        Raises:
            PolicyError: the pattern matches queues only.
            InvalidValue: a topic has 64 consumers of this session already.
            CoordinatorUnavailable: Redis does not answer.
        """
        namespace = self.address.namespace
        await self._check(await self._index.topics(namespace, self._entry.pattern))
        await self._wake_ups.subscribe((namespace_channel(namespace),), self._hear)
        await self._look()
        self._opened = True
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.id}")
        self._task.add_done_callback(self._ended)

    async def _check(self, topics: set[str]) -> None:
        """Refuse a pattern that matches queues only, before anything is made that would outlive this."""
        if not topics and (queue := await self._find_queue()):
            raise PolicyError(
                f"{self.address.name!r} matches {queue!r}, which is a queue; patterns subscribe to topics, "
                f"so open a consumer for each queue"
            )

    async def _find_queue(self) -> str | None:
        """Return a queue that the pattern matches, or None."""
        return await self._index.queue(self.address.namespace, self._entry.pattern)

    def make_part(self, **named: Any) -> "Part":
        """Return a consumer of one topic, for :class:`Part`'s arguments by name."""
        return Part(self, **named)

    async def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message, of each topic in turn; as :meth:`Consumer.receive`."""
        self._taken += 1
        if self._taken % BREATH == 0:
            await asyncio.sleep(0)  # let settlements out and deliveries in while the caller works on what is here
        return await super().receive(timeout=timeout)

    def configure(self, *, window: Window | int | str) -> Awaitable[None]:
        """Change the window that all topics share; as :meth:`Consumer.configure`."""
        self._check_open()
        self.shared.configure(Window.of(window))
        return in_background(self._tell_parts(), self._configuring, f"headgate {self.id}")

    async def _tell_parts(self) -> None:
        done = await asyncio.gather(
            *(part.configure(window=self.window) for part in self._all()), return_exceptions=True
        )
        self.shared.freed()
        for error in done:
            if error is not None:
                raise error

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; as :meth:`Consumer.flush`."""
        done = await asyncio.gather(*(part.flush(timeout=timeout) for part in self._all()), return_exceptions=True)
        for error in done:
            if error is not None:
                raise error

    async def close(self) -> None:
        """Settle what was settled, give the rest back; about 1 s at the most. A durable subscription stays."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        await asyncio.gather(*map(stop, (self._task, *self._configuring)))
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._index.leave(self.address.namespace, self._entry, self._holder)
        await asyncio.gather(*(part.close() for part in self._all()))
        await self._wake_ups.unsubscribe((namespace_channel(self.address.namespace),), self._hear)
        self._parts.clear()
        await self._on_close(self)

    def settle(
        self, message: Message, outcome: Outcome, *, confirm: bool, reason: str = ""
    ) -> asyncio.Future[None] | None:
        """Queue a settlement at the message's own topic. See :meth:`Message.accept`."""
        return message._consumer.settle(message, outcome, confirm=confirm, reason=reason)  # noqa: SLF001

    async def still_there(self, topic: Address) -> bool:
        """Return whether a topic that Redis does not know was lost, and is to be made again, not removed on purpose."""
        await self._renew()
        return await self._index.has(topic)

    async def relieve(self, topic: Address) -> None:
        """Send home the paused consumer that a topic's producer may have put in this one's place."""
        with contextlib.suppress(HeadgateError):  # it leaves by itself too
            await self._index.relieve(topic, self._entry)

    def part_ended(self, part: "Part", error: BaseException) -> None:
        """Note that a part cannot go on; whoever waits is told unless its topic is just not there any more."""
        self._ended_parts.append(part)
        if not isinstance(error, TopicRemovedError | PolicyError):
            known = isinstance(error, HeadgateError)
            self._failure = error if known else HeadgateError(f"{part.address.name!r} failed: {error!r}")
            self._arrived.set()
        self._wake.set()

    def _all(self) -> list["Part"]:
        return list(self._parts.values())

    async def _await_arrival(self, deadline: float | None) -> None:
        self.shared.asked += 1
        self.shared.freed()
        try:
            await super()._await_arrival(deadline)
        finally:
            self.shared.asked -= 1

    def _hear(self, words: list[str]) -> None:
        if words[0] == "created" and (name := read_name(words[1])) is not None:
            self._created.add(name)
            self._wake.set()

    async def _step(self) -> bool:
        self._wake.clear()
        while self._ended_parts:
            await self._leave(self._ended_parts[-1])
            self._ended_parts.pop()
        if self._loop.time() >= self._look_at:
            await self._look()
            return True
        if created := tuple(self._created):
            await self._join(name for name in created if self._entry.pattern.matches(name))
            self._created.difference_update(created)
            return True
        return False

    async def _rest(self) -> None:
        if not self._wake.is_set():
            timer = self._loop.call_at(self._look_at, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _look(self) -> None:
        """Keep the entry, and then be on the topics that there are: whoever makes one later sees the entry."""
        asked_at = self._loop.time()
        await self._renew()
        names = await self._index.topics(self.address.namespace, self._entry.pattern)
        for name in self._parts.keys() - names:
            await self._leave(self._parts[name])
        await self._join(names)
        self._look_at = min(self._lease.renew_at, asked_at + LOOK_EVERY)

    async def _renew(self) -> None:
        asked_at = self._loop.time()
        made = await self._index.keep(self.address.namespace, self._entry, self._holder)
        self._lease.renewed(asked_at)
        if made and self._opened:  # Redis lost the entry, and so perhaps the topics
            await asyncio.gather(*(self._index.announce(part.address) for part in self._all()))

    async def _join(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self._parts]
        failed: BaseException | None = None
        for at in range(0, len(new), AT_ONCE):  # they are opened one after the other, and none waits long for its turn
            opening = map(self._open, new[at : at + AT_ONCE])
            for error in await asyncio.gather(*opening, return_exceptions=True):
                if error is not None and not isinstance(error, TopicRemovedError | PolicyError):
                    failed = error
        if failed is not None:
            raise failed

    async def _open(self, name: str) -> None:
        """Open a part, and note it before anybody can end this: what is noted is closed with the whole."""
        self._parts[name] = await self._open_part(self, name)

    async def _leave(self, part: "Part") -> None:
        if self._parts.get(part.address.name) is part:
            del self._parts[part.address.name]
        await part.close()


class Part(Consumer):
    """A wildcard consumer's consumer of one topic. It fetches when it is its turn, within the window that all share."""

    def __init__(self, whole: WildcardConsumer, *, ensure: Ensure, **named: Any) -> None:
        super().__init__(ensure=self._ensure_lost, **named)
        self._whole = whole
        self._recover: Ensure = ensure
        self._share = Share(whole.shared, self._wake.set)
        self._holding = self._share
        self._buffer = whole.rotation.lane()
        self._arrived = whole._arrived  # noqa: SLF001  (one event for all who wait)
        self.take_from_threads = lambda part, most: whole.take_from_threads(part, most)  # noqa: PLW0108 -- set later

    @property
    def _receivers(self) -> int:
        """Who waits for a message, waits for all topics."""
        return self._whole.shared.asked

    @_receivers.setter
    def _receivers(self, number: int) -> None:
        """Ignore what a consumer counts for itself: nobody waits at a part."""

    @property
    def _received(self) -> int:
        """How often somebody asked for a message, of whatever topic."""
        return self._whole._received  # noqa: SLF001

    @_received.setter
    def _received(self, number: int) -> None:
        """Ignore what a consumer counts for itself: nobody receives at a part."""

    async def start(self) -> None:
        """Attach, and begin to fetch; errors as :meth:`Consumer.start`."""
        await super().start()
        await self._whole.relieve(self.address)

    async def close(self) -> None:
        """Settle what was settled, give the rest back; never longer than 1 s."""
        await super().close()
        self._share.clear()

    async def _ensure_lost(self, recover: bool) -> str:  # noqa: FBT001
        if not recover or not await self._whole.still_there(self.address):
            raise TopicRemovedError(f"topic {self.address.name!r} was removed")
        return str(await self._recover(recover))

    def _room(self) -> tuple[int, int]:
        if self._lost_reply:
            return self._share.reserved, 1  # what it asked for; it gets what it was given then
        going = [message.size for _, message, _ in islice(self._outcomes, MAX_SETTLED)]
        due = self._loop.time() >= self._look_at  # before that there is nothing here, as far as it knows
        return self._share.ask(len(going), sum(going), wait=due)

    async def _exchange(self, room: tuple[int, int]) -> None:
        if room[0] and not self._lost_reply:
            self._share.reserve(room[0])
        await super()._exchange(room)
        if not self._lost_reply:
            self._share.release()

    def _deliver(self, answer: Deliveries, *, asked: int) -> None:
        super()._deliver(answer, asked=asked)
        if answer.messages and self.window.bytes != "unlimited":
            self._look_at = 0.0  # bytes may have ended the answer: it gets in line for the rest

    def _ended(self, task: "asyncio.Task[None]") -> None:
        super()._ended(task)
        if not task.cancelled() and (error := task.exception()):
            self._whole.part_ended(self, error)


async def _no_destination(recover: bool) -> str:  # noqa: FBT001
    raise AssertionError(recover)

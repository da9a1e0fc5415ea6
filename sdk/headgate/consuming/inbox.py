"""A user's consumer has an inbox: what is here, who waits for more, and at what rate they take it."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from headgate._util.pacing import Pacing
from headgate.message import Holder, Message

BREATH: Final = 64
"""Messages after which a receiver that never has to wait lets the other tasks run."""
TakeBack = Callable[[Holder, int], list[Message]]


class InboxSource(Protocol):
    """An inbox is filled by a source."""

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more."""

    @property
    def failure(self) -> BaseException | None:
        """Why it cannot go on; None while it can."""

    @property
    def denied(self) -> BaseException | None:
        """Why Redis or a node does nothing for it now."""


class InboxFeed(Protocol):
    """A feed, as far as where it delivers needs it."""

    received_before: int
    """How often a message had been asked for here when others wanted what it held."""

    @property
    def settlements(self) -> Holder:
        """The holder of what it delivers."""

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled."""


class Inbox:
    """An inbox holds messages that nobody has begun, and those who wait for one.

    Attributes:
        buffer: the messages.
        pacing: the rate of their own at which they are taken, in messages a second.
        asked: how many wait for a message.
        received: how often one was asked for.
        take_from_threads: takes back up to that many of a holder's messages that were handed to threads, and that none
            of them has begun.
    """

    def __init__(self, rate: float | None, buffer: deque[Message] | None = None) -> None:
        self.buffer: deque[Message] = deque() if buffer is None else buffer
        self.pacing = Pacing(rate)
        self.room: Callable[[int], int] = int  # all that are asked for: the window alone bounds what is here
        self.asked = self.received = 0
        self.take_from_threads: TakeBack = lambda _holder, _most: []
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def stir(self) -> None:
        """Have those who wait look again."""
        self._arrived.set()

    def close(self) -> None:
        """Have those who wait look again, those who wait for their turn too."""
        self._arrived.set()
        self.pacing.wake()

    def take_all(self) -> list[Message]:
        """Take all that is here."""
        messages = list(self.buffer)
        self.buffer.clear()
        return messages

    async def wait(self, source: InboxSource, deadline: float | None, asks: Callable[[], None]) -> None:
        """Wait until something is here, until its source ends, or until a moment of the loop's clock."""
        self.asked += 1
        asks()
        try:
            async with asyncio.timeout_at(deadline):
                while not self.buffer and not source.closed and source.failure is None and source.denied is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        finally:
            self.asked -= 1

    async def has_turn(self, source: InboxSource, deadline: float | None) -> bool:
        """Wait for a turn at the rate; False when none comes before the deadline, which is waited for."""
        while await self.pacing.turn(patience=math.inf if deadline is None else deadline - self._loop.time()):
            if deadline is None or self._loop.time() >= deadline or source.closed:
                return False
            await self.pacing.until(deadline)  # the rate may be raised meanwhile, or the consumer closed
        return True


def take_own(buffer: deque[Message] | list[Message], holder: Holder, most: int) -> list[Message]:
    """Take out of a buffer up to ``most`` messages that came to one holder, the newest first."""
    own = [message for message in reversed(buffer) if message.is_of(holder)][:most]
    if own:
        taken = set(map(id, own))
        kept = [message for message in buffer if id(message) not in taken]
        buffer.clear()
        buffer.extend(kept)
    return own


class InboxSink:
    """An inbox sink is where one feed puts its messages: all of the inbox, or a lane where several feeds fill it.

    Feeds of slices fill it all together; then each takes out only what came over it.
    """

    started = True

    def __init__(self, inbox: Inbox, buffer: deque[Message], feed: InboxFeed) -> None:
        self._inbox = inbox
        self._buffer = buffer
        self._feed = feed
        self._is_lane = buffer is not inbox.buffer
        self.deliver = buffer.append
        self.room = inbox.room
        self.stir = inbox.stir
        self.close = inbox.stir if self._is_lane else inbox.close

    def clear(self) -> None:
        """Forget what nobody has begun."""
        if self._is_lane:
            self._buffer.clear()
        else:
            take_own(self._buffer, self._feed.settlements, len(self._buffer))

    def expired(self) -> None:
        """Forget what others were given."""
        self.clear()

    @property
    def asked(self) -> int:
        """How many wait for a message."""
        return self._inbox.asked

    @property
    def received(self) -> int:
        """How often one was asked for."""
        return self._inbox.received

    @property
    def waits(self) -> int:
        """How many wait for a message while none is here."""
        return 0 if self._buffer else self._inbox.asked

    @property
    def resumes(self) -> bool:
        """Whether to fetch again: somebody waits, or has nothing of this feed and goes on with others."""
        inbox, feed = self._inbox, self._feed
        return inbox.asked > 0 or (inbox.received > feed.received_before and not feed.held_messages)

    def delivered(self, *, found_all: bool) -> None:
        """Wake those who wait, if there is something."""
        del found_all
        if self._buffer:
            self._inbox.stir()

    def recalled(self) -> None:
        """Wake those who wait."""
        self._inbox.stir()

    def take_back(self, holder: Holder, most: int) -> list[Message]:
        """Take out up to ``most`` messages of one holder that nobody has begun, the newest first."""
        buffer = self._buffer
        if self._is_lane:
            back = [buffer.pop() for _ in range(min(most, len(buffer)))]
        else:
            back = take_own(buffer, holder, most)
        return back + self._inbox.take_from_threads(holder, most - len(back)) if len(back) < most else back

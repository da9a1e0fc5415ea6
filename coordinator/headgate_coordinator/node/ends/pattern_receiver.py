"""A client's link that receives from every topic that a pattern matches, under one credit and one window."""

from collections.abc import Iterable
from typing import Any, Final

from headgate.amqp.link import Terminus
from headgate.consuming.wildcard import Part, WildcardConsumer
from headgate.core.sharing import SharedWindow
from headgate.core.window import Window
from headgate.namespace.topics import read_pattern
from headgate.redis.replies import Deliveries
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.conditions import TooManyTopics, condition_of
from headgate_coordinator.node.ends.receiver import Feed, Fetcher, Outlet

MOST_TOPICS: Final = 1024
"""Topics that the receivers by pattern of one connection are on, each counted for itself."""


def refusal_by_pattern(pattern: str, source: Terminus) -> str | None:
    """Return why a client does not get what it asks for by pattern; None where it gets it.

    Raises:
        InvalidName: it is no pattern.
    """
    read_pattern(pattern)
    words = set(source.capabilities)
    if "shared" in words:
        hint = "a shared subscription is of one topic"
    elif "queue" in words:
        hint = "queues are received from by name, one a link"
    elif source.browse and not source.durable and "topic" not in words:
        hint = "a destination is browsed by its name, one a link"
    else:
        return None
    return f"{pattern!r} is a pattern, which subscribes to topics; {hint}"


class LinkWindow(SharedWindow):
    """A window over several topics that opens no further than their link has credit for."""

    def __init__(self, window: Window, whole: "PatternConsumer") -> None:
        super().__init__(window)
        self._whole = whole

    def room(self, going: int, going_bytes: int) -> tuple[int, int]:
        """Return the room there is, under the window and the credit, beside the fetches under way."""
        messages, size = super().room(going, going_bytes)
        wanted = self._whole.wanted - sum(self.under_way.values())
        return (min(messages, wanted), size) if wanted > 0 and messages else (0, 0)


class LinkPart(Fetcher, Part):
    """A link's consumer of one of its topics."""

    _whole: "PatternConsumer"
    _look_of = 0
    """Which look of the whole the fetch under way belongs to."""

    async def _exchange(self, room: tuple[int, int]) -> None:
        self._look_of = self._whole.looks
        await super()._exchange(room)
        self._whole.check_drained()

    def _deliver(self, answer: Deliveries, *, asked: int) -> None:
        super()._deliver(answer, asked=asked)
        if self.recalls:
            self._whole.recalling.add(self)

    def _found_all(self) -> None:
        if self._look_of == self._whole.looks:
            self._whole.unseen.discard(self)
        else:  # this was asked before the client wanted its credit used up
            self.look()

    def _recalled(self) -> None:
        if not self.recalls:
            self._whole.recalling.discard(self)
            self._whole.shared.freed()
            self._whole.check_drained()

    def _hand_back(self, keep: int) -> None:
        super()._hand_back(keep)
        if self._rests:
            self._whole.resting.add(self)

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return len(self._recall)

    def resume(self) -> None:
        """Fetch again, if it had given back what could not be handed on; say that its client has given credit."""
        if self._rests:
            self._rests = False
            self._look_at = 0.0
        self._wake.set()

    def look(self) -> None:
        """Fetch when it is its turn."""
        self._look_at = 0.0
        self._wake.set()


class PatternConsumer(Feed, WildcardConsumer):
    """A consumer by pattern whose parts fetch together no more than their link has credit for.

    Attributes:
        looks: how often the client wanted its credit used up.
        unseen: the parts that may still have something since it last did.
        recalling: the parts that wait for payloads.
        resting: the parts that gave back what could not be handed on.
        reach: topics that it is on, or about to be.
    """

    _parts: dict[str, LinkPart]  # type: ignore[assignment]  # make_part makes no others

    def __init__(self, outlet: Outlet, **named: Any) -> None:
        super().__init__(**named)
        self.outlet = outlet
        self.shared = LinkWindow(self._holding.window, self)
        self._holding = self.shared.total
        self.looks = self.reach = 0
        self.unseen: set[LinkPart] = set()
        self.recalling: set[LinkPart] = set()
        self.resting: set[LinkPart] = set()
        self._started = False

    async def _check(self, topics: set[str]) -> None:
        self._bound(topics)
        if not topics:
            async with self.outlet.connection.node.searching:
                await super()._check(topics)

    async def _find_queue(self) -> str | None:
        return await self._index.queue(self.address.namespace, self._entry.pattern, hidden=is_reply_queue)

    def _bound(self, topics: Iterable[str]) -> None:
        """Count the topics that are to be joined.

        Raises:
            TooManyTopics: its connection may not be on so many.
        """
        self.reach = len(self._parts.keys() | topics)
        consumers = (getattr(end, "consumer", None) for end in self.outlet.connection.ends.values())
        others = sum(each.reach for each in consumers if isinstance(each, PatternConsumer) and each is not self)
        if others + self.reach > MOST_TOPICS:
            raise TooManyTopics(
                f"{self.address.name!r} matches {self.reach} topics, and other patterns of this connection {others}; "
                f"together at most {MOST_TOPICS}: use narrower patterns, or another connection"
            )

    def make_part(self, **named: Any) -> LinkPart:
        """Return a consumer of one topic, for :class:`Part`'s arguments by name."""
        part = LinkPart(self, **named)
        part.outlet, part.started = self.outlet, self._started or self.outlet.link.credit > 0
        return part

    async def _join(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._bound(names)
        await super()._join(names)

    async def _open(self, name: str) -> None:
        await super()._open(name)
        if self.outlet.drains:
            self.unseen.add(self._parts[name])
        self._parts[name].resume()  # credit may have come meanwhile

    async def _leave(self, part: Part) -> None:
        await super()._leave(part)
        self.outlet.expired(part)
        for parts in (self.unseen, self.recalling, self.resting):
            parts.discard(part)
        self.reach = len(self._parts)

    async def _step(self) -> bool:
        worked = await super()._step()
        self.check_drained()
        return worked

    def part_ended(self, part: Part, error: BaseException) -> None:
        """Note that a part cannot go on; the link ends, unless its topic is just not there any more."""
        super().part_ended(part, error)
        if self._failure is not None:
            self.outlet.failed(self._failure)

    @property
    def wanted(self) -> int:
        """Messages that the link has credit for, beside those that are here."""
        return self.outlet.credit - len(self.rotation) - self.recalls

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return sum(part.recalls for part in self.recalling)

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something: there are topics, and there is room for what they have."""
        return bool(self._parts or self._created) and (bool(self.shared.under_way) or self.shared.room(0, 0)[0] > 0)

    def ask(self, receivers: int) -> None:
        """Say how many messages the link has credit for."""
        before, self.shared.asked = self.shared.asked, receivers
        if receivers > before:
            self.resume()

    def resume(self) -> None:
        """Let those fetch again that gave back what could not be handed on, and the first in line."""
        if self.outlet.credit and not self._started:
            self._started = True
            self.resting.update(self._parts.values())
        while self.resting:
            self.resting.pop().resume()
        self.shared.freed()

    def look(self) -> None:
        """Have every topic looked at, and say when that is done."""
        self.looks += 1
        self.unseen = set(self._parts.values())
        for part in self.unseen:
            part.look()

    def check_drained(self) -> None:
        """Give the credit back to a client that wants it used up, once all topics were looked at or no room is left."""
        if not self.outlet.drains or self.shared.under_way or self._created or self.rotation:
            return
        if not self.unseen or not self.shared.room(0, 0)[0]:
            self.outlet.exhausted()


class PatternOutlet(Outlet):
    """Hands a client the messages of all topics that a pattern matches, and settles each at its own topic."""

    @property
    def consumer(self) -> Feed | None:
        """The consumer that fetches for it."""
        return self._consumer

    def _make(self, *args: Any, **kwargs: Any) -> Feed:
        self._consumer = PatternConsumer(self, *args, **kwargs)
        return self._consumer

    def failed(self, error: BaseException) -> None:
        """End the link: the consumer cannot go on."""
        if isinstance(error, TooManyTopics):
            self.fail(*condition_of(error))
        else:
            super().failed(error)

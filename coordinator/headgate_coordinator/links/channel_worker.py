"""A feeder reads what one topic of a channel has, sends it, and then lets the topic release it.

The group keeps no mark, so a worker begins at the last message that left the topic, and sends again what an earlier one
sent and did not let go of: at most one batch. Readers drop by number what they had.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from headgate._util.reconnect import until_answered
from headgate.core.links.calls import Entry, Opened, Read
from headgate.core.links.channel import HEADERS, Feed
from headgate.core.links.multicast import Packet, split
from headgate.core.links.trouble import Trouble
from headgate.errors import SpoolUnavailable
from headgate.explain.destination_facts import backlogs
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address, link_id
from headgate.redis.replies import Snapshot
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links.forwarder import BATCH, LOOK_AGAIN
from headgate_coordinator.links.multicast_socket import Multicaster
from headgate_coordinator.links.rates import ChannelRate
from headgate_coordinator.links.worker import Whole

HEARTBEAT: Final = 1.0
"""Seconds without a packet after which the last number is sent again."""
MOST_READ: Final = 1 << 20
"""Bytes a batch; a larger message comes alone."""


@dataclass(slots=True)
class Progress:
    """The progress of a topic's feeder, and what others may know of it.

    Attributes:
        committed: messages sent, also those sent again; called as a link between destinations calls its own.
        committed_bytes: of these, as they are stored.
        packets: that went out, heartbeats among them.
        backlog: messages that the topic has for it, as last seen.
        trouble: why nothing is sent; None while it is.
        later: the number of the lease in force, where that is another; else 0.
    """

    committed: int = 0
    committed_bytes: int = 0
    packets: int = 0
    backlog: int = 0
    trouble: Trouble | None = None
    later: int = 0


@dataclass(slots=True)
class _Place:
    """Says where it is at the topic: which topic of that name, and the last message that was sent."""

    born: int
    last: int


class Feeder:
    """Works on one topic of a channel while the lease on it has the number ``fence``.

    Args:
        store: the scripts.
        wake_ups: hints that there is something.
        namespace: of topic and channel.
        feed: which topic, and where to.
        whole: returns messages with the payloads that are in spool stores.
        socket: where packets go out.
        progress: kept up to date.
        fence: number of the lease.
    """

    def __init__(
        self,
        store: Store,
        wake_ups: WakeUps,
        namespace: str,
        feed: Feed,
        whole: Whole,
        socket: Multicaster,
        progress: Progress,
        *,
        fence: int,
    ) -> None:
        self._progress = progress
        self._feed, self._fence, self._whole = feed, fence, whole
        self._link = link_id(feed.link)
        self._store, self._links, self._wake_ups = store, LinkStore(store.server), wake_ups
        self._topic = Address.of(namespace, feed.source)
        self._socket = socket
        self._rate = ChannelRate(store, namespace, feed.channel, self._missing)
        self._read = min(MOST_READ, feed.channel.slice)
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._looked_at = 0.0
        self._place: _Place | None = None

    async def run(self) -> None:
        """Work until a later lease is in force, or until it is cancelled.

        Raises:
            OSError: packets cannot be sent.
        """
        channels = self._topic.channels(self._link)
        await self._wake_ups.subscribe(channels, self._hear)
        try:
            await self._rate.begin(ttl_ms=1000)
            while not self._progress.later:
                self._place = place = await self._open()
                while place and await self._step(place):
                    pass
        finally:
            await self._wake_ups.unsubscribe(channels, self._hear)

    async def leave(self) -> None:
        """Let the topic go of what was sent, so that the next worker does not send it again.

        Raises:
            CoordinatorUnavailable: no answer; then it does.
        """
        if (place := self._place) and not self._progress.later:
            await self._links.read(
                self._topic, self._link, fence=self._fence, born=place.born, mark=place.last, after=place.last,
                messages=0, size=1,
            )  # fmt: skip

    async def _open(self) -> _Place | None:
        opened: Opened = await until_answered(self._missing)(
            self._links.open, self._topic, self._link, fence=self._fence, window=f"{BATCH}/{self._read}"
        )
        if opened.code == "OK":
            self._progress.trouble = None
            return _Place(opened.born, opened.released)
        if opened.code == "FENCED":
            self._progress.later = opened.fence
        else:
            full = opened.code == "FULL"
            self._progress.trouble = Trouble.of("subscriptions") if full else Trouble.of("topic", opened.code)
            await asyncio.sleep(LOOK_AGAIN)
        return None

    async def _step(self, place: _Place) -> bool:
        """Let go of what was sent, and send what comes next; returns whether the link is open still."""
        self._event.clear()
        read: Read = await until_answered(self._missing)(
            self._links.read, self._topic, self._link, fence=self._fence, born=place.born, mark=place.last,
            after=place.last, messages=BATCH, size=self._read,
        )  # fmt: skip
        self._progress.trouble = None
        if read.code not in ("OK", "MORE"):
            self._progress.later = read.fence if read.code == "FENCED" else 0
            return False
        if read.entries:
            await self._look()
            try:
                entries = await self._whole(self._topic, read.entries, self._read)
            except SpoolUnavailable as error:
                self._progress.trouble = Trouble.of("error", error)
                await asyncio.sleep(LOOK_AGAIN)
                return True
            await self._send(place, entries)
        elif read.code == "OK":
            self._progress.backlog = 0
            await self._idle(place, LOOK_AGAIN if read.again_ms is None else read.again_ms / 1000)
        return True

    async def _send(self, place: _Place, entries: tuple[Entry, ...]) -> None:
        name, topic, size = self._feed.channel.name, self._feed.source, self._feed.channel.packet
        cut, prev = [], place.last
        for entry in entries:
            message = Packet(name, topic, place.born, entry.seq, prev, payload=entry.body)
            cut.append([] if entry.lost else list(split(message, size)))  # readers find that it is missing
            prev = entry.seq
        ahead = sum(len(packet) + HEADERS for packets in cut for packet in packets)
        for entry, packets in zip(entries, cut, strict=True):
            for packet in packets:
                await self._packet(packet, ahead)
                ahead -= len(packet) + HEADERS
            place.last = entry.seq
            if entry.lost:
                continue
            self._progress.committed += 1
            self._progress.committed_bytes += len(entry.body)

    async def _packet(self, packet: bytes, ahead: int) -> None:
        size = len(packet) + HEADERS
        await self._rate.pay(size, ahead)
        await self._socket.send(packet)
        self._sent_at = self._loop.time()
        self._progress.packets += 1

    async def _idle(self, place: _Place, most: float) -> None:
        """Wait for more; meanwhile readers hear which message was the last."""
        until = min(self._loop.time() + most, self._sent_at + HEARTBEAT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._event.wait()
                return
        if self._loop.time() >= self._sent_at + HEARTBEAT:
            packet = Packet(self._feed.channel.name, self._feed.source, place.born, place.last).write()
            await self._packet(packet, len(packet) + HEADERS)

    async def _look(self) -> None:
        """See, about once a second, how much there is to send."""
        now = self._loop.time()
        if now - self._looked_at >= LOOK_AGAIN:
            self._looked_at = now
            seen: Snapshot | None = await until_answered(self._missing)(
                self._store.snapshot, self._topic, waiters=1, consumers=1
            )
            found = backlogs(seen) if seen else ()
            self._progress.backlog = next((one.messages for one in found if one.subscription == self._link), 0)

    def _missing(self, error: BaseException) -> None:
        self._progress.trouble = Trouble.of("error", error)

    def _hear(self, words: list[str]) -> None:
        if words[0] in ("ready", "settings"):
            self._event.set()

"""A reader of channels turns packets into messages, once and in order, and counts what is missing.

A packet that another one overtook is as good as lost: messages never come out of order.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from headgate.core.links.multicast import Packet
from headgate.errors import MessageFormatError

MOST_STREAMS: Final = 1024
"""Topics of channels that a reader keeps in mind; packets of more are refused."""
MEMORY: Final = 64 << 20
"""Bytes of unfinished messages."""
OF_A_PART: Final = 128
"""Bytes that a part takes beside its payload."""
Stream = tuple[str, str]
"""Channel and topic."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message has arrived whole."""

    channel: str
    topic: str
    born: int
    seq: int
    stored: bytes


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss is a range of messages of a topic that did not get here.

    Attributes:
        channel: by which they were sent.
        topic: their topic.
        first: number of the first that may be missing.
        last: number of the last that is.
    """

    channel: str
    topic: str
    first: int
    last: int

    @property
    def messages(self) -> int:
        """How many they are; at most that many where numbers have gaps."""
        return self.last - self.first + 1


@dataclass(slots=True)
class _Unfinished:
    seq: int
    parts: int
    pieces: dict[int, bytes]
    size: int = 0


@dataclass(slots=True)
class _State:
    born: int
    last: int
    under_way: _Unfinished | None = None


class Reception:
    """A reception follows the topics of the channels of one group and port; nothing before it began is missing.

    Attributes:
        lost: messages that did not get here, by topic.
        duplicates: messages that came again, by topic.
        refused: packets that are none, or that there was no room for.
    """

    def __init__(self, topics: frozenset[str] | None = None, *, memory: int = MEMORY) -> None:
        self.lost: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.refused = 0
        self._topics = topics
        self._memory = memory
        self._used = 0
        self._states: dict[Stream, _State] = {}

    def take(self, data: bytes) -> tuple[Loss | Arrived, ...]:
        """Take a packet in; returns what came of it: what is missing first."""
        try:
            packet = Packet.read(data)
        except MessageFormatError:
            self.refused += 1
            return ()
        if self._topics is not None and packet.topic not in self._topics:
            return ()
        state = self._states.get((packet.channel, packet.topic))
        if state is None:
            if len(self._states) >= MOST_STREAMS:
                self.refused += 1
                return ()
            state = self._begin(packet)
        elif packet.born > state.born:  # the topic was removed and made anew, and its numbers begin anew
            self._drop(state)
            state.born, state.last = packet.born, 0
        if packet.born < state.born:
            return self._again(packet)
        return self._heartbeat(state, packet) if packet.parts == 0 else self._part(state, packet)

    def _begin(self, packet: Packet) -> _State:
        """Begin with this message; in its middle, after it."""
        last = packet.prev if packet.part == 0 and packet.parts else packet.seq
        state = self._states[packet.channel, packet.topic] = _State(packet.born, last)
        return state

    def _again(self, packet: Packet) -> tuple[()]:
        if packet.part == 0 and packet.parts:
            self.duplicates[packet.topic] += 1
        return ()

    def _heartbeat(self, state: _State, packet: Packet) -> tuple[Loss, ...]:
        return self._missing(state, packet, packet.seq) if packet.seq > state.last else ()

    def _part(self, state: _State, packet: Packet) -> tuple[Loss | Arrived, ...]:
        if packet.seq <= state.last:
            return self._again(packet)
        before = state.under_way
        if before and packet.seq < before.seq:  # of a worker that begins again, and was overtaken by this one
            return self._again(packet)
        upto = max(packet.prev, before.seq if before and before.seq < packet.seq else 0)
        losses = self._missing(state, packet, upto) if upto > state.last else ()
        stored = packet.payload if packet.parts == 1 else self._join(state, packet)
        if stored is None:
            return losses
        self._drop(state)
        state.last = packet.seq
        return (*losses, Arrived(packet.channel, packet.topic, packet.born, packet.seq, stored))

    def _missing(self, state: _State, packet: Packet, upto: int) -> tuple[Loss]:
        if state.under_way and state.under_way.seq <= upto:
            self._drop(state)
        loss = Loss(packet.channel, packet.topic, state.last + 1, upto)
        self.lost[packet.topic] += loss.messages
        state.last = upto
        return (loss,)

    def _join(self, state: _State, packet: Packet) -> bytes | None:
        """Put a part to the others; returns the message once it is whole."""
        now = state.under_way
        if now is None or (now.seq, now.parts) != (packet.seq, packet.parts):  # cut otherwise, it is sent all again
            self._drop(state)
            now = state.under_way = _Unfinished(packet.seq, packet.parts, {})
        if packet.part in now.pieces:
            return None
        size = len(packet.payload) + OF_A_PART
        if self._used + size > self._memory:
            self._drop(state)  # what is left of it comes to nothing, and so it will be missing
            self.refused += 1
            return None
        now.pieces[packet.part] = packet.payload
        now.size += size
        self._used += size
        return b"".join(now.pieces[part] for part in range(now.parts)) if len(now.pieces) == now.parts else None

    def _drop(self, state: _State) -> None:
        if state.under_way:
            self._used -= state.under_way.size
            state.under_way = None

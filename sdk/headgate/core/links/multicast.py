"""A channel's packets are written and read here. docs/links.md describes the format.

A message goes in one packet or several. Each says its number at the source and the number before it, so that a reader
knows what it missed though numbers have gaps; a heartbeat says the last number when there is nothing else to say.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate.errors import MessageFormatError

MAGIC: Final = b"HGMC"
VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sBBBQQQII")
LARGEST: Final = 65507
"""Bytes that UDP takes."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet has a piece of a message, or is a heartbeat, and then it has no parts.

    Attributes:
        channel: its name.
        topic: the topic's.
        born: which destination of that name it is; later ones have higher numbers.
        seq: number of the message at its topic; of a heartbeat, the last that was sent, 0 for none.
        prev: number of the message before it, 0 for none.
        part: which piece it is, from 0.
        parts: how many there are; 0 for a heartbeat.
        payload: of the stored message.
    """

    channel: str
    topic: str
    born: int
    seq: int
    prev: int = 0
    part: int = 0
    parts: int = 0
    payload: bytes = b""

    def write(self) -> bytes:
        """Return it as it is sent."""
        channel, topic = self.channel.encode(), self.topic.encode()
        head = _HEAD.pack(
            MAGIC, VERSION, len(channel), len(topic), self.born, self.seq, self.prev, self.part, self.parts
        )
        return b"".join((head, channel, topic, self.payload))

    @classmethod
    def read(cls, data: bytes) -> "Packet":
        """Return what :meth:`write` wrote.

        Raises:
            MessageFormatError: it is anything else.
        """
        if len(data) < _HEAD.size:
            raise MessageFormatError(f"a packet of a channel has {_HEAD.size} bytes and more, not {len(data)}")
        magic, version, of_channel, of_topic, born, seq, prev, part, parts = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise MessageFormatError("it is not a packet of a channel", at=0)
        if version != VERSION:
            raise MessageFormatError(f"it has version {version}, and {VERSION} is known", at=len(MAGIC))
        topic_at = _HEAD.size + of_channel
        payload_at = topic_at + of_topic
        if not of_channel or not of_topic or payload_at > len(data):
            raise MessageFormatError("its names are missing or cut off", at=_HEAD.size)
        try:
            channel, topic = data[_HEAD.size : topic_at].decode(), data[topic_at:payload_at].decode()
        except UnicodeDecodeError as error:
            raise MessageFormatError("a name is not UTF-8", at=_HEAD.size + error.start) from None
        payload = data[payload_at:]
        if parts == 0 and (prev or part or payload):
            raise MessageFormatError("a heartbeat has neither parts nor payload", at=payload_at)
        if parts and (prev >= seq or part >= parts or not payload):
            raise MessageFormatError(
                f"part {part} of {parts} of message {seq} after {prev}, {len(payload)} bytes", at=payload_at
            )
        return cls(channel, topic, born, seq, prev, part, parts, payload)


def room(channel: str, topic: str, size: int) -> int:
    """Return how many bytes of a message go into a packet of ``size`` bytes; below 1 where that is too small."""
    return size - _HEAD.size - len(channel.encode()) - len(topic.encode())


def split(message: Packet, size: int) -> Iterator[bytes]:
    """Yield the packets, of at most ``size`` bytes, of a message that is all in one :attr:`Packet.payload`."""
    piece = room(message.channel, message.topic, size)
    parts = -(-len(message.payload) // piece)
    for part in range(parts):
        payload = message.payload[part * piece : (part + 1) * piece]
        packet = Packet(message.channel, message.topic, message.born, message.seq, message.prev, part, parts, payload)
        yield packet.write()

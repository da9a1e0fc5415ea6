"""A segment holds payloads of several messages as one object of a spool store; references stand for them.

A reference is what the stream of a destination keeps in a message's place: a mark that no message begins with, the name
of the segment, and where in it the payload is, with its checksum.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.errors import InvalidValue

MARK: Final = b"\xc1"
"""First byte of a reference; neither msgpack nor AMQP 1.0 has it. Also in lua/lib/reference.lua."""
_FORM: Final = re.compile(MARK + rb"([^/ ]+)/([^/ ]+) (\d{1,16}) (\d{1,16}) ([0-9a-f]{8})(?: (.+))?", re.DOTALL)
MARKED: Final = "-"
"""In the place of a segment's name: whoever takes the payloads is to write it."""
NO_STORE: Final = b"NOSTORE"
"""Code of a node's answer to marked payloads that are not stored: a store takes none."""
MOST_MESSAGES: Final = 1024
"""Of one segment: as many references as one call publishes."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Says where a payload is.

    Attributes:
        store: the encoded name of the spool store.
        name: of the segment, in the folder of its destination.
        offset: of the payload, in bytes.
        size: of the payload, in bytes.
        crc: CRC-32 of the payload.
        lost: what a node that was to read the payload found wrong with it; no stream has such a reference.
    """

    store: str
    name: str
    offset: int
    size: int
    crc: int
    lost: str = ""

    @property
    def segment(self) -> str:
        """The segment, as its destination's state knows it: ``<store>/<name>``."""
        return f"{self.store}/{self.name}"

    def encode(self) -> bytes:
        """Return it as the stream keeps it."""
        lost = f" {self.lost}" if self.lost else ""
        return MARK + f"{self.segment} {self.offset} {self.size} {self.crc:08x}{lost}".encode()

    @classmethod
    def parse(cls, stored: bytes) -> "Reference":
        """Return the reference that :meth:`encode` wrote.

        Raises:
            InvalidValue: it is none.
        """
        match = _FORM.fullmatch(stored)
        if match is None:
            raise InvalidValue(f"{stored[:80]!r} is not a reference to a spooled message")
        store, name, offset, size, crc, lost = (part.decode() for part in match.groups(b""))
        return cls(store, name, int(offset), int(size), int(crc, 16), lost)

    def check(self, payload: bytes) -> bool:
        """Return whether this is the payload that was written."""
        return len(payload) == self.size and zlib.crc32(payload) == self.crc


def is_reference(stored: bytes) -> bool:
    """Return whether what is stored stands for a payload in a spool store."""
    return stored[:1] == MARK


def payload_size(stored: bytes) -> int:
    """Return the bytes of a message, wherever its payload is."""
    match = _FORM.fullmatch(stored) if is_reference(stored) else None
    return int(match[4]) if match else len(stored)


def pack(payloads: Sequence[bytes], store: str, name: str) -> tuple[bytes, list[bytes]]:
    """Return a segment of payloads, one after the other, and the reference to each as the stream keeps it."""
    start, crc32 = MARK + f"{store}/{name}".encode(), zlib.crc32
    references = []
    offset = 0
    for payload in payloads:  # as `Reference.encode` would
        size = len(payload)
        references.append(b"%b %d %d %08x" % (start, offset, size, crc32(payload)))
        offset += size
    return b"".join(payloads), references

"""SASL settles the peer's identity before the AMQP engine sees a byte: ANONYMOUS and PLAIN, for both sides.

Bytes of strangers are read by this page alone: frames of at most 4 KiB, of one shape. Source: AMQP 1.0, part 5.3; the
contents of PLAIN: RFC 4616.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.core.printable import printable
from headgate.errors import AccessDenied, HeadgateError

HEADER: Final = b"AMQP\x03\x01\x00\x00"
BARE: Final = b"AMQP\x00\x01\x00\x00"
MAX_FRAME: Final = 4096
MAX_AHEAD: Final = 65_536
"""Bytes that may come before the peer is let in."""
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
OK, REFUSED, UNAVAILABLE = 0, 1, 4
_TROUBLE: Final = (2, 3, UNAVAILABLE)


class HandshakeFailed(HeadgateError):
    """The peer does not speak AMQP 1.0 with SASL, or not as it should; what it sent is not repeated."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's claimed identity; the password is in no text form.

    Attributes:
        name: empty for ANONYMOUS.
        password: empty for ANONYMOUS.
        mechanism: how it says so.
    """

    name: str
    password: str = field(repr=False, default="")
    mechanism: str = "PLAIN"


def _frame(code: int, *fields: bytes) -> bytes:
    inner = b"".join(fields)
    body = b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(inner) + 4, len(fields)) + inner
    return struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body


def _variable(small: int, data: bytes) -> bytes:
    """Encode binary, text or a symbol; ``small`` is the constructor of up to 255 bytes."""
    if len(data) < 256:
        return bytes([small, len(data)]) + data
    return bytes([small + 0x10]) + struct.pack(">I", len(data)) + data


def _symbols(names: Sequence[str]) -> bytes:
    items = b"".join(bytes([len(name)]) + name.encode() for name in names)
    return b"\xe0" + bytes([len(items) + 2, len(names), 0xA3]) + items


class _Fields:
    """The fields of one frame's list, read from left to right."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        if body[:2] != b"\x00\x53" or len(body) < 4:
            raise HandshakeFailed("the peer sent something that is no SASL frame")
        self.code = body[2]
        kind = body[3]
        self._at, self._left = {0x45: (4, 0), 0xC0: (6, body[5] if len(body) > 5 else 0)}.get(kind, (12, 0))
        if kind == 0xD0 and len(body) >= 12:
            self._left = struct.unpack_from(">I", body, 8)[0]

    def next(self) -> bytes | int | tuple[str, ...] | None:
        """Return the next field; None where it is null or there are no more."""
        if self._left <= 0:
            return None
        self._left -= 1
        kind = self._take(1)[0]
        if kind == 0x40:
            return None
        if kind in (0xA0, 0xA1, 0xA3):
            return self._take(self._take(1)[0])
        if kind in (0xB0, 0xB1, 0xB3):
            return self._take(struct.unpack(">I", self._take(4))[0])
        if kind == 0x50:
            return self._take(1)[0]
        if kind in (0xE0, 0xF0):
            return self._array(wide=kind == 0xF0)
        raise HandshakeFailed(f"the peer sent a SASL field of the unexpected type 0x{kind:02x}")

    def _array(self, *, wide: bool) -> tuple[str, ...]:
        size, count = struct.unpack(">II", self._take(8)) if wide else self._take(2)
        inner = self._take(size - (4 if wide else 1))
        names, at = [], 1
        step = 4 if inner[:1] == b"\xb3" else 1
        for _ in range(min(count, 64)):
            length = int.from_bytes(inner[at : at + step])
            names.append(inner[at + step : at + step + length].decode("ascii", "replace"))
            at += step + length
        return tuple(names)

    def _take(self, size: int) -> bytes:
        piece = self._body[self._at : self._at + size]
        if len(piece) != size or size < 0:
            raise HandshakeFailed("the peer sent a SASL frame that ends too early")
        self._at += size
        return piece


class _Frames:
    """The bytes of a handshake: one header, then frames, then what is not ours any more."""

    def __init__(self) -> None:
        self._data = b""
        self.headed = False

    def feed(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MAX_AHEAD:
            raise HandshakeFailed(f"the peer sent {len(self._data)} bytes before it was let in")

    def header(self) -> bytes | None:
        """Return the first eight bytes once they are here."""
        if self.headed or len(self._data) < 8:
            if self._data and not b"AMQP".startswith(self._data[:4]):
                raise HandshakeFailed("the peer does not speak AMQP")
            return None
        self.headed = True
        header, self._data = self._data[:8], self._data[8:]
        return header

    def frame(self) -> _Fields | None:
        """Return the next frame once it is whole."""
        if len(self._data) < 8:
            return None
        size, offset, kind, _ = struct.unpack_from(">IBBH", self._data)
        if not 12 <= size <= MAX_FRAME or kind != 1 or not 2 <= offset <= size // 4:
            raise HandshakeFailed(
                f"the peer sent a SASL frame of {size} bytes and type {kind}; at most {MAX_FRAME}, of 1"
            )
        if len(self._data) < size:
            return None
        body, self._data = self._data[4 * offset : size], self._data[size:]
        return _Fields(body)

    def rest(self) -> bytes:
        """Return what came after the handshake."""
        rest, self._data = self._data, b""
        return rest


class SaslServer:
    """A node's side, which offers these mechanisms of ANONYMOUS and PLAIN.

    Attributes:
        outgoing: bytes to send; whoever sends them empties it.
        credentials: who the client says it is, once it did; :meth:`decide` answers.
        done: whether the client is let in, and :meth:`rest` is for the engine.
    """

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self.outgoing = b""
        self.credentials: Credentials | None = None
        self.done = False
        self._mechanisms = tuple(mechanisms)
        self._frames = _Frames()
        self._bare = False

    def feed(self, data: bytes) -> None:
        """Take bytes from the client.

        Raises:
            HandshakeFailed: hang up, once :attr:`outgoing` is sent.
        """
        self._frames.feed(data)
        if not self._frames.headed:
            header = self._frames.header()
            if header == HEADER:
                self.outgoing += HEADER + _frame(_MECHANISMS, _symbols(self._mechanisms))
            elif header == BARE and "ANONYMOUS" in self._mechanisms:  # a client that names no user may skip SASL
                self._bare = True
                self.credentials = Credentials("", mechanism="ANONYMOUS")
            elif header is not None:
                self.outgoing += HEADER
                raise HandshakeFailed("the client wants another protocol than AMQP 1.0 with SASL")
        if self.credentials is None and self._frames.headed and (fields := self._frames.frame()):
            self._init(fields)

    def _init(self, fields: _Fields) -> None:
        mechanism, response = fields.next(), fields.next()
        name = mechanism.decode("ascii", "replace") if isinstance(mechanism, bytes) else ""
        if fields.code != _INIT or name not in self._mechanisms:
            self.outgoing += _frame(_OUTCOME, bytes([0x50, REFUSED]))
            raise HandshakeFailed(f"the client chose {name[:20]!r}, which is not one of {', '.join(self._mechanisms)}")
        if name == "ANONYMOUS":
            self.credentials = Credentials("", mechanism=name)
            return
        parts = response.split(b"\0") if isinstance(response, bytes) else []
        try:
            acts_for, user, password = (part.decode() for part in parts)
        except ValueError:  # not three, or not UTF-8
            self.outgoing += _frame(_OUTCOME, bytes([0x50, REFUSED]))
            raise HandshakeFailed("the client's PLAIN response is not authorization, name and password") from None
        if acts_for not in ("", user):
            self.outgoing += _frame(_OUTCOME, bytes([0x50, REFUSED]))
            raise HandshakeFailed("the client signs in as one user to act as another, which nobody may here")
        self.credentials = Credentials(user, password, name)

    def decide(self, code: int) -> None:
        """Answer: :data:`OK`, :data:`REFUSED`, or :data:`UNAVAILABLE` for a while."""
        self.done = code == OK
        if not self._bare:
            self.outgoing += _frame(_OUTCOME, bytes([0x50, code]))

    def rest(self) -> bytes:
        """Return what came after the handshake."""
        return (BARE if self._bare else b"") + self._frames.rest()


class SaslClient:
    """A client's side; attributes as :class:`SaslServer` has them.

    Args:
        name: the user; None for ANONYMOUS.
        password: theirs.
        hostname: the node, as the client calls it.
    """

    def __init__(self, name: str | None, password: str | None, hostname: str) -> None:
        self.outgoing = HEADER
        self.done = False
        self._name, self._password, self._hostname = name, password or "", hostname
        self._frames = _Frames()

    def feed(self, data: bytes) -> None:
        """Take bytes from the node.

        Raises:
            AccessDenied: it does not let us in.
            HandshakeFailed: it does not speak AMQP 1.0 with SASL.
        """
        self._frames.feed(data)
        if not self._frames.headed:
            header = self._frames.header()
            if header is not None and header != HEADER:
                raise HandshakeFailed("the node answers with another protocol than AMQP 1.0 with SASL")
        while not self.done and self._frames.headed and (fields := self._frames.frame()):
            if fields.code == _MECHANISMS:
                self._choose(fields.next())
            elif fields.code == _OUTCOME:
                self._outcome(fields.next())

    def _choose(self, offered: object) -> None:
        names = (offered.decode("ascii", "replace"),) if isinstance(offered, bytes) else offered
        if not isinstance(names, tuple):
            names = ()
        mechanism = "PLAIN" if self._name is not None else "ANONYMOUS"
        if mechanism not in names:
            hint = {
                "PLAIN": "it takes no passwords here; PLAIN wants TLS (amqps://) unless the node allows it without",
                "ANONYMOUS": "name a user: amqp://user:password@host",
            }[mechanism]
            offers = printable(", ".join(names)) or "no way"
            raise AccessDenied(f"the node offers {offers} to sign in, not {mechanism}: {hint}")
        response = f"\0{self._name}\0{self._password}" if self._name is not None else "anonymous"
        self.outgoing += _frame(
            _INIT,
            _variable(0xA3, mechanism.encode()),
            _variable(0xA0, response.encode()),
            _variable(0xA1, self._hostname.encode()),
        )

    def _outcome(self, code: object) -> None:
        if code in _TROUBLE:
            raise HandshakeFailed("the node cannot check passwords at the moment; try again")
        if code != OK:
            who = f"user {self._name!r}" if self._name is not None else "clients without a user"
            raise AccessDenied(f"the node refuses {who}; check the name and the password")
        self.done = True

    def rest(self) -> bytes:
        """Return what came after the handshake."""
        return self._frames.rest()

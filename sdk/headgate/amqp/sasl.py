"""SASL settles the peer's identity before the AMQP engine sees a byte: by a password, a certificate, a token, or none.

Bytes of strangers are read by this page alone: frames of at most 4 KiB, 12 KiB where tokens are taken, of one shape.
Source: AMQP 1.0, part 5.3; the contents of PLAIN: RFC 4616, of EXTERNAL: RFC 4422, of OAUTHBEARER: RFC 7628. XOAUTH2 is
what Qpid JMS and rhea send tokens by.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.core.printable import printable
from headgate.errors import AccessDenied, HeadgateError

HEADER: Final = b"AMQP\x03\x01\x00\x00"
BARE: Final = b"AMQP\x00\x01\x00\x00"
MAX_FRAME: Final = 4096
MAX_TOKEN: Final = 8192
"""Characters of a token."""
MAX_FRAME_WITH_TOKEN: Final = MAX_TOKEN + MAX_FRAME
MAX_AHEAD: Final = 65_536
"""Bytes that may come before the peer is let in."""
BEARER: Final = ("OAUTHBEARER", "XOAUTH2")
"""Mechanisms that bring a token."""
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
OK, REFUSED, UNAVAILABLE = 0, 1, 4
_TROUBLE: Final = (2, 3, UNAVAILABLE)
_PLACE: Final = {
    "OAUTHBEARER": re.compile(rb"[ny],(?:a=([^,=]*(?:=(?:2C|3D)[^,=]*)*))?,"),
    "XOAUTH2": re.compile(rb"user=([^\x01]*)"),
}
"""How each begins: with the user that the client names."""
_TOKEN: Final = re.compile(rb"auth=[Bb]earer ([A-Za-z0-9._~+/=-]+)")


class HandshakeFailed(HeadgateError):
    """The peer does not speak AMQP 1.0 with SASL, or not as it should; what it sent is not repeated."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client has credentials by which it claims an identity; the password is in no text form.

    Attributes:
        name: empty for ANONYMOUS, and where it names nobody beside a certificate or a token.
        password: the password or the token; empty for ANONYMOUS and EXTERNAL.
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
    """The fields of one frame's list are read from left to right."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        if body[:2] != b"\x00\x53" or len(body) < 4:
            raise HandshakeFailed("the peer sent something that is not a SASL frame")
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
    """A handshake's bytes are read here: one header, then frames, then what is not ours any more."""

    __slots__ = ("_data", "headed", "most")

    def __init__(self) -> None:
        self._data = b""
        self.headed = False
        self.most = MAX_FRAME

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
        if not 12 <= size <= self.most or kind != 1 or not 2 <= offset <= size // 4:
            raise HandshakeFailed(
                f"the peer sent a SASL frame of {size} bytes and type {kind}; at most {self.most}, of 1"
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
    """A node's side of the handshake offers these mechanisms of ANONYMOUS, PLAIN, EXTERNAL, OAUTHBEARER and XOAUTH2.

    Attributes:
        outgoing: bytes to send; whoever sends them empties it.
        credentials: who the client says it is, once it did; :meth:`decide` answers.
        done: whether the client is let in, and :meth:`rest` is for the engine.
    """

    __slots__ = ("_bare", "_frames", "_mechanisms", "credentials", "done", "outgoing")

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self.outgoing = b""
        self.credentials: Credentials | None = None
        self.done = False
        self._frames = _Frames()
        self._bare = False
        self.offer(mechanisms)

    def offer(self, mechanisms: Sequence[str]) -> None:
        """Offer these instead; nothing must have come yet."""
        self._mechanisms = tuple(mechanisms)
        self._frames.most = MAX_FRAME if set(BEARER).isdisjoint(mechanisms) else MAX_FRAME_WITH_TOKEN

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
                raise HandshakeFailed("the client wants a protocol other than AMQP 1.0 with SASL")
        if self.credentials is None and self._frames.headed and (fields := self._frames.frame()):
            self._init(fields)

    def _init(self, fields: _Fields) -> None:
        mechanism, response = fields.next(), fields.next()
        name = mechanism.decode("ascii", "replace") if isinstance(mechanism, bytes) else ""
        if fields.code != _INIT or name not in self._mechanisms:
            self.outgoing += _frame(_OUTCOME, bytes([0x50, REFUSED]))
            raise HandshakeFailed(f"the client chose {name[:20]!r}, which is not one of {', '.join(self._mechanisms)}")
        try:
            self.credentials = _read(name, response if isinstance(response, bytes) else b"")
        except HandshakeFailed:
            self.outgoing += _frame(_OUTCOME, bytes([0x50, REFUSED]))
            raise

    def decide(self, code: int) -> None:
        """Answer: :data:`OK`, :data:`REFUSED`, or :data:`UNAVAILABLE` for a while."""
        self.done = code == OK
        if not self._bare:
            self.outgoing += _frame(_OUTCOME, bytes([0x50, code]))

    def rest(self) -> bytes:
        """Return what came after the handshake."""
        return (BARE if self._bare else b"") + self._frames.rest()


def _read(mechanism: str, response: bytes) -> Credentials:
    """Return what a client's first response says by one of the mechanisms.

    Raises:
        HandshakeFailed: it has another form; nothing of it is repeated.
    """
    try:
        name, secret, acts_for = _parts(mechanism, response)
    except ValueError:  # not as many parts, or not UTF-8
        raise HandshakeFailed(f"the client's {mechanism} response is not well formed for that mechanism") from None
    if acts_for not in ("", name):
        raise HandshakeFailed("the client signs in as one user to act as another, which is not allowed here")
    return Credentials(name, secret, mechanism)


def _parts(mechanism: str, response: bytes) -> tuple[str, str, str]:
    """Return name, secret, and as whom the client wants to act."""
    if mechanism == "ANONYMOUS":
        return "", "", ""
    if mechanism == "EXTERNAL":
        return response.decode(), "", ""
    if mechanism == "PLAIN":
        acts_for, name, password = (part.decode() for part in response.split(b"\0"))
        return name, password, acts_for
    place, *pairs = response.removesuffix(b"\1\1").split(b"\1")
    named = _PLACE[mechanism].fullmatch(place)
    tokens = [found[1] for found in map(_TOKEN.fullmatch, pairs) if found]
    if named is None or len(tokens) != 1 or not response.endswith(b"\1\1") or len(tokens[0]) > MAX_TOKEN:
        raise ValueError(mechanism)
    name = (named[1] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    return name, tokens[0].decode("ascii"), ""


class SaslClient:
    """A client's side of the handshake has the attributes of :class:`SaslServer`.

    Args:
        name: the user; None for ANONYMOUS, or for whom a certificate or a token names.
        password: theirs.
        hostname: the node, as the client calls it.
        token: to sign in by, instead of a password; None for none.
        certified: whether TLS has shown a certificate of ours.
    """

    def __init__(
        self, name: str | None, password: str | None, hostname: str, *, token: str | None = None,
        certified: bool = False,
    ) -> None:  # fmt: skip
        self.outgoing = HEADER
        self.done = False
        self._name, self._password, self._hostname = name, password or "", hostname
        self._token, self._certified = token, certified
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
                raise HandshakeFailed("the node answers with a protocol other than AMQP 1.0 with SASL")
        while not self.done and self._frames.headed and (fields := self._frames.frame()):
            if fields.code == _MECHANISMS:
                self._choose(fields.next())
            elif fields.code == _OUTCOME:
                self._outcome(fields.next())

    def _choose(self, offered: object) -> None:
        names = (offered.decode("ascii", "replace"),) if isinstance(offered, bytes) else offered
        if not isinstance(names, tuple):
            names = ()
        mechanism, response = self._way_in(names)
        if mechanism not in names:
            hint = {
                "PLAIN": "it accepts no passwords here; PLAIN needs TLS (amqps://) unless the node allows it without",
                "ANONYMOUS": "name a user: amqp://user:password@host",
                "OAUTHBEARER": "it accepts no tokens here; they need TLS (amqps://) and a node with --token-keys",
            }[mechanism]
            offers = printable(", ".join(names)) or "no way"
            raise AccessDenied(f"the node offers {offers} to sign in, not {mechanism}: {hint}")
        self.outgoing += _frame(
            _INIT,
            _variable(0xA3, mechanism.encode()),
            _variable(0xA0, response.encode()),
            _variable(0xA1, self._hostname.encode()),
        )

    def _way_in(self, offered: Sequence[str]) -> tuple[str, str]:
        """Return the mechanism and its response: by a token or a password if we have one, else by our certificate."""
        if self._token is not None:
            return "OAUTHBEARER", f"n,,\1auth=Bearer {self._token}\1\1"
        if self._name is not None:
            return "PLAIN", f"\0{self._name}\0{self._password}"
        return ("EXTERNAL", "") if self._certified and "EXTERNAL" in offered else ("ANONYMOUS", "anonymous")

    def _outcome(self, code: object) -> None:
        if code in _TROUBLE:
            raise HandshakeFailed("the node cannot check passwords at the moment; try again")
        if code != OK:
            if self._token is not None:
                raise AccessDenied("the node refuses the token; it may have expired, or name a user who may not log in")
            who = f"user {self._name!r}" if self._name is not None else "clients without a user"
            raise AccessDenied(f"the node refuses {who}; check the name and the password")
        self.done = True

    def rest(self) -> bytes:
        """Return what came after the handshake."""
        return self._frames.rest()

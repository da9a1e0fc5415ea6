"""An AMQP 1.0 message has sections, here as bytes: a node reads and changes some, and leaves the others as they are."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headgate.core.amqp import writer
from headgate.core.amqp.reader import Reader
from headgate.core.amqp.types import Timestamp
from headgate.core.due_time import delay_ms, moment_ms
from headgate.errors import InvalidValue, MessageFormatError

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
_DESCRIPTORS: Final = {
    encoded: code
    for name, code in _NAMES.items()
    for encoded in (bytes([0x53, code]), bytes([0x80, *bytes(7), code]), bytes([0xA3, len(name)]) + name)
}
_USUAL: Final = {bytes([0, 0x53, code]): code for code in _NAMES.values()}
_HEADERS: Final = tuple(b"\0" + encoded for encoded, code in _DESCRIPTORS.items() if code == HEADER)
_EMPTY_HEADER: Final = b"\0\x53\x70\x45"
_RANKS: Final = {DATA: DATA, SEQUENCE: DATA, VALUE: DATA}
_LISTS: Final = {0x45: 0, 0xC0: 1, 0xD0: 4}
_MAPS: Final = {0xC1: 1, 0xD1: 4}
_FORMS: Final[dict[int, dict[int, int]]] = {
    HEADER: _LISTS, DELIVERY_ANNOTATIONS: _MAPS, MESSAGE_ANNOTATIONS: _MAPS, PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS, DATA: {0xA0: 1, 0xB0: 4}, SEQUENCE: _LISTS, FOOTER: _MAPS,
}  # fmt: skip
"""Which types a section may be of, and how many bytes say how long it is; a value may be of any."""
_TEXT_AND_SO_ON: Final = {0x40: 0, 0xA0: 1, 0xA1: 1, 0xB0: 4, 0xB1: 4, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_ALLOWED: Final = {code: {bytes((kind,)) for kind in forms} for code, forms in _FORMS.items()}
_OPENINGS: Final = {
    bytes((0, 0x53, code, kind)): (code, width)
    for code, forms in (_FORMS | {VALUE: _TEXT_AND_SO_ON}).items()
    for kind, width in forms.items()
}
"""How the sections of nearly all messages begin."""
_known = _OPENINGS.get
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
_DELIVERY: Final = b"x-opt-delivery-"
_LAST: Final = 2**52
EXPIRES: Final = 1
LATER: Final = 2
HEADED: Final = 4
_SAYS: Final = {HEADER: HEADED, PROPERTIES: EXPIRES, MESSAGE_ANNOTATIONS: LATER}
MAX_SECTIONS: Final = 1 << 16
"""Of one message: data may be in many."""
MOST_READ: Final = 1024
"""Values that are read of one section: those who take messages on read no list or map of a client's to its end."""
_EXPIRY: Final = 8
"""The place of absolute-expiry-time among the properties."""
_CACHED: Final = 64
"""Bytes of a header section that is remembered: most messages have one of a few."""


@dataclass(frozen=True, slots=True)
class Header:
    """Says how a message is to be transported.

    Attributes:
        durable: it is not to be lost.
        priority: 4 is the usual one.
        ttl_ms: ms that it is good for; None for ever.
        first_acquirer: nobody had it before.
        delivery_count: attempts that failed.
    """

    durable: bool = False
    priority: int = 4
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


DEFAULT_HEADER: Final = Header()


class Section(NamedTuple):
    """Says where a section is.

    Attributes:
        code: which one it is.
        start: its first byte.
        content: the first byte after its descriptor.
        stop: the first byte after it.
    """

    code: int
    start: int
    content: int
    stop: int


def check(raw: bytes) -> int:
    """Look whether a message consists of sections, of the right types, in their order; nothing in them is read.

    Returns ``HEADED`` where it has a header, ``EXPIRES`` where it may have the property ``absolute-expiry-time``, and
    ``LATER`` where it may have an annotation of its delivery: :func:`header_of`, :func:`expiry_of` and :func:`later_of`
    read them.

    Raises:
        MessageFormatError: it does not.
    """
    at, last, end, found = 0, 0, len(raw), 0
    try:  # contextlib.suppress would cost as much as all the rest
        while at < end:
            known = _known(raw[at : at + 4])
            if known is None or known[0] <= last:  # or it is unusual: then it is looked at more closely
                break
            last, width = known
            size = raw[at + 4] + 5 if width == 1 else int.from_bytes(raw[at + 4 : at + 8]) + 8 if width else 4
            if last <= PROPERTIES:
                if last == HEADER:
                    found = HEADED
                elif last == PROPERTIES and width:
                    count = raw[at + 5] if width == 1 else int.from_bytes(raw[at + 8 : at + 12])
                    found |= count > _EXPIRY and EXPIRES  # that many fields it has
                elif last == MESSAGE_ANNOTATIONS and (width != 1 or raw.find(_DELIVERY, at, at + size) > 0):
                    found |= LATER
            at += size
    except IndexError:
        at = -1
    if at == end and end:
        return found
    codes = [section.code for section in sections(raw)]
    return sum(bits for code, bits in _SAYS.items() if code in codes)


def expiry_of(raw: bytes) -> int | None:
    """Return when a message expires by its properties, in ms since 1970; None where they do not say.

    Raises:
        MessageFormatError: its properties are not well-formed.
    """
    for section in sections(raw):
        if section.code == PROPERTIES:
            expiry = fields(_inside(raw, section), 13)[_EXPIRY]
            if expiry is None:
                return None
            if isinstance(expiry, dt.datetime):
                return int(expiry.timestamp() * 1000)
            if isinstance(expiry, Timestamp):
                return int(expiry)
            raise MessageFormatError("the property absolute-expiry-time is a timestamp", at=section.content)
    return None


def later_of(raw: bytes, now: Callable[[], float]) -> str:
    """Return when a message is due by its annotations, as ``lua/publish.lua`` reads it; empty where they say nothing.

    ``x-opt-delivery-time`` is a moment in ms since 1970, and goes before ``x-opt-delivery-delay``, ms from the moment
    at which it is stored.

    Raises:
        InvalidValue: one of them is no whole number, below 0, or more than 366 days ahead.
        MessageFormatError: its annotations are not well-formed.
    """
    for section in sections(raw):
        if section.code == MESSAGE_ANNOTATIONS:
            if raw.find(_DELIVERY, section.content, section.stop) < 0:
                return ""
            reader, annotations = _inside(raw, section), dict[str, Any]()
            for _ in range(0, reader.enter_map(), 2):
                name = reader.value(1)
                if name in (DELIVERY_TIME, DELIVERY_DELAY):
                    annotations[name] = reader.value(1)
                else:
                    reader.skip()
            _leave(reader)
            if (moment := annotations.get(DELIVERY_TIME)) is not None:
                return f"@{moment_ms(_seconds(moment, DELIVERY_TIME), DELIVERY_TIME, now())}"
            delay = delay_ms(_seconds(annotations.get(DELIVERY_DELAY, 0), DELIVERY_DELAY), DELIVERY_DELAY)
            return str(delay) if delay else ""
    return ""


def _seconds(value: Any, name: str) -> float:
    if isinstance(value, dt.datetime):
        value = int(value.timestamp() * 1000)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LAST:
        raise InvalidValue(f"{value!r:.80}; use a whole number of ms from 0, at most 366 days ahead", setting=name)
    return value / 1000


def sections(raw: bytes) -> Iterator[Section]:
    """Yield where the sections of a message are, without reading them.

    Raises:
        MessageFormatError: there are none, they are not those of a message or of other types, or not in its order.
    """
    reader, last, count = Reader(raw), 0, 0
    if not raw:
        raise MessageFormatError("it is empty", at=0)
    while reader.at < reader.end:
        start, count = reader.at, count + 1
        if count > MAX_SECTIONS:
            raise MessageFormatError(f"more than {MAX_SECTIONS} sections", at=start)
        code = _USUAL.get(raw[start : start + 3])
        if code is not None:
            reader.at += 3
        elif reader.code() != 0:
            raise MessageFormatError("a section of AMQP 1.0 begins with 00", at=start)
        elif (code := _DESCRIPTORS.get(reader.encoded())) is None:
            raise MessageFormatError("no such section in a message of AMQP 1.0", at=start)
        repeated = code == last and code in (DATA, SEQUENCE)
        if _RANKS.get(code, code) <= _RANKS.get(last, last) and not repeated:
            raise MessageFormatError(f"section {code:#04x} after {last:#04x}", at=start)
        content, last = reader.at, code
        if code in _FORMS and raw[content : content + 1] not in _ALLOWED[code]:
            raise MessageFormatError(f"section {code:#04x} has the wrong type", at=content)
        reader.skip()
        yield Section(code, start, content, reader.at)


def header_of(raw: bytes) -> Header:
    """Return the header of a message; where it has none, the one that holds then. The rest is not looked at.

    Raises:
        MessageFormatError: the header is not well-formed.
    """
    if not raw.startswith(_HEADERS):
        return DEFAULT_HEADER
    if raw.startswith(_EMPTY_HEADER):
        return DEFAULT_HEADER
    size = raw[4] + 5 if raw[3:4] == b"\xc0" and len(raw) > 4 else 0
    if 0 < size <= _CACHED and size <= len(raw):
        return _short_header(raw[:size])
    return _header(raw)


def _header(raw: bytes) -> Header:
    """Return what the header says with which a message begins."""
    return read_header(_inside(raw, next(sections(raw))))


_short_header: Final = lru_cache(maxsize=1024)(_header)


def read_header(reader: Reader) -> Header:
    """Return what the fields of a header say. Errors as :func:`header_of`."""
    at, given = reader.at, fields(reader, 5)
    durable, priority, ttl, first, count = given
    if not all(value is None or isinstance(value, bool) for value in (durable, first)):
        raise MessageFormatError("durable and first-acquirer must be true or false", at=at)
    if not all(value is None or is_number(value, bits) for value, bits in ((priority, 8), (ttl, 32), (count, 32))):
        raise MessageFormatError("priority, ttl and delivery-count must be numbers from 0", at=at)
    return Header(bool(durable), 4 if priority is None else priority, ttl, bool(first), count or 0)


def is_number(value: Any, bits: int) -> bool:
    """Return whether it is an unsigned number of that many bits."""
    return type(value) is int and 0 <= value < 1 << bits


def fields(reader: Reader, most: int) -> list[Any]:
    """Read a list of fields; those that are not given are None."""
    count = _enter_fields(reader, most)
    given = [reader.value(1) for _ in range(count)]
    _leave(reader)
    return given + [None] * (most - count)


def _inside(raw: bytes, section: Section) -> Reader:
    return Reader(raw, section.content, section.stop, MOST_READ)


def _enter_fields(reader: Reader, most: int) -> int:
    at = reader.at
    count = reader.enter_list()
    if count > most:
        raise MessageFormatError(f"{count} fields where there are {most}", at=at)
    return count


def _leave(reader: Reader) -> None:
    if reader.at != reader.end:
        raise MessageFormatError(f"{reader.end - reader.at} bytes too many", at=reader.at)


def to_of(raw: bytes) -> str | None:
    """Return the address that a message is sent to; None where it does not say.

    Raises:
        MessageFormatError: it is not well-formed up to there.
    """
    for section in sections(raw):
        if section.code >= PROPERTIES:
            if section.code > PROPERTIES:
                return None
            reader = _inside(raw, section)
            if _enter_fields(reader, 13) < 3:
                return None
            reader.skip()
            reader.skip()
            at, to = reader.at, reader.value(1)
            if to is not None and not isinstance(to, str):
                raise MessageFormatError("the property to is text", at=at)
            return to
    return None


def with_delivery_count(raw: bytes, count: int) -> bytes:
    """Return the message after that many failed attempts; for 0, one without a header is returned itself.

    Raises:
        InvalidValue: it is not a number from 0 to 2**32 - 1.
        MessageFormatError: the header is not well-formed.
    """
    if not is_number(count, 32):
        raise InvalidValue(f"delivery count {count!r}: use a number from 0 to 4294967295")
    given, stop = [], 0
    if raw.startswith(_HEADERS):
        section = next(sections(raw))
        read_header(_inside(raw, section))
        reader, stop = Reader(raw, section.content, section.stop), section.stop
        given = [reader.encoded() for _ in range(reader.enter_list())]
    elif not count:
        return raw
    given += [writer.NULL] * (4 - len(given))
    first = writer.write(False) if count else given[3]
    header = b"\0\x53\x70" + writer.fields((*given[:3], first, writer.uint(count)))
    return b"".join((header, memoryview(raw)[stop:]))


def acquired(raw: bytes) -> bytes:
    """Return the message as it is once somebody had it: its header does not say that nobody did.

    Raises:
        MessageFormatError: the header is not well-formed.
    """
    header = header_of(raw)
    if not header.first_acquirer:
        return raw
    section = next(sections(raw))
    reader = Reader(raw, section.content, section.stop)
    given = [reader.encoded() for _ in range(reader.enter_list())]
    given[3] = writer.write(False)
    return b"".join((b"\0\x53\x70", writer.fields(tuple(given)), memoryview(raw)[section.stop :]))


def with_application_properties(raw: bytes, more: Mapping[str, Any]) -> bytes:
    """Return the message with more application properties; one of the same name is replaced, all else stays.

    Raises:
        MessageFormatError: the message is not well-formed, or a value is none that AMQP has.
    """
    found = list(sections(raw))
    there = next((section for section in found if section.code == APPLICATION_PROPERTIES), None)
    after = next((section.start for section in found if section.code > APPLICATION_PROPERTIES), len(raw))
    kept: list[bytes] = []
    if there is not None:
        reader = Reader(raw, there.content, there.stop)
        for _ in range(0, reader.enter_map(), 2):
            start, name = reader.at, reader.value(1)
            middle, value = reader.at, reader.encoded()
            if not (isinstance(name, str) and name in more):
                kept += [raw[start:middle], value]
        _leave(reader)
    for name, value in more.items():
        kept += [writer.write(name), writer.write(value)]
    before = raw[: there.start] if there is not None else raw[:after]
    return before + b"\0\x53\x74" + writer.mapping(kept) + raw[after:]

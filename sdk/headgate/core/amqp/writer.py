"""Writes values as AMQP 1.0 has them, each in the shortest form that there is for its type."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from struct import pack
from typing import Any, Final
from uuid import UUID

from headgate.core.amqp.reader import EPOCH
from headgate.core.amqp.types import MAX_DEPTH, Char, Described, Symbol, Timestamp
from headgate.errors import MessageFormatError

NULL: Final = b"\x40"
_MS: Final = dt.timedelta(milliseconds=1)


def _constant(code: bytes) -> Callable[[Any, int], bytes]:
    return lambda _, __: code


def _variable(code: int, content: bytes) -> bytes:
    size = len(content)
    return (pack(">BB", code, size) if size < 256 else pack(">BI", code | 0x10, size)) + content


def ubyte(number: int) -> bytes:
    """Write an unsigned byte."""
    return pack(">BB", 0x50, number)


def uint(number: int) -> bytes:
    """Write an unsigned integer of 32 bits."""
    return b"\x43" if number == 0 else pack(">BB", 0x52, number) if number < 256 else pack(">BI", 0x70, number)


def ulong(number: int) -> bytes:
    """Write an unsigned integer of 64 bits."""
    return b"\x44" if number == 0 else pack(">BB", 0x53, number) if number < 256 else pack(">BQ", 0x80, number)


def timestamp(moment: dt.datetime | int) -> bytes:
    """Write a moment, to the ms.

    Raises:
        MessageFormatError: it has no time zone, or is too far away.
    """
    if isinstance(moment, dt.datetime):
        if moment.tzinfo is None:
            raise MessageFormatError(f"{moment!r}: a moment needs a time zone")
        moment = (moment - EPOCH) // _MS
    if not -(1 << 63) <= moment < 1 << 63:
        raise MessageFormatError(f"a moment {moment} ms from 1970: 64 bits are the most")
    return pack(">Bq", 0x83, moment)


def symbol(text: str) -> bytes:
    """Write a symbol.

    Raises:
        MessageFormatError: it is not ASCII.
    """
    if not text.isascii():
        raise MessageFormatError(f"{text!r}: a symbol is ASCII")
    return _variable(0xA3, text.encode())


def sequence(items: Iterable[bytes]) -> bytes:
    """Write a list of values that are written already."""
    parts = list(items)
    content = b"".join(parts)
    if not parts:
        return b"\x45"
    if len(content) < 255 and len(parts) < 256:
        return pack(">BBB", 0xC0, len(content) + 1, len(parts)) + content
    return pack(">BII", 0xD0, len(content) + 4, len(parts)) + content


def mapping(items: Iterable[bytes]) -> bytes:
    """Write a map of keys and values, in turns, that are written already."""
    parts = list(items)
    content = b"".join(parts)
    if len(content) < 255 and len(parts) < 256:
        return pack(">BBB", 0xC1, len(content) + 1, len(parts)) + content
    return pack(">BII", 0xD1, len(content) + 4, len(parts)) + content


def fields(values: Iterable[bytes]) -> bytes:
    """Write the list of fields of something; those at the end that are null are left out."""
    parts = list(values)
    while parts and parts[-1] == NULL:
        parts.pop()
    return sequence(parts)


def _text(text: str, _: int) -> bytes:
    try:
        return _variable(0xA1, text.encode())
    except UnicodeEncodeError as error:
        raise MessageFormatError(f"text that UTF-8 cannot encode: {error}") from None


def _integer(number: int, _: int) -> bytes:
    if -128 <= number < 128:
        return pack(">Bb", 0x55, number)
    if -(1 << 63) <= number < 1 << 63:
        return pack(">Bq", 0x81, number)
    if 0 <= number < 1 << 64:
        return ulong(number)
    raise MessageFormatError(f"an integer of {number.bit_length()} bits: 64 are the most")


def _char(char: str, _: int) -> bytes:
    if len(char) != 1 or 0xD800 <= ord(char) < 0xE000:
        raise MessageFormatError(f"{char!r} is not one character")
    return pack(">BI", 0x73, ord(char))


def _decimal(number: Decimal, _: int) -> bytes:
    """Write a decimal of 128 bits in its binary integer encoding."""
    sign, digits, exponent = number.as_tuple()
    if exponent == "n":
        return b"\x94\x7c" + bytes(15)
    if exponent == "F":
        return b"\x94" + (b"\xf8" if sign else b"\x78") + bytes(15)
    if not isinstance(exponent, int) or len(digits) > 34 or not -6176 <= exponent <= 6111:
        raise MessageFormatError(f"a decimal of {len(digits)} digits and exponent {exponent}: not of 128 bits")
    significand = int("".join(map(str, digits)))
    return b"\x94" + (sign << 127 | (exponent + 6176) << 113 | significand).to_bytes(16)


def _list(items: Iterable[Any], depth: int) -> bytes:
    return sequence(write(item, depth + 1) for item in items)


def _map(items: Mapping[Any, Any], depth: int) -> bytes:
    return mapping(write(part, depth + 1) for pair in items.items() for part in pair)


def _described(value: Described, depth: int) -> bytes:
    return b"\0" + write(value.descriptor, depth + 1) + write(value.value, depth + 1)


_WRITERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    type(None): _constant(NULL),
    bool: lambda value, _: b"\x41" if value else b"\x42",
    int: _integer,
    float: lambda value, _: pack(">Bd", 0x82, value),
    str: _text,
    Symbol: lambda value, _: symbol(value),
    Char: _char,
    bytes: lambda value, _: _variable(0xA0, value),
    bytearray: lambda value, _: _variable(0xA0, bytes(value)),
    memoryview: lambda value, _: _variable(0xA0, bytes(value)),
    Decimal: _decimal,
    UUID: lambda value, _: b"\x98" + value.bytes,
    dt.datetime: lambda value, _: timestamp(value),
    Timestamp: lambda value, _: timestamp(value),
    list: _list,
    tuple: _list,
    dict: _map,
    Described: _described,
}
_COMPOUND: Final = (list, tuple, dict, Described)


def write(value: Any, depth: int = 0) -> bytes:
    """Return a value of :class:`Reader` in AMQP 1.0; ``depth`` is how many values it is inside of.

    An integer is a long, or from 2**63 on an unsigned one; a float is a double; a decimal has 128 bits.

    Raises:
        MessageFormatError: AMQP has no such type, it does not fit its type, or it holds itself.
    """
    writer = _WRITERS.get(type(value))
    if writer is not None and depth < MAX_DEPTH:
        return writer(value, depth)
    if depth >= MAX_DEPTH and isinstance(value, _COMPOUND):
        raise MessageFormatError(f"more than {MAX_DEPTH} levels of nested values")
    for kind in type(value).__mro__:
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value, depth)
    raise MessageFormatError(f"AMQP has no type for a {type(value).__name__}")

"""A reader takes AMQP 1.0 values from bytes. For any bytes it returns or raises ``MessageFormatError``."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any, Final
from uuid import UUID

from headgate.core.amqp.types import MAX_DEPTH, MAX_VALUES, Char, Described, Symbol, Timestamp
from headgate.errors import MessageFormatError

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DESCRIBED: Final = 0x00
_EMPTY_LIST: Final = 0x45
_CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_NUMBERS: Final = {
    code: Struct(f">{form}")
    for code, form in {
        0x50: "B", 0x51: "b", 0x52: "B", 0x53: "B", 0x54: "b", 0x55: "b", 0x60: "H", 0x61: "h", 0x70: "I", 0x71: "i",
        0x72: "f", 0x80: "Q", 0x81: "q", 0x82: "d",
    }.items()
}  # fmt: skip
_WIDTHS: Final = {0x40: 0, 0x50: 1, 0x60: 2, 0x70: 4, 0x80: 8, 0x90: 16}
"""Bytes of a value, by the first digit of its code."""
_SIZES: Final = {0xA0: 1, 0xC0: 1, 0xE0: 1, 0xB0: 4, 0xD0: 4, 0xF0: 4}
"""Bytes that say how many follow, by the first digit of a value's code."""
_LISTS: Final = (0xC0, 0xD0)
_MAPS: Final = (0xC1, 0xD1)
_ARRAYS: Final = (0xE0, 0xF0)


def _boolean(content: bytes) -> bool:
    if content not in (b"\0", b"\1"):
        raise ValueError("a boolean is 0 or 1")
    return content == b"\1"


def _char(content: bytes) -> Char:
    return Char(content.decode("utf-32-be"))


def _timestamp(content: bytes) -> dt.datetime | Timestamp:
    ms = int.from_bytes(content, signed=True)
    try:
        return EPOCH + dt.timedelta(milliseconds=ms)
    except OverflowError:
        return Timestamp(ms)


def _decimal(content: bytes) -> Decimal:
    """Return an IEEE 754 decimal in its binary integer encoding."""
    bits = 8 * len(content)
    exponent_bits, bias, digits = {32: (8, 101, 7), 64: (10, 398, 16), 128: (14, 6176, 34)}[bits]
    number = int.from_bytes(content)
    sign, number = number >> (bits - 1), number & ((1 << (bits - 1)) - 1)
    if number >> (bits - 5) == 0b1111:
        return Decimal("NaN") if number >> (bits - 6) & 1 else Decimal("-Infinity" if sign else "Infinity")
    rest = bits - 1 - exponent_bits
    if number >> (bits - 3) == 0b11:  # the significand begins with 100, which is not written
        rest -= 2
        significand = number & ((1 << rest) - 1) | 0b100 << rest
    else:
        significand = number & ((1 << rest) - 1)
    exponent = (number >> rest & ((1 << exponent_bits) - 1)) - bias
    if significand >= 10**digits:
        significand = 0
    return Decimal((sign, tuple(map(int, str(significand))), exponent))


def _text(content: bytes) -> str:
    return content.decode()


def _symbol(content: bytes) -> Symbol:
    return Symbol(content.decode("ascii"))


def _uuid(content: bytes) -> UUID:
    return UUID(bytes=content)


_PLAIN: Final[dict[int, Callable[[bytes], Any]]] = {
    0x56: _boolean, 0x73: _char, 0x74: _decimal, 0x83: _timestamp, 0x84: _decimal, 0x94: _decimal, 0x98: _uuid,
    0xA0: bytes, 0xA1: _text, 0xA3: _symbol, 0xB0: bytes, 0xB1: _text, 0xB3: _symbol,
}  # fmt: skip


class Reader:
    """A reader stands at a place in a message's bytes, from ``at`` to ``end`` (by default their end).

    At most ``most`` values are read that are inside of others.

    Attributes:
        at: what comes next.
        end: nothing is read from here on.
    """

    __slots__ = ("_left", "_most", "at", "end", "raw")

    def __init__(self, raw: bytes, at: int = 0, end: int | None = None, most: int = MAX_VALUES) -> None:
        self.raw = raw
        self.at = at
        self.end = len(raw) if end is None else end
        self._most = self._left = most

    def value(self, depth: int = 0) -> Any:
        """Return the next value, which is inside of ``depth`` others.

        Raises:
            MessageFormatError: there is none, it is not well-formed, or it holds too much.
        """
        code = self.code()
        if code != _DESCRIBED:
            return self._content(code, depth)
        self._go_into(depth)
        descriptor = self.value(depth + 1)
        return Described(descriptor, self.value(depth + 1))

    def skip(self) -> None:
        """Pass over the next value without reading it. Errors as :meth:`value`."""
        more = 1
        while more:
            more -= 1
            code = self.code()
            if code == _DESCRIBED:
                more += 2
                continue
            self._take(self._size(code))

    def encoded(self) -> bytes:
        """Pass over the next value, and return its bytes. Errors as :meth:`value`."""
        start = self.at
        self.skip()
        return self.raw[start : self.at]

    def enter(self, codes: tuple[int, int]) -> int:
        """Go into the list, map or array that comes next, up to its end; return how many values it says it has."""
        at, code = self.at, self.code()
        if code == _EMPTY_LIST and codes is _LISTS:
            self.end = self.at
            return 0
        if code not in codes:
            raise MessageFormatError(f"{code:#04x} is not expected here", at=at)
        return self._enter(code)

    def enter_list(self) -> int:
        """Go into a list; as :meth:`enter`."""
        return self.enter(_LISTS)

    def enter_map(self) -> int:
        """Go into a map; as :meth:`enter`. Keys and values count."""
        return self.enter(_MAPS)

    def code(self) -> int:
        """Return the next byte."""
        return self.raw[self._take(1)]

    def _take(self, size: int) -> int:
        at = self.at
        if size > self.end - at:
            raise MessageFormatError(f"{size} bytes are expected here, and {self.end - at} are left", at=at)
        self.at = at + size
        return at

    def _number(self, width: int) -> int:
        at = self._take(width)
        return int.from_bytes(self.raw[at : at + width])

    def _size(self, code: int) -> int:
        """Return how many bytes of a value follow."""
        kind = code & 0xF0
        width = _WIDTHS.get(kind)
        if width is not None:
            return width
        if kind not in _SIZES:
            raise MessageFormatError(f"{code:#04x} is not a type of AMQP 1.0", at=self.at - 1)
        return self._number(_SIZES[kind])

    def _go_into(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise MessageFormatError(f"more than {MAX_DEPTH} levels of nested values", at=self.at)

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise MessageFormatError(f"more than {self._most} values", at=self.at)

    def _enter(self, code: int) -> int:
        at = self.at
        size = self._size(code)
        if size > self.end - self.at:
            raise MessageFormatError(f"{size} bytes are expected here, and {self.end - self.at} are left", at=at)
        self.end = self.at + size
        count = self._number(_SIZES[code & 0xF0])
        if code not in _ARRAYS and count > self.end - self.at:
            raise MessageFormatError(f"{count} values in {self.end - self.at} bytes", at=at)
        if code in _MAPS and count % 2:
            raise MessageFormatError("a map with a key that has no value", at=at)
        self._count(count)
        return count

    def _content(self, code: int, depth: int) -> Any:
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return form.unpack_from(self.raw, self._take(form.size))[0]
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        at, plain = self.at - 1, _PLAIN.get(code)
        if plain is not None:
            size = self._size(code)
            start = self._take(size)
            try:
                return plain(self.raw[start : start + size])
            except ValueError as error:
                raise MessageFormatError(f"a value of type {code:#04x}: {error}", at=at) from None
        if code == _EMPTY_LIST:
            return []
        if code not in _LISTS + _MAPS + _ARRAYS:
            raise MessageFormatError(f"{code:#04x} is not a type of AMQP 1.0", at=at)
        return self._compound(code, depth)

    def _compound(self, code: int, depth: int) -> Any:
        self._go_into(depth)
        outer = self.end
        count = self._enter(code)
        found: Any
        if code in _LISTS:
            found = [self.value(depth + 1) for _ in range(count)]
        elif code in _MAPS:
            found = self.pairs(count, depth + 1)
        else:
            found = self._array(count, depth + 1)
        if self.at != self.end:
            raise MessageFormatError(f"{self.end - self.at} bytes more than {count} values take", at=self.at)
        self.end = outer
        return found

    def pairs(self, count: int, depth: int) -> dict[Any, Any]:
        """Return a map of that many keys and values."""
        found: dict[Any, Any] = {}
        for _ in range(0, count, 2):
            at, key = self.at, self.value(depth)
            try:
                if key in found:
                    raise MessageFormatError(f"a map with the key {key!r} twice", at=at)
                found[key] = self.value(depth)
            except TypeError:
                raise MessageFormatError(f"a map with a {type(key).__name__} as key", at=at) from None
        return found

    def _array(self, count: int, depth: int) -> list[Any]:
        code = self.code()
        if code != _DESCRIBED:
            return [self._content(code, depth) for _ in range(count)]
        descriptor, code = self.value(depth), self.code()
        return [Described(descriptor, self._content(code, depth)) for _ in range(count)]

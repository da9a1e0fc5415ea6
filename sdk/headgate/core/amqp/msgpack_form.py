"""A message has a form of the SDK's own: a msgpack array of body and, where there are any, headers."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

import msgpack

from headgate.core.amqp.reader import Reader
from headgate.core.amqp.types import Described
from headgate.core.amqp.writer import write
from headgate.errors import MessageFormatError

_UUID, _DECIMAL, _DESCRIBED = 71, 72, 73
"""Extension types of msgpack for what AMQP has and msgpack has not; a moment is msgpack's own type."""
_ALONE, _BOTH = b"\x91", b"\x92"
_LENGTHS: Final = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4, b"\xd9": 1, b"\xda": 2, b"\xdb": 4}
"""Bytes that say how long a body is, by its first byte; that of a short text says it itself."""
_BODIES: Final = (bytes, str)
_TEXT: Final = {str}
MAX_PARTS: Final = 100_000
"""Values in the headers of a message, or in calls, at all depths: in memory one takes some 60 times its byte."""
SMALL: Final = 64 << 10
"""Bytes that cannot have too many."""
_ERRORS: Final = (ValueError, TypeError, OverflowError, RecursionError)


def _extend(value: Any) -> msgpack.ExtType:
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, Described):
        return msgpack.ExtType(_DESCRIBED, write(value))  # not as msgpack: that would call this without bounds to read
    raise TypeError(f"can not serialize {type(value).__name__!r} object")


def _extended(code: int, content: bytes) -> Any:
    try:
        if code == _UUID:
            return UUID(bytes=content)
        if code == _DECIMAL:
            return Decimal(content.decode())
        if code == _DESCRIBED:
            reader = Reader(content)
            found = reader.value()
            if isinstance(found, Described) and reader.at == len(content):
                return found
    except (ValueError, InvalidOperation):
        pass  # somebody else's type of that number
    return msgpack.ExtType(code, content)


def counter(content: bytes) -> Callable[[Any], Any] | None:
    """Return a hook of msgpack that lets no more than :data:`MAX_PARTS` values come of this; None for what is short."""
    parts = 0

    def counted(values: Any) -> Any:
        nonlocal parts
        parts += 1 + len(values)
        if parts > MAX_PARTS:
            raise ValueError(f"more than {MAX_PARTS} values")
        return values

    return counted if len(content) > SMALL else None


def _unpack(content: bytes, *, timestamp: int) -> Any:
    hook = counter(content)
    most = {"max_array_len": MAX_PARTS, "max_map_len": MAX_PARTS}
    return msgpack.unpackb(content, strict_map_key=False, timestamp=timestamp, ext_hook=_extended, list_hook=hook,
                           object_hook=hook, **most)  # fmt: skip


pack: Final = msgpack.Packer(autoreset=True, use_bin_type=True, datetime=True, default=_extend).pack


def unpack(content: bytes) -> Any:
    """Return what was packed. A moment is a :class:`datetime.datetime` in UTC, if all of them can be.

    Raises:
        MessageFormatError: it is not msgpack, or has more than :data:`MAX_PARTS` values.
    """
    try:
        try:
            return _unpack(content, timestamp=3)
        except OverflowError:
            return _unpack(content, timestamp=0)
    except _ERRORS as error:
        raise MessageFormatError(str(error) or type(error).__name__) from None


def read(stored: bytes) -> tuple[bytes | str, dict[str, Any]]:
    """Return body and headers of a message in this form.

    Raises:
        MessageFormatError: it is not in this form.
    """
    parts = unpack(stored)
    if type(parts) is not list or not 1 <= len(parts) <= 2:
        raise MessageFormatError("it is neither AMQP 1.0 nor an array of body and headers", at=0)
    body, headers = parts[0], parts[1] if len(parts) > 1 else {}
    if type(body) not in _BODIES or not are_headers(headers):
        raise MessageFormatError("a body is bytes or text, and headers are a map whose names are text")
    return body, headers


def read_headers(stored: bytes) -> dict[str, Any]:
    """Return the headers of a message in this form, without its body, which may be long. Errors as :func:`read`."""
    after = end_of_body(stored)
    if after == len(stored):
        return {}
    headers: dict[str, Any] = unpack(stored[after:])
    if not are_headers(headers):
        raise MessageFormatError("headers are a map whose names are text", at=after)
    return headers


def end_of_body(stored: bytes) -> int:
    """Return where the body of a message in this form ends, and its headers begin. Errors as :func:`read`."""
    parts, kind = stored[:1], stored[1:2]
    width = _LENGTHS.get(kind, 0)
    if kind and 0xA0 <= kind[0] < 0xC0:
        size = kind[0] - 0xA0
    elif width:
        size = int.from_bytes(stored[2 : 2 + width])
    else:
        raise MessageFormatError("it is neither AMQP 1.0 nor an array of body and headers", at=0)
    after = 2 + width + size
    if not (parts == _ALONE and after == len(stored)) and not (parts == _BOTH and after < len(stored)):
        raise MessageFormatError("it is neither AMQP 1.0 nor an array of body and headers", at=0)
    return after


def are_headers(found: Any) -> bool:
    """Return whether it is a map from text."""
    return type(found) is dict and (not found or {*map(type, found)} == _TEXT)

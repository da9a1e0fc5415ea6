"""The SDK's own form of a message: a msgpack array of body and, where there are any, headers."""

from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

import msgpack

from headgate.core.amqp_reader import Reader
from headgate.core.amqp_types import Described
from headgate.core.amqp_writer import write
from headgate.errors import MessageFormatError

_UUID, _DECIMAL, _DESCRIBED = 71, 72, 73
"""Extension types of msgpack for what AMQP has and msgpack has not; a moment is msgpack's own type."""
_BODIES: Final = (bytes, str)
_TEXT: Final = {str}
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


pack: Final = msgpack.Packer(autoreset=True, use_bin_type=True, datetime=True, default=_extend).pack


def unpack(content: bytes) -> Any:
    """Return what was packed. A moment is a :class:`datetime.datetime` in UTC, if all of them can be.

    Raises:
        MessageFormatError: it is not msgpack.
    """
    try:
        try:
            return msgpack.unpackb(content, strict_map_key=False, timestamp=3, ext_hook=_extended)
        except OverflowError:
            return msgpack.unpackb(content, strict_map_key=False, ext_hook=_extended)
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


def are_headers(found: Any) -> bool:
    """Return whether it is a map from text."""
    return type(found) is dict and (not found or {*map(type, found)} == _TEXT)

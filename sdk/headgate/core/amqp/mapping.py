"""AMQP 1.0 messages as the SDK shows them, body and headers, and the way back.

Values that AMQP keeps in sections of its own have headers whose names begin with ``amqp.``; ``docs/guide.md`` lists
them. Read by an AMQP client, such a header of the SDK is in its section again, and any other one is an application
property. Values
that no section holds exactly are in the message annotation :data:`EXACT` too, so that the SDK reads what was sent.
"""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headgate.core.amqp import msgpack_form
from headgate.core.amqp.message import (
    NO_PROPERTIES,
    PROPERTIES,
    AmqpMessage,
    Properties,
    encode,
    fits_property,
    is_annotation,
)
from headgate.core.amqp.reader import Reader
from headgate.core.amqp.sections import DEFAULT_HEADER, is_number
from headgate.core.amqp.writer import mapping, write
from headgate.errors import MessageFormatError

EXACT: Final = "x-opt-headgate-headers"
"""The annotation with a msgpack map of the headers that no section can say exactly."""
BODY: Final = "amqp.body"
"""The header that says that a body is something else than bytes or text: ``null``, ``value`` or ``sequence``."""
APPLICATION: Final = "amqp.application."
"""A prefix for the name of an application property that is also the name of a header of this module."""
PREFIX: Final = "amqp."
"""How the names of all of these begin."""
_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
_HEADER: Final = {"amqp.durable": "durable", "amqp.priority": "priority", "amqp.ttl": "ttl_ms"}
_PROPERTIES: Final = {f"amqp.{name.replace('_', '-')}": name for name in PROPERTIES}
_ANNOTATIONS: Final = {
    f"amqp.{name.replace('_', '-')}": name for name in ("delivery_annotations", "message_annotations", "footer")
}


def shown(message: AmqpMessage) -> tuple[bytes | str, dict[str, Any]]:
    """Return body and headers of an AMQP message."""
    body, kind = _shown_body(message)
    return body, shown_headers(message, kind)


def shown_headers(message: AmqpMessage, kind: str = "") -> dict[str, Any]:
    """Return the headers of an AMQP message, whose body is of that kind."""
    headers: dict[str, Any] = {BODY: kind} if kind else {}
    annotations, exact = _without_exact(message.message_annotations)
    if message.header is not DEFAULT_HEADER:
        for name, field in _HEADER.items():
            if (value := getattr(message.header, field)) != getattr(DEFAULT_HEADER, field):
                headers[name] = value
    if message.properties is not NO_PROPERTIES:
        for name, field in _PROPERTIES.items():
            if (value := getattr(message.properties, field)) is not None:
                headers[name] = value
    for name, field in _ANNOTATIONS.items():
        if found := annotations if field == "message_annotations" else getattr(message, field):
            headers[name] = found
    for name, value in message.application_properties.items():
        while name in headers:
            name = APPLICATION + name  # noqa: PLW2901 - the name it is shown under
        headers[name] = value
    return headers | exact


def _shown_body(message: AmqpMessage) -> tuple[bytes | str, str]:
    """Return the body, and what it is where it is neither bytes nor text."""
    if message.body is None:
        return b"", "null"
    if message.kind == "value" and isinstance(message.body, str):
        return str(message.body), ""
    if isinstance(message.body, bytes):
        return message.body, ""
    return msgpack_form.pack(message.body), message.kind


def _without_exact(annotations: dict[Any, Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    content = annotations.get(EXACT)
    if isinstance(content, bytes):
        try:
            exact = msgpack_form.unpack(content)
        except MessageFormatError:
            return annotations, {}
        if msgpack_form.are_headers(exact):
            return {name: value for name, value in annotations.items() if name != EXACT}, exact
    return annotations, {}


def meant(body: bytes | str, headers: dict[str, Any]) -> AmqpMessage:
    """Return the AMQP message for a body and headers of the SDK: :func:`shown` gives the same again."""
    message = AmqpMessage(kind="value" if isinstance(body, str) else "data", body=body)
    header: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for name, value in headers.items():
        if name in _HEADER and _fits_header(name, value):
            header[_HEADER[name]] = value
        elif name in _PROPERTIES and fits_property(_PROPERTIES[name], value) and _is_exact(value):
            properties[_PROPERTIES[name]] = value
        elif name in _ANNOTATIONS and _fits_annotations(value):
            setattr(message, _ANNOTATIONS[name], value)
        elif name != BODY or not _set_body(message, body, value):
            if _is_simple(value):
                message.application_properties[name] = value
            if not _is_exact(value):
                exact[name] = value
    message.header = replace(DEFAULT_HEADER, **header)
    message.properties = Properties(**properties)
    if exact:
        message.message_annotations = message.message_annotations | {EXACT: msgpack_form.pack(exact)}
    return message


def written(body: bytes | str, headers: dict[str, Any], delivery_count: int) -> bytes:
    """Return the AMQP message, as bytes, for a body and headers of the SDK and a count of failed attempts.

    Raises:
        MessageFormatError: AMQP cannot say it.
    """
    if not delivery_count and (plain := _plainly(body, headers)) is not None:
        return plain
    message = meant(body, headers)
    message.header = replace(message.header, delivery_count=delivery_count)
    return encode(message)


def _plainly(body: bytes | str, headers: dict[str, Any]) -> bytes | None:
    """Return what :func:`written` does, in a fraction of the time; None where a header is more than a plain one."""
    section = b"\0\x53\x77" if type(body) is str else b"\0\x53\x75"
    if not headers:
        return section + write(body)
    parts = []
    for name, value in headers.items():
        if type(value) not in _PLAIN or name.startswith(PREFIX):
            return None
        parts += [write(name), write(value)]
    return b"\0\x53\x74" + mapping(parts) + section + write(body)


def _fits_header(name: str, value: Any) -> bool:
    if name == "amqp.durable":
        return value is True
    return is_number(value, 8) and value != DEFAULT_HEADER.priority if name == "amqp.priority" else is_number(value, 32)


def _is_simple(value: Any) -> bool:
    if isinstance(value, Decimal):
        return _comes_back(value)
    return value is None or isinstance(value, str | bool | int | float | bytes | UUID | dt.datetime)


def _is_exact(value: Any) -> bool:
    """Return whether a value comes back from AMQP as it is."""
    return _is_simple(value) and not (isinstance(value, dt.datetime) and value.microsecond % 1000)


def _comes_back(value: Any) -> bool:
    try:
        return bool(Reader(write(value, 1)).value(1) == value)
    except MessageFormatError:
        return False


def _fits_annotations(value: Any) -> bool:
    if not isinstance(value, dict) or not value or EXACT in value:
        return False
    return all(map(is_annotation, value)) and _comes_back(value)


def _set_body(message: AmqpMessage, body: bytes | str, kind: Any) -> bool:
    """Make it a body of that kind, and return whether it is one."""
    if kind == "null" and body == b"":
        message.kind, message.body = "value", None
        return True
    if kind not in ("value", "sequence") or isinstance(body, str):
        return False
    try:
        content = msgpack_form.unpack(body)
        same = msgpack_form.pack(content) == body and _comes_back(content)
    except (MessageFormatError, TypeError, ValueError, OverflowError):
        return False
    if not same or isinstance(content, str | bytes | None) or (kind == "sequence" and not isinstance(content, list)):
        return False
    message.kind, message.body = kind, content
    return True

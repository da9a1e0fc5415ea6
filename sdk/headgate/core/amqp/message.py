"""A message of AMQP 1.0 is taken apart and put together again here."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import Any, Final, Literal
from uuid import UUID

from headgate.core.amqp import sections as at
from headgate.core.amqp import writer
from headgate.core.amqp.reader import Reader
from headgate.core.amqp.sections import DEFAULT_HEADER, Header, is_number
from headgate.core.amqp.types import MAX_VALUES, Timestamp
from headgate.errors import MessageFormatError

MessageId = str | bytes | int | UUID
Moment = dt.datetime | Timestamp
BodyKind = Literal["none", "data", "sequence", "value"]


@dataclass(frozen=True, slots=True)
class Properties:
    """A message has these standard properties; None is what is not given.

    Attributes:
        message_id: text, bytes, a number from 0 or a UUID.
        user_id: who sent it, as bytes.
        to: address it is sent to.
        subject: what it is about.
        reply_to: address for the answer.
        correlation_id: as ``message_id``.
        content_type: of the body: a MIME type, in ASCII.
        content_encoding: of the body, in ASCII.
        absolute_expiry_time: when it is over.
        creation_time: when it was made.
        group_id: the group it belongs to.
        group_sequence: its number there, of 32 bits.
        reply_to_group_id: the group of the answer.
    """

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: Moment | None = None
    creation_time: Moment | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


PROPERTIES: Final = tuple(each.name for each in fields_of(Properties))
_IDS: Final = ("message_id", "correlation_id")
_SYMBOLS: Final = ("content_type", "content_encoding")
_TIMES: Final = ("absolute_expiry_time", "creation_time")
NO_PROPERTIES: Final = Properties()


@dataclass(slots=True)
class AmqpMessage:
    """An AMQP 1.0 message has these sections.

    Attributes:
        header: how it is to be transported.
        delivery_annotations: from node to node.
        message_annotations: for whoever delivers it.
        properties: the standard ones.
        application_properties: the sender's own.
        kind: the section that holds the body; ``none`` where there is none.
        body: bytes of ``data``, a list of ``sequence``, anything of ``value``.
        footer: values known only after the body.
    """

    header: Header = DEFAULT_HEADER
    delivery_annotations: dict[Any, Any] = field(default_factory=dict)
    message_annotations: dict[Any, Any] = field(default_factory=dict)
    properties: Properties = NO_PROPERTIES
    application_properties: dict[str, Any] = field(default_factory=dict)
    kind: BodyKind = "none"
    body: Any = None
    footer: dict[Any, Any] = field(default_factory=dict)


def fits_property(name: str, value: Any) -> bool:
    """Return whether a value can be the standard property of that name."""
    if name in _IDS:
        return isinstance(value, str | bytes | UUID) or is_number(value, 64)
    if name == "user_id":
        return isinstance(value, bytes)
    if name in _TIMES:
        return isinstance(value, dt.datetime | Timestamp)
    if name == "group_sequence":
        return is_number(value, 32)
    return isinstance(value, str) and (name not in _SYMBOLS or value.isascii())


def is_annotation(name: Any) -> bool:
    """Return whether an annotation can be called so: ASCII text, or a number."""
    return name.isascii() if isinstance(name, str) else is_number(name, 64)


def decode(raw: bytes, most: int = MAX_VALUES) -> AmqpMessage:
    """Read a message that has so many values at the most.

    Raises:
        MessageFormatError: the bytes are not a message of AMQP 1.0.
    """
    message = _read(raw, at.FOOTER, most)
    if isinstance(message.body, bytearray):
        message.body = bytes(message.body)
    return message


def decode_head(raw: bytes, most: int = MAX_VALUES) -> AmqpMessage:
    """Read of a message what stands before its body. Errors as :func:`decode`."""
    return _read(raw, at.APPLICATION_PROPERTIES, most)


def _read(raw: bytes, last: int, most: int) -> AmqpMessage:
    message, reader = AmqpMessage(), Reader(raw, most=most)
    for section in at.sections(raw):
        if section.code > last:
            break
        reader.at, reader.end = section.content, section.stop
        _READERS[section.code](message, reader)
    return message


def _read_header(message: AmqpMessage, reader: Reader) -> None:
    message.header = at.header_of(reader.raw)


def _read_properties(message: AmqpMessage, reader: Reader) -> None:
    place, given = reader.at, dict(zip(PROPERTIES, at.fields(reader, len(PROPERTIES)), strict=True))
    for name, value in given.items():
        if value is not None and not fits_property(name, value):
            raise MessageFormatError(f"the property {name.replace('_', '-')} cannot be {value!r}", at=place)
    message.properties = Properties(**given)


def _read_application(message: AmqpMessage, reader: Reader) -> None:
    place, found = reader.at, reader.value()
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise MessageFormatError("application properties are a map, and their names text", at=place)
    message.application_properties = found


def _read_map(name: str) -> Callable[[AmqpMessage, Reader], None]:
    def read(message: AmqpMessage, reader: Reader) -> None:
        place, found = reader.at, reader.value()
        if not isinstance(found, dict) or not all(map(is_annotation, found)):
            raise MessageFormatError(f"{name.replace('_', ' ')}: a map, its names symbols or numbers", at=place)
        setattr(message, name, found)

    return read


def _read_data(message: AmqpMessage, reader: Reader) -> None:
    place, found = reader.at, reader.value()
    if not isinstance(found, bytes):
        raise MessageFormatError("data is bytes", at=place)
    if message.kind == "none":
        message.kind, message.body = "data", found
    elif isinstance(message.body, bytearray):
        message.body += found
    else:
        message.body = bytearray(message.body + found)


def _read_sequence(message: AmqpMessage, reader: Reader) -> None:
    place, found = reader.at, reader.value()
    if not isinstance(found, list):
        raise MessageFormatError("a sequence is a list", at=place)
    if message.kind == "none":
        message.kind, message.body = "sequence", found
    else:
        message.body += found


def _read_value(message: AmqpMessage, reader: Reader) -> None:
    message.kind, message.body = "value", reader.value()


_READERS: Final[dict[int, Callable[[AmqpMessage, Reader], None]]] = {
    at.HEADER: _read_header,
    at.DELIVERY_ANNOTATIONS: _read_map("delivery_annotations"),
    at.MESSAGE_ANNOTATIONS: _read_map("message_annotations"),
    at.PROPERTIES: _read_properties,
    at.APPLICATION_PROPERTIES: _read_application,
    at.DATA: _read_data,
    at.SEQUENCE: _read_sequence,
    at.VALUE: _read_value,
    at.FOOTER: _read_map("footer"),
}


def encode(message: AmqpMessage) -> bytes:
    """Write a message; of its sections those that say something.

    Raises:
        MessageFormatError: there is something in it that AMQP cannot say.
    """
    application = message.application_properties
    parts = [
        (at.HEADER, _written_header(message.header) if message.header != DEFAULT_HEADER else b""),
        (at.DELIVERY_ANNOTATIONS, _written_map(message.delivery_annotations)),
        (at.MESSAGE_ANNOTATIONS, _written_map(message.message_annotations)),
        (at.PROPERTIES, _written_properties(message.properties) if message.properties != NO_PROPERTIES else b""),
        (at.APPLICATION_PROPERTIES, writer.write(application) if application else b""),
        ({"data": at.DATA, "sequence": at.SEQUENCE}.get(message.kind, at.VALUE), _written_body(message)),
        (at.FOOTER, _written_map(message.footer)),
    ]
    return b"".join(bytes((0, 0x53, code)) + written for code, written in parts if written)


def _written_header(header: Header) -> bytes:
    numbers = (header.priority, 8), (header.ttl_ms or 0, 32), (header.delivery_count, 32)
    if not all(is_number(value, bits) for value, bits in numbers):
        raise MessageFormatError(f"{header!r}: a number does not fit")
    return writer.fields((
        writer.write(True) if header.durable else writer.NULL,
        writer.NULL if header.priority == 4 else writer.ubyte(header.priority),
        writer.NULL if header.ttl_ms is None else writer.uint(header.ttl_ms),
        writer.write(header.first_acquirer) if header.first_acquirer or header.delivery_count else writer.NULL,
        writer.uint(header.delivery_count) if header.delivery_count else writer.NULL,
    ))  # fmt: skip


def _written_properties(properties: Properties) -> bytes:
    return writer.fields(_written_property(name, getattr(properties, name)) for name in PROPERTIES)


def _written_property(name: str, value: Any) -> bytes:
    if value is None:
        return writer.NULL
    if not fits_property(name, value):
        raise MessageFormatError(f"the property {name.replace('_', '-')} cannot be {value!r}")
    if name in _SYMBOLS:
        return writer.symbol(value)
    if isinstance(value, int) and not isinstance(value, Timestamp):
        return writer.uint(value) if name == "group_sequence" else writer.ulong(value)
    return writer.write(str(value) if isinstance(value, str) else value)


def _written_map(annotations: Mapping[Any, Any]) -> bytes:
    if not annotations:
        return b""
    parts: list[bytes] = []
    for name, value in annotations.items():
        if not is_annotation(name):
            raise MessageFormatError(f"{name!r}: the name of an annotation is ASCII text or a number")
        parts += [writer.symbol(name) if isinstance(name, str) else writer.ulong(name), writer.write(value, 1)]
    return writer.mapping(parts)


def _written_body(message: AmqpMessage) -> bytes:
    if message.kind == "none":
        return b""
    wanted = {"data": bytes, "sequence": list}.get(message.kind, object)
    if not isinstance(message.body, wanted):
        raise MessageFormatError(f"a {type(message.body).__name__} as body of kind {message.kind}")
    return writer.write(message.body)

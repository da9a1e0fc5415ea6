"""A stored message is matched with a selector by its headers, which are read, and never by its body."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from headgate.core.amqp import mapping as amqp_mapping
from headgate.core.amqp import message as amqp_message
from headgate.core.amqp import msgpack_form
from headgate.core.amqp.mapping import PREFIX
from headgate.core.amqp.sections import APPLICATION_PROPERTIES, sections
from headgate.core.amqp.types import MAX_VALUES
from headgate.core.selector.parser import Selector

Matcher = Callable[[bytes], bool]


def matcher(selector: Selector) -> Matcher:
    """Return what says whether a selector matches a stored message; it raises MessageFormatError for a damaged one."""
    return lambda stored: selector.matches(headers_for(stored, selector.names))


def headers_for(stored: bytes, names: frozenset[str]) -> dict[str, Any]:
    """Return the headers of a stored message for selectors of these names; errors as of :func:`headers_of`."""
    headers = headers_of(stored)
    for name in names & STANDARD.keys():
        headers.setdefault(name, STANDARD[name](headers))
    return headers


def head_size(stored: bytes) -> int:
    """Return the bytes of a stored message that :func:`headers_of` reads. Errors as there."""
    if stored[:1] != b"\0":
        return len(stored) - msgpack_form.end_of_body(stored)
    for section in sections(stored):
        if section.code > APPLICATION_PROPERTIES:
            return section.start
    return len(stored)


def headers_of(stored: bytes, most: int = MAX_VALUES) -> dict[str, Any]:
    """Return the headers of a stored message, whatever its form, as far as they stand before its body.

    They are called as consumers know them: an application property as it is, what else AMQP says ``amqp.<property>``.

    Raises:
        MessageFormatError: it is damaged, in no form that is known, or of AMQP and has more values than that.
    """
    if stored[:1] == b"\0":
        return amqp_mapping.shown_headers(amqp_message.decode_head(stored, most))
    return msgpack_form.read_headers(stored)


def _identifier(name: str) -> Callable[[dict[str, Any]], str | None]:
    """Return what JMS calls a message that AMQP gives a name which may be something else than text."""

    def read(headers: dict[str, Any]) -> str | None:
        match headers.get(name):
            case UUID() as value:
                return f"ID:AMQP_UUID:{value}"
            case bytes() as value:
                return f"ID:AMQP_BINARY:{value.hex().upper()}"
            case int() as value:
                return f"ID:AMQP_ULONG:{value}"
            case value:
                return value

    return read


def _property(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda headers: headers.get(name)


STANDARD: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "JMSPriority": lambda headers: headers.get(f"{PREFIX}priority", 4),
    "JMSDeliveryMode": lambda headers: "PERSISTENT" if headers.get(f"{PREFIX}durable") else "NON_PERSISTENT",
    "JMSMessageID": _identifier(f"{PREFIX}message-id"),
    "JMSCorrelationID": _identifier(f"{PREFIX}correlation-id"),
    "JMSType": _property(f"{PREFIX}subject"),
    "JMSTimestamp": _property(f"{PREFIX}creation-time"),
    "JMSXGroupID": _property(f"{PREFIX}group-id"),
    "JMSXGroupSeq": _property(f"{PREFIX}group-sequence"),
}
"""The fields of a message that JMS has names for; a header that is called so comes first."""

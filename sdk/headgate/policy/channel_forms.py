"""The forms of what a channel says: groups, ports, interfaces, rates in bytes and sizes of packets."""

import ipaddress
from typing import Any, Final

from headgate.core.links.multicast import LARGEST
from headgate.core.names import encode_name
from headgate.errors import InvalidValue
from headgate.policy.value_forms import form
from headgate.units import parse_rate, parse_size

MOST_TTL: Final = 255
SMALLEST: Final = 256
"""Bytes of a packet: most of it is not header."""


def _topics(value: Any, what: str) -> None:
    if not isinstance(value, list) or not value:
        raise InvalidValue(f"{value!r}; write a list of names of topics, such as ['prices']", setting=what)
    for name in value:
        encode_name(name, what)
    if len(set(value)) != len(value):
        raise InvalidValue("a topic is listed twice; keep one", setting=what)


def _group(value: Any, what: str) -> None:
    address = _address(value)
    if address is None or not address.is_multicast:
        raise InvalidValue(
            f"{value!r} is not a multicast address; use one of 224.0.0.0/4, such as '239.1.2.3'", setting=what
        )


def _interface(value: Any, what: str) -> None:
    address = _network(value) if isinstance(value, str) and "/" in value else _address(value)
    if address is None or address.is_multicast or address.is_unspecified:
        raise InvalidValue(
            f"{value!r} is not the address of an interface; write the network that each node has one in, such as "
            "'10.0.0.0/24', or an IPv4 address",
            setting=what,
        )


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        return None


def _address(value: Any) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _whole(value: Any, what: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidValue(f"{value!r}; write a whole number from {least} to {most}", setting=what)


def _port(value: Any, what: str) -> None:
    _whole(value, what, 1, 65535)


def _ttl(value: Any, what: str) -> None:
    _whole(value, what, 0, MOST_TTL)


def _packet(value: Any, what: str) -> None:
    size = parse_size(value, what)
    if not SMALLEST <= size <= LARGEST:
        raise InvalidValue(f"{value!r}; a packet has {SMALLEST} to {LARGEST} bytes", setting=what)


def byte_rate(value: Any, what: str) -> float:
    """Return bytes a second; a size, as EMS writes it, is a size a second.

    Raises:
        InvalidValue: neither a size nor a rate, or not above zero.
    """
    if isinstance(value, str) and "/" not in value:
        value = parse_size(value, what)
    try:
        return parse_rate(value, what)
    except InvalidValue:
        raise InvalidValue(f"{value!r}; write bytes a second, such as '1MB' or '8MB/min'", setting=what) from None


_IPV4: Final = r"^\d{1,3}(\.\d{1,3}){3}$"
_IPV4_OR_NETWORK: Final = r"^\d{1,3}(\.\d{1,3}){3}(/\d{1,2})?$"
_SIZE: Final = r"^\s*(\d+(\.\d+)?|\.\d+)\s*([kKmMgGtT][iI]?)?[bB]?\s*(/\s*(s|min|h)\s*)?$"


def _range(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": 255}
Topics = form(_topics, {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True})
Group = form(_group, {"type": "string", "pattern": _IPV4})
Interface = form(_interface, {"type": "string", "pattern": _IPV4_OR_NETWORK})
Port = form(_port, _range(1, 65535))
Ttl = form(_ttl, _range(0, MOST_TTL))
ByteRate = form(byte_rate, {"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _SIZE})
PacketSize = form(_packet, _range(SMALLEST, LARGEST), {"type": "string", "pattern": _SIZE})

"""Names of destinations, pools and stores: what they may hold, and how keys and records spell them."""

import re
from typing import Final
from urllib.parse import quote, unquote

from headgate.core.addresses.pattern import WILDCARDS
from headgate.errors import InvalidName

_REFUSED: Final = re.compile(r"[{}*?\[\]\\#>\x00-\x1f\x7f]")
MAX_NAME_BYTES: Final = 255
MOST_SLICES: Final = 48
"""Slots that one destination may be spread over."""

_SLICE: Final = re.compile(r"(.+)#(\d|[1-3]\d|4[0-7]|m)\Z", re.ASCII | re.DOTALL)
_ID: Final = re.compile(r"(?:([1-9]|[1-3]\d|4[0-7]):)?(\d{1,16}-\d{1,16})", re.ASCII)
_ENCODED_SLICE: Final = re.compile(r"(.+?)%\.(\d+|m)(?:%\.\d+)?\Z", re.ASCII)


def encode_name(name: str, what: str = "destination") -> str:
    """Return the name percent-encoded, so that it can stand in a key, a channel or a record.

    Slices of a destination have names too, see :func:`slice_name`.

    Raises:
        InvalidName: empty, over 255 bytes, not UTF-8, or with a brace, a wildcard (``* ? [ ] # >``), a backslash or a
            control character.
    """
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{what} {name!r}: a name is text and not empty")
    if "#" in name and (match := _SLICE.match(name)):
        return f"{encode_name(match[1], what)}%.{match[2]}"  # no name is encoded to something with '%.' in it
    if bad := _REFUSED.search(name):
        hint = "; a pattern is for consumers of topics and for policies" if bad[0] in WILDCARDS else ""
        raise InvalidName(
            f"{what} {name!r}: {bad[0]!r} at position {bad.start()} cannot be part of a name "
            f"(nor can braces, wildcards, backslashes and control characters){hint}"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"{what} {name!r}: not UTF-8 at position {error.start}") from None
    if size > MAX_NAME_BYTES:
        raise InvalidName(f"{what} {name[:40]!r}...: {size} bytes, at most {MAX_NAME_BYTES} are allowed")
    return quote(name, safe="")


def given_name(name: str, what: str = "destination") -> str:
    """Return a name that a user gives, encoded; slices are nobody's to name.

    Raises:
        InvalidName: as of :func:`encode_name`, or the name of a slice.
    """
    encoded = encode_name(name, what)
    if is_slice(name):
        raise InvalidName(f"{what} {name!r}: {name[name.index('#') :]!r} stands for a slice; name {whole_name(name)!r}")
    return encoded


def decode_name(encoded: str) -> str:
    """Return the name that :func:`encode_name` encoded, whatever the key of a slice adds to find its slot."""
    if "%." in encoded and (match := _ENCODED_SLICE.match(encoded)):
        return f"{unquote(match[1])}#{match[2]}"
    return unquote(encoded)


def read_name(encoded: str) -> str | None:
    """Return the name that :func:`encode_name` encoded; None for what it never writes."""
    name = decode_name(encoded)
    try:
        return name if encode_name(name) == encoded else None
    except InvalidName:
        return None


def slice_name(whole: str, number: int) -> str:
    """Return the name of a slice of a destination; that of its first, number 0, is the destination's own.

    >>> slice_name("orders", 0), slice_name("orders", 3)
    ('orders', 'orders#3')
    """
    return f"{whole}#{number}" if number else whole


def slices_pool(whole: str) -> str:
    """Return the name of the pool that the slices of a destination have for themselves."""
    return f"{whole}#0"


def messages_pool(whole: str) -> str:
    """Return the name of the pool in which these slices share a limit in messages."""
    return f"{whole}#m"


def whole_name(name: str) -> str:
    """Return the name of the destination that one of this name is a slice of; any other is its own.

    >>> whole_name("orders#3"), whole_name("orders")
    ('orders', 'orders')
    """
    return match[1] if "#" in name and (match := _SLICE.match(name)) else name


def slice_number(name: str) -> int:
    """Return the number of the slice of that name; 0 where it is no slice, or the first.

    >>> slice_number("orders#3"), slice_number("orders")
    (3, 0)
    """
    return int(match[2]) if "#" in name and (match := _SLICE.match(name)) and match[2] != "m" else 0


def shown_id(name: str, id_: str) -> str:
    """Return a message's id at a destination from that at a slice of that name: ``<slice>:<id>`` but for the first.

    >>> shown_id("orders#3", "17-100"), shown_id("orders", "17-100")
    ('3:17-100', '17-100')
    """
    number = slice_number(name)
    return f"{number}:{id_}" if number else id_


def read_id(text: object) -> tuple[int, str] | None:
    """Return the number of the slice that a message is at, and its id there, from :func:`shown_id`; None: it is no id.

    >>> read_id("3:17-100"), read_id("17-100"), read_id("17")
    ((3, '17-100'), (0, '17-100'), None)
    """
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    return (int(match[1] or 0), match[2]) if match else None


def is_slice(name: str) -> bool:
    """Return whether it is the name of a slice, and not that of a whole destination, nor a pattern."""
    return "#" in name and _SLICE.match(name) is not None

"""Names of destinations, pools and stores: what they may hold, and how keys and records spell them."""

import re
from typing import Final
from urllib.parse import quote, unquote

from headgate.core.addresses.pattern import WILDCARDS
from headgate.errors import InvalidName

_REFUSED: Final = re.compile(r"[{}*?\[\]\\#>\x00-\x1f\x7f]")
MAX_NAME_BYTES: Final = 255


def encode_name(name: str, what: str = "destination") -> str:
    """Return the name percent-encoded, so that it can stand in a key, a channel or a record.

    Raises:
        InvalidName: empty, over 255 bytes, not UTF-8, or with a brace, a wildcard (``* ? [ ] # >``), a backslash or a
            control character.
    """
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{what} {name!r}: a name is text and not empty")
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


def decode_name(encoded: str) -> str:
    """Return the name that :func:`encode_name` encoded."""
    return unquote(encoded)


def read_name(encoded: str) -> str | None:
    """Return the name that :func:`encode_name` encoded; None for what it never writes."""
    name = unquote(encoded)
    try:
        return name if encode_name(name) == encoded else None
    except InvalidName:
        return None

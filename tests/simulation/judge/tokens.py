"""Messages of a history each have a token, which says what they are wherever they lie."""

import re
from functools import lru_cache
from typing import Final

VALUES: Final = 3
_TOKEN: Final = re.compile(rb"<(\w+)>")


def body_of(token: str, size: int) -> bytes:
    """Return a body of about that size, which says what it is."""
    return f"<{token}>".encode().ljust(size, b".")


@lru_cache(maxsize=4096)
def token_in(stored: bytes) -> str:
    found = _TOKEN.search(stored)
    assert found, stored
    return found[1].decode()


def value_of(token: str) -> int:
    """Return the value of a message's header, of a few."""
    return int(token[1:]) % VALUES

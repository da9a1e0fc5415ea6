"""Passwords are kept as scrypt hashes: ``scrypt$<n>$<r>$<p>$<salt>$<hash>``, salt and hash in base64."""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from headgate.errors import InvalidValue

N: Final = 1 << 14
R: Final = 8
P: Final = 1
SALT: Final = 16
LENGTH: Final = 32
LONGEST: Final = 1024
"""Bytes of a password."""
_MAX_MEMORY: Final = 256 << 20
_FORM: Final = "scrypt$16384$8$1$<salt>$<hash>, as `headgate user add` makes it"


def hashed(password: str, *, salt: bytes | None = None) -> str:
    """Return the hash of a password; about 50 ms and 16 MiB.

    Raises:
        InvalidValue: the password is empty or too long.
    """
    if not password or len(password.encode("utf-8", "surrogatepass")) > LONGEST:
        raise InvalidValue(f"a password has 1 to {LONGEST} bytes; this one is {'too long' if password else 'empty'}")
    salt = secrets.token_bytes(SALT) if salt is None else salt
    encoded = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, N, R, P, LENGTH)))
    return f"scrypt${N}${R}${P}${'$'.join(encoded)}"


def check_form(text: str) -> str:
    """Return a hash as it is.

    Raises:
        InvalidValue: it is none, or weaker or larger than can be used; it is not repeated.
    """
    _parse(text)
    return text


def fits(password: str, text: str) -> bool:
    """Return whether a password is the one that was hashed; takes as long either way."""
    n, r, p, salt, wanted = _parse(text)
    return hmac.compare_digest(_scrypt(password, salt, n, r, p, len(wanted)), wanted)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, length: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=length)


def _parse(text: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        scheme, *numbers, salt, wanted = text.split("$")
        n, r, p = map(int, numbers)
        found = base64.b64decode(salt, validate=True), base64.b64decode(wanted, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidValue(f"not a password hash; write {_FORM}") from None
    if scheme != "scrypt" or min(map(len, found)) < SALT:
        raise InvalidValue(f"not a password hash; write {_FORM}")
    if n & (n - 1) or n < N or r < R or not 1 <= p <= 16 or 128 * r * (n + p + 2) > _MAX_MEMORY:
        raise InvalidValue(f"scrypt with n={n}, r={r}, p={p} is too weak or too large; write {_FORM}")
    return n, r, p, *found

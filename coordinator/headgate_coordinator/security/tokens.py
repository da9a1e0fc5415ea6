"""A client with a right token (JWT) is a user of nodes: others sign tokens, and a file has their keys.

Source: RFC 7519 (claims), RFC 7517 (the key set), RFC 8725 (what to refuse).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeGuard

from headgate.amqp.sasl import MAX_TOKEN
from headgate.errors import InvalidName, InvalidValue
from headgate_coordinator.security.document import ANONYMOUS, check_user
from headgate_coordinator.security.sources import FollowedFile

ALGORITHMS: Final = (*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "Ed25519", "EdDSA")
"""Signatures that are taken: those of a private key. With a shared secret, whoever checks tokens could make them."""
LEEWAY: Final = 30
"""Seconds that the clock of whoever signs may be off."""
MOST_KEYS: Final = 64
LARGEST_FILE: Final = 256 << 10
"""Bytes of the file of keys."""
LEAST_RSA: Final = 2048
"""Bits of a key of RSA."""
_FORM: Final = 'the form is {"keys": [{"kty": "EC", ...}, ...]}'


class TokenRefused(InvalidValue):
    """A token lets nobody in: why, without a word of what it holds."""


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Token options are the settings for the tokens of one issuer.

    Attributes:
        keys: file with its public keys, a JSON Web Key Set; looked at each second.
        issuer: what a token has to say as ``iss``.
        audience: what a token has to name in ``aud``.
        claim: which says the user's name.
    """

    keys: Path
    issuer: str
    audience: str
    claim: str = "sub"


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A verified token is one that was found right.

    Attributes:
        user: whom it names.
        expires: when it ends, in seconds since 1970, with :data:`LEEWAY`.
        key: thumbprint of the key that signed it.
    """

    user: str
    expires: float
    key: str


@dataclass(frozen=True, slots=True)
class KeyFile:
    """`KeyFile` holds the keys of a file.

    Attributes:
        held: what the library made of them.
        thumbprints: which they are.
    """

    held: Any = field(repr=False)
    thumbprints: frozenset[str]


class TokenVerifier:
    """A verifier checks tokens by the keys that the file has at that moment.

    Raises:
        InvalidValue: the library that it takes is not there.
    """

    def __init__(self, options: TokenOptions, now: Callable[[], float] = time.time) -> None:
        try:
            from joserfc import jws, jwt
        except ImportError as error:
            raise InvalidValue(f"--token-keys needs headgate[tokens]; import says: {error}") from None
        self._options = options
        self._now = now
        self._decode = jwt.decode
        # Headers that nobody here knows are no error (RFC 7515, 4), as long as they are not critical, which is checked.
        self._registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = MAX_TOKEN
        self._file = FollowedFile(options.keys, read_keys, "the keys of tokens")
        self._keys = KeyFile(None, frozenset())

    async def start(self, changed: Callable[[frozenset[str]], None]) -> None:
        """Read the keys, and call ``changed`` with the thumbprints whenever the file was changed.

        Raises:
            InvalidValue: the file cannot be used.
        """

        def take(keys: KeyFile) -> None:
            self._keys = keys
            changed(keys.thumbprints)

        self._keys = await self._file.read()
        await self._file.follow(take)

    async def close(self) -> None:
        """Stop following."""
        await self._file.close()

    def check(self, token: str) -> VerifiedToken:
        """Return whom a token names.

        Raises:
            TokenRefused: it is not right, for whatever reason.
        """
        if len(token) > MAX_TOKEN:
            raise TokenRefused(f"a token of {len(token)} characters; at most {MAX_TOKEN}")
        try:
            found = self._decode(token, self._keys.held, registry=self._registry, decoder_cls=_Finite)
            key = self._keys.held.get_by_kid(found.header.get("kid"))
        except Exception as error:  # noqa: BLE001 -- whatever a stranger's bytes lead to, it is no token
            raise TokenRefused(f"a token that no key of the file signed: {type(error).__name__}") from None
        return self._heed(found.claims, key.thumbprint())

    def _heed(self, claims: dict[str, Any], key: str) -> VerifiedToken:
        now, options = self._now(), self._options
        expires, since, audience = claims.get("exp"), claims.get("nbf", now), claims.get("aud")
        if claims.get("iss") != options.issuer:
            raise TokenRefused("a token of another issuer")
        if options.audience != audience and not (isinstance(audience, list) and options.audience in audience):
            raise TokenRefused("a token for another audience")
        if not _is_moment(expires) or not _is_moment(since):
            raise TokenRefused("a token without an end, or whose exp or nbf is not a number")
        if now >= expires + LEEWAY:
            raise TokenRefused("a token that has expired")
        if now < since - LEEWAY:
            raise TokenRefused("a token that is not valid yet")
        user = claims.get(options.claim)
        try:
            user = check_user(user)  # type: ignore[arg-type]  # it says so of what is no text
        except InvalidName:
            raise TokenRefused(f"a token whose {options.claim} is not a user's name") from None
        if user == ANONYMOUS:
            raise TokenRefused("a token for clients that give no name")
        return VerifiedToken(user, float(expires) + LEEWAY, key)


class _Finite(json.JSONDecoder):
    """JSON as its standard has it: without Infinity and NaN, that Python reads too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise ValueError(word)


def _is_moment(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def read_keys(file: Path) -> KeyFile:
    """Return the public keys of a file.

    Raises:
        InvalidValue: it cannot be used; nothing of it is repeated.
    """
    from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

    try:
        with file.open("rb") as opened:
            raw = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidValue(f"--token-keys {str(file)!r} cannot be read: {error.strerror}") from None
    keys = _given_keys(file, raw)
    try:
        held = KeySet.import_key_set({"keys": list(keys.values())})
    except Exception:  # noqa: BLE001 -- of many kinds, and its text may hold the key
        raise InvalidValue(_unusable(file, _fault(keys))) from None
    for each in held:
        if not isinstance(each, ECKey | OKPKey | RSAKey) or each.is_private:
            raise InvalidValue(_unusable(file, "it has a secret key; give only public keys of RSA, EC or Ed25519"))
        if isinstance(each, RSAKey) and each.raw_value.key_size < LEAST_RSA:
            raise InvalidValue(_unusable(file, f"an RSA key needs {LEAST_RSA} bits or more"))
    ids = [each.kid for each in held]
    if len(set(ids)) < len(ids):
        raise InvalidValue(_unusable(file, "two keys have one kid"))
    return KeyFile(held, frozenset(each.thumbprint() for each in held))


def _given_keys(file: Path, raw: bytes) -> dict[int, dict[str, Any]]:
    """Return those for signatures of what a file holds, by their places.

    Raises:
        InvalidValue: it is no set of keys.
    """
    if len(raw) > LARGEST_FILE:
        raise InvalidValue(_unusable(file, f"it may have at most {LARGEST_FILE} bytes"))
    try:
        data = json.loads(raw)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidValue(_unusable(file, f"it is no JSON from {where} on; {_FORM}")) from None
    except (ValueError, RecursionError):
        raise InvalidValue(_unusable(file, f"it is no JSON; {_FORM}")) from None
    given = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InvalidValue(_unusable(file, _FORM))
    keys = {at: each for at, each in enumerate(given) if each.get("use", "sig") == "sig"}
    if not 0 < len(keys) <= MOST_KEYS:
        raise InvalidValue(_unusable(file, f"it has {len(keys)} keys for signatures; 1 to {MOST_KEYS} can be used"))
    return keys


def _fault(keys: dict[int, dict[str, Any]]) -> str:
    """Return which of the keys is none, without a word of it."""
    from joserfc.errors import InvalidKeyTypeError
    from joserfc.jwk import JWKRegistry

    for at, each in keys.items():
        try:
            JWKRegistry.import_key(each)
        except InvalidKeyTypeError:  # others may know it
            continue
        except Exception:  # noqa: BLE001 -- of many kinds, and its text may hold the key
            return f"keys[{at}] is no whole key of its kind (kty)"
    return "none of its keys is of RSA, EC or Ed25519"


def _unusable(file: Path, why: str) -> str:
    return f"--token-keys {str(file)!r} is not a JSON Web Key Set that can be used: {why}"

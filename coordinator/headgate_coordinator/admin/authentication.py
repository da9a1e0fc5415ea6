"""Admin HTTP knows its callers: by one of its tokens, or as users of nodes by a password or token of their own."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final

from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.grants import ALL, EVERYTHING, Action, Grant
from headgate_coordinator.security.password_queue import NOBODY, PasswordQueueFull, network_of
from headgate_coordinator.security.tokens import TokenRefused

_CHALLENGE: Final = 'Basic realm="headgate", charset="UTF-8"'
LONGEST: Final = 2000
"""Characters of a name and a password together, in base64."""


class Authenticator:
    """Finds out who calls.

    Args:
        users: of the node; None where there are none: then all who may call at all may everything.
        token: of admin HTTP; None for none.
        read_token: of who may read all, and change nothing; None for none.
    """

    def __init__(self, users: Users | None, token: str | None, read_token: str | None = None) -> None:
        self._users = users
        self._token = token.encode() if token is not None else None
        self._read_token = read_token.encode() if read_token is not None else None
        self._operator = Identity("operator", ALL)
        self._reader = Identity("reader", (Grant(frozenset((Action.BROWSE,)), EVERYTHING),))

    async def identify(self, headers: Mapping[str, str], peer: tuple[str, int] | None) -> Access:
        """Return the rights of who calls for limits.

        Raises:
            Refused: nobody that is known: 401; or too many passwords wait for their check: 503.
        """
        if headers.get("authorization"):
            found = await self._named(headers, peer)
        else:
            found = self._without_a_name()
        if found is None:
            detail = "send a user's name and password (Authorization: Basic ...), or a token (Bearer ...)"
            raise Refused(401, "token-missing", detail, headers={"WWW-Authenticate": _CHALLENGE})
        return _access_of(found)

    async def operator(self, headers: Mapping[str, str], peer: tuple[str, int] | None) -> Access:
        """Return the rights of who calls for anything else: everybody's where there is no token, and never anonymous'.

        Raises:
            Refused: as :meth:`identify`; without Basic's challenge, by which browsers ask for a password by themselves.
        """
        found = await self._named(headers, peer) if self._token is not None else self._operator
        if found is None:
            detail = "send the node's admin token: Authorization: Bearer <token>, or a user's name and password"
            raise Refused(401, "token-missing", detail, headers={"WWW-Authenticate": 'Bearer realm="headgate"'})
        return _access_of(found)

    async def _named(self, headers: Mapping[str, str], peer: tuple[str, int] | None) -> Identity | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "bearer":
                return self._own(given.strip().encode()) or self._borne(given.strip())
            case "basic" if self._users is not None:
                name, password = _read(given)
                network = network_of(f"{peer[0]}:{peer[1]}") if peer else NOBODY
                try:
                    return await self._users.authenticate(name, password, peer=network)
                except PasswordQueueFull as error:
                    raise Refused(503, "crowded", str(error), headers={"Retry-After": "1"}) from None
        return None

    @property
    def has_token(self) -> bool:
        """Whether requests must bear a token."""
        return self._token is not None

    def _own(self, given: bytes) -> Identity | None:
        """Return whose of the node's own tokens it is; None for neither.

        Both are compared in constant time, whatever was given: the answer's time says nothing about them.
        """
        whole = hmac.compare_digest(given, self._token or b"") and self._token is not None
        reads = hmac.compare_digest(given, self._read_token or b"") and self._read_token is not None
        return self._operator if whole else self._reader if reads else None

    def _borne(self, token: str) -> Identity | None:
        """Return the user that a token names which is not the node's own; None where it is no such token."""
        if self._users is None or not self._users.take_tokens:
            return None
        try:
            return self._users.borne(token)[0]
        except TokenRefused:
            return None

    def _without_a_name(self) -> Identity | None:
        if self._users is None or self._users.is_open:
            return self._operator if self._token is None else None
        return self._users.anonymous()


def _access_of(identity: Identity) -> Access:
    access = Access()
    access.identity = identity
    return access


def _read(given: str) -> tuple[str, str]:
    """Return name and password; what cannot be read is nobody's."""
    try:
        text = base64.b64decode(given.strip(), validate=True).decode() if len(given) <= LONGEST else ""
    except (binascii.Error, ValueError):
        text = ""
    name, _, password = text.partition(":")
    return name, password

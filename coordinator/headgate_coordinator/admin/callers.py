"""Callers of the limits' HTTP: who has the admin token, and users of nodes by a password or a token of their own."""

import base64
import binascii
import hmac
from typing import Final

from starlette.datastructures import Headers

from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.line import NOBODY, Crowded, network_of
from headgate_coordinator.security.permissions import ALL
from headgate_coordinator.security.tokens import TokenRefused

_CHALLENGE: Final = 'Basic realm="headgate", charset="UTF-8"'
LONGEST: Final = 2000
"""Characters of a name and a password together, in base64."""


class Callers:
    """Finds out who calls.

    Args:
        users: of the node; None where there are none: then all who may call at all may everything.
        token: of admin HTTP; None for none.
    """

    def __init__(self, users: Users | None, token: str | None) -> None:
        self._users = users
        self._token = token.encode() if token is not None else None
        self._operator = Identity("operator", ALL)

    async def identify(self, headers: Headers, peer: tuple[str, int] | None) -> Access:
        """Return the rights of who calls.

        Raises:
            Refused: nobody that is known: 401; or too many passwords wait for their check: 503.
        """
        scheme, _, given = headers.get("authorization", "").partition(" ")
        found: Identity | None = None
        match scheme.lower():
            case "bearer":
                found = self._operator if self.bears(headers) else self._borne(given.strip())
            case "basic" if self._users is not None:
                name, password = _read(given)
                network = network_of(f"{peer[0]}:{peer[1]}") if peer else NOBODY
                try:
                    found = await self._users.authenticate(name, password, peer=network)
                except Crowded as error:
                    raise Refused(503, "crowded", str(error), headers={"Retry-After": "1"}) from None
            case "":
                found = self._without_a_name()
        if found is None:
            detail = "send a user's name and password (Authorization: Basic ...), or a token (Bearer ...)"
            raise Refused(401, "token-missing", detail, headers={"WWW-Authenticate": _CHALLENGE})
        access = Access()
        access.identity = found
        return access

    @property
    def has_token(self) -> bool:
        """Whether requests must bear a token."""
        return self._token is not None

    def bears(self, headers: Headers) -> bool:
        """Whether a request bears the token; where there is none, none does."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared in constant time, whatever was given: its answer's time says nothing about the token.
        right = hmac.compare_digest(given.strip().encode(), self._token or b"")
        return self._token is not None and right and scheme.lower() == "bearer"

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


def _read(given: str) -> tuple[str, str]:
    """Return name and password; what cannot be read is nobody's."""
    try:
        text = base64.b64decode(given.strip(), validate=True).decode() if len(given) <= LONGEST else ""
    except (binascii.Error, ValueError):
        text = ""
    name, _, password = text.partition(":")
    return name, password

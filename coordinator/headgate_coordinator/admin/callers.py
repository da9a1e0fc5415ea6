"""Callers of the limits' HTTP: who has the admin token, and users of nodes by name and password."""

import base64
import binascii
import hmac
from typing import Final

from starlette.requests import Request

from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.line import Crowded
from headgate_coordinator.security.permissions import ALL

_CHALLENGE: Final = 'Basic realm="headgate", charset="UTF-8"'
LONGEST: Final = 1000
"""Bytes of a name and a password together."""


class Callers:
    """Finds out who calls.

    Args:
        users: of the node; None where there are none: then all who may call at all may everything.
        token: of admin HTTP; None for none.
    """

    def __init__(self, users: Users | None, token: str | None) -> None:
        self._users, self._token = users, token
        self._operator = Identity("operator", ALL)

    async def identify(self, request: Request) -> Identity:
        """Return who calls.

        Raises:
            Refused: nobody that is known: 401; or too many passwords wait for their check: 503.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "bearer" if self._token is not None:
                if hmac.compare_digest(given.strip().encode(), self._token.encode()):
                    return self._operator
            case "basic" if self._users is not None:
                name, password = _read(given)
                peer = f"{request.client.host}:{request.client.port}" if request.client else ""
                try:
                    found = await self._users.authenticate(name, password, peer=peer)
                except Crowded as error:
                    raise Refused(503, "crowded", str(error), headers={"Retry-After": "1"}) from None
                if found is not None:
                    return found
            case "":
                found = self._without_a_name()
                if found is not None:
                    return found
        detail = "send a user's name and password (Authorization: Basic ...), or the node's admin token (Bearer ...)"
        raise Refused(401, "unauthorized", detail, headers={"WWW-Authenticate": _CHALLENGE})

    def _without_a_name(self) -> Identity | None:
        if self._users is None or self._users.is_open:
            return self._operator if self._token is None else None
        return self._users.anonymous()


def _read(given: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(given.strip()[: 2 * LONGEST], validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    name, colon, password = text.partition(":")
    if not colon or len(text) > LONGEST:
        detail = f"Authorization: Basic takes <name>:<password> in base64, up to {LONGEST} characters"
        raise Refused(400, "invalid-value", detail)
    return name, password

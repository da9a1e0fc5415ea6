"""A client logs in by nothing, a password, a certificate of its own, or a token."""

from collections.abc import Mapping
from typing import Any

from headgate.amqp.sasl import BEARER, Credentials
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.password_queue import Network
from headgate_coordinator.security.tokens import TokenRefused


async def log_in(
    users: Users, credentials: Credentials, certified: str, peer: Network
) -> tuple[Identity | None, float | None]:
    """Return a client's identity (None if it is refused), and when that expires, if it does.

    Args:
        users: of the node.
        credentials: the client's.
        certified: whom the certificate names that TLS has found right; empty without one.
        peer: where it comes from.

    Raises:
        Crowded: too many passwords wait; nothing is known of this one.
        TokenRefused: its token is not right.
    """
    name, mechanism = credentials.name, credentials.mechanism
    if mechanism == "ANONYMOUS" or users.is_open:
        return users.anonymous(), None
    if mechanism == "EXTERNAL":  # nobody comes as one user to act as another
        return (users.certified(certified) if certified and name in ("", certified) else None), None
    if mechanism in BEARER:
        identity, expires = users.borne(credentials.password)
        if name not in ("", identity.name):
            raise TokenRefused(f"a token of {identity.name!r}, but another user is named beside it")
        return identity, expires
    return await users.authenticate(name, credentials.password, peer=peer), None


def name_of(certificate: Mapping[str, Any] | None) -> str:
    """Return the user that a client's certificate names: its one common name; empty where it has none, or several.

    Args:
        certificate: as ``ssl`` has read and checked it; None or empty without one.
    """
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for field, value in part if field == "commonName"]
    return names[0] if len(names) == 1 else ""

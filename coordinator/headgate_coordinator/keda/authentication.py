"""The scaler knows its callers: what each may see, by the user or the token that its trigger's metadata has."""

from collections.abc import Callable, Mapping
from typing import Any

from headgate import AccessDenied
from headgate_coordinator.keda.trigger import SECRETS
from headgate_coordinator.rpc import is_token, peer_of
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.grants import ALL
from headgate_coordinator.security.password_queue import Network


class Authenticator:
    """Finds out who asks.

    Args:
        users: of the node: they see what they may browse. None where there are none.
        token: of the node: whoever has it sees all. None for none.
        know: hears the peer of each request of who sees all.
    """

    def __init__(self, users: Users | None, token: str | None, know: Callable[[str], object]) -> None:
        self._users, self._token, self._know = users, token, know
        self._operator = Identity("operator", ALL)

    async def access(self, metadata: Mapping[str, str], context: Any) -> Access:
        """Return the rights of who asks.

        Raises:
            AccessDenied: nobody that is known.
            Crowded: too many passwords wait for their check.
        """
        access = Access()
        access.identity = await self.identify(metadata, peer_of(context))
        if access.identity is None:
            raise AccessDenied(
                "the metadata needs the user and password of a node's user, or the node's token: userFromEnv and "
                "passwordFromEnv, or tokenFromEnv"
            )
        if access.identity is self._operator:
            self._know(context.peer())
        return access

    async def identify(self, metadata: Mapping[str, str], peer: Network) -> Identity | None:
        """Return whose user and password, or token, the metadata has; None where nobody has them."""
        user, password, token = (metadata.get(key) or metadata.get(f"{key}FromEnv", "") for key in SECRETS)
        if token:
            return self._operator if self._token is not None and is_token(token, self._token) else None
        if user:
            return await self._users.authenticate(user, password, peer=peer) if self._users is not None else None
        if self._users is None or self._users.is_open:
            return self._operator if self._token is None else None
        return self._users.anonymous()

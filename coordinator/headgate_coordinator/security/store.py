"""Redis stores users: one hash a namespace, changed by one script over the version that was seen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import ValidationError

from headgate.errors import PolicyError
from headgate.redis.backend import Backend, call
from headgate.redis.keys import users_key
from headgate_coordinator.security.document import User, Users, check_password, check_user

VERSION: Final = "!version"
"""The field beside the users; no user is called so."""


@dataclass(frozen=True, slots=True)
class StoredUsers:
    """Users as they are in Redis.

    Attributes:
        version: 0 where there never was one; a higher one is newer, also after a failover, for it is of Redis' clock.
        users: by name.
    """

    version: int = 0
    users: Users = field(default_factory=dict)


class UserStore:
    """A user store holds the users of one namespace."""

    def __init__(self, server: Backend, namespace: str) -> None:
        self._server = server
        self._key = users_key(namespace).encode()

    async def version(self) -> int:
        """Return the version in force, 0 for none."""
        return int(await self._server.command(self._key, "HGET", self._key, VERSION) or 0)

    async def read(self) -> StoredUsers:
        """Return what is in force.

        Raises:
            PolicyError: somebody wrote what cannot be read; the user is named, what is wrong is not repeated.
        """
        flat = await self._server.command(self._key, "HGETALL", self._key)
        stored = dict(zip((name.decode() for name in flat[::2]), flat[1::2], strict=True))
        version = int(stored.pop(VERSION, 0))
        return StoredUsers(version, {name: _user(name, text) for name, text in stored.items()})

    async def change(self, edit: Callable[[dict[str, User]], None]) -> int:
        """Have the users edited in place and put them in force, again if somebody was faster; return the version."""
        while True:
            before = await self.read()
            after = dict(before.users)
            edit(after)
            changed = {name: after.get(name) for name in {*before.users, *after}}
            changed = {name: user for name, user in changed.items() if user != before.users.get(name)}
            if not changed:
                return before.version
            done, version = await self._switch(changed, "next", before.version)
            if done:
                return version

    async def put_back(self, lost: StoredUsers, over: int) -> None:
        """Put users back that Redis lost, if the older version is still in force that was found."""
        await self._switch(lost.users, lost.version, over)

    async def _switch(
        self, changed: Mapping[str, User | None], version: int | Literal["next"], expected: int
    ) -> tuple[bool, int]:
        rest = [
            text
            for name, user in sorted(changed.items())
            for text in (name, "" if user is None else user.model_dump_json(exclude_none=True))
        ]
        reply = await call(self._server, "users", (self._key,), rest, expected=expected, version=version)
        return reply[0] == b"OK", int(reply[1])


def _user(name: str, text: bytes) -> User:
    try:
        user = User.model_validate_json(text)
        check_password(check_user(name), user)
    except (ValidationError, ValueError):
        raise PolicyError(f"user {name!r} in Redis cannot be read; set it again: headgate user add") from None
    return user

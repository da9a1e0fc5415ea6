"""The users of a namespace as a node follows them, and the check of their passwords."""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar
from weakref import WeakValueDictionary

from headgate import Client
from headgate_coordinator.security.document import ANONYMOUS, User
from headgate_coordinator.security.document import Users as ByName
from headgate_coordinator.security.file import read_users
from headgate_coordinator.security.grants import ALL, Grant, Identity
from headgate_coordinator.security.password_queue import AT_A_TIME, NOBODY, Network, PasswordQueue
from headgate_coordinator.security.passwords import fits, hashed
from headgate_coordinator.security.sources import FollowedFile, RedisSource, Source
from headgate_coordinator.security.tokens import TokenRefused, TokenVerifier

REMEMBERED: Final = 1024
"""Passwords that were right and need not be checked again."""
_CERTIFIED: Final = "certificate"
_BORNE: Final = "token "
"""Ways in beside a password, in place of its hash; the thumbprint of the key that signed the token follows."""
T = TypeVar("T")


class Users:
    """Users and their grants, live.

    Args:
        source: where they are kept.
        required: let nobody in without a password while there is no user at all; else everyone may do everything then,
            as long as there never was one.
        tokens: that are taken beside passwords; None for none. They are started and closed here.
    """

    def __init__(self, source: Source, *, required: bool = False, tokens: TokenVerifier | None = None) -> None:
        self._source = source
        self._required = required
        self._tokens = tokens
        self._users: ByName = {}
        self._identities: WeakValueDictionary[tuple[str, str | None], Identity] = WeakValueDictionary()
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """By user and hash, the mark of the one password that is right."""
        self._line = PasswordQueue(self._fits)
        self._line_of_wrong = PasswordQueue(self._takes_as_long)
        """For passwords that are known to be wrong without a check: they keep nobody waiting whose are not."""
        self._took: float | None = None
        """Seconds that the last check took; None until there was one."""
        self._threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="headgate password")
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def from_file(cls, path: Path, *, required: bool = False, tokens: TokenVerifier | None = None) -> Self:
        """Return the users of a TOML file; a change is noticed within a second."""
        return cls(FollowedFile(path, read_users, "the users"), required=required, tokens=tokens)

    @classmethod
    def from_redis(cls, client: Client, *, required: bool = False, tokens: TokenVerifier | None = None) -> Self:
        """Return the users that Redis keeps for the client's namespace; the client is connected, and stays so."""
        return cls(RedisSource(client), required=required, tokens=tokens)

    async def start(self) -> None:
        """Read the users, and begin to follow them.

        Raises:
            BadDocument: the file cannot be read; everything that is wrong with it.
            InvalidValue: the file with the keys of tokens cannot be used.
            PolicyError: Redis has users that cannot be read.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._take(await self._source.read())
        await self._source.follow(self._take)
        if self._tokens is not None:
            await self._tokens.start(self._rotate)

    async def close(self) -> None:
        """Stop following."""
        await self._source.close()
        if self._tokens is not None:
            await self._tokens.close()
        self._line.close()
        self._line_of_wrong.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def authenticate(self, name: str, password: str, *, peer: Network = NOBODY) -> Identity | None:
        """Return who gives this name and password, None when wrong; who asks most from one ``peer`` waits longest.

        An unknown user takes as long as a wrong password. Right ones are remembered under a key of this process, so
        that those who come back are cheap, and all others are known to be wrong; equal ones that come at the same time
        are checked once.

        Raises:
            Crowded: too many passwords wait; nothing is known of this one.
        """
        user = self._users.get(name)
        known = user.password_hash if user is not None else None
        mark = self._mark(name, password, known or "")
        right = self._right.get((name, known)) if known else None
        if known is None:
            await self._line_of_wrong.ask((peer, ""), mark, "", "")
        elif right is None:
            if await self._line.ask((peer, name), mark, password, known):
                self._remember(name, known, mark)
            else:
                known = None
        elif hmac.compare_digest(right, mark):
            self._right.move_to_end((name, known))
        else:
            await self._line_of_wrong.ask((peer, name), mark, "", "")
            known = None
        current = self._users.get(name)
        if known is None or current is None or current.password_hash != known:  # perhaps changed meanwhile
            return None
        return self._identity(name, current)

    @property
    def take_tokens(self) -> bool:
        """Whether tokens are taken beside passwords."""
        return self._tokens is not None

    def certified(self, name: str) -> Identity | None:
        """Return whom a certificate names that was found right; None where there is no such user."""
        return self._beside(name, _CERTIFIED)

    def borne(self, token: str) -> tuple[Identity, float]:
        """Return whom a token names, and when it expires, in seconds since 1970.

        Raises:
            TokenRefused: it is not right, or there is no such user.
        """
        if self._tokens is None:
            raise TokenRefused("a token, and none are accepted here")
        found = self._tokens.check(token)
        identity = self._beside(found.user, f"{_BORNE}{found.key}")
        if identity is None:
            raise TokenRefused(f"a token for {found.user!r}, who is not a user here")
        return identity, found.expires

    def _beside(self, name: str, way: str) -> Identity | None:
        user = self._users.get(name)
        return None if user is None or name == ANONYMOUS else self._identity(name, user, way)

    def anonymous(self) -> Identity | None:
        """Return who connects without a name: may everything while there is no user; None where it is not allowed."""
        if user := self._users.get(ANONYMOUS):
            return self._identity(ANONYMOUS, user)
        if self._users or self._required:
            return None
        return self._identity(ANONYMOUS, None)

    @property
    def has_any(self) -> bool:
        """Whether there is a user."""
        return bool(self._users)

    @property
    def is_open(self) -> bool:
        """Whether there are no users at all, so that everyone may do everything, with any name and password."""
        return not self._users and not self._required

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change of users or grants, once all identities follow it."""
        self._listeners.append(listener)

    def _identity(self, name: str, user: User | None, way: str | None = None) -> Identity:
        key = (name, way or (user.password_hash if user else None))
        identity = self._identities.get(key)
        if identity is None:
            identity = self._identities[key] = Identity(name, _grants(user), *_bounds(user))
        return identity

    def _take(self, users: ByName) -> None:
        self._users = users
        self._required = self._required or bool(users)  # who takes the last user away does not let everybody in
        for (name, known), identity in tuple(self._identities.items()):
            user = users.get(name)
            if user is not None and (user.password_hash == known or _is_beside(known)):
                identity.follow(_grants(user), *_bounds(user))
            elif name == ANONYMOUS and not users and not self._required:
                identity.follow(ALL)
            else:
                identity.revoke()
                self._identities.pop((name, known), None)
        for listener in self._listeners:
            listener()

    def _rotate(self, thumbprints: frozenset[str]) -> None:
        """Let nobody stay whose token was signed with a key that is not there any more."""
        for (name, way), identity in tuple(self._identities.items()):
            if way is not None and way.startswith(_BORNE) and way.removeprefix(_BORNE) not in thumbprints:
                identity.revoke()
                self._identities.pop((name, way), None)
        for listener in self._listeners:
            listener()

    def _mark(self, name: str, password: str, stored: str) -> bytes:
        parts = (text.encode("utf-8", "surrogatepass") for text in (name, password, stored))
        return hmac.digest(self._key, b"".join(b"%d:%s" % (len(part), part) for part in parts), "sha256")

    async def _fits(self, password: str, known: str) -> bool:
        return await self._timed(lambda: fits(password, known))

    async def _takes_as_long(self, _password: str, _known: str) -> bool:
        if self._took is None:  # so this one finds out how long; most nodes never have to know
            await self._timed(lambda: hashed(secrets.token_hex(32)))
        else:
            await asyncio.sleep(self._took)
        return False

    async def _timed(self, check: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await loop.run_in_executor(self._threads, check)
        self._took = loop.time() - began
        return result

    def _remember(self, name: str, known: str, mark: bytes) -> None:
        self._right[name, known] = mark
        self._right.move_to_end((name, known))
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)


def _is_beside(way: str | None) -> bool:
    """Return whether it is not the hash of a password; all of those begin otherwise."""
    return way is not None and (way == _CERTIFIED or way.startswith(_BORNE))


def _bounds(user: User | None) -> tuple[int | None, int | None]:
    return (None, None) if user is None else (user.max_connections, user.max_destinations)


def _grants(user: User | None) -> tuple[Grant, ...]:
    return ALL if user is None else tuple(grant.grant() for grant in user.grants)

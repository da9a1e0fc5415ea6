"""Follows the users and keys of a node wherever they are kept, and hears when they change."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from headgate import Client, HeadgateError
from headgate._util.reconnect import AWAY
from headgate._util.tasks import stop
from headgate.redis.keys import namespace_channel
from headgate_coordinator.security.document import Users
from headgate_coordinator.security.store import StoredUsers, UserStore

_log = logging.getLogger("headgate")
LOOK_EVERY: Final = 1.0
"""Seconds between looks: a file, which may be a link into a mounted volume, tells nobody that it changed."""
Taker = Callable[[Users], None]
T = TypeVar("T")


class Source(Protocol):
    """A source has users, and tells when they change."""

    async def read(self) -> Users:
        """Return the users there are."""

    async def follow(self, take: Taker) -> None:
        """Call ``take`` with the users whenever they are others, until it is closed; what is broken keeps the last."""

    async def close(self) -> None:
        """Stop following."""


class FollowedFile(Generic[T]):
    """A followed file is looked at each second.

    Args:
        path: of the file.
        reader: makes of it what it holds; raises a HeadgateError if it cannot be used.
        what: it holds, for the log.
    """

    def __init__(self, path: Path, reader: Callable[[Path], T], what: str) -> None:
        self._path = path
        self._reader = reader
        self._what = what
        self._seen: tuple[int, int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    async def read(self) -> T:
        """Return what it holds; errors are those of the reader."""
        self._seen = self._stamp()
        return await asyncio.to_thread(self._reader, self._path)

    async def follow(self, take: Callable[[T], None]) -> None:
        """Call ``take`` when the file was changed, until it is closed; one that cannot be used keeps the last."""
        self._task = asyncio.create_task(self._watch(take), name=f"headgate {self._what}")

    async def close(self) -> None:
        """Stop following."""
        await stop(self._task)

    async def _watch(self, take: Callable[[T], None]) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._stamp() == self._seen:
                continue
            try:
                take(await self.read())
            except HeadgateError as error:
                _log.warning("%s are unchanged: %s", self._what, " | ".join(str(error).splitlines()))

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class RedisSource:
    """A Redis source follows a namespace's hash: heard of as it changes, looked at each second, put back when lost."""

    def __init__(self, client: Client) -> None:
        server = client.store.server
        self._store = UserStore(server, client.namespace)
        self._wake_ups = server.wake_ups()
        self._channels = (namespace_channel(client.namespace),)
        self._heard = asyncio.Event()
        self._known = StoredUsers()
        self._task: asyncio.Task[None] | None = None

    async def read(self) -> Users:
        """Return the users in force."""
        self._known = await self._store.read()
        return self._known.users

    async def follow(self, take: Taker) -> None:
        """Call ``take`` when another version is in force."""
        await self._wake_ups.subscribe(self._channels, self._hear)
        self._heard.set()  # for what changed before
        self._task = asyncio.create_task(self._watch(take), name="headgate users")

    async def close(self) -> None:
        """Stop following."""
        await stop(self._task)
        await self._wake_ups.close()

    def _hear(self, words: list[str]) -> None:
        if words[0] == "users":
            self._heard.set()

    async def _watch(self, take: Taker) -> None:
        reported = ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._heard.wait()
            self._heard.clear()
            try:
                await self._look(take)
                reported = ""
            except AWAY:
                continue  # it looks again soon
            except (HeadgateError, ValueError) as error:  # ValueError: somebody wrote into the hash by hand
                if str(error) != reported:
                    reported = str(error)
                    _log.warning("the users are unchanged: %s", reported)

    async def _look(self, take: Taker) -> None:
        known = self._known
        version = await self._store.version()
        if version < known.version:
            await self._store.put_back(known, over=version)
        elif version > known.version:
            self._known = await self._store.read()
            take(self._known.users)

"""Redis reports changes of keys: it remembers which keys a connection read, and reports once that one was written."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import redis.exceptions as rx

from headgate import AccessDenied, CoordinatorUnavailable

WITHIN: Final = 2.0
"""Seconds that Redis may take to answer."""
_FAILED: Final = (rx.RedisError, OSError)
Dial = Callable[[], Awaitable[Any]]


class KeyChanges:
    """`KeyChanges` holds a connection to one server that hears when keys were written.

    Args:
        dial: returns a client for one connection, that speaks RESP3.
    """

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._client: Any = None
        self._connection: Any = None
        self._written = asyncio.Event()

    async def follow(self, *reads: Sequence[Any]) -> None:
        """Send commands that read keys: the next time that one of these is written is heard of, and no other after it.

        Nothing is missed by reads of the keys that come after this. Where the keys are at another server by now, nobody
        tells (:attr:`notified`) until they are followed again, and whoever reads them has found them.

        Raises:
            AccessDenied: the user may not subscribe to changes, or nobody reports them there.
            CoordinatorUnavailable: no answer.
        """
        self._written.clear()  # before they are read: what is written from then on is reported
        try:
            async with asyncio.timeout(WITHIN):
                if self._connection is None:
                    await self._connect()
                for words in reads:
                    await self._connection.send_command(*words)
                for _ in reads:
                    await self._connection.read_response()
        except rx.AskError:  # of a cluster, of which a slot moved or a replica took over
            await self.close()
        except rx.ResponseError as error:  # a proxy in front of Redis may not know it either
            await self.close()
            text = f"Redis reports no changes: {error}; `headgate acl` prints the ACL that a node needs"
            raise AccessDenied(text) from None
        except _FAILED as error:
            await self.close()
            raise CoordinatorUnavailable(f"changes are not reported: {error}") from error
        except BaseException:
            await self.close()  # answers would be taken for others
            raise

    @property
    def notified(self) -> bool:
        """Whether Redis reports changes now."""
        return self._connection is not None

    async def heard(self) -> None:
        """Wait until a key that is followed was written, or the connection is gone: then one may have been."""
        while self._connection is not None and not self._written.is_set():
            try:
                await self._connection.read_response(push_request=True, disconnect_on_error=False)
            except _FAILED:
                await self.close()

    async def close(self) -> None:
        """Hear nothing any more, until keys are followed again."""
        connection, client, self._connection, self._client = self._connection, self._client, None, None
        with contextlib.suppress(*_FAILED):
            if connection is not None:
                await connection.disconnect(nowait=True)
            if client is not None:
                await client.aclose()

    async def _connect(self) -> None:
        self._client = await self._dial()
        connection = self._client.connection_pool.make_connection()
        try:
            await connection.connect()
            connection._parser.set_invalidation_push_handler(self._hear)  # noqa: SLF001 -- redis-py has no other way in asyncio
            await connection.send_command("CLIENT", "TRACKING", "ON")
            await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection

    async def _hear(self, _keys: object) -> None:
        self._written.set()

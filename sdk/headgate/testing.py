"""Gives unit tests of services that use Headgate a client without a server. Needs ``pip install 'headgate[testing]'``.

The client is the real one and so are the scripts; only Redis is fakeredis, in the test's own process and memory::

    import pytest_asyncio
    import headgate.testing

    @pytest_asyncio.fixture
    async def client():
        async with headgate.testing.client() as client:
            yield client

    async def test_an_order_is_announced(client):
        async with client.session("shop") as session:
            await announce_order(session, 42)                       # the code under test
            consumer = await session.consumer("orders")
            message = await consumer.receive(timeout=1)
            assert message.headers == {"order": 42}

Each client has a Redis of its own. Clients that are to meet share one: ``redis = headgate.testing.FakeRedis()``, then
``client(redis=redis)`` for each.

Queues, topics, gates, buckets and limiters work there as on a server.

Fakeredis is not fast, no cluster, never short of memory, and never away; and it has neither replicas nor a disk, so
every ``durability`` but ``memory`` is refused. Test those on a real server, which
``headgate.connect()`` without a URL starts in some ten milliseconds.
"""

import asyncio
import importlib.util
import re
from collections.abc import Sequence
from typing import Any, Final

from headgate.backends import BackendUrl
from headgate.client import Client
from headgate.core.addresses.url_options import UrlOptions
from headgate.core.durability import Durability
from headgate.errors import CoordinatorUnavailable, PolicyError
from headgate.redis.scripts import Script
from headgate.redis.server import Server
from headgate.redis.url import parse_url

__all__ = ["FakeRedis", "client"]

VERSION: Final = (7, 0)
"""Of Redis, as which fakeredis behaves."""
URL: Final = "redis://fakeredis:6379/0"
RUN_ID: Final = b"f" * 40


class FakeRedis:
    """A Redis in memory, for as many clients as are given it.

    Raises:
        CoordinatorUnavailable: fakeredis, or its Lua, is not installed.
    """

    def __init__(self) -> None:
        for needed in ("fakeredis", "lupa"):  # without lupa fakeredis starts, and knows no scripts
            if importlib.util.find_spec(needed) is None:
                raise CoordinatorUnavailable(
                    f"headgate.testing needs {needed}, which is not installed: pip install 'headgate[testing]'"
                )
        import fakeredis

        self._server = fakeredis.FakeServer(version=VERSION)
        self._commands: Any = fakeredis.FakeRedis(server=self._server, protocol=2)
        self._commands.response_callbacks.clear()  # replies as on the wire
        self._asynchronous = fakeredis.FakeAsyncRedis

    def run(self, *words: Any) -> Any:
        """Run one command at once, for a look at the state; replies are as on the wire."""
        return self._commands.execute_command(*words)

    def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Run one script at once."""
        return self._commands.eval(script.source, len(keys), *keys, *argv)

    def connection(self) -> Any:
        """Return a connection for pub/sub."""
        return self._asynchronous(server=self._server, protocol=2)


class FakeServer(Server):
    """A fake server passes its calls to a :class:`FakeRedis`."""

    def __init__(self, redis: FakeRedis) -> None:
        super().__init__(parse_url(URL))
        self._redis = redis

    async def open(self) -> None:
        """Do nothing: there is nobody to connect to."""
        self.version = (*VERSION, 0)

    def promise(self, durability: Durability) -> None:
        """Refuse whatever needs a replica or a disk.

        Raises:
            PolicyError: it does.
        """
        if durability:
            raise PolicyError(
                f"durability {durability.text!r}: headgate.testing has neither replicas nor a disk to wait for; use "
                "'memory' in unit tests, and test the other on a Redis"
            )

    async def call(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], after: Sequence[Sequence[Any]] = ()
    ) -> Any:
        """Call a script and return its reply."""
        if after:
            raise NotImplementedError("there is nothing to wait for")
        self.calls += 1
        await asyncio.sleep(0)  # as a real call, let others go on meanwhile
        if argv and argv[0] is None:
            argv = (RUN_ID, *argv[1:])
        return self._redis.call(script, keys, argv)

    async def command(self, key: bytes, *args: Any) -> Any:  # noqa: ARG002  (there is one server for all keys)
        """Send one command."""
        await asyncio.sleep(0)
        return self._redis.run(*args)

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send commands; scripts are to be called one by one."""
        await asyncio.sleep(0)
        return [NotImplementedError() if words[0] == b"EVALSHA" else self._redis.run(*words) for _, words in commands]

    async def scan(self, pattern: str) -> list[str]:
        """Return the keys that match."""
        matching = re.compile(re.escape(pattern).replace(r"\*", ".*"))
        keys = [key.decode() for key in self._redis.run("KEYS", "*")]
        return sorted(key for key in keys if matching.fullmatch(key))

    async def subscriber(self, key: bytes = b"", **others: Any) -> Any:  # noqa: ARG002 -- there is one server
        """Return a client for one connection that only listens."""
        return self._redis.connection()

    async def close(self) -> None:
        """Do nothing; what the redis holds stays for others."""


class FakeClient(Client):
    """A fake client connects to a :class:`FakeRedis`."""

    def __init__(self, redis: FakeRedis, *, namespace: str) -> None:
        super().__init__(URL, namespace=namespace)
        self._redis = redis
        self._place = BackendUrl(URL, UrlOptions(), lambda: FakeServer(redis))


def client(*, namespace: str = "default", redis: FakeRedis | None = None) -> Client:
    """Return a client for tests; ``async with`` or ``await`` connects it.

    Args:
        namespace: the tenant, 1 to 63 of a-z, 0-9 and '-'.
        redis: shared with other clients; one of its own when None.

    Raises:
        CoordinatorUnavailable: fakeredis, or its Lua, is not installed.
    """
    return FakeClient(FakeRedis() if redis is None else redis, namespace=namespace)

"""Calls to Redis: one script a call, on a connection that knows which run of the server it talks to.

redis-py is used for its connections, its parser and its cluster map, not for its retries: those would replay a script
that timed out. Here a call is repeated only because every script may be applied more than once with the effect of once.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import hiredis
import redis.exceptions as rx
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError
from headgate.redis.scripts import Script
from headgate.redis.url import RedisUrl

_pack: Final[Any] = hiredis.pack_command  # in C, unlike redis-py's; its stub knows tuples of one only
MIN_VERSION: Final = (6, 2)
CALL_TIMEOUT: Final = 2.0
"""Seconds that a call may take before its connection is given up."""
CONNECT_TIMEOUT: Final = 1.0
MAX_CONNECTIONS: Final = 64
LOADS: Final = 5
"""Times that a script is loaded again during one call."""
_FAILED: Final = (rx.RedisError, rx.RedisClusterException, OSError)
_MOVING: Final = (
    rx.MovedError,
    rx.TryAgainError,
    rx.ClusterDownError,
    rx.SlotNotCoveredError,
    rx.ReadOnlyError,
)
_IN_A_SCRIPT: Final = (
    ("-OOM ", rx.OutOfMemoryError),
    ("-READONLY ", rx.ReadOnlyError),
    ("user executing the script can't run this command", rx.NoPermissionError),
)

Dial = Callable[[], Awaitable[AbstractConnection]]


def connection_options(url: RedisUrl) -> dict[str, Any]:
    """Return redis-py's keyword arguments for one connection; no retries, short timeouts, bytes as they are."""
    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT,
    }
    if url.tls:
        files = dict(url.options)
        options |= {"ssl_cert_reqs": "required", "ssl_min_version": 771, "ssl_check_hostname": True}
        options |= {
            f"ssl_{ours}": files[name]
            for name, ours in (("ca_file", "ca_certs"), ("cert_file", "certfile"), ("key_file", "keyfile"))
            if name in files
        }
    return options


async def greet(connection: Any) -> None:
    """Finish a connection's handshake and note which run of which server answers.

    Raises:
        CoordinatorUnavailable: the server is older than 6.2.
    """
    await connection.on_connect()
    await connection.send_command("INFO", "server")
    text = (await connection.read_response()).decode()
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    version = tuple(int(part) for part in re.findall(r"\d+", facts["redis_version"])[:3])
    if version < MIN_VERSION:
        raise CoordinatorUnavailable(f"Redis {facts['redis_version']} is too old; 6.2 or newer is needed")
    connection.headgate_run_id = facts["run_id"].encode()
    connection.headgate_version = version
    connection.headgate_cluster = facts.get("redis_mode") == "cluster"


def unwrapped(error: rx.ResponseError) -> rx.ResponseError:
    """Return the error of the command that failed inside a script: Redis 6.2 hides it in one of its own."""
    text = str(error)
    return next((kind(text) for mark, kind in _IN_A_SCRIPT if mark in text), error)


class Lane:
    """The connections to one server; each carries one call at a time."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._idle: list[Any] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def run(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], *, asking: bool = False) -> Any:
        """Call a script; the run id of the very connection it goes over is put before ``argv`` where it is None."""
        async with self._connection() as connection:
            if asking:
                await connection.send_command("ASKING")
                await connection.read_response()
            if argv and argv[0] is None:
                argv = (connection.headgate_run_id, *argv[1:])
            command = _pack((b"EVALSHA", script.sha, len(keys), *keys, *argv))
            await connection.send_packed_command(command)
            for _ in range(LOADS):
                try:
                    return await connection.read_response()
                except rx.NoScriptError:  # a restart or somebody's SCRIPT FLUSH, which may come again
                    load = _pack(("SCRIPT", "LOAD", script.source))
                    await connection.send_packed_command(load + command)  # in one write, to leave no gap for another
                    await self._loaded(connection)
                except rx.ResponseError as error:
                    raise unwrapped(error) from None
            return await connection.read_response()

    @staticmethod
    async def _loaded(connection: Any) -> None:
        try:
            await connection.read_response()
        except rx.ResponseError:
            await connection.disconnect(nowait=True)  # the second reply would be taken for another's
            raise

    async def command(self, *args: Any) -> Any:
        """Send a plain read-only command."""
        async with self._connection() as connection:
            await connection.send_command(*args)
            return await connection.read_response()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Yield a connection for one call; one whose reply did not come whole is not used again.

        The timeout is ours: redis-py's own can swallow a cancellation on Python 3.11 (asyncio.wait_for).
        """
        async with self._room, asyncio.timeout(CALL_TIMEOUT):
            connection = await self.take()
            whole = False
            try:
                yield connection
                whole = True
            except rx.ResponseError:
                whole = True
                raise
            finally:
                if whole and connection.is_connected:
                    self._idle.append(connection)
                else:
                    await connection.disconnect(nowait=True)

    async def take(self) -> Any:
        """Return an idle connection, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected:
                return connection
        fresh: Any = await self._dial()  # redis-py leaves some of its methods untyped
        fresh.redis_connect_func = greet
        try:
            await fresh.connect()
        except BaseException:
            await fresh.disconnect(nowait=True)
            raise
        return fresh

    async def drop(self) -> None:
        """Close what is idle, so that the next call finds out anew where the server is."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)


class Server:
    """One Redis deployment: standalone, behind Sentinel, or a cluster."""

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self.version: tuple[int, ...] = ()
        self.calls = 0
        """Script calls made so far; what a message costs is read off it."""
        self._options = connection_options(url)
        self._lanes: dict[str, Lane] = {}
        self._cluster: RedisCluster | None = None
        self._sentinel: Sentinel | None = None
        self._pubsubs: list[Redis] = []

    async def open(self) -> None:
        """Connect once, to find out what is there.

        Raises:
            CoordinatorUnavailable: nothing answers, or it is too old.
            AccessDenied: it refuses the credentials.
        """
        try:
            if self.url.kind == "sentinel":
                sentinel: Any = Sentinel  # untyped in redis-py
                self._sentinel = sentinel(list(self.url.hosts), sentinel_kwargs={"socket_timeout": CONNECT_TIMEOUT})
            if self.url.kind == "cluster":
                await self._open_cluster()
                host, port = self._lane_name(b"hg")
                first = self._lanes.setdefault(f"{host}:{port}", Lane(self._dialer(host, port)))
            else:
                first = self._lanes["only"] = Lane(self._dial_only)
            connection = await first.take()
            self.version = connection.headgate_version
            await connection.disconnect()
            if connection.headgate_cluster and self.url.kind == "single":
                await self._open_cluster()
        except _FAILED as error:
            raise self._translate(error) from error

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script and return its reply; ``argv[0]`` None stands for the server's run id.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: a command that the script needs is not allowed.
        """
        self.calls += 1
        asking, moved, broken = "", 0, 0
        while True:
            try:
                lane = self._lane_at(asking) if asking else self._lane(keys[0])
                return await lane.run(script, keys, argv, asking=bool(asking))
            except rx.AskError as error:
                asking = f"{error.host}:{error.port}"
            except _MOVING as error:
                asking, moved = "", moved + 1
                if moved > 20:
                    raise self._translate(error) from error
                await self._look_again(moved)
            except (TimeoutError, rx.TimeoutError, rx.AuthenticationError, rx.BusyLoadingError) as error:
                raise self._translate(error) from error
            except (rx.ConnectionError, OSError) as error:
                asking, broken = "", broken + 1
                if broken > 1:
                    raise self._translate(error) from error
                await self._look_again(0)
            except rx.RedisError as error:
                raise self._translate(error) from error

    async def command(self, key: bytes, *args: Any) -> Any:
        """Send one read-only command to the server that holds a key.

        Raises:
            CoordinatorUnavailable: no answer.
        """
        try:
            return await self._lane(key).command(*args)
        except _FAILED as error:
            raise self._translate(error) from error

    async def scan(self, pattern: str) -> list[str]:
        """Return the keys that match, over all masters."""
        found: set[str] = set()
        try:
            for lane in self._masters():
                cursor = b"0"
                while True:
                    cursor, keys = await lane.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                    found.update(key.decode() for key in keys)
                    if cursor == b"0":
                        break
        except _FAILED as error:
            raise self._translate(error) from error
        return sorted(found)

    async def everywhere(self, *args: Any) -> list[Any]:
        """Send one read-only command to each master; returns their answers.

        Raises:
            CoordinatorUnavailable: one does not answer.
            AccessDenied: the command is not allowed.
        """
        try:
            return [await lane.command(*args) for lane in self._masters()]
        except _FAILED as error:
            raise self._translate(error) from error

    def _masters(self) -> list[Lane]:
        if self._cluster is None:
            return [self._lanes["only"]]
        return [self._lane_at(f"{node.host}:{node.port}") for node in self._cluster.get_primaries()]

    async def subscriber(self) -> Redis:
        """Return a client for one pub/sub connection; the caller closes it."""
        options = self._options
        if self.url.kind == "unix":
            return Redis(unix_socket_path=self.url.path, **options)
        if self._sentinel:
            host, port = await self._sentinel.discover_master(self.url.service)
        elif self._cluster:
            node = self._cluster.get_primaries()[0]
            host, port = node.host, int(node.port)
        else:
            host, port = self.url.hosts[0]
        return Redis(host=host, port=port, ssl=self.url.tls, **options)

    async def close(self) -> None:
        """Close all connections without waiting for anybody."""
        for lane in self._lanes.values():
            await lane.drop()
        if self._cluster:
            await self._cluster.aclose()
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            await sentinel.aclose()

    async def _dial_only(self) -> AbstractConnection:
        if self.url.kind == "unix":
            return UnixDomainSocketConnection(path=self.url.path, db=self.url.db, **self._options)
        if self._sentinel:
            host, port = await self._sentinel.discover_master(self.url.service)
        else:
            host, port = self.url.hosts[0]
        kind = SSLConnection if self.url.tls else Connection
        return kind(host=host, port=port, db=self.url.db, **self._options)

    def _dialer(self, host: str, port: int) -> Dial:
        async def dial() -> AbstractConnection:
            kind = SSLConnection if self.url.tls else Connection
            return kind(host=host, port=port, **self._options)

        return dial

    async def _open_cluster(self) -> None:
        host, port = self.url.hosts[0]
        self._cluster = RedisCluster(
            host=host,
            port=port,
            username=self.url.username,
            password=self.url.password,
            ssl=self.url.tls,
            socket_timeout=CALL_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
        await self._cluster.initialize()

    def _lane_name(self, key: bytes) -> tuple[str, int]:
        if self._cluster is None:
            raise CoordinatorUnavailable("the cluster is not connected yet")
        node = self._cluster.get_node_from_key(key.decode())
        if node is None:
            raise rx.ClusterDownError("no node serves this slot")
        return node.host, int(node.port)

    def _lane_at(self, place: str) -> Lane:
        lane = self._lanes.get(place)
        if lane is None:
            host, _, port = place.rpartition(":")
            lane = self._lanes[place] = Lane(self._dialer(host, int(port)))
        return lane

    def _lane(self, key: bytes) -> Lane:
        if self._cluster is None:
            return self._lanes["only"]
        host, port = self._lane_name(key)
        return self._lane_at(f"{host}:{port}")

    async def _look_again(self, attempt: int) -> None:
        """Forget where the server was: a failover or a moved slot is found on the next connection."""
        await asyncio.sleep(min(0.02 * attempt, 0.2))
        if self._cluster:
            with contextlib.suppress(*_FAILED):  # nobody answers yet: the map stays as it was, for the next attempt
                await self._cluster.nodes_manager.initialize()
        else:
            await self._lanes["only"].drop()

    def _translate(self, error: Exception) -> HeadgateError:
        if isinstance(error, rx.AuthenticationError | rx.NoPermissionError | rx.AuthorizationError):
            return AccessDenied(f"{self.url} refused: {error}; check the user, the password and its ACL")
        if isinstance(error, TimeoutError | rx.TimeoutError):
            return CoordinatorUnavailable(f"{self.url} did not answer within {CALL_TIMEOUT} s")
        if isinstance(error, rx.OutOfMemoryError):
            return CoordinatorUnavailable(f"{self.url} is out of memory; consume, or raise its maxmemory")
        return CoordinatorUnavailable(f"{self.url} cannot be used: {error}")

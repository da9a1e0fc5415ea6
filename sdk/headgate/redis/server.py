"""Calls to Redis: one script a call, on a connection that knows which run of the server it talks to.

redis-py is used for its connections, its parser and its cluster map, not for its retries: those would replay a script
that timed out. Here a call is repeated only because every script may be applied more than once with the effect of once.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import redis.exceptions as rx
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError
from headgate.redis.lane import CALL_TIMEOUT, Dial, Lane
from headgate.redis.scripts import Script
from headgate.redis.url import RedisUrl
from headgate.redis.wake import PubSubWakeUps

CONNECT_TIMEOUT: Final = 1.0
READ_SIZE: Final = 131_072
"""Bytes that are parsed at a time: a reply of many messages takes fewer turns."""
_FAILED: Final = (rx.RedisError, rx.RedisClusterException, OSError)
_MOVING: Final = (
    rx.MovedError,
    rx.TryAgainError,
    rx.ClusterDownError,
    rx.SlotNotCoveredError,
    rx.ReadOnlyError,
)


def connection_options(url: RedisUrl) -> dict[str, Any]:
    """Return redis-py's keyword arguments for one connection; no retries, short timeouts, bytes as they are."""
    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT,
        # Ours is around each call. redis-py's makes a task of each write, and loses cancellations that come then.
        "socket_timeout": None,
        "socket_read_size": READ_SIZE,
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


class Server:
    """One Redis deployment: standalone, behind Sentinel, or a cluster."""

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self.version: tuple[int, ...] = ()
        self.session_prefix = ""
        self.reaches_stores = True
        self.calls = 0
        """Script calls made so far; what a message costs is read off it."""
        self._options = connection_options(url)
        self._lanes: dict[str, Lane] = {}
        self._cluster: RedisCluster | None = None
        self._sentinel: Sentinel | None = None

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

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send (key, command) pairs, those to one server in one write; returns the replies, an error as one of them.

        Raises:
            CoordinatorUnavailable: no answer from one of the servers; the others may have done their part.
        """
        lanes: dict[Lane, list[int]] = {}
        replies: list[Any] = [None] * len(commands)
        try:
            for position, (key, _) in enumerate(commands):
                lanes.setdefault(self._lane(key), []).append(position)
            for lane, positions in lanes.items():
                told = await lane.burst([commands[position][1] for position in positions])
                for position, reply in zip(positions, told, strict=True):
                    replies[position] = reply
        except _FAILED as error:
            raise self._translate(error) from error
        return replies

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

    def wake_ups(self) -> PubSubWakeUps:
        """Return a way to hear hints; the caller closes it."""
        return PubSubWakeUps(self.subscriber)

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
        if isinstance(error, rx.NoPermissionError):
            return AccessDenied(f"{self.url} refused: {error}; `headgate acl` prints the ACL that each role needs")
        if isinstance(error, rx.AuthenticationError | rx.AuthorizationError):
            return AccessDenied(f"{self.url} refused: {error}; check the user, the password and its ACL")
        if isinstance(error, TimeoutError | rx.TimeoutError):
            return CoordinatorUnavailable(f"{self.url} did not answer within {CALL_TIMEOUT} s")
        if isinstance(error, rx.OutOfMemoryError):
            return CoordinatorUnavailable(f"{self.url} is out of memory; consume, or raise its maxmemory")
        return CoordinatorUnavailable(f"{self.url} cannot be used: {error}")

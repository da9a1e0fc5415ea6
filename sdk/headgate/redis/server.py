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
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff

from headgate.errors import AccessDenied, CoordinatorUnavailable, DestinationDamaged, HeadgateError
from headgate.redis.lane import CALL_TIMEOUT, Dial, Lane
from headgate.redis.scripts import Script
from headgate.redis.url import RedisUrl
from headgate.redis.wake import PubSubWakeUps
from headgate.url_parts import shown_hosts

CONNECT_TIMEOUT: Final = 1.0
_CLOSE_WITHIN: Final = 0.5
READ_SIZE: Final = 131_072
"""Bytes that are parsed at a time: a reply of many messages takes fewer turns."""
_FAILED: Final = (rx.RedisError, rx.RedisClusterException, OSError)
"""OSError: a TimeoutError is one."""
_ANSWERS: Final = (rx.ResponseError, rx.BusyLoadingError)
_DAMAGED: Final = ("NOGROUP", "WRONGTYPE", "equal or smaller than the target stream top item")
"""What Redis says where keys that belong together are not all there, or are of another type."""
_MOVE_WITHIN: Final = 4.0
"""Seconds for which a call looks for a slot or a master that is on its way to another server."""
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


def sentinel_options(url: RedisUrl) -> dict[str, Any]:
    """Return the same for Sentinels, which speak TLS where the Redis does, and get credentials of their own only."""
    own = {"username": url.sentinel_username, "password": url.sentinel_password, "ssl": url.tls}
    return connection_options(url) | own | {"socket_timeout": CONNECT_TIMEOUT}


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
        self._sentinels: list[Sentinel] = []
        """One for each host of the URL, so that all are asked at once."""

    async def open(self) -> None:
        """Connect once, to find out what is there.

        Raises:
            CoordinatorUnavailable: nothing answers, or it is too old.
            AccessDenied: it refuses the credentials.
        """
        patience = CALL_TIMEOUT + 2 * CONNECT_TIMEOUT * max(1, len(self.url.hosts))  # for they may be asked in turn
        try:
            async with asyncio.timeout(patience):
                await self._open()
        except TimeoutError:
            raise CoordinatorUnavailable(f"{self.url} did not answer within {patience:g} s") from None
        except _FAILED as error:
            raise self._translate(error) from error

    async def _open(self) -> None:
        if self.url.kind == "sentinel":
            sentinel: Any = Sentinel  # untyped in redis-py
            options = sentinel_options(self.url)
            self._sentinels = [sentinel([host], sentinel_kwargs=options) for host in self.url.hosts]
        if self.url.kind == "cluster":
            await self._open_cluster()
            host, port = self._lane_name(b"hg")
            first = self._lanes.setdefault(f"{host}:{port}", Lane(self._dialer(host, port)))
        else:
            first = self._lanes["only"] = Lane(self._dial_only)
        connection = await first.take()
        self.version = connection.headgate_version
        await connection.disconnect(nowait=True)
        if connection.headgate_cluster and self.url.kind == "single":
            await self._open_cluster()

    async def _master(self) -> tuple[str, int]:
        """Return where the master is, as the first Sentinel says that knows it; one that hangs holds up nobody."""
        asked = [asyncio.ensure_future(self._ask(*one)) for one in zip(self._sentinels, self.url.hosts, strict=True)]
        failed: list[Exception] = []
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    return await answer
                except (*_FAILED, AccessDenied) as error:
                    failed.append(error)
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise failed[-1]

    async def _ask(self, sentinel: Any, host: tuple[str, int]) -> tuple[str, int]:
        where = shown_hosts([host])
        try:
            masters = await sentinel.sentinels[0].sentinel_masters()
        except (rx.AuthenticationError, rx.NoPermissionError) as error:
            hint = "check sentinel_user and sentinel_password_file"
            raise AccessDenied(f"{self.url}: the Sentinel at {where} refused: {error}; {hint}") from error
        state = masters.get(self.url.service)
        if not state or not sentinel.check_master_state(state, self.url.service):
            raise MasterNotFoundError(f"the Sentinel at {where} knows no master {self.url.service!r} that is alive")
        return str(state["ip"]), int(state["port"])

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script and return its reply; ``argv[0]`` None stands for the server's run id.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: a command that the script needs is not allowed.
        """
        self.calls += 1
        asking, moved, broken, give_up_at = "", 0, 0, 0.0
        while True:
            try:
                lane = self._lane_at(asking) if asking else self._lane(keys[0])
                return await lane.run(script, keys, argv, asking=bool(asking))
            except rx.AskError as error:
                asking = f"{error.host}:{error.port}"
            except _MOVING as error:
                asking, moved, now = "", moved + 1, asyncio.get_running_loop().time()
                give_up_at = give_up_at or now + _MOVE_WITHIN
                if moved > 20 or now > give_up_at:
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
        if self.url.kind == "sentinel":
            host, port = await self._master()
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                for lane in self._lanes.values():
                    await lane.drop()
                if self._cluster:
                    await self._cluster.aclose()
                for sentinel in self._sentinels:
                    await sentinel.sentinels[0].aclose()

    async def _dial_only(self) -> AbstractConnection:
        if self.url.kind == "unix":
            return UnixDomainSocketConnection(path=self.url.path, db=self.url.db, **self._options)
        if self.url.kind == "sentinel":
            host, port = await self._master()
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
        options = connection_options(self.url) | {"socket_timeout": CONNECT_TIMEOUT}
        seeds = [ClusterNode(host, port) for host, port in self.url.hosts]
        self._cluster = RedisCluster(startup_nodes=seeds, ssl=self.url.tls, **options)
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
                async with asyncio.timeout(CALL_TIMEOUT):
                    await self._cluster.nodes_manager.initialize(list(self.url.hosts))
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
            text = f"{self.url} is out of memory; consume, or raise its maxmemory"
            return CoordinatorUnavailable(text, answered=True)
        if isinstance(error, rx.ResponseError) and any(mark in str(error) for mark in _DAMAGED):
            return DestinationDamaged(
                f"{self.url} lacks keys of the destination ({error}): they were evicted, or changed by hand; see that "
                "its maxmemory-policy is noeviction, and then remove the destination",
                answered=True,
            )
        return CoordinatorUnavailable(f"{self.url} cannot be used: {error}", answered=isinstance(error, _ANSWERS))

"""Each call to Redis is one script, on a connection that knows which run of the server it talks to.

redis-py is used for its connections, its parser and its cluster map, not for its retries: those would replay a script
that timed out. Here a call is repeated only because every script may be applied more than once with the effect of once.
"""

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import redis.exceptions as rx
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection

from headgate._util.forks import FORKED, watch
from headgate._util.tasks import stop
from headgate.core.durability import Durability, WriteProgress
from headgate.errors import Closed, CoordinatorUnavailable, InvalidValue
from headgate.redis.call_line import CALL_TIMEOUT, LINE_TIMEOUT
from headgate.redis.connection import Dial, ServerConnections, TooFewReplicasError
from headgate.redis.connection_options import (
    CONNECT_TIMEOUT,
    FileConnection,
    SecureConnection,
    connection_options,
    sentinel_options,
    with_ours,
)  # fmt: skip
from headgate.redis.failover import SentinelMaster, open_map, read_map
from headgate.redis.handover import Handovers
from headgate.redis.hints import ONE_TRY, PubSubWakeUps
from headgate.redis.scripts import Script
from headgate.redis.text.arguments import REFUSED
from headgate.redis.troubles import STUMBLED, about_tls, translated
from headgate.redis.url import RedisUrl
from headgate.waits import Listener as WaitListener

_SEEK_EVERY: Final = 0.25
"""Seconds between looks at the slot map, which a cluster does not publish."""
_SEEK_FOR: Final = 60.0
"""Seconds for which the slot map is read again and again after a call timed out; the next that does begins anew."""
_CLOSE_WITHIN: Final = 0.5
_FAILED: Final = (rx.RedisError, rx.RedisClusterException, OSError)
"""OSError: a TimeoutError is one."""
_MOVE_WITHIN: Final = 4.0
"""Seconds for which a call looks for a slot or a master that is on its way to another server."""
_MOVING: Final = (
    rx.MovedError,
    rx.TryAgainError,
    rx.ClusterDownError,
    rx.SlotNotCoveredError,
    rx.ReadOnlyError,
    TooFewReplicasError,
)


class Server:
    """A server is one Redis deployment: standalone, behind Sentinel, or a cluster."""

    def __init__(self, url: RedisUrl) -> None:
        self.url = url
        self.version: tuple[int, ...] = ()
        self.session_prefix = ""
        self.reaches_stores = self.spools = True
        self.waited: WaitListener | None = None
        self.calls, self.line_timeout = 0, LINE_TIMEOUT
        self._options = connection_options(url)
        self._forked = False
        watch(self)
        self._lanes: dict[str, ServerConnections] = {}
        self._cluster: RedisCluster | None = None
        self._masters_of: SentinelMaster | None = None  # the Sentinels' view, where there are any
        self._handovers = Handovers(self._dialer, self._lanes)
        self._seeking: dict[str, asyncio.Task[None]] = {}
        self._silent: str | None = None  # the node that did not answer last; others are asked for the slot map first
        self._hints: weakref.WeakKeyDictionary[PubSubWakeUps, None] = weakref.WeakKeyDictionary()  # in their order

    async def open(self) -> None:
        """Connect once, to find out what is there; errors as :meth:`Backend.open`."""
        patience = CALL_TIMEOUT + 2 * CONNECT_TIMEOUT * max(1, len(self.url.hosts))  # for they may be asked in turn
        try:
            async with asyncio.timeout(patience):
                await self._open()
        except TimeoutError as error:
            tls = about_tls(self.url, error)
            raise CoordinatorUnavailable(f"{self.url} did not answer within {patience:g} s{tls}") from None
        except (*_FAILED, *STUMBLED) as error:
            raise translated(self.url, error, opening=True) from error

    def forked(self) -> None:
        """Refuse from now on: the connections are those of the parent process, and are left as they are."""
        self._forked, self._cluster, self._masters_of, self._lanes, self._seeking = True, None, None, {}, {}

    async def _open(self) -> None:
        if self.url.kind == "sentinel":
            self._masters_of = SentinelMaster(self.url, sentinel_options(self.url), self._moved)
            self._masters_of.calls = lambda: self.calls
        if self.url.kind == "cluster":
            await self._open_cluster()
            connection = await self._any_master()
        else:
            masters = self._masters_of is not None
            lane = ServerConnections(
                self._dial_only, self._handovers, masters_only=masters, line_timeout=lambda: self.line_timeout
            )
            connection = await self._lanes.setdefault("only", lane).take()
        self.version = connection.headgate_version
        await connection.disconnect(nowait=True)
        if connection.headgate_cluster and self.url.kind == "single":
            await self._open_cluster()
        if self._masters_of is not None:
            self._masters_of.follow()

    async def _any_master(self) -> Any:
        """Return a connection to the first master that answers: one of them may be down just now."""
        places = self._masters()
        for tries_left, place in zip(reversed(range(len(places))), places, strict=True):
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    return await self._lane_at(place).take()
            except _FAILED:
                if not tries_left:
                    raise
        raise rx.ClusterDownError("the cluster has no master")

    def promise(self, durability: Durability) -> None:
        """See that the server can say when a write is so safe; errors as :meth:`Backend.promise`."""
        durability.check(self.version)

    async def secure(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], durability: Durability, within_ms: int
    ) -> tuple[Any, WriteProgress]:
        """Call a script, and wait until what its connection wrote is as safe as that; returns how far that came.

        Errors as :meth:`call`.
        """
        if not durability:
            return await self.call(script, keys, argv), WriteProgress()
        reply, *answers = await self.call(script, keys, argv, durability.waits(within_ms))
        return reply, durability.read(answers)

    async def call(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], after: Sequence[Sequence[Any]] = ()
    ) -> Any:
        """Call a script and return its reply; ``argv[0]`` None stands for the server's run id.

        With commands ``after`` it, which go in the same write, the list of its reply and theirs.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: a command that the script needs is not allowed.
            InvalidValue: an argument is not what the script's header declares; nothing was done.
        """
        self.calls += 1
        asking, moved, broken, give_up_at = "", 0, 0, 0.0
        lane: ServerConnections | None = None
        while True:
            try:
                lane = self._lane_at(asking) if asking else self._lane(keys[0])
                return await lane.run(script, keys, argv, asking=bool(asking), after=after)
            except rx.AskError as error:
                asking = f"{error.host}:{error.port}"
            except _MOVING as error:
                asking, moved, now = "", moved + 1, asyncio.get_running_loop().time()
                give_up_at = give_up_at or now + _MOVE_WITHIN
                if now > give_up_at:
                    raise translated(self.url, error) from error
                await self._look_again(moved, error)
            except (TimeoutError, rx.TimeoutError) as error:
                raise translated(self.url, error, await self._condemn(lane)) from error
            except (rx.AuthenticationError, rx.BusyLoadingError) as error:
                raise translated(self.url, error) from error
            except (rx.ConnectionError, OSError) as error:
                asking, broken = "", broken + 1
                if broken > 1:
                    raise translated(self.url, error) from error
                await self._look_again(0)
            except rx.RedisError as error:
                if str(error).startswith(REFUSED):
                    raise InvalidValue(script.declared.wrong(argv) or str(error)) from None
                raise translated(self.url, error) from error

    async def command(self, key: bytes, *args: Any) -> Any:
        """Send one read-only command to the server that holds a key; errors as :meth:`Backend.command`."""
        return await self._read(lambda: self._lane(key), args)

    async def _read(self, lane_of: Callable[[], ServerConnections], words: Sequence[Any]) -> Any:
        """Send one read-only command; once more where its connection broke, or another server is in charge now."""
        for tries_left in (1, 0):
            lane: ServerConnections | None = None
            try:
                return await (lane := lane_of()).command(*words)
            except _FAILED as error:
                if silent := isinstance(error, TimeoutError | rx.TimeoutError):
                    await self._condemn(lane)
                if silent or not tries_left or not isinstance(error, (rx.ConnectionError, OSError, *_MOVING)):
                    raise translated(self.url, error) from error
                await self._look_again(0, error)
        raise AssertionError

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send (key, command) pairs, those to one server in one write; the rest is as of :meth:`Backend.burst`."""
        replies: list[Any] = [None] * len(commands)
        due: Sequence[int] = range(len(commands))
        try:
            for tries_left in (1, 0):
                lanes: dict[ServerConnections, list[int]] = {}
                for position in due:
                    lanes.setdefault(self._lane(commands[position][0]), []).append(position)
                for lane, positions in lanes.items():
                    try:
                        answers = await lane.burst([commands[position][1] for position in positions])
                    except (TimeoutError, rx.TimeoutError):
                        await self._condemn(lane)
                        raise
                    for position, reply in zip(positions, answers, strict=True):
                        replies[position] = reply
                due = [position for position in due if isinstance(replies[position], rx.MovedError)]
                for position in due if tries_left else ():  # each may be of another slot
                    await self._look_again(0, replies[position])
        except _FAILED as error:
            raise translated(self.url, error) from error
        return replies

    async def scan(self, pattern: str) -> list[str]:
        """Return the keys that match, over all masters."""
        found: set[str] = set()
        for place in self._masters():
            cursor = b"0"
            while True:
                words = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                cursor, keys = await self._read(partial(self._lane_at, place), words)
                found.update(key.decode() for key in keys)
                if cursor == b"0":
                    break
        return sorted(found)

    async def everywhere(self, *args: Any) -> list[Any]:
        """Send one read-only command to each master; returns their answers, errors as :meth:`Backend.everywhere`."""
        return [await self._read(partial(self._lane_at, place), args) for place in self._masters()]

    def _masters(self) -> list[str]:
        if self._cluster is None:
            return ["only"]
        return [f"{node.host}:{node.port}" for node in self._cluster.get_primaries()]

    async def subscriber(self, key: bytes = b"", **others: Any) -> Redis:
        """Return a client for one connection that only listens, where that key is; the caller closes it."""
        options = self._options | {"retry": ONE_TRY} | others
        if self.url.kind == "unix":
            return with_ours(Redis(unix_socket_path=self.url.path, **options))
        if self._masters_of is not None:
            host, port = await self._masters_of.find()
        elif self._cluster:
            nodes = self._cluster.get_primaries()
            calm = next((one for one in nodes if one.name not in self._seeking), nodes[0])  # not one that hangs
            node = (self._cluster.get_node_from_key(key.decode()) if key else None) or calm
            host, port = node.host, int(node.port)
        else:
            host, port = self.url.hosts[0]
        return with_ours(Redis(host=host, port=port, ssl=self.url.tls, **options))

    def wake_ups(self) -> PubSubWakeUps:
        """Return a way to hear hints; the caller closes it."""
        hints = PubSubWakeUps(self.subscriber)
        self._hints[hints] = None
        return hints

    async def close(self) -> None:
        """Close all connections without waiting for anybody."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                for lane in self._lanes.values():
                    await lane.drop()
                if self._cluster:
                    await self._cluster.nodes_manager.aclose()
                    await self._cluster.nodes_manager.aclose("startup_nodes")
                await self._handovers.close()
                for task in tuple(self._seeking.values()):
                    await stop(task)
                if self._masters_of is not None:
                    await self._masters_of.close()

    async def _dial_only(self) -> AbstractConnection:
        if self.url.kind == "unix":
            return FileConnection(path=self.url.path, db=self.url.db, **self._options)
        host, port = await self._masters_of.find() if self._masters_of is not None else self.url.hosts[0]
        return await self._dialer(host, port)()

    def _dialer(self, host: str, port: int) -> Dial:
        async def dial() -> AbstractConnection:
            options = self._options | {"host": host, "port": port, "db": self.url.db}
            return SecureConnection(**options) if self.url.tls else Connection(**options)

        return dial

    async def _open_cluster(self) -> None:
        self._cluster = await open_map(self.url)

    def _lane_at(self, place: str) -> ServerConnections:
        lane = self._lanes.get(place)
        if lane is None:
            if not place:
                raise rx.ClusterDownError("no node serves this slot")
            if self._forked:
                raise Closed(f"{self.url}: {FORKED}")
            host, _, port = place.rpartition(":")
            lane = self._lanes[place] = ServerConnections(
                self._dialer(host, int(port)), self._handovers, line_timeout=lambda: self.line_timeout
            )
        return lane

    def place(self, key: bytes) -> str:
        """Return which server has a key, as far as is known; empty where none has."""
        if self._cluster is None:
            return "only"
        try:
            node = self._cluster.get_node_from_key(key.decode())
        except rx.SlotNotCoveredError:
            node = None
        return f"{node.host}:{node.port}" if node else ""

    def _lane(self, key: bytes) -> ServerConnections:
        return self._lane_at(self.place(key))

    async def _moved(self) -> None:
        """Leave the former server: calls that are under way there are made anew where the master is now."""
        await self._lanes["only"].abandon()
        self._listen_anew()

    def _listen_anew(self) -> None:
        for hints in tuple(self._hints):
            hints.reconnect()

    async def _condemn(self, lane: ServerConnections | None) -> str:
        """Believe no other connection to a silent server, find out who is in charge now; returns the cluster's node."""
        if lane is None:
            return ""
        await lane.drop()
        place = next((place for place, one in self._lanes.items() if one is lane), None)
        if self._masters_of is not None:
            self._masters_of.doubt()
        elif self._cluster is not None and place is not None and place not in self._seeking:
            self._silent = place
            task = self._seeking[place] = asyncio.create_task(self._seek(place, lane), name=f"headgate seeks {place}")
            task.add_done_callback(lambda _: self._seeking.pop(place, None))
        return place if place and self._cluster is not None else ""

    async def _seek(self, place: str, lane: ServerConnections) -> None:
        """Read the slot map from other nodes until it replaces this master, or this one answers."""
        assert self._cluster is not None  # noqa: S101 -- who seeks has one
        loop, answered = asyncio.get_running_loop(), lane.answered
        until = loop.time() + _SEEK_FOR
        while loop.time() < until and lane.answered == answered:
            await asyncio.sleep(_SEEK_EVERY)
            with contextlib.suppress(*_FAILED):
                async with asyncio.timeout(CALL_TIMEOUT):
                    await read_map(self._cluster, self.url.hosts, self._silent)
            if place not in {node.name for node in self._cluster.get_primaries()}:
                self._lanes.pop(place, None)
                await lane.abandon()
                self._listen_anew()
                return

    async def _look_again(self, attempt: int, error: Exception | None = None) -> None:
        """Find out where the server is: after a failover, by the next connection; in a cluster, by its map.

        The first time, a server that says where the slot is now is believed. A slot on its way is where it was.
        """
        moved = error if isinstance(error, rx.MovedError) and attempt <= 1 else None
        under_way = isinstance(error, rx.TryAgainError)
        if moved is None:
            await asyncio.sleep(min(0.02 * attempt, 0.05 if under_way else 0.2))
        if not self._cluster:
            await self._lane_at("only").drop()
        elif not under_way:
            with contextlib.suppress(*_FAILED):  # nobody answers yet: the map stays as it was, for the next attempt
                async with asyncio.timeout(CALL_TIMEOUT):
                    if moved:
                        await self._cluster.nodes_manager.move_slot(moved)
                    else:
                        await read_map(self._cluster, self.url.hosts, self._silent)
            for place in sorted(self._lanes.keys() - set(self._masters())):  # who may come back as another than it was
                await self._lanes[place].drop()

"""This module finds the servers in charge.

It heeds what Sentinels say, the moment they say it, and knows whose word counts; of a cluster it reads the slots.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import redis.exceptions as rx
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel

from headgate._util.tasks import stop
from headgate._util.url_parts import shown_hosts
from headgate.errors import AccessDenied
from headgate.redis.connection_options import CONNECT_TIMEOUT, SecureConnection, connection_options, with_ours
from headgate.redis.url import RedisUrl

Place = tuple[str, int]
"""Host and port."""
CHANNEL: Final = "+switch-master"
LOOK: Final = 1.0
"""Seconds between two looks at what the Sentinels say, while calls are made: what they publish may be lost."""
_ANSWER_WITHIN: Final = 1.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_FAILED: Final = (rx.RedisError, OSError, AttributeError)
"""AttributeError: redis-py trips over its own None where a connection breaks while it is closed."""


class SentinelMaster:
    """`SentinelMaster` follows the master of a service, as its Sentinels say.

    Sentinels hear of a failover one after the other. Each names the configuration epoch of what it says, and an epoch
    below one that was heard is out of date: an answer of that kind counts for nothing.

    Args:
        url: names the Sentinels and the service.
        options: redis-py's keyword arguments for a connection to a Sentinel.
        moved: called when the master is another one than it was.
    """

    def __init__(self, url: RedisUrl, options: dict[str, Any], moved: Callable[[], Awaitable[None]]) -> None:
        sentinel: Any = Sentinel  # untyped in redis-py
        self._url = url
        self._options = options
        self._moved = moved
        self._sentinels = [sentinel([host], sentinel_kwargs=options) for host in url.hosts]
        for one in self._sentinels:
            with_ours(one.sentinels[0])
        self._place: Place | None = None
        self._epoch = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._doubting: asyncio.Task[None] | None = None
        self.calls: Callable[[], int] = int
        """Returns how many calls were made so far: who makes none does not look."""

    def follow(self) -> None:
        """Hear from now on what the Sentinels publish."""
        self._tasks = [asyncio.create_task(self._hear(host), name="headgate sentinels") for host in self._url.hosts]
        self._tasks.append(asyncio.create_task(self._compare(), name="headgate sentinels, compared"))

    def doubt(self) -> None:
        """Look at once, for the master did not answer in time; who looks already is enough."""
        if self._doubting is None or self._doubting.done():
            self._doubting = asyncio.create_task(self._look_for_another(), name="headgate sentinels, doubted")

    async def _look_for_another(self) -> None:
        with contextlib.suppress(TimeoutError, *_FAILED):
            await self._look()

    async def close(self) -> None:
        """Stop hearing."""
        await stop(self._doubting)
        for task in self._tasks:
            await stop(task)
        for sentinel in self._sentinels:
            await sentinel.sentinels[0].aclose()

    async def find(self) -> Place:
        """Return where the master is, as the first Sentinel says that knows it; one that hangs holds up nobody.

        Raises:
            MasterNotFoundError: none knows it, or none of those that answer is up to date.
            AccessDenied: a Sentinel refuses the credentials.
        """
        asked = [asyncio.ensure_future(self._ask(*one)) for one in zip(self._sentinels, self._url.hosts, strict=True)]
        failed: list[Exception] = []
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    place, epoch = await answer
                except (*_FAILED, AccessDenied) as error:
                    failed.append(error)
                    continue
                if epoch >= self._epoch or place == self._place:
                    await self._take_in(place, epoch)
                    return place
                failed.append(MasterNotFoundError(f"no Sentinel knows of the last failover of {self._url.service!r}"))
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise failed[-1]

    async def _ask(self, sentinel: Any, host: Place) -> tuple[Place, int]:
        where = shown_hosts([host])
        try:
            masters = await sentinel.sentinels[0].sentinel_masters()
        except (rx.AuthenticationError, rx.NoPermissionError) as error:
            hint = "check sentinel_user and sentinel_password_file"
            raise AccessDenied(f"{self._url}: the Sentinel at {where} refused: {error}; {hint}") from error
        state = masters.get(self._url.service)
        if not state or not sentinel.check_master_state(state, self._url.service):
            raise MasterNotFoundError(f"the Sentinel at {where} knows no master {self._url.service!r} that is alive")
        # The one that leads a failover names the new epoch with the old address, until all replicas follow.
        leads = "failover_in_progress" in str(state.get("flags", ""))
        return (str(state["ip"]), int(state["port"])), 2 * int(state.get("config-epoch", 0)) - leads

    async def _take_in(self, place: Place, epoch: int) -> None:
        before, self._place, self._epoch = self._place, place, max(epoch, self._epoch)
        if before not in (None, place):
            await self._moved()

    async def _look(self) -> None:
        """Ask all Sentinels, and take in what the one says that knows of the latest failover."""
        asking = (self._ask(*one) for one in zip(self._sentinels, self._url.hosts, strict=True))
        async with asyncio.timeout(_ANSWER_WITHIN):
            answers = await asyncio.gather(*asking, return_exceptions=True)
        known = [answer for answer in answers if not isinstance(answer, BaseException) and answer[1] >= self._epoch]
        if known:
            await self._take_in(*max(known, key=lambda answer: answer[1]))

    async def _compare(self) -> None:
        """Look about once a second while calls are made."""
        looked_at = self.calls()
        while True:
            await asyncio.sleep(LOOK)
            if self.calls() != looked_at:
                looked_at = self.calls()
                with contextlib.suppress(TimeoutError, *_FAILED):
                    await self._look()

    async def _hear(self, host: Place) -> None:
        """Look the moment that a Sentinel publishes a switch; begin anew whenever the connection breaks."""
        pause = _FIRST_PAUSE
        while True:
            client = with_ours(Redis(host=host[0], port=host[1], **(self._options | {"socket_timeout": None})))
            try:
                pubsub = client.pubsub()
                async with asyncio.timeout(_ANSWER_WITHIN):
                    await pubsub.subscribe(CHANNEL)
                while True:
                    message = await pubsub.get_message(timeout=None)
                    pause = _FIRST_PAUSE
                    if message and message["type"] == "message" and _names(message["data"], self._url.service):
                        await self._look()
            except (TimeoutError, *_FAILED):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                with contextlib.suppress(TimeoutError, *_FAILED):
                    async with asyncio.timeout(_ANSWER_WITHIN):
                        await client.aclose()


def _names(data: Any, service: str) -> bool:
    return isinstance(data, bytes) and data.split(b" ")[0] == service.encode()


async def open_map(url: RedisUrl) -> RedisCluster:
    """Read which node of a cluster serves which slot for the first time, from a node that the URL names.

    Raises:
        RedisClusterException: none of them answers.
    """
    options = connection_options(url) | {"socket_timeout": CONNECT_TIMEOUT}
    cluster = RedisCluster(startup_nodes=[ClusterNode(*host) for host in url.hosts], ssl=url.tls, **options)
    manager = cluster.nodes_manager
    if url.tls:
        manager.connection_kwargs["connection_class"] = SecureConnection
        for node in manager.startup_nodes.values():
            node.connection_class = SecureConnection
    # Only the map: redis-py's own initialize asks one of the masters for more, and that one may be down just now.
    try:
        await manager.initialize()
    except BaseException:  # it closes nodes that do not answer, and not those over whose answer it stumbles
        for node in manager.startup_nodes.values():
            await node.disconnect()
        raise
    return cluster


async def read_map(cluster: RedisCluster, hosts: Iterable[tuple[str, int]], silent: str | None) -> None:
    """Read it anew from any node of it that answers, else from one of the ``hosts``; the ``silent`` one comes last.

    Raises:
        RedisClusterException: none of them answers.
    """
    manager = cluster.nodes_manager
    try:
        await manager.initialize(last_failed_node_name=silent)
    except rx.RedisClusterException:
        for host, port in hosts:  # as nodes of the map: those that redis-py is only given to ask it never closes
            node = ClusterNode(host, port, **manager.connection_kwargs)
            manager.startup_nodes.setdefault(node.name, node)
        await manager.initialize(last_failed_node_name=silent)

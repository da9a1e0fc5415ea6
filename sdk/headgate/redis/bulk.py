"""A client of redis-py for whoever reads in bulk what the scripts wrote, from threads or other processes.

Nothing here changes what scripts keep. redis-py's own retries are on: a read may be repeated.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import redis.exceptions as rx
from redis import Redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError
from headgate.redis.connection_options import connection_options, sentinel_options
from headgate.redis.url import parse_url

T = TypeVar("T")
_TIMEOUT: Final = 10.0
_MOVES: Final = 8
"""How often a key is looked for anew while slots move."""
_RAW: Final = ("XRANGE", "XREVRANGE")


class BulkConnections:
    """`BulkConnections` opens connections to one Redis: standalone, behind Sentinel or a cluster.

    Replies are as the server sent them.

    Raises:
        InvalidValue: the URL is none of a Redis.
        CoordinatorUnavailable: nothing answers there.
        AccessDenied: it refuses the credentials.
    """

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self._cluster: RedisCluster | None = None
        self._only: Redis | None = None
        try:
            self._connect()
        except (rx.RedisError, OSError) as error:
            raise self._translated(error) from None

    def primaries(self) -> list[Redis]:
        """Return a client of each server that may hold keys."""
        if self._cluster is None:
            return [self._client()]
        cluster: Any = self._cluster  # not all of it is typed in redis-py
        return [_raw(cluster.get_redis_connection(node)) for node in cluster.get_primaries()]

    def at(self, key: bytes, work: Callable[[Redis], T]) -> T:
        """Do some work with a client of the server that holds a key; again where the key has moved to, if it moved.

        Raises:
            CoordinatorUnavailable: no answer.
            AccessDenied: it refuses the command, or us.
        """
        for attempt in range(_MOVES):
            try:
                return work(self.home(key))
            except (rx.MovedError, rx.AskError, rx.ClusterDownError, rx.TryAgainError) as error:
                if self._cluster is None or attempt == _MOVES - 1:
                    raise self._translated(error) from None
                self._cluster.nodes_manager.initialize()
            except (rx.RedisError, OSError) as error:
                raise self._translated(error) from None
        raise AssertionError

    def home(self, key: bytes) -> Redis:
        """Return a client of the server that holds a key, as far as is known."""
        if self._cluster is None:
            return self._client()
        cluster: Any = self._cluster
        return _raw(cluster.get_redis_connection(cluster.get_node_from_key(key.decode())))

    def close(self) -> None:
        """Close all connections."""
        for client in (self._cluster, self._only):
            if client is not None:
                client.close()

    def _translated(self, error: Exception) -> HeadgateError:
        if isinstance(error, rx.NoPermissionError | rx.AuthenticationError | rx.AuthorizationError):
            return AccessDenied(f"{self.url} refused: {error}; check the user, the password and its ACL")
        return CoordinatorUnavailable(f"{self.url} cannot be used: {error}")

    def _client(self) -> Redis:
        if self._only is None:
            raise CoordinatorUnavailable(f"{self.url} is not connected")
        return self._only

    def _connect(self) -> None:
        url = self.url
        options: dict[str, Any] = connection_options(url) | {
            "retry": Retry(ExponentialBackoff(cap=1.0, base=0.05), 5),
            "socket_timeout": _TIMEOUT,
        }
        if url.kind == "cluster":
            self._open_cluster(options)
            return
        if url.kind == "unix":
            self._only = Redis(unix_socket_path=url.path, db=url.db, **options)
        elif url.kind == "sentinel":
            sentinel: Any = Sentinel  # untyped in redis-py
            found = sentinel(list(url.hosts), sentinel_kwargs=sentinel_options(url) | {"retry": Retry(NoBackoff(), 0)})
            self._only = found.master_for(url.service, db=url.db, ssl=url.tls, **options)
        else:
            host, port = url.hosts[0]
            self._only = Redis(host=host, port=port, db=url.db, ssl=url.tls, **options)
        _raw(self._client())
        info: Any = self._client().info("cluster")
        if url.kind == "single" and info.get("cluster_enabled"):
            self._client().close()
            self._only = None
            self._open_cluster(options)

    def _open_cluster(self, options: dict[str, Any]) -> None:
        node: Any = ClusterNode  # untyped in redis-py
        seeds = [node(host, port) for host, port in self.url.hosts]
        self._cluster = RedisCluster(startup_nodes=seeds, ssl=self.url.tls, **options)


def _raw(client: Redis) -> Redis:
    for command in _RAW:
        client.set_response_callback(command, lambda reply, **_: reply)
    return client

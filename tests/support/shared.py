"""The servers that all tests of one process share, each started when first asked for."""

from typing import Final

import redis

from headgate.redis.embedded import EmbeddedRedis
from tests.support.cluster import RedisCluster3
from tests.support.leaks import close, take_leftovers
from tests.support.servers import ServerBinary, newest_server

SELDOM: Final = {"hz": "2"}
"""Settings of servers that mostly wait: eighty that look round ten times a second take a tenth of a core for it."""


class SharedServers:
    """One Redis of each version on a unix socket, and one cluster of each.

    `used` holds the URL of every server that the running test was given; a cluster counts with all its nodes.
    """

    def __init__(self) -> None:
        self._standalone: dict[str, EmbeddedRedis] = {}
        self._clusters: dict[str, RedisCluster3] = {}
        self._cluster: RedisCluster3 | None = None  # the running test's
        self.used: set[str] = set()

    def standalone(self, binary: ServerBinary) -> str:
        """Return the URL of the server of that version."""
        if binary.name not in self._standalone:
            server = binary.start(config=binary.test_config | SELDOM)
            self._standalone[binary.name] = server
        url = self._standalone[binary.name].url
        self.used.add(url)
        return url

    def cluster(self, binary: ServerBinary | None = None) -> RedisCluster3:
        """Return the cluster of that version; without one that of the running test, at first of the newest."""
        if binary or self._cluster is None:
            binary = binary or newest_server()
            if binary.name not in self._clusters:
                self._clusters[binary.name] = RedisCluster3.start(binary)
                for url in self._clusters[binary.name].urls:
                    with redis.Redis.from_url(url) as master:  # which met the others at its usual pace
                        master.config_set("hz", SELDOM["hz"])
            self._cluster = self._clusters[binary.name]
        self.used.update(self._cluster.urls)
        return self._cluster

    def take_leftovers(self) -> dict[str, list[str]]:
        """Return the keys that are left, by URL, delete them, and begin anew."""
        urls, self.used, self._cluster = self.used, set(), None
        found = {url: take_leftovers(url) for url in sorted(urls)}
        return {url: keys for url, keys in found.items() if keys}

    def stop(self) -> None:
        close()
        for server in self._standalone.values():
            server.stop()
        for cluster in self._clusters.values():
            cluster.stop()

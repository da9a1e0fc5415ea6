"""A real Redis Cluster of three masters on loopback, without replicas."""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import redis

from tests.support.servers import RedisServer, ServerBinary, newest_server
from tests.support.waiting import wait_for

SLOTS = 16384
# No node has a replica that could take its place, and on a busy machine one that says nothing for a while lives.
_CONFIG = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "15000"}


class RedisCluster3:
    """`nodes` own the slots in three runs, in order. `url` is the first node's."""

    def __init__(self, nodes: list[RedisServer]) -> None:
        self.nodes = nodes
        self.urls = [node.url for node in nodes]
        self.url = self.urls[0]

    @classmethod
    def start(cls, binary: ServerBinary | None = None, *, persist: bool = False) -> Self:
        """Return when every node serves: after about 2 s, for which Redis keeps a new master read-only."""
        binary = binary or newest_server()
        with ExitStack() as undo:
            nodes = []
            for _ in range(3):
                nodes.append(RedisServer.start(binary, port=0, persist=persist, config=_CONFIG))
                undo.callback(nodes[-1].stop)
            clients = [undo.enter_context(redis.Redis.from_url(node.url)) for node in nodes]
            ports = [client.connection_pool.connection_kwargs["port"] for client in clients]
            for index, client in enumerate(clients):
                # Distinct epochs from the start: else the nodes spend seconds settling who is right.
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                slots = range(SLOTS * index // 3, SLOTS * (index + 1) // 3)
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
            for client in clients:
                for port in ports:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
            for client, port in zip(clients, ports, strict=True):
                wait_for(_serving(client), timeout=80, description=f"the cluster as node {port} sees it")
            for client in clients:
                client.close()
            undo.pop_all()
            return cls(nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _serving(client: redis.Redis) -> Callable[[], bool]:
    wanted = (b"cluster_state:ok", b"cluster_slots_ok:16384", b"cluster_known_nodes:3")

    def serving() -> bool:
        info: bytes = client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
        return all(part in info.splitlines() for part in wanted)

    return serving

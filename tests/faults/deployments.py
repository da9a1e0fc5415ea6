"""Deployments that can fail over: a master with replicas and Sentinels, and a cluster of masters with replicas."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from tests.support.cluster import SLOTS
from tests.support.ports import own_port
from tests.support.servers import RedisServer, ServerBinary, newest_server
from tests.support.waiting import wait_for, wait_until

SERVICE = "main"
AT_ONCE = {"repl-diskless-sync-delay": "0", "repl-timeout": "10"}
"""A replica is served when it asks, not when others may have come too."""
_SENTINEL = """\
port {port}
dir {directory}
sentinel monitor {service} 127.0.0.1 {master} 2
sentinel down-after-milliseconds {service} 1000
sentinel failover-timeout {service} 10000
sentinel parallel-syncs {service} 2
"""


def at(server: RedisServer) -> tuple[str, int]:
    """Return where a server listens."""
    parts = urlsplit(server.url)
    return str(parts.hostname), int(parts.port or 0)


def ask(server: RedisServer, *words: Any) -> Any:
    """Send one command to a server, and return its answer."""
    with redis.Redis.from_url(server.url, socket_timeout=5) as client:
        return client.execute_command(*words)


@dataclass
class Watched:
    """A master and its replicas, watched by three Sentinels."""

    servers: list[RedisServer]
    sentinels: list[int]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{SERVICE}"

    @property
    def master(self) -> RedisServer:
        """The server that most Sentinels say is in charge."""
        told = []
        for port in self.sentinels:
            with suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=2) as sentinel:
                told.append(int(sentinel.sentinel_get_master_addr_by_name(SERVICE)[1]))
        port = max(told, key=told.count)
        return next(server for server in self.servers if at(server)[1] == port)

    def fail_over(self) -> None:
        """Have the Sentinels put a replica in charge, although the master lives."""
        with redis.Redis(port=self.sentinels[0], socket_timeout=5) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)


@contextmanager
def watched(binary: ServerBinary | None = None, *, replicas: int = 2, **config: str) -> Iterator[Watched]:
    """Start a master, replicas and three Sentinels; yields once the Sentinels know of all of them."""
    binary = binary or newest_server()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-sentinels-")))
        settings = AT_ONCE | {name.replace("_", "-"): value for name, value in config.items()}
        master = stack.enter_context(_start(binary, settings))
        host, port = at(master)
        theirs = {**settings, "replicaof": f"{host} {port}"}
        servers = [master, *(stack.enter_context(_start(binary, theirs)) for _ in range(replicas))]
        sentinels = []
        for number in range(3):
            mine, own = own_port(), directory / str(number)
            own.mkdir()
            text = _SENTINEL.format(port=mine, directory=own, service=SERVICE, master=port)
            (own / "sentinel.conf").write_text(text)
            process = binary.watch(own)
            stack.callback(process.wait)
            stack.callback(process.kill)
            sentinels.append(mine)
        for mine in sentinels:
            wait_for(partial(_knows, mine, replicas), timeout=60, description=f"Sentinel {mine}")
        yield Watched(servers, sentinels)


def _knows(port: int, replicas: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=2) as sentinel:
            state = sentinel.sentinel_master(SERVICE)
    except redis.RedisError:
        return False
    return bool(state["num-slaves"] >= replicas and state["num-other-sentinels"] >= 2 and state["is_master"])


@contextmanager
def pair(binary: ServerBinary | None = None, **config: str) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Start a master and a replica that has all it has."""
    settings = AT_ONCE | config
    with ExitStack() as stack:
        master = stack.enter_context(_start(binary or newest_server(), settings))
        host, port = at(master)
        replica = stack.enter_context(_start(binary or newest_server(), {**settings, "replicaof": f"{host} {port}"}))
        wait_for(partial(is_linked, replica), timeout=60, description="the replica has it all")
        yield master, replica


@dataclass
class Replicated:
    """A cluster of three masters, each with one replica."""

    masters: list[RedisServer]
    replicas: list[RedisServer]

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{host}:{port}' for host, port in map(at, self.masters))}"

    def pair_of(self, slot: int) -> tuple[RedisServer, RedisServer]:
        """Return the first master of a slot, and its replica."""
        index = min(2, next(number for number in range(3) if slot < SLOTS * (number + 1) // 3))
        return self.masters[index], self.replicas[index]


@contextmanager
def replicated(binary: ServerBinary | None = None, **config: str) -> Iterator[Replicated]:
    """Start three masters and three replicas; yields once each replica has it all, and all know of it."""
    binary = binary or newest_server()
    settings = AT_ONCE | {
        "cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "2500",
        "cluster-replica-validity-factor": "0", **{name.replace("_", "-"): value for name, value in config.items()},
    }  # fmt: skip
    with ExitStack() as stack:
        nodes = [stack.enter_context(_start(binary, settings)) for _ in range(6)]
        masters, replicas = nodes[:3], nodes[3:]
        for index, node in enumerate(nodes):
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for index, node in enumerate(masters):
            ask(node, "CLUSTER", "ADDSLOTS", *range(SLOTS * index // 3, SLOTS * (index + 1) // 3))
        for node in nodes[1:]:
            ask(nodes[0], "CLUSTER", "MEET", *at(node))
        for node in nodes:
            wait_for(partial(_sees, node, b"cluster_known_nodes:6"), timeout=60)
        for master, replica in zip(masters, replicas, strict=True):
            ask(replica, "CLUSTER", "REPLICATE", ask(master, "CLUSTER", "MYID"))
        for node in nodes:
            wait_for(partial(_sees, node, b"cluster_state:ok"), timeout=60)
        for replica in replicas:
            wait_for(partial(is_linked, replica), timeout=60, description="a replica has it all")
        for node in nodes:  # who does not know whose replica one is has no vote for it
            wait_for(partial(_knows_replicas, node), timeout=60, description="a node knows the replicas")
        yield Replicated(masters, replicas)


def _knows_replicas(node: RedisServer) -> bool:
    return sum(taken.startswith("slave ") for taken in nodes_as(node).values()) == 3


def is_linked(replica: RedisServer) -> bool:
    """Tell whether a replica hears its master; one that does not answer, or is just being told to, does not."""
    with suppress(redis.RedisError), redis.Redis.from_url(replica.url, socket_timeout=5) as client:
        info: Any = client.info("replication")
        return bool(info["role"] == "slave" and info["master_link_status"] == "up")
    return False


def is_master(server: RedisServer) -> bool:
    """Tell whether a server takes itself for a master; one that does not answer is none."""
    with suppress(redis.RedisError), redis.Redis.from_url(server.url, socket_timeout=2) as client:
        info: Any = client.info("replication")
        return bool(info["role"] == "master")
    return False


async def hand_over(before: RedisServer, replica: RedisServer) -> None:
    """Have a master of a cluster hand over to its replica; returns when that serves.

    It is asked again where nothing came of it: a master that has not heard yet that this is its replica takes no
    notice, and the others vote only once in two node timeouts for a replica of the same master.
    """
    ours, place = ask(before, "CLUSTER", "MYID").decode(), f"127.0.0.1:{at(replica)[1]}"
    await wait_until(lambda: is_linked(replica) and nodes_as(before)[place] == f"slave {ours}", timeout=60)
    for _ in range(6):
        ask(replica, "CLUSTER", "FAILOVER")
        with suppress(AssertionError):
            await wait_until(lambda: is_master(replica), timeout=60, description="the replica is in charge")
            return
    raise AssertionError("no master hands over")


def nodes_as(node: RedisServer) -> dict[str, str]:
    """Return what a node of a cluster takes each for, by host and port: ``master -``, or ``slave`` and of whom."""
    with redis.Redis.from_url(node.url, socket_timeout=5) as client:
        told: Any = client.cluster("NODES")
    found = {place.partition("@")[0]: told[place] for place in told}
    return {place: f"{one['flags'].split(',')[-1]} {one['master_id']}" for place, one in found.items()}


def move_slot(slot: int, source: RedisServer, target: RedisServer, *others: RedisServer) -> None:
    """Move a slot with its keys to another master of a cluster, and tell all of it."""
    theirs, ours = (ask(node, "CLUSTER", "MYID") for node in (source, target))
    ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", theirs)
    ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ours)
    while keys := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
        ask(source, "MIGRATE", *at(target), "", 0, 5000, "KEYS", *keys)
    for node in (target, source, *others):
        ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ours)


def _sees(node: RedisServer, line: bytes) -> bool:
    return line in ask(node, "CLUSTER", "INFO").splitlines()


def _start(binary: ServerBinary, config: dict[str, str]) -> RedisServer:
    return RedisServer.start(binary, port=0, persist=False, config=config)

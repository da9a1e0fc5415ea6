"""`headgate up` runs a private Redis with a broker node and its page, for as long as the command runs."""

import asyncio
import contextlib
import logging
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import headgate
from headgate import CoordinatorUnavailable, InvalidValue
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address
from headgate_coordinator.security.policy_reach import PolicyReach
from headgate_coordinator.service.node_extra import why_no_node

LOOK: Final = 1.0
"""Seconds between two looks whether it still runs."""
AMQP_PORT: Final = 5672
ADMIN_PORT: Final = 8161
HOST: Final = "127.0.0.1"
DRAIN: Final = 2.0
"""Seconds that the node has for what is under way when all of it ends."""
_TRIES: Final = 5  # somebody else may take a port between our look and our listening
_FURTHER: Final = 100  # ports that are looked at


@dataclass(frozen=True, slots=True)
class Options:
    """`Options` says which parts to run.

    Attributes:
        port: of Redis; None for a socket only.
        amqp_port: of the node; None for 5672, or the next that is free.
        admin_port: of its page; None for 8161, or the next that is free.
        node: whether there is to be one.
        token: that its page asks for; None for none.
        reach: what a policy may name of this host and its network.
    """

    namespace: str
    port: int | None = None
    amqp_port: int | None = None
    admin_port: int | None = None
    node: bool = True
    token: str | None = None
    reach: PolicyReach = field(default_factory=PolicyReach)


@dataclass(frozen=True, slots=True)
class RunningParts:
    """`RunningParts` names what runs; ``amqp`` and ``page`` are None without a node, and ``no_node`` says why."""

    redis: EmbeddedRedis
    namespace: str
    amqp: str | None = None
    page: str | None = None
    no_node: str | None = None

    def facts(self) -> dict[str, object]:
        """Return what a program needs to use it."""
        return {
            "url": self.redis.url,
            "redis_cli": self.redis.cli,
            "pid": self.redis.pid,
            "directory": str(self.redis.directory),
            "namespace": self.namespace,
            "amqp": self.amqp,
            "page": self.page,
            "no_node": self.no_node,
        }


async def up(options: Options, tell: Callable[[RunningParts], None]) -> None:
    """Start Redis and a node, tell about them, and keep them until SIGINT or SIGTERM; the node is drained then.

    Raises:
        CoordinatorUnavailable: Redis cannot be started, or ended by itself.
        InvalidValue: Redis, the node or admin HTTP cannot listen at its port.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # What becomes of clients is on the page; only what somebody has to look at, such as a deadlock, is a line as well.
    log = logging.StreamHandler()
    log.setLevel(logging.WARNING)
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("headgate").addHandler(log)
    if options.port and not _is_free(options.port):
        where = f"{HOST}:{options.port}"
        raise InvalidValue(f"Redis cannot listen at {where}: it is taken, or not free to all; give another")
    no_node = why_no_node() if options.node else "--no-node was given"
    with EmbeddedRedis.start(port=options.port) as redis:
        if no_node:
            tell(RunningParts(redis, options.namespace, no_node=no_node))
            await _watch(redis, stop)
            return
        async with _node(redis, options) as running:
            tell(running)
            await _watch(redis, stop)


@contextlib.asynccontextmanager
async def _node(redis: EmbeddedRedis, options: Options) -> AsyncIterator[RunningParts]:
    from headgate_coordinator.node.options import NodeOptions  # needs the extra amqp
    from headgate_coordinator.security import Users
    from headgate_coordinator.service.service import AdminOptions, service

    async with headgate.connect(redis.url, namespace=options.namespace) as client, contextlib.AsyncExitStack() as stack:
        for tries_left in reversed(range(_TRIES)):
            port = _port(options.amqp_port, AMQP_PORT)
            amqp = NodeOptions(host=HOST, port=port, name="up", drain=DRAIN, reach=options.reach)
            admin = AdminOptions(HOST, _port(options.admin_port, ADMIN_PORT), options.token)
            try:
                node = await stack.enter_async_context(service(client, amqp, Users.from_redis, admin))
            except InvalidValue:
                if not tries_left or None not in (options.amqp_port, options.admin_port):
                    raise
                continue
            yield RunningParts(redis, options.namespace, f"amqp://{node.address}", f"{node.admin}/")
            await node.drain()  # not when Redis is gone: nothing can be stored any more
            return


async def _watch(redis: EmbeddedRedis, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK)
        if not stop.is_set() and not _listens(redis.directory / "redis.sock"):
            raise CoordinatorUnavailable(f"the Redis at {redis.url} has ended")


def welcome(running: RunningParts) -> str:
    """Return what a person needs to use it.

    Raises:
        InvalidName: the namespace cannot be used.
    """
    redis, namespace = running.redis, running.namespace
    key = Address.of(namespace, "orders").key
    chosen = f' HEADGATE_NAMESPACE="{namespace}"' if namespace != "default" else ""
    given = f', namespace="{namespace}"' if namespace != "default" else ""
    return f"""\
Redis runs at {redis.url}
{_about_node(running)}

  Look inside      {redis.cli}
  Use it           export HEADGATE_URL={shlex.quote(redis.url)}{chosen}
  Set a limit      async with headgate.connect("{redis.url}"{given}) as client:
                       await client.apply("orders", limit="10MiB")
  See its state    {redis.cli} HGETALL {shlex.quote(key)}
                   headgate explain orders

It keeps everything in memory. Ctrl-C stops it."""


def _about_node(running: RunningParts) -> str:
    if running.amqp is None or running.page is None:
        return f"No node runs: {running.no_node}"
    return (
        f"A node serves  {running.amqp}{_instead(running.amqp, AMQP_PORT)}, AMQP 1.0 without a password\n"
        f"Its page is at {running.page}{_instead(running.page, ADMIN_PORT)}"
    )


def _instead(url: str, usual: int) -> str:
    return "" if url.rstrip("/").endswith(f":{usual}") else f" (instead of {usual})"


def _port(wanted: int | None, usual: int) -> int:
    """Return the port that is wanted; else the first one from the usual one on that is free, 0 when there is none."""
    if wanted is not None:
        return wanted
    return next((port for port in range(usual, usual + _FURTHER) if _is_free(port)), 0)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what is closing is free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _listens(path: Path) -> bool:
    """Return whether somebody listens on a socket. A server that is only slow does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(LOOK)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            pass  # its backlog is full: it is there
        return True

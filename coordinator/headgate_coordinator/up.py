"""`headgate up`: a private Redis to try things with, for as long as the command runs."""

import asyncio
import contextlib
import shlex
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate import CoordinatorUnavailable
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address

LOOK: Final = 1.0
"""Seconds between two looks whether it still runs."""


async def up(port: int | None, tell: Callable[[EmbeddedRedis], None]) -> None:
    """Start a Redis, tell about it, and keep it until SIGINT or SIGTERM.

    Raises:
        CoordinatorUnavailable: it cannot be started, or ended by itself.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with EmbeddedRedis.start(port=port) as redis:
        tell(redis)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK)
            if not stop.is_set() and not _listens(redis.directory / "redis.sock"):
                raise CoordinatorUnavailable(f"the Redis at {redis.url} has ended")


def facts(redis: EmbeddedRedis) -> dict[str, object]:
    """Return what a program needs to use it."""
    return {"url": redis.url, "redis_cli": redis.cli, "pid": redis.pid, "directory": str(redis.directory)}


def welcome(redis: EmbeddedRedis, namespace: str) -> str:
    """Return what a person needs to use it.

    Raises:
        InvalidName: the namespace cannot be used.
    """
    key = Address.of(namespace, "orders").key
    chosen = f' HEADGATE_NAMESPACE="{namespace}"' if namespace != "default" else ""
    given = f', namespace="{namespace}"' if namespace != "default" else ""
    return f"""\
Redis runs at {redis.url}

  Look inside      {redis.cli}
  Use it           export HEADGATE_URL={shlex.quote(redis.url)}{chosen}
  Set a limit      async with headgate.connect("{redis.url}"{given}) as client:
                       await client.apply("orders", limit="10MiB")
  See its state    {redis.cli} HGETALL {shlex.quote(key)}
                   headgate explain orders

It keeps everything in memory. Ctrl-C stops it."""


def _listens(path: Path) -> bool:
    """Whether somebody listens on a socket. A server that is only slow does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(LOOK)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            pass  # its backlog is full: it is there
        return True

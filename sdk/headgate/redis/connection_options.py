"""Says how connections are made: redis-py's keyword arguments for a Redis and for a Sentinel, as a URL names them."""

import asyncio
import functools
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import hiredis
from redis import DriverInfo
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import DataError

from headgate._util.certificates import named
from headgate.redis.url import RedisUrl

CONNECT_TIMEOUT: Final = 1.0
"""Seconds that a connection may take to be made."""
READ_SIZE: Final = 131_072
"""Bytes that are parsed at a time: a reply of many messages takes fewer turns."""
WRITE_SIZE: Final = 1 << 20
"""Bytes that a socket file is to take at once, as far as the system lets it. By itself it takes less than a batch of
256 KiB, and Redis would wait for the rest until the tasks that run have had their turn."""
pack: Final[Any] = hiredis.pack_command  # in C, unlike redis-py's; its stub knows tuples of one only
_DRIVER: Final = DriverInfo()  # else each connection would read the metadata of redis-py's package anew
_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000,
}  # fmt: skip
"""Keepalive gives up a silent host after some eleven seconds, even on connections that only listen."""


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
        "driver_info": _DRIVER,
    }
    if url.kind != "unix":
        numbers = {getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}
        options |= {"socket_keepalive": True, "socket_keepalive_options": numbers}
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


def widen(connection: Any) -> None:
    """Have a socket file take a whole batch at once; a TCP connection finds its size by itself."""
    sock = connection._writer.get_extra_info("socket")  # noqa: SLF001 -- redis-py shows it nowhere else
    if sock is not None and sock.family == getattr(socket, "AF_UNIX", None):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_SIZE)


def packed(*words: Any) -> list[bytes]:
    """Return a command as redis-py packs it, in C: that takes an eighth as long."""
    try:
        return [pack(words)]
    except TypeError as error:
        raise DataError(f"{str(words[0])[:20]}: {error}") from None


def tls_context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Return what TLS goes by, as files are now: they are read once, and again when they are others.

    redis-py reads them for each connection, with all that the system trusts: 20 ms, for which the loop stands still.

    Raises:
        OSError: one of them is not there, or has no certificate or key; the next connection tries again.
    """
    system = ssl.get_default_verify_paths()
    files = (ca_file, cert_file, key_file, system.cafile, system.capath)
    return _read(ca_file, cert_file, key_file, tuple(_looks(path) for path in files))


@functools.lru_cache(maxsize=8)
def _read(
    ca_file: str | None, cert_file: str | None, key_file: str | None, looks: tuple[tuple[int, int, int] | None, ...]
) -> ssl.SSLContext:
    del looks  # taken before the files are read: what changes meanwhile is read by the next
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file:
        with named(ca_file=ca_file):
            context.load_verify_locations(ca_file)
    if cert_file:
        with named(cert_file=cert_file, key_file=key_file):
            context.load_cert_chain(cert_file, key_file)
    return context


def _looks(path: str | None) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat() if path else None
    except OSError:
        found = None
    return found and (found.st_ino, found.st_mtime_ns, found.st_size)


class SecureConnection(SSLConnection):
    """A secure connection speaks TLS by what was read for all of them."""

    def _connection_arguments(self) -> Mapping[str, Any]:
        given = self.ssl_context
        given.context = tls_context(given.ca_certs, given.certfile, given.keyfile)
        return super()._connection_arguments()


class FileConnection(UnixDomainSocketConnection):
    """A connection over a socket file shakes hands when it is open, as over TCP; redis-py's does before that too."""

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            self._reader, self._writer = await asyncio.open_unix_connection(path=self.path)


_OURS: Final[Mapping[Any, Any]] = {SSLConnection: SecureConnection, UnixDomainSocketConnection: FileConnection}


def with_ours(client: Redis) -> Redis:
    """Have a client of redis-py's make connections of ours, where it speaks TLS or goes over a socket file."""
    pool = client.connection_pool
    pool.connection_class = _OURS.get(pool.connection_class, pool.connection_class)
    return client

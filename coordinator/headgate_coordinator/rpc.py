"""A node's gRPC port answers proxies and autoscalers at one address, behind one token and one certificate."""

import asyncio
import hmac
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import grpc

from headgate import (
    AccessDenied,
    Closed,
    CoordinatorUnavailable,
    HeadgateError,
    InvalidName,
    InvalidValue,
)
from headgate._util.tasks import stop
from headgate_coordinator.security.password_queue import NOBODY, Network, PasswordQueueFull, network_of
from headgate_coordinator.security.strangers import UnauthenticatedConnections

LARGEST: Final = 64 << 10
"""Bytes of a request."""
AT_A_TIME: Final = 1024
"""Requests that are being answered, of all clients; more are refused at once."""
STREAMS: Final = 256
"""Requests of one connection at a time."""
CONNECTIONS: Final = 1024
"""Connections at a time; more are closed as they come. Of strangers there are fewer."""
HANDSHAKE: Final = 10_000
"""Milliseconds that a client has to greet us in TLS and HTTP/2."""
OPTIONS: Final = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE),
    # Without a request for that long; whoever comes again connects again.
    ("grpc.max_connection_idle_ms", 120_000),
    # A host that vanished is noticed within a minute and a half; who asks whether we live more often is hung up on.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
GRACE: Final = 2.0
"""Seconds that requests have to end when it is closed."""


class RpcServer:
    """An RPC server serves services at one address.

    Args:
        services: their handlers.
        token: that requests must bear, as each service has it; None for none, which only loopback may do without.
        host: name or address to bind to.
        port: 0 for any that is free.
        certificate: file with the certificate chain for TLS; without it, there is none.
        key: file with its private key, where it is not in the same file.
        shared: whether other processes of this host may listen there too: the system spreads connections over them.
        strangers: knows whose connections stay when there are too many.

    Attributes:
        port: at which it listens, once it does.
    """

    def __init__(
        self, services: Sequence[grpc.GenericRpcHandler], *, token: str | None, host: str = "127.0.0.1", port: int = 0,
        certificate: Path | None = None, key: Path | None = None, shared: bool = False,
        strangers: UnauthenticatedConnections | None = None,
    ) -> None:  # fmt: skip
        self._services = services
        self._token = token
        self._host, self.port = host, port
        self._certificate, self._key = certificate, key
        self._shared = shared
        self._strangers = strangers or UnauthenticatedConnections()
        self._server: grpc.aio.Server | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidValue: the address cannot be bound to, or needs a token.
        """
        if self._token is None and not _is_loopback(self._host):
            raise InvalidValue(
                f"the gRPC port on {self._host!r} can be reached from other hosts and has no token; set a token, or "
                "bind to 127.0.0.1"
            )
        options = [*OPTIONS, ("grpc.so_reuseport", int(self._shared))]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=AT_A_TIME)
        server.add_generic_rpc_handlers(tuple(self._services))
        place = f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"
        try:
            if self._certificate is None:
                port = server.add_insecure_port(place)
            else:
                chain = self._certificate.read_bytes()
                key = self._key.read_bytes() if self._key is not None else chain
                port = server.add_secure_port(place, grpc.ssl_server_credentials([(key, chain)]))
        except (RuntimeError, OSError) as error:
            raise InvalidValue(f"the gRPC port cannot be had at {place}: {error}") from None
        self._server, self._starting = server, asyncio.create_task(server.start())
        await asyncio.shield(self._starting)  # broken off, it could not be stopped
        self.port = int(port)
        self._watch = asyncio.create_task(self._strangers.watch(self.port), name="headgate strangers at the gRPC port")

    async def close(self) -> None:
        """Stop listening; requests that are being answered have :data:`GRACE` seconds."""
        await stop(self._watch)
        if self._server is not None and self._starting is not None:
            await asyncio.wait([self._starting])
            await self._server.stop(GRACE)


def bears(metadata: Any, token: str) -> bool:
    """Return whether a request bears a token."""
    given = next((value for name, value in metadata or () if name == "authorization"), "")
    scheme, _, word = str(given).partition(" ")
    return is_token(word.strip(), token) and scheme.lower() == "bearer"


def is_token(given: str, token: str) -> bool:
    """Return whether that is the token; how long it takes says nothing about it."""
    return hmac.compare_digest(given.encode(), token.encode())


def peer_of(context: Any) -> Network:
    """Return from which network a request comes; gRPC says ``ipv4:host:port``, or ``ipv6:[host]:port`` in escapes."""
    family, _, place = unquote(context.peer()).partition(":")
    return network_of(place) if family in ("ipv4", "ipv6") else NOBODY


async def refuse(context: Any, error: HeadgateError) -> NoReturn:
    """End a request with an error."""
    await context.abort(_code(error), str(error)[:1000])
    raise error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _code(error: HeadgateError) -> grpc.StatusCode:
    match error:
        case InvalidValue() | InvalidName():
            return grpc.StatusCode.INVALID_ARGUMENT
        case CoordinatorUnavailable() | Closed():
            return grpc.StatusCode.UNAVAILABLE
        case PasswordQueueFull():
            return grpc.StatusCode.RESOURCE_EXHAUSTED
        case AccessDenied():
            return grpc.StatusCode.PERMISSION_DENIED if error.action else grpc.StatusCode.UNAUTHENTICATED
    return grpc.StatusCode.FAILED_PRECONDITION

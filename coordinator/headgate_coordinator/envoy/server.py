"""The door for proxies: gRPC at a port of its own, and the same in JSON for those who have no gRPC."""

import hmac
import ipaddress
from pathlib import Path
from typing import Any, Final

import grpc
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceServicer, add_RateLimitServiceServicer_to_server
from google.protobuf import json_format

from headgate import Closed, CoordinatorUnavailable, HeadgateError, InvalidName, InvalidValue
from headgate_coordinator.envoy.decisions import Decisions

LARGEST: Final = 64 << 10
"""Bytes of a request."""
AT_A_TIME: Final = 1024
"""Requests that are being answered, of all proxies; more are refused at once."""
OPTIONS: Final = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.so_reuseport", 0),
]
GRACE: Final = 2.0
"""Seconds that requests have to end when it is closed."""


class RateLimits(RateLimitServiceServicer):  # type: ignore[misc]  # its package has no types
    """Serves proxies at one address.

    Args:
        decisions: that it answers with.
        token: that requests must bear; None for none, which only loopback may do without.
        host: name or address to bind to.
        port: 0 for any that is free.
        certificate: file with the certificate chain for TLS; without it, there is none.
        key: file with its private key, where it is not in the same file.

    Attributes:
        port: at which it listens, once it does.
    """

    def __init__(
        self, decisions: Decisions, *, token: str | None, host: str = "127.0.0.1", port: int = 0,
        certificate: Path | None = None, key: Path | None = None,
    ) -> None:  # fmt: skip
        self._decisions = decisions
        self._token = token
        self._host, self.port = host, port
        self._certificate, self._key = certificate, key
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidValue: the address cannot be bound to, or needs a token.
        """
        if self._token is None and not _is_loopback(self._host):
            raise InvalidValue(
                f"the rate limit service on {self._host!r} can be reached from other hosts and has no token; set a "
                "token, or bind to 127.0.0.1"
            )
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=AT_A_TIME)
        add_RateLimitServiceServicer_to_server(self, server)
        place = f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"
        try:
            if self._certificate is None:
                port = server.add_insecure_port(place)
            else:
                chain = self._certificate.read_bytes()
                key = self._key.read_bytes() if self._key is not None else chain
                port = server.add_secure_port(place, grpc.ssl_server_credentials([(key, chain)]))
        except (RuntimeError, OSError) as error:
            raise InvalidValue(f"the rate limit service cannot listen on {place}: {error}") from None
        await server.start()
        self._server = server
        self.port = int(port)

    async def close(self) -> None:
        """Stop listening; requests that are being answered have :data:`GRACE` seconds."""
        if self._server is not None:
            await self._server.stop(GRACE)
        await self._decisions.close()

    async def ShouldRateLimit(self, request: RateLimitRequest, context: Any) -> RateLimitResponse:  # noqa: N802 -- its name
        """Answer a proxy."""
        if self._token is not None and not self._bears(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "send the node's token: authorization: Bearer <token>")
        try:
            return await self._decisions.decide(request)
        except HeadgateError as error:
            await context.abort(_code(error), str(error)[:1000])

    async def answer_json(self, body: bytes) -> tuple[int, str]:
        """Answer a request in JSON: its status, 200 where it is admitted and 429 where it is not, and the answer.

        Raises:
            HeadgateError: as :meth:`Decisions.decide`; or it is no request.
        """
        if len(body) > LARGEST:
            raise InvalidValue(f"the body is larger than {LARGEST} bytes")
        try:
            request = json_format.Parse(body, RateLimitRequest(), max_recursion_depth=8)
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise InvalidValue(f"the body is no RateLimitRequest: {error}") from None
        answer = await self._decisions.decide(request)
        status = 200 if answer.overall_code == RateLimitResponse.OK else 429
        return status, json_format.MessageToJson(answer, indent=None)

    def _bears(self, metadata: Any) -> bool:
        given = next((value for name, value in metadata or () if name == "authorization"), "")
        scheme, _, token = str(given).partition(" ")
        right = hmac.compare_digest(token.strip().encode(), (self._token or "").encode())
        return right and scheme.lower() == "bearer"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _code(error: HeadgateError) -> grpc.StatusCode:
    if isinstance(error, InvalidValue | InvalidName):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, CoordinatorUnavailable | Closed):
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.FAILED_PRECONDITION

"""The gRPC port itself: its certificate, and what strangers can take of it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from headgate import Client, InvalidValue
from headgate_coordinator import rpc
from headgate_coordinator.envoy.decisions import Decisions
from headgate_coordinator.envoy.server import RateLimits
from headgate_coordinator.keda import messages, unauthenticated
from headgate_coordinator.keda.scaler import Scaler
from headgate_coordinator.rpc import RpcServer
from headgate_coordinator.security import strangers
from tests.demo.command import environment
from tests.sdk.session.test_transports import certificate
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

__all__ = ["certificate"]
pytestmark = pytest.mark.one_server
SPEC = "/externalscaler.ExternalScaler/GetMetricSpec"


async def ask(channel: grpc.aio.Channel, method: str = SPEC) -> bytes:
    """Ask for what takes no Redis."""
    ref = messages.ScaledObjectRef(scalerMetadata={"destination": "orders", "target": "1"})
    return bytes(await channel.unary_unary(method)(ref.SerializeToString(), timeout=60))


def secure(port: int, root: bytes) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(root))


@contextlib.contextmanager
def node(url: str, namespace: str, *more: str) -> Iterator[int]:
    words = ("node", "--json", "--port=0", "--no-admin", "--keda", "--grpc-port=0", f"--redis={url}")
    process = Forked(
        "headgate_coordinator", *words, f"--namespace={namespace}", *more, environment=environment(), stdout=PIPE
    )
    try:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["grpc"].rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


async def test_with_a_certificate_it_speaks_nothing_but_tls(
    certificate: Path, url: str, namespace: str, tmp_path: Path
) -> None:
    """Mutant: an insecure port whatever there is."""
    key, root = tmp_path / "key.pem", await asyncio.to_thread(certificate.read_bytes)
    with node(url, namespace, f"--tls-cert={certificate}", f"--tls-key={key}") as port:
        async with secure(port, root) as channel:
            assert b"headgate-messages-orders" in await ask(channel)
        async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(channel)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    both = tmp_path / "both.pem"
    both.write_bytes(root + key.read_bytes())
    server = RpcServer([_slow(asyncio.Event())], token=None, certificate=both)
    await server.start()
    async with secure(server.port, root) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED, "it was let in"
    await server.close()


def _slow(gate: asyncio.Event) -> Any:
    async def answer(request: bytes, context: Any) -> bytes:
        del context
        await gate.wait()
        return request

    return grpc.method_handlers_generic_handler("slow", {"Ask": grpc.unary_unary_rpc_method_handler(answer)})


def _is_closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1 << 16)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_strangers_have_so_many_connections_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects and says nothing is cut off, and nobody has more connections than there are.

    Mutants: either option left out.
    """
    bounds = {"grpc.max_allowed_incoming_connections": 8, "grpc.server_handshake_timeout_ms": 2000}
    assert bounds.keys() <= dict(rpc.OPTIONS).keys()
    monkeypatch.setattr(rpc, "OPTIONS", list((dict(rpc.OPTIONS) | bounds).items()))
    gate = asyncio.Event()
    gate.set()
    server = RpcServer([_slow(gate)], token=None)
    await server.start()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(30)]
        for connection in silent:
            connection.setblocking(False)
        closed: set[socket.socket] = set()

        def gone() -> int:
            closed.update(one for one in silent if one not in closed and _is_closed(one))
            return len(closed)

        await wait_until(lambda: gone() >= len(silent) - 8, timeout=60, description="the others are closed")
        await wait_until(lambda: gone() == len(silent), timeout=60, description="those who say nothing are closed")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            assert await ask(channel, "/slow/Ask")
    await server.close()


async def test_requests_beyond_the_bound_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no bound on what is being answered."""
    monkeypatch.setattr(rpc, "AT_A_TIME", 3)
    gate = asyncio.Event()
    server = RpcServer([_slow(gate)], token=None)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        asked = [asyncio.ensure_future(ask(channel, "/slow/Ask")) for _ in range(5)]
        await wait_until(lambda: sum(one.done() for one in asked) >= 2, timeout=60, description="two are refused")
        for one in asked:
            if one.done():
                error = one.exception()
                assert isinstance(error, grpc.aio.AioRpcError)
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, bytes) for answer in answers) == 3
    await server.close()


@contextlib.asynccontextmanager
async def silent(port: int, method: str, connections: int) -> AsyncIterator[list[Any]]:
    """Begin as many requests as connections may have, none of which ever says anything."""

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with contextlib.AsyncExitStack() as stack:
        begun = []
        for number in range(connections):
            options = [("grpc.use_local_subchannel_pool", 1), ("headgate.number", number)]
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
            await stack.enter_async_context(channel)
            begun += [channel.stream_unary(method)(nothing()) for _ in range(rpc.STREAMS)]
        yield begun
        for one in begun:
            one.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


class Known:
    """Decisions that have admitted the request before."""

    def decide_again(self, encoded: bytes) -> bytes:
        return encoded


@pytest.mark.parametrize("service", ["envoy", "keda"])
async def test_strangers_who_begin_requests_and_say_nothing_keep_nobody_out(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a proxy that is open when its limits fail lets everybody through.

    Mutants: whoever has no token is asked for a message first; requests that say nothing have no bound, or no end.
    """
    monkeypatch.setattr(rpc, "AT_A_TIME", 64)
    monkeypatch.setattr(unauthenticated, "WITHIN", 2.0)
    limits = RateLimits(cast("Decisions", Known()), "sesame")
    scaler = Scaler(cast("Client", SimpleNamespace(store=SimpleNamespace(server=None))), None, "sesame")
    server = RpcServer([limits.handler, scaler.handler], token="sesame")
    await server.start()
    method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" if service == "envoy" else SPEC
    async with silent(server.port, method, 1) as begun:
        await wait_until(lambda: sum(one.done() for one in begun) >= len(begun) - unauthenticated.MOST, timeout=60)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            proxies = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
            bearer = (("authorization", "Bearer sesame"),)
            for number in range(20):
                request = b"%d" % number
                assert await proxies(request, metadata=bearer, timeout=60) == request
            await wait_until(lambda: all(one.done() for one in begun), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(channel)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, "and so can scalers, once these are gone"
    await server.close()


async def test_strangers_who_fill_the_port_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever opens connections keeps new proxies and autoscalers out, for as long as there are some left.

    Mutants: nobody is cut off; those who are known are.
    """
    bounds = {"grpc.max_allowed_incoming_connections": 40}
    monkeypatch.setattr(rpc, "OPTIONS", list((dict(rpc.OPTIONS) | bounds).items()))
    monkeypatch.setattr(strangers, "MOST", 10)
    crowd = strangers.UnauthenticatedConnections()
    limits = RateLimits(cast("Decisions", Known()), "sesame", crowd.know)
    server = RpcServer([limits.handler], token="sesame", strangers=crowd)
    await server.start()
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    method, bearer = (
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        (("authorization", "Bearer sesame"),),
    )
    async with contextlib.AsyncExitStack() as stack:
        known = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{server.port}"))
        assert await known.unary_unary(method)(b"1", metadata=bearer, timeout=60) == b"1"
        crowd.look(server.port)  # so that it is the oldest
        silent = []
        for _ in range(60):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(greeting)
            one.setblocking(False)
            silent.append(one)
        closed: set[socket.socket] = set()

        def gone() -> int:
            closed.update(one for one in silent if one not in closed and _is_closed(one))
            return len(closed)

        await wait_until(lambda: gone() >= 50, timeout=60, description="strangers are cut off")
        for number in range(20):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", [("headgate.test", number)]) as channel:
                asked = channel.unary_unary(method)(b"2", metadata=bearer, timeout=60, wait_for_ready=True)
                assert await asked == b"2", "there is room for who comes"
        assert known.get_state() is grpc.ChannelConnectivity.READY, "who is known stays"
    await server.close()


async def test_a_port_is_shared_by_those_who_say_so_and_by_no_others() -> None:
    """Mutant: the port is shared by all, so that a second node that was begun by mistake takes half of the requests."""
    method = grpc.unary_unary_rpc_method_handler(_here)
    handler = grpc.method_handlers_generic_handler("headgate.Test", {"Ask": method})
    first = RpcServer([handler], token=None, shared=True)
    await first.start()
    second, stranger = (RpcServer([handler], token=None, port=first.port, shared=shared) for shared in (True, False))
    await second.start()
    with pytest.raises(InvalidValue, match="cannot be had"):
        await stranger.start()
    await first.close()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{second.port}") as channel:
        assert await channel.unary_unary("/headgate.Test/Ask")(b"", timeout=60) == b"here"
    await second.close()


@pytest.mark.soak  # tests/workers has it of AMQP
async def test_workers_share_the_port_and_each_answers(url: str, namespace: str) -> None:
    """Mutant: each takes a port of its own, and what the first said is all that anybody knows."""
    with node(url, namespace, "--workers=2") as port:
        for number in range(8):  # each a connection of its own, which either may get
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("headgate.test", number)]) as channel:
                assert await ask(channel)


async def _here(_request: bytes, _context: Any) -> bytes:
    return b"here"

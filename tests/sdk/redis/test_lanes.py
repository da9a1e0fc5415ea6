"""Connections to one server: none is used again that was in use as the server was left."""

import socket
from collections.abc import AsyncIterator

import pytest

from headgate.redis.connection import ServerConnections
from headgate.redis.server import Server
from headgate.redis.url import parse_url

pytestmark = pytest.mark.one_server


@pytest.fixture
async def lane(redis_url: str) -> AsyncIterator[ServerConnections]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield server._lanes["only"]
    await server.close()


async def test_a_connection_serves_call_after_call(lane: ServerConnections) -> None:
    async with lane._connection() as first:
        pass
    async with lane._connection() as second:
        assert second is first


async def test_a_socket_file_takes_a_whole_batch_at_once(lane: ServerConnections) -> None:
    """Else Redis waits for the end of a call until the client's tasks rest. Mutant: the socket stays as it is made."""
    async with lane._connection() as connection:
        sock = connection._writer.get_extra_info("socket")
    if sock.family != socket.AF_UNIX:
        pytest.skip("the server here is reached over TCP")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 256 * 1100


async def test_one_that_was_in_use_as_the_server_was_left_is_not_used_again(lane: ServerConnections) -> None:
    """Its reply had come already, so its call is not ended. Else a client goes on at a master that was replaced."""
    async with lane._connection() as before:
        await lane.abandon()
    assert not before.is_connected
    async with lane._connection() as after:
        assert after is not before


async def test_one_that_was_dialled_as_the_server_was_left_serves_one_call(
    lane: ServerConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial = lane._dial

    async def late() -> object:
        found = await dial()
        await lane.drop()
        return found

    monkeypatch.setattr(lane, "_dial", late)
    async with lane._connection() as before:
        assert before.is_connected
    assert not before.is_connected

"""Connections to one server: none is used again that was in use as the server was left."""

import socket
from collections.abc import AsyncIterator
from unittest import mock

import pytest
from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import DataError

from headgate.redis.connection import ServerConnections
from headgate.redis.connection_options import packed
from headgate.redis.server import Server
from headgate.redis.url import parse_url

pytestmark = pytest.mark.one_server
on_connect_check_health = AbstractConnection.on_connect_check_health


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


async def test_a_connection_shakes_hands_once(lane: ServerConnections) -> None:
    """Mutant: over a socket file, redis-py does as it connects, and once more afterwards."""
    await lane.drop()
    with mock.patch.object(AbstractConnection, "on_connect_check_health", autospec=True) as greets:
        greets.side_effect = on_connect_check_health
        for again in range(2):
            async with lane._connection() as connection:
                assert greets.call_count == again + 1
            await connection.disconnect()


async def test_commands_are_packed_in_c(lane: ServerConnections) -> None:
    """Those of the handshake too. Mutant: redis-py packs them, which takes eight times as long."""
    await lane.drop()
    with mock.patch.object(AbstractConnection, "pack_command", side_effect=AssertionError("by redis-py")):
        assert await lane.command("EXISTS", b"hg:nowhere", "hg:nor:h\u00e9re") == 0


@pytest.mark.parametrize(
    "words", [("PING",), (b"HMGET", b"\0\xff", "\u00fc \r\n", 0, -1, 10**30, 0.1, 1e300, ""), ("A",) * 999]
)
def test_a_packed_command_is_what_redis_py_sends(words: tuple[object, ...]) -> None:
    assert b"".join(packed(*words)) == b"".join(Connection().pack_command(*words))  # type: ignore[arg-type]


@pytest.mark.parametrize("word", [True, None, ["a"]], ids=str)
async def test_what_is_no_word_of_a_command_is_refused_before_it_is_sent(lane: ServerConnections, word: object) -> None:
    with pytest.raises(DataError, match="EXISTS"):
        await lane.command("EXISTS", word)
    assert await lane.command("EXISTS", "hg:nowhere") == 0


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

"""Connections of admin HTTP as raw bytes: heads without an end, requests ahead of their answers, trailers, upgrades."""

import asyncio
import contextlib
import json
from unittest.mock import call, create_autospec

import pytest

from headgate_coordinator.admin import http_connection
from tests.admin.raw_http import BODY, answer, connected
from tests.support.waiting import wait_until

ADMIT = b"POST /v1/limits/llm/admit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_requests_ahead_of_their_answers_are_answered_in_turn_and_few_are_read_at_a_time(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: all of a burst is read at once; reading goes on with each answer, whatever is there to be read."""
    ahead, unread = [], []
    whole = http_connection.HttpConnection.on_response_complete

    def look(self: http_connection.HttpConnection) -> None:
        whole(self)
        ahead.append(len(self.pipeline))
        unread.append(len(self._later))

    monkeypatch.setattr(http_connection.HttpConnection, "on_response_complete", look)
    count = 20_000
    async with connected(port) as (reader, writer):
        asked = b"".join(b"GET /nothing/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % n for n in range(count))

        async def ask() -> None:
            writer.write(asked)
            await writer.drain()

        asking = asyncio.create_task(ask())
        for n in range(500):
            assert b"/nothing/%d\\" % n in (await answer(reader))[1]
        asking.cancel()
    assert max(ahead) <= http_connection.AHEAD + http_connection.PIECE // 40
    assert max(unread) <= 1 << 19, "what is read from the socket at once, and once more"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"x" * 512),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: ", b"x" * 512),
        (b"GET /live HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n" * 99),
        (ADMIT + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 512),
        (ADMIT + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x" * 512),
        (ADMIT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 99),
    ],
    ids=["a path", "a header", "headers", "a piece's head", "a trailer", "trailers"],
)
async def test_what_has_no_end_is_not_kept(port: int, begin: bytes, more: bytes) -> None:
    """The C parser has no bound of its own."""
    async with connected(port) as (reader, writer):
        writer.write(begin)
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                writer.write(more)
                await writer.drain()
                sent += len(more)
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        with contextlib.suppress(ConnectionError):
            assert (await reader.read())[9:12] in (b"400", b"")
        sending.cancel()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await sending
    assert sent < 8 << 20, "the sockets' buffers are between"


async def test_what_comes_after_a_body_is_no_header(port: int) -> None:
    pieces = b"%x\r\n%s\r\n0\r\nIdempotency-Key: a\r\n\r\n" % (len(BODY), BODY)
    chunked = ADMIT + b"Transfer-Encoding: chunked\r\n\r\n" + pieces
    async with connected(port) as (reader, writer):
        writer.write(chunked + chunked)
        holds = [json.loads((await answer(reader))[1])["hold"] for _ in range(2)]
    assert holds[0] != holds[1]


async def test_a_client_that_would_rather_speak_http_2_is_answered_all_the_same(port: int) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    async with connected(port) as (reader, writer):
        writer.write(ADMIT + upgrade + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200")


async def test_a_client_that_hangs_up_in_a_body_leaves_nothing_behind(port: int) -> None:
    before = asyncio.all_tasks()
    async with connected(port) as (_, writer):
        writer.write(ADMIT + b"Content-Length: 99\r\n\r\n{")
        await wait_until(lambda: len(asyncio.all_tasks()) > len(before), description="it is being read")
    await wait_until(lambda: asyncio.all_tasks() <= before)


async def test_an_answer_is_sent_before_its_connection_is_cut_off() -> None:
    """Mutant: what was written in this turn is dropped; under a flood who was answered would never hear it."""
    transport = create_autospec(asyncio.Transport, instance=True)
    both = http_connection.JoinedWrites(transport, asyncio.get_running_loop())
    both.write(b"HTTP/1.1 200 OK\r\n\r\n")
    both.abort()
    assert transport.method_calls == [call.write(b"HTTP/1.1 200 OK\r\n\r\n"), call.abort()]

"""What is posted to limiters goes past ASGI: it is answered as all else is, by raw bytes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import headgate
from headgate.redis.stores.limiters import HoldAnswers, LimiterStore
from headgate_coordinator.admin import http_connection
from headgate_coordinator.admin.guard import RAW_HEADERS
from headgate_coordinator.admin.limits import Limits
from headgate_coordinator.holds import DRAWN
from tests.admin.raw_http import BODY, answer, connected
from tests.support.waiting import wait_until

HEAD = (
    b"POST /v1/limits/llm/admit HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
)


@pytest.fixture
async def limiter(client: headgate.Client, port: int) -> AsyncIterator[headgate.Limiter]:
    del port  # the limiter is there as it listens
    async with client.session() as session:
        yield await session.limiter("llm")


def admit(version: bytes = b"1.1", more: bytes = b"", body: bytes = BODY) -> bytes:
    return HEAD % (version, len(body)) + more + b"\r\n" + body


@pytest.mark.parametrize(
    ("request_", "stays"),
    [
        (admit(), True),
        (admit(b"1.0"), False),
        (admit(more=b"Connection: close\r\n"), False),
        (admit(body=b"{}"), True),
        (admit(b"1.0", body=b"{}"), False),
    ],
    ids=["1.1", "1.0", "to be closed", "refused", "refused in 1.0"],
)
async def test_a_connection_stays_as_its_client_asks(
    port: int, request_: bytes, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: it is never closed; the client is not told; the headers of all answers are left out."""
    monkeypatch.setattr(http_connection, "PATIENCE", 3600.0)
    async with connected(port) as (reader, writer):
        writer.write(request_)
        head, _ = await answer(reader)
        lines = head.lower().split(b"\r\n")
        assert (b"connection: close" in lines) is not stays
        assert {b"%s: %s" % one for one in RAW_HEADERS} <= set(head.split(b"\r\n")[1:])
        assert sum(line.startswith(b"date: ") for line in lines) == 1
        if stays:
            writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert json.loads((await answer(reader))[1]) == {"status": "live"}
        else:
            assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_holds_of_one_connection_are_all_different_and_in_turn(port: int) -> None:
    """Mutant: of random numbers that are drawn together one is given twice."""
    count = 2 * DRAWN
    async with connected(port) as (reader, writer):
        writer.write(b"".join(admit(body=b'{"amounts": {"slots": 1}, "ttl": %d}' % (n + 1)) for n in range(count)))
        found = [json.loads((await answer(reader))[1]) for _ in range(count)]
    assert [one["ttl"] for one in found] == [n + 1 for n in range(count)]
    assert len({one["hold"] for one in found}) == count


async def test_a_body_may_come_once_it_is_asked_for(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(admit(more=b"Expect: 100-continue\r\n")[: -len(BODY)])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 200")


async def test_who_hangs_up_before_it_is_decided_leaves_no_hold(
    port: int, limiter: headgate.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: nobody hears of it, and what nobody asks for any more is held for its whole lease."""
    asked, decided = asyncio.Event(), asyncio.Event()
    decide = LimiterStore.decide

    async def late(self: LimiterStore, *args: Any, **settings: Any) -> HoldAnswers:
        asked.set()
        await decided.wait()
        return await decide(self, *args, **settings)

    monkeypatch.setattr(LimiterStore, "decide", late)
    async with connected(port) as (_, writer):
        writer.write(admit(body=b'{"amounts": {"slots": 1}, "ttl": 3600, "wait": 300}'))
        await asked.wait()
        tasks = len(asyncio.all_tasks())
    await wait_until(lambda: len(asyncio.all_tasks()) < tasks, description="its request has ended")
    decided.set()
    monkeypatch.undo()

    async def nothing_is_held() -> bool:
        return (await limiter.state())["slots"].taken == 0

    await wait_until(nothing_is_held, timeout=20)


async def test_who_does_not_read_is_answered_no_further(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: answers are written without a look at whether anybody reads; then they are all kept."""
    seen: list[http_connection.HttpConnection] = []

    def pause(self: http_connection.HttpConnection) -> None:
        HttpToolsProtocol.pause_writing(self)
        seen.append(self)

    monkeypatch.setattr(http_connection.HttpConnection, "pause_writing", pause)
    async with connected(port) as (reader, writer):
        refused = admit(body=b'{"no such field": 1}')

        async def ask() -> None:
            while True:
                writer.write(refused * 64)
                await writer.drain()

        reader._transport.pause_reading()  # type: ignore[attr-defined]
        asking = asyncio.create_task(ask())
        await wait_until(lambda: seen, timeout=30, description="nobody reads")
        most, answered = seen[0].transport.get_write_buffer_size(), seen[0].server_state.total_requests
        await asyncio.sleep(0.3)
        assert seen[0].server_state.total_requests <= answered + 1
        assert seen[0].transport.get_write_buffer_size() <= most + 8192
        asking.cancel()
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 400")


async def test_what_fails_unforeseen_is_a_problem_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Limits, "_admitted", fail)
    async with connected(port) as (reader, writer):
        writer.write(admit())
        head, body = await answer(reader)
        problem = json.loads(body)
        assert head.startswith(b"HTTP/1.1 500")
        assert problem["type"] == "urn:headgate:problem:internal"

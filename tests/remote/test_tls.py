"""TLS to a node, with a real certificate."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headgate
from headgate import CoordinatorUnavailable
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from tests.remote.grants import P, users
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path / "cert.pem"


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str, certificate: Path) -> AsyncIterator[Node]:
    options = NodeOptions(port=0, certificate=certificate, key=certificate.with_name("key.pem"))
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        node = Node(behind, options, users(seller={"orders": {P}}))
        await node.start()
        try:
            yield node
        finally:
            await node.close()


async def test_passwords_go_over_tls_to_a_node_that_shows_its_certificate(
    node: Node, cleanup_namespace: str, certificate: Path
) -> None:
    url = f"amqps://seller:secret@{node.address}?ca_file={certificate}"
    async with headgate.connect(url, namespace=cleanup_namespace) as client, client.session("s") as session:
        producer = await session.producer("orders", window="10MiB")
        assert (await producer.send(b"x" * 3_000_000, timeout=GUARD)).seq == 1


async def test_a_node_that_nobody_vouches_for_gets_no_password(node: Node, cleanup_namespace: str) -> None:
    with pytest.raises(CoordinatorUnavailable, match=r"(?i)certificate"):
        await headgate.connect(f"amqps://seller:secret@{node.address}", namespace=cleanup_namespace)
    with pytest.raises(CoordinatorUnavailable):
        await headgate.connect(f"amqp://seller:secret@{node.address}", namespace=cleanup_namespace)


async def test_tls_at_one_end_alone_is_named_at_a_first_connection(
    node: Node, redis_url: str, cleanup_namespace: str
) -> None:
    with pytest.raises(CoordinatorUnavailable) as caught:
        await headgate.connect(f"amqp://seller:secret@{node.address}", namespace=cleanup_namespace)
    assert str(caught.value).endswith("(perhaps it wants TLS there: then the URL begins with amqps://)")
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        plain = Node(behind, NodeOptions(port=0), users(seller={"orders": {P}}))
        await plain.start()
        try:
            with pytest.raises(CoordinatorUnavailable) as caught:
                await headgate.connect(f"amqps://seller:secret@{plain.address}", namespace=cleanup_namespace)
        finally:
            await plain.close()
    assert str(caught.value).endswith("(perhaps it speaks no TLS there: then the URL begins with amqp://)")


async def test_nothing_is_said_of_tls_where_nobody_listens_or_a_certificate_is_refused(
    node: Node, cleanup_namespace: str
) -> None:
    for url in ("amqp://127.0.0.1:1", "amqps://127.0.0.1:1", f"amqps://seller:secret@{node.address}"):
        with pytest.raises(CoordinatorUnavailable) as caught:
            await headgate.connect(url, namespace=cleanup_namespace)
        assert "TLS there" not in str(caught.value)

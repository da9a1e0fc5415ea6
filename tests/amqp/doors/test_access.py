"""How clients come in: with and without a name, with and without TLS, and how a connection stays alive."""

import asyncio
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import headgate
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea

pytestmark = pytest.mark.one_server


async def works(rhea: Rhea, name: str = "c") -> None:
    """Send and receive one message."""
    await rhea.sender(f"s-{name}", f"q-{name}", on=name)
    await rhea.receiver(f"r-{name}", f"q-{name}", on=name, credit_window=1)
    rhea.do("send", link=f"s-{name}", messages=[{"body": "hello"}])
    await rhea.sees("message", link=f"r-{name}")


async def test_without_a_name_with_and_without_sasl(node: NodeProcess, rhea: Rhea) -> None:
    await rhea.connect("bare", node.port)  # rhea skips SASL where there is no name
    await works(rhea, "bare")
    await rhea.connect("anonymous", node.port, username="anonymous")
    await works(rhea, "anonymous")


async def test_a_password_is_not_taken_over_a_wire_that_anybody_reads(node: NodeProcess, rhea: Rhea) -> None:
    rhea.do("connect", name="c", ports=[node.port], username="ann", password="secret")
    await rhea.sees("connection_error", connection="c")
    assert rhea.told("connection_open") == []
    assert "secret" not in node.errors


async def test_a_password_is_taken_there_if_the_node_is_told_so(start_node: StartNode, rhea: Rhea) -> None:
    node = start_node("--plain-without-tls")
    await rhea.connect("c", node.port, username="ann", password="secret")
    await works(rhea)
    assert "secret" not in node.errors


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


async def test_over_tls_with_a_password(start_node: StartNode, rhea: Rhea, certificate: Path) -> None:
    node = start_node("--tls-cert", str(certificate), "--tls-key", str(certificate.parent / "key.pem"))
    assert node.url.startswith("amqps://")
    await rhea.connect("c", node.port, tls=str(certificate), username="ann", password="secret")
    await works(rhea)
    rhea.do("large", link="s-c", size=1 << 20)
    rhea.do("credit", link="r-c", more=1)
    await rhea.sees("message", 2, link="r-c")
    rhea.do("connect", name="plain", ports=[node.port])  # who speaks no TLS to it is hung up on
    await rhea.sees("disconnected", connection="plain")


@pytest.mark.parametrize("option", ["--tls-cert", "--client-ca"])
async def test_a_certificate_that_cannot_be_used_is_named(
    client: headgate.Client, certificate: Path, option: str
) -> None:
    """Mutant: an error says nothing of it but that there is no certificate."""
    junk = certificate.parent / "junk"
    await asyncio.to_thread(junk.write_text, "junk")
    options = NodeOptions(certificate=certificate, key=certificate.parent / "key.pem", client_authorities=junk)
    options = replace(options, certificate=junk, client_authorities=None) if option == "--tls-cert" else options
    with pytest.raises(headgate.InvalidValue, match=f"^{option} '{junk}'.*; files are in PEM$"):
        await Node(client, options, Users.from_file(Path("none"))).start()


async def test_a_quiet_connection_is_kept_alive_both_ways(node: NodeProcess, rhea: Rhea) -> None:
    await rhea.connect("c", node.port, idle_time_out=200)
    (opened,) = rhea.told("connection_open")
    assert opened["idle"] == 30_000  # half of what it grants, as others may be strict
    await asyncio.sleep(1.0)  # five times what the client waits for a frame
    assert rhea.told("disconnected") == []
    await works(rhea)


async def test_bytes_that_are_not_amqp_are_hung_up_on(node: NodeProcess, rhea: Rhea) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x01\x00\x00" + b"\xff" * 64):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(said)
        async with asyncio.timeout(5):
            await reader.read()
        writer.close()
    await rhea.connect("c", node.port)
    await works(rhea)

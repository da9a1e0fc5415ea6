"""Certificates and tokens in place of passwords, at the wire: who is let in, as whom, and for how long."""

import asyncio
import base64
import json
import os
import shutil
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jws
from joserfc.jwk import OctKey

import headgate
from headgate import AccessDenied, Client, CoordinatorUnavailable
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from headgate_coordinator.security.tokens import LEEWAY
from tests.amqp.clients.test_other_clients import JVM
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.security.certificates import AUDIENCE, ISSUER, Authority, make_key, token_of, write_keys
from tests.support.extent import each
from tests.support.waiting import wait_until

KEY, OTHER = make_key(), make_key()
pytestmark = pytest.mark.one_server  # Redis keeps the users, and has no part in how they sign in


async def put(client: Client, **users: tuple[str, ...] | None) -> None:
    """Have these users, with these grants and without a password; None removes one."""

    def edit(there: dict[str, User]) -> None:
        for name, grants in users.items():
            if grants is None:
                there.pop(name)
            else:
                there[name] = User(grants=[parse_grant(text) for text in grants])

    await UserStore(client.store.server, client.namespace).change(edit)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.json", KEY)


def options_of(authority: Authority, keys: Path) -> tuple[str, ...]:
    certificate, key = authority.issue("localhost", server=True)
    return (
        *("--tls-cert", str(certificate), "--tls-key", str(key), "--client-ca", str(authority.file)),
        *("--token-keys", str(keys), "--token-issuer", ISSUER, "--token-audience", AUDIENCE),
    )


@pytest.fixture
async def node(client: Client, start_node: StartNode, authority: Authority, keys: Path) -> NodeProcess:
    """A node with two users that have no passwords; until there are users, everybody may come."""
    await put(client, ann=("produce,consume:orders",), bob=("produce:#",))
    return start_node(*options_of(authority, keys))


def url(node: NodeProcess, authority: Authority, **options: Any) -> str:
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"amqps://localhost:{node.port}?ca_file={authority.file}{more}"


def certified(node: NodeProcess, authority: Authority, *names: str, by: Authority | None = None, **how: Any) -> str:
    certificate, key = (by or authority).issue(*names, file=f"client-{time.monotonic_ns()}", **how)
    return url(node, authority, cert_file=certificate, key_file=key)


async def sends(address: str, namespace: str, *, to: str = "orders") -> None:
    async with headgate.connect(address, namespace=namespace) as seller:
        producer = await seller.session().producer(to)
        await producer.send(b"x")


async def until_let_in(address: str, namespace: str) -> None:
    """Send once the node has heard of a user."""

    async def is_let_in() -> bool:
        try:
            await sends(address, namespace)
        except AccessDenied:
            return False
        return True

    await wait_until(is_let_in, timeout=30, description="the node has heard of the user")


async def test_a_certificate_signs_its_user_in(client: Client, node: NodeProcess, authority: Authority) -> None:
    """With its grants and no more; a change of these, and the user's end, are heeded at once."""
    address = certified(node, authority, "ann")
    await sends(address, client.namespace)
    with pytest.raises(AccessDenied, match=r"'ann'.*needs produce or consume or manage at 'other'"):
        await sends(address, client.namespace, to="other")


@each("case", ["nobody", "two names", "no name", "anonymous"])
async def test_a_certificate_that_names_no_user_signs_nobody_in(
    client: Client, node: NodeProcess, authority: Authority, case: str
) -> None:
    names = {"nobody": ("eve",), "two names": ("ann", "bob"), "no name": (), "anonymous": ("anonymous",)}[case]
    with pytest.raises(AccessDenied, match="not ANONYMOUS"):  # for EXTERNAL is not offered to it
        await sends(certified(node, authority, *names), client.namespace)


HOSTILE = (
    "ANN", "ann ", "ann\nbob", "ann\0.evil", "*", "\u0430nn", "\u202enna", "a" * 64, "../ann", "ann,CN=bob",
)  # fmt: skip


async def test_a_certificate_whose_name_is_nearly_a_user_s_signs_nobody_in(
    client: Client, node: NodeProcess, authority: Authority
) -> None:
    """Mutants: names are compared without their case, cut at what is no letter, or trimmed."""
    for name in HOSTILE:
        with pytest.raises(AccessDenied, match="not ANONYMOUS"):
            await sends(certified(node, authority, name), client.namespace)
    assert "Traceback" not in node.errors
    assert all(line.isprintable() for line in node.errors.split("\n"))


@each("case", ["of another authority", "expired", "of a server"])
async def test_a_certificate_that_is_not_right_ends_in_the_handshake(
    client: Client, node: NodeProcess, authority: Authority, tmp_path: Path, case: str
) -> None:
    """Mutants: certificates are not asked for; all authorities of the system are trusted; any use will do."""
    (tmp_path / "other").mkdir(exist_ok=True)
    by = Authority(tmp_path / "other") if case == "of another authority" else authority
    ways: dict[str, dict[str, Any]] = {"expired": {"days": 0}, "of a server": {"server": True}}
    how = ways.get(case, {})
    with pytest.raises(CoordinatorUnavailable):
        await sends(certified(node, authority, "ann", by=by, **how), client.namespace)


async def test_a_name_beside_a_certificate_is_its_own(
    client: Client, node: NodeProcess, authority: Authority, tmp_path: Path
) -> None:
    """Nobody acts as another. Mutant: the name that the client gives is who it is."""
    certificate, key = authority.issue("ann")
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(certificate, key)
    for name, code in ((b"", 0), (b"ann", 0), (b"bob", 1), (b"anonymous", 1)):
        reader, writer = await asyncio.open_connection("localhost", node.port, ssl=context)
        said = b"\xa0" + bytes([len(name)]) + name
        body = b"\x00\x53\x41\xc0" + bytes([len(said) + 11, 2]) + b"\xa3\x08EXTERNAL" + said
        writer.write(b"AMQP\x03\x01\x00\x00" + (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body)
        answer = await asyncio.wait_for(reader.readuntil(b"\x00\x53\x44"), 30)
        assert b"EXTERNAL" in answer
        outcome = await asyncio.wait_for(reader.readuntil(bytes([0x50, code])), 30)
        assert outcome.endswith(bytes([0x50, code])), name
        writer.close()


async def test_a_token_signs_its_user_in_until_it_expires(
    client: Client, node: NodeProcess, authority: Authority, tmp_path: Path
) -> None:
    """A client that finds another in its file comes back with it. Mutant: a connection outlives its token."""
    file = tmp_path / "token"
    file.write_text(token_of(KEY, exp=int(time.time()) - LEEWAY + 3) + "\n")
    address = url(node, authority, token_file=file)
    async with headgate.connect(address, namespace=client.namespace) as seller:
        producer = await seller.session().producer("orders")
        await producer.send(b"one")
        with pytest.raises(AccessDenied, match="needs produce"):
            await seller.session().producer("other")
        file.write_text(token_of(KEY))
        await wait_until(lambda: "the token has expired" in node.errors, timeout=30, description="the first token ends")
        await producer.send(b"two")


@each("case", ["of another key", "expired", "of another audience", "nobody", "none", "huge", "garbage", "after users"])
async def test_a_token_that_is_not_right_is_refused(
    client: Client, node: NodeProcess, authority: Authority, tmp_path: Path, case: str
) -> None:
    head, body, _ = token_of(KEY).split(".")
    token = {
        "of another key": token_of(OTHER),
        "expired": token_of(KEY, exp=int(time.time()) - LEEWAY - 5),
        "of another audience": token_of(KEY, aud="else"),
        "nobody": token_of(KEY, "eve"),
        "none": f"eyJhbGciOiJub25lIiwia2lkIjoib25lIn0.{body}.",
        "huge": token_of(KEY, more="x" * 20_000),
        "garbage": "no-token-at-all",
        "after users": f"{head}.{body}.AAAA",
    }[case]
    (tmp_path / "token").write_text(token)
    refusal = CoordinatorUnavailable if case == "huge" else AccessDenied
    with pytest.raises(refusal):
        await sends(url(node, authority, token_file=tmp_path / "token"), client.namespace)
    assert token[:40] not in node.errors


def confused(key: Any, mine: Any) -> list[str]:
    """Return tokens for ann that a verifier takes if their header says how, and by which key, they are checked."""
    public, own = key.as_dict(private=False), mine.as_dict(private=False)
    claims = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 3600})
    secrets = [key.as_pem(private=False), key.as_der(private=False), json.dumps(public).encode(), public["n"].encode()]
    shared = [OctKey.import_key(base64.urlsafe_b64encode(secret).decode()) for secret in secrets]
    by_hmac = [
        jws.serialize_compact({"alg": alg, "kid": key.kid}, claims, secret, algorithms=[alg])
        for alg in ("HS256", "HS512")
        for secret in shared
    ]
    brings = [{"jwk": own}, {"jku": "http://127.0.0.1:1/"}, {"x5c": ["AA=="]}, {"kid": "../../../dev/null"}]
    return [*by_hmac, *(token_of(mine, header=header) for header in brings), token_of(mine, header={"kid": "signing"})]


async def test_no_key_is_taken_for_another_at_the_wire(
    client: Client, start_node: StartNode, authority: Authority, keys: Path, tmp_path: Path
) -> None:
    """A public key is no shared secret, and a token brings no key: over SASL, and over HTTP.

    Mutant: the header says by which algorithm a token is checked.
    """
    await put(client, ann=("produce,consume:#",))
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1000}})
    signing = make_key("RSA", "signing")
    write_keys(keys, KEY, signing)
    node, file = start_node(*options_of(authority, keys), "--admin"), tmp_path / "token"
    file.write_text(token_of(signing))
    await sends(url(node, authority, token_file=file), client.namespace)
    async with httpx.AsyncClient(base_url=node.admin, trust_env=False, timeout=60) as http:

        async def admitted(token: str) -> int:
            bears = {"Authorization": f"Bearer {token}"}
            return (await http.post("/v1/limits/llm/admit", json={"amounts": {"slots": 1}}, headers=bears)).status_code

        assert await admitted(token_of(signing)) == 200
        for token in confused(signing, make_key("RSA", "signing")):
            assert await admitted(token) == 401
            file.write_text(token)
            with pytest.raises(AccessDenied):
                await sends(url(node, authority, token_file=file), client.namespace)
    assert "Traceback" not in node.errors


async def test_who_came_with_a_key_that_is_gone_has_to_go(
    client: Client, node: NodeProcess, authority: Authority, keys: Path, tmp_path: Path
) -> None:
    """Mutant: keys are read once."""
    file = tmp_path / "token"
    file.write_text(token_of(KEY))
    async with headgate.connect(url(node, authority, token_file=file), namespace=client.namespace) as seller:
        producer = await seller.session().producer("orders")
        await producer.send(b"one")
        new = make_key(kid="two")
        file.write_text(token_of(new))
        write_keys(keys, new)
        await wait_until(lambda: "is no longer valid" in node.errors, timeout=30, description="it is sent away")
        await producer.send(b"two")
    file.write_text(token_of(KEY))
    with pytest.raises(AccessDenied):
        await sends(url(node, authority, token_file=file), client.namespace)


def write_damaged(keys: Path, *, keep: int | None) -> None:
    """Cut the file, or take it away."""
    if keep is None:
        keys.unlink()
    else:
        keys.write_text(keys.read_text()[:keep])


async def test_keys_stay_as_they_were_while_their_file_is_damaged_or_gone(
    client: Client, node: NodeProcess, authority: Authority, keys: Path, tmp_path: Path
) -> None:
    """Nobody is let in or sent away by half a file. Mutants: it empties the keys; the node stops looking at it."""
    file = tmp_path / "token"
    file.write_text(token_of(KEY))
    async with headgate.connect(url(node, authority, token_file=file), namespace=client.namespace) as seller:
        producer = await seller.session().producer("orders")
        write_damaged(keys, keep=-20)
        await wait_until(lambda: node.errors.count("are unchanged") == 1, timeout=30)
        write_damaged(keys, keep=None)
        await wait_until(lambda: node.errors.count("are unchanged") == 2, timeout=30)
        await producer.send(b"one")
        await sends(url(node, authority, token_file=file), client.namespace)
        write_keys(keys, make_key(kid="two"))
        await wait_until(lambda: "is no longer valid" in node.errors, timeout=30, description="it is sent away")


async def test_whoever_is_removed_has_to_go_however_it_came(
    client: Client, node: NodeProcess, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token_of(KEY))
    ways = certified(node, authority, "ann"), url(node, authority, token_file=tmp_path / "token")
    for way in ways:
        await until_let_in(way, client.namespace)
        async with headgate.connect(way, namespace=client.namespace) as seller:
            producer = await seller.session().producer("orders")
            await producer.send(b"one")
            await put(client, ann=None)

            async def is_refused() -> bool:
                try:
                    await producer.send(b"two", timeout=2)  # noqa: B023 -- it is called in this turn
                except AccessDenied:
                    return True
                return False

            await wait_until(is_refused, timeout=30, description="the node has heard of it")
        await put(client, ann=("produce:orders",))


async def test_a_user_without_a_password_has_none_that_fits(
    client: Client, node: NodeProcess, authority: Authority
) -> None:
    """Mutant: no hash is a hash that everything fits."""
    for password in ("", "None", "x"):
        with pytest.raises(AccessDenied):
            await sends(url(node, authority).replace("//", f"//ann:{password}@", 1), client.namespace)


async def test_clients_of_others_come_by_certificates_and_tokens(
    client: Client, node: NodeProcess, authority: Authority, rhea: Rhea
) -> None:
    certificate, key = authority.issue("ann")
    trusting: dict[str, Any] = {"tls": str(authority.file), "host": "localhost"}
    await rhea.connect("c", node.port, **trusting, cert=str(certificate), key=str(key), enable_sasl_external=True)
    await rhea.sender("s-c", "orders", on="c")
    await rhea.connect("t", node.port, **trusting, username="ann", token=token_of(KEY))
    await rhea.sender("s-t", "orders", on="t")
    rhea.do("connect", name="bob", ports=[node.port], **trusting, username="bob", token=token_of(KEY))
    await rhea.sees("disconnected", connection="bob")  # the token is of another than the one who is named
    rhea.do("connect", name="wrong", ports=[node.port], **trusting, username="ann", token=token_of(OTHER))
    await rhea.sees("disconnected", connection="wrong")


@pytest.mark.whole  # test_other_clients has Qpid JMS, and the one above other libraries that come so
@pytest.mark.timeout(120)
async def test_qpid_jms_comes_by_a_certificate_and_by_a_token(
    node: NodeProcess, authority: Authority, tmp_path: Path
) -> None:
    """As `transport.keyStoreLocation` and XOAUTH2 have it; a wrong token and a certificate of nobody are refused."""
    folder = Path(__file__).parents[3] / ".venv" / "qpid-jms"
    if shutil.which("java") is None or not (folder / "classes" / "SignIn.class").exists():
        pytest.skip("Qpid JMS is not installed: run `.ci/ensure-qpid-jms`, which needs Maven and a compiler of Java")
    trusted = f"amqps://localhost:{node.port}?transport.trustStoreLocation={authority.truststore('secret')}"
    trusted += "&transport.trustStorePassword=secret&amqp.saslMechanisms="
    store = "&transport.keyStorePassword=secret&transport.keyStoreLocation="
    command = ["java", *JVM, "-Xmx128m", "-cp", f"{folder}/classes{os.pathsep}{folder}/lib/*", "SignIn"]
    command += [f"{trusted}EXTERNAL{store}{authority.keystore('ann', 'secret')}", "-", "-"]
    command += [f"{trusted}EXTERNAL{store}{authority.keystore('eve', 'secret')}", "-", "-"]
    command += [f"{trusted}XOAUTH2", "ann", token_of(KEY), f"{trusted}XOAUTH2", "ann", token_of(OTHER)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    refused = "JMSSecuritySaslException"
    assert told.decode().split() == ["in", refused, "in", refused]


async def test_without_tls_no_token_is_taken(client: Client, start_node: StartNode, keys: Path, tmp_path: Path) -> None:
    await put(client, ann=("produce:#",))
    plain = start_node("--token-keys", str(keys), "--token-issuer", ISSUER, "--token-audience", AUDIENCE)
    (tmp_path / "token").write_text(token_of(KEY))
    with pytest.raises(AccessDenied, match="not OAUTHBEARER"):
        await sends(f"amqp://127.0.0.1:{plain.port}?token_file={tmp_path}/token", client.namespace)


async def test_passwords_go_on_beside_both(client: Client, node: NodeProcess, authority: Authority) -> None:
    user = User(password_hash=hashed("secret"), grants=[parse_grant("produce:#")])
    await UserStore(client.store.server, client.namespace).change(lambda there: there.update(eve=user))
    await until_let_in(url(node, authority).replace("//", "//eve:secret@", 1), client.namespace)

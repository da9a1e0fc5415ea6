import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.amqp.sasl import BARE, HEADER, MAX_AHEAD, OK, REFUSED, HandshakeFailed, SaslClient, SaslServer
from headgate.errors import AccessDenied, HeadgateError

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=400)


def talk(client: SaslClient, server: SaslServer, code: int = OK) -> None:
    for _ in range(6):
        there, client.outgoing = client.outgoing, b""
        server.feed(there)
        if server.credentials and not server.done and code is not None:
            server.decide(code)
        back, server.outgoing = server.outgoing, b""
        client.feed(back)
        if client.done:
            return


@given(name=text, password=text)
def test_a_name_and_a_password_arrive_as_they_are(name: str, password: str) -> None:
    server = SaslServer(["PLAIN"])
    client = SaslClient(name, password, "host")
    talk(client, server)
    assert server.credentials is not None
    assert (server.credentials.name, server.credentials.password) == (name, password)
    assert client.done
    assert server.done


def test_nobody_in_particular_comes_as_anonymous() -> None:
    server, client = SaslServer(["ANONYMOUS", "PLAIN"]), SaslClient(None, None, "host")
    talk(client, server)
    assert server.credentials is not None
    assert server.credentials.mechanism == "ANONYMOUS"
    assert client.done


def test_a_password_is_in_no_text_form() -> None:
    server, client = SaslServer(["PLAIN"]), SaslClient("ann", "s3cret", "host")
    talk(client, server)
    assert "s3cret" not in repr(server.credentials)


def test_a_wrong_password_is_denied() -> None:
    with pytest.raises(AccessDenied, match="'ann'"):
        talk(SaslClient("ann", "wrong", "host"), SaslServer(["PLAIN"]), REFUSED)


@pytest.mark.parametrize(("name", "offered", "says"), [("ann", "ANONYMOUS", "TLS"), (None, "PLAIN", "name a user")])
def test_a_way_that_is_not_offered_is_explained(name: str | None, offered: str, says: str) -> None:
    with pytest.raises(AccessDenied, match=says):
        talk(SaslClient(name, "x", "host"), SaslServer([offered]))


def test_a_client_without_a_user_may_skip_the_handshake_where_anonymous_is_offered() -> None:
    server = SaslServer(["ANONYMOUS"])
    server.feed(BARE + b"and more")
    assert server.credentials is not None
    server.decide(OK)
    assert server.outgoing == b""
    assert server.rest() == BARE + b"and more"
    with pytest.raises(HandshakeFailed):
        SaslServer(["PLAIN"]).feed(BARE)


@pytest.mark.parametrize(("acts_for", "is_let_in"), [(b"", True), (b"ann", True), (b"boss", False), (b"an", False)])
def test_nobody_signs_in_to_act_as_another(acts_for: bytes, *, is_let_in: bool) -> None:
    """Mutant: whom the client wants to act for is not looked at."""
    server = SaslServer(["PLAIN"])
    response = acts_for + b"\0ann\0x"
    fields = b"\xa3\x05PLAIN\xa0" + bytes([len(response)]) + response
    sent = HEADER + frame(b"\x00\x53\x41\xc0" + bytes([len(fields) + 1, 2]) + fields)
    if is_let_in:
        server.feed(sent)
        assert server.credentials is not None
        assert server.credentials.name == "ann"
        return
    with pytest.raises(HandshakeFailed, match="act as another"):
        server.feed(sent)
    assert server.credentials is None


def test_what_follows_the_handshake_is_for_the_engine() -> None:
    server, client = SaslServer(["PLAIN"]), SaslClient("ann", "x", "host")
    server.feed(client.outgoing)
    client.outgoing = b""
    client.feed(server.outgoing)
    server.feed(client.outgoing + BARE)
    server.decide(OK)
    assert server.rest() == BARE


def frame(body: bytes, *, size: int | None = None, kind: int = 1) -> bytes:
    return struct.pack(">IBBH", len(body) + 8 if size is None else size, 2, kind, 0) + body


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 400",
        b"AMQP\x00\x00\x09\x01",
        HEADER + frame(b"", size=4),
        HEADER + frame(b"", size=1 << 30),
        HEADER + frame(b"\x00\x53\x41\x45" + b"\0" * 8),
        HEADER + frame(b"\x00\x53\x41\xc0\x05\x02\xa3\x07PLAIN"),
        HEADER + frame(b"\x00\x53\x41\xc0\x0a\x02\xa3\x05PLAIN\xa0\x01x"),
        HEADER + frame(b"\x00\x53\x41\xc0\x0a\x02\xa3\x05MAGIC\xa0\x01x"),
        HEADER + frame(b"\x00\x53\x41\xd0\xff\xff\xff\xff\xff\xff\xff\xff"),
        HEADER + b"\0" * (MAX_AHEAD + 1),
    ],
)
def test_what_is_no_handshake_is_refused(sent: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        SaslServer(["PLAIN"]).feed(sent)


@given(noise=st.binary(max_size=200), at=st.integers(0, 60), server_side=st.booleans())
def test_nothing_but_our_own_errors_comes_of_mutated_bytes(noise: bytes, at: int, *, server_side: bool) -> None:
    if server_side:
        client, good = SaslClient("ann", "secret", "host"), SaslServer(["PLAIN"])
        good.feed(client.outgoing)
        client.outgoing = b""
        client.feed(good.outgoing)
        sent = HEADER + client.outgoing
        subject: SaslServer | SaslClient = SaslServer(["PLAIN"])
    else:
        good = SaslServer(["PLAIN"])
        good.feed(HEADER)
        sent, subject = good.outgoing, SaslClient("ann", "secret", "host")
    with contextlib.suppress(HeadgateError):
        subject.feed(sent[:at] + noise + sent[at + len(noise) :])


WAYS = ("EXTERNAL", "PLAIN", "OAUTHBEARER", "XOAUTH2")


def init(mechanism: str, response: bytes | None) -> bytes:
    """The client's header and its first frame."""
    name = bytes([0xA3, len(mechanism)]) + mechanism.encode()
    said = b"\x40" if response is None else b"\xb0" + struct.pack(">I", len(response)) + response
    body = b"\x00\x53\x41\xd0" + struct.pack(">II", len(name + said) + 4, 2) + name + said
    return HEADER + struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body


def test_a_token_arrives_as_it_is() -> None:
    server = SaslServer(WAYS)
    client = SaslClient(None, None, "host", token="a.b-_c.d==")
    talk(client, server)
    assert client.done
    assert server.credentials is not None
    assert (server.credentials.name, server.credentials.password) == ("", "a.b-_c.d==")
    assert server.credentials.mechanism == "OAUTHBEARER"
    assert "a.b" not in repr(server.credentials)


@pytest.mark.parametrize(
    ("mechanism", "response", "name"),
    [
        ("OAUTHBEARER", b"n,a=ann,\1host=h\1port=5671\1auth=Bearer t.o.k\1\1", "ann"),
        ("OAUTHBEARER", b"y,,\1auth=bearer t.o.k\1\1", ""),
        ("OAUTHBEARER", b"n,a=an=2Cn=3D,\1auth=Bearer t.o.k\1\1", "an,n="),
        ("XOAUTH2", b"user=ann\1auth=Bearer t.o.k\1\1", "ann"),
        ("XOAUTH2", b"user=\1auth=Bearer t.o.k\1\1", ""),
        ("EXTERNAL", b"", ""),
        ("EXTERNAL", None, ""),
        ("EXTERNAL", b"ann", "ann"),
    ],
)
def test_each_form_of_a_mechanism_is_read(mechanism: str, response: bytes | None, name: str) -> None:
    server = SaslServer(WAYS)
    server.feed(init(mechanism, response))
    assert server.credentials is not None
    assert server.credentials.name == name
    assert server.credentials.password == ("" if mechanism == "EXTERNAL" else "t.o.k")


BAD_TOKENS = [
    ("OAUTHBEARER", b"n,,\1auth=Bearer t\1"),
    ("OAUTHBEARER", b"n,,\1auth=Basic t\1\1"),
    ("OAUTHBEARER", b"n,,\1auth=Bearer \1\1"),
    ("OAUTHBEARER", b"n,,\1auth=Bearer a b\1\1"),
    ("OAUTHBEARER", b"n,,\1auth=Bearer a\1auth=Bearer b\1\1"),
    ("OAUTHBEARER", b"p=tls,,\1auth=Bearer t\1\1"),
    ("OAUTHBEARER", b"n,a=a=b,\1auth=Bearer t\1\1"),
    ("OAUTHBEARER", b"auth=Bearer t\1\1"),
    ("OAUTHBEARER", b"\1\1"),
    ("OAUTHBEARER", b""),
    ("OAUTHBEARER", None),
    ("OAUTHBEARER", b"n,a=\xff,\1auth=Bearer t\1\1"),
    ("OAUTHBEARER", b"n,,\1auth=Bearer " + b"t" * 8193 + b"\1\1"),
    ("XOAUTH2", b"n,,\1auth=Bearer t\1\1"),
    ("XOAUTH2", b"user=\xff\1auth=Bearer t\1\1"),
    ("EXTERNAL", b"\xff"),
    ("PLAIN", b"n,,\1auth=Bearer t\1\1"),
]


@pytest.mark.parametrize(("mechanism", "response"), BAD_TOKENS)
def test_another_form_is_refused_without_repeating_it(mechanism: str, response: bytes | None) -> None:
    server = SaslServer(WAYS)
    with pytest.raises(HandshakeFailed, match="not well formed for that mechanism") as refused:
        server.feed(init(mechanism, response))
    assert "Bearer" not in str(refused.value)
    assert server.outgoing.endswith(bytes([0x50, REFUSED]))


def test_a_token_has_room_only_where_tokens_are_taken() -> None:
    """Mutant: frames of strangers are larger for all."""
    long = init("OAUTHBEARER", b"n,,\1auth=Bearer " + b"t" * 8192 + b"\1\1")
    server = SaslServer(WAYS)
    server.feed(long)
    assert server.credentials is not None
    assert len(server.credentials.password) == 8192
    for refusing, data in ((SaslServer(("PLAIN",)), long), (SaslServer(WAYS), init("PLAIN", b"x" * 13_000))):
        with pytest.raises(HandshakeFailed, match="SASL frame of"):
            refusing.feed(data)


def test_who_has_a_certificate_uses_it_only_where_it_is_asked_for() -> None:
    for offered, mechanism in ((["EXTERNAL", "ANONYMOUS"], "EXTERNAL"), (["ANONYMOUS", "PLAIN"], "ANONYMOUS")):
        server = SaslServer(offered)
        talk(SaslClient(None, None, "host", certified=True), server)
        assert server.credentials is not None
        assert server.credentials.mechanism == mechanism
    server = SaslServer(["EXTERNAL", "PLAIN"])
    talk(SaslClient("ann", "x", "host", certified=True), server)  # who names a user means that one
    assert server.credentials is not None
    assert server.credentials.mechanism == "PLAIN"


def test_why_a_token_is_not_taken_is_explained() -> None:
    with pytest.raises(AccessDenied, match="--token-keys"):
        talk(SaslClient(None, None, "host", token="t"), SaslServer(["PLAIN"]))
    with pytest.raises(AccessDenied, match="expired"):
        talk(SaslClient(None, None, "host", token="t"), SaslServer(WAYS), REFUSED)

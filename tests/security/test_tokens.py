"""Tokens that others sign: which are taken, and everything else that a stranger may send in their place."""

import base64
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OctKey, RSAKey

from headgate import InvalidValue
from headgate.amqp.sasl import MAX_TOKEN
from headgate_coordinator.security.tokens import LEEWAY, MOST_KEYS, TokenOptions, TokenRefused, TokenVerifier, read_keys
from tests.security.certificates import AUDIENCE, ISSUER, make_key, token_of, write_keys
from tests.support.waiting import wait_until

NOW = 1_800_000_000.0
KEY, OTHER = make_key(), make_key()


async def started(file: Path, *keys: Any, now: float = NOW, claim: str = "sub") -> TokenVerifier:
    tokens = TokenVerifier(TokenOptions(write_keys(file, *keys), ISSUER, AUDIENCE, claim), now=lambda: now)
    await tokens.start(lambda _: None)
    await tokens.close()
    return tokens


@pytest.fixture
async def tokens(tmp_path: Path) -> TokenVerifier:
    return await started(tmp_path / "keys.json", KEY)


def told(**claims: object) -> str:
    return token_of(KEY, **({"exp": NOW + 60} | claims))  # type: ignore[arg-type]


def assembled(header: object, claims: object, signature: bytes = b"") -> str:
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


@pytest.mark.parametrize("kind", ["RSA", "EC", "OKP"])
async def test_whoever_holds_a_right_token_is_its_user(tmp_path: Path, kind: str) -> None:
    key = make_key(kind)
    tokens = await started(tmp_path / "keys.json", make_key(kid="another"), key)
    signed = token_of(key, exp=NOW + 60)
    found = tokens.check(signed)
    assert (found.user, found.expires) == ("ann", NOW + 60 + LEEWAY)


async def test_the_user_is_what_the_named_claim_says(tmp_path: Path) -> None:
    tokens = await started(tmp_path / "keys.json", KEY, claim="preferred_username")
    assert tokens.check(told(preferred_username="bob")).user == "bob"
    with pytest.raises(TokenRefused, match="preferred_username is not a user's name"):
        tokens.check(told())


CLAIMS: list[tuple[dict[str, object], str]] = [
    ({"exp": NOW - LEEWAY}, "has expired"),
    ({"exp": None}, "without an end"),
    ({"exp": "soon"}, "not a number"),
    ({"exp": True}, "not a number"),
    ({"exp": 1e300}, "not a number"),
    ({"nbf": NOW + LEEWAY + 1}, "is not valid yet"),
    ({"nbf": "soon"}, "not a number"),
    ({"nbf": [1]}, "not a number"),
    ({"iss": "https://login.example.evil"}, "another issuer"),
    ({"iss": None}, "another issuer"),
    ({"iss": [ISSUER]}, "another issuer"),
    ({"aud": "headgate2"}, "another audience"),
    ({"aud": None}, "another audience"),
    ({"aud": ["other"]}, "another audience"),
    ({"aud": {AUDIENCE: 1}}, "another audience"),
    ({"sub": None}, "sub is not a user's name"),
    ({"sub": 5}, "sub is not a user's name"),
    ({"sub": ["ann"]}, "sub is not a user's name"),
    ({"sub": ""}, "sub is not a user's name"),
    ({"sub": "ann\nroot"}, "sub is not a user's name"),
    ({"sub": "anonymous"}, "clients that give no name"),
]


@pytest.mark.parametrize(("claims", "why"), CLAIMS)
async def test_each_claim_is_heeded(tokens: TokenVerifier, claims: dict[str, object], why: str) -> None:
    """Mutants: each check taken away."""
    user = claims.get("sub", "ann")
    rest = {name: value for name, value in claims.items() if name != "sub"}
    with pytest.raises(TokenRefused, match=why):
        tokens.check(token_of(KEY, user, algorithm="", **({"exp": NOW + 60} | rest)))


async def test_clocks_may_be_off_by_some_seconds(tokens: TokenVerifier) -> None:
    tokens.check(told(exp=NOW - LEEWAY + 1))
    tokens.check(told(nbf=NOW + LEEWAY))
    tokens.check(told(aud=["other", AUDIENCE]))


async def test_what_another_key_signed_is_refused(tokens: TokenVerifier) -> None:
    """Its kid is the same. Mutant: the signature is not looked at."""
    with pytest.raises(TokenRefused, match="no key of the file"):
        tokens.check(token_of(OTHER, exp=NOW + 60))
    signed = told()
    head, body, mark = signed.split(".")
    other = assembled({}, {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": NOW + 60}).split(".")[1]
    for changed in (f"{head}.{other}.{mark}", f"{head}.{body}.", f"{head}.{body}", f".{body}.{mark}", f"{signed}."):
        with pytest.raises(TokenRefused):
            tokens.check(changed)


@pytest.mark.parametrize("word", ["none", "None", "NONE", "nOnE", "", "HS256", "HS512"])
async def test_a_token_that_nobody_signed_is_refused_however_it_says_so(tokens: TokenVerifier, word: str) -> None:
    """Mutants: the list of algorithms left out; the header believed."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 60}
    for header in ({"alg": word}, {"alg": word, "kid": "one"}, {"kid": "one"}, {"alg": None}, {"alg": ["none"]}):
        for signature in (b"", b"x" * 64):
            with pytest.raises(TokenRefused):
                tokens.check(assembled(header, claims, signature))


async def test_the_public_key_is_no_shared_secret(tmp_path: Path) -> None:
    """The oldest trick: HMAC with what everybody may read."""
    key = make_key("RSA")
    tokens = await started(tmp_path / "keys.json", key)
    claims = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW + 60})
    for public in (key.as_pem(private=False), json.dumps(key.as_dict(private=False)).encode()):
        secret = OctKey.import_key(base64.urlsafe_b64encode(public).decode())
        forged = jws.serialize_compact({"alg": "HS256", "kid": "one"}, claims, secret, algorithms=["HS256"])
        with pytest.raises(TokenRefused):
            tokens.check(forged)


async def test_a_token_brings_no_key_of_its_own(tokens: TokenVerifier) -> None:
    mine = OTHER.as_dict(private=False)
    for header in ({"jwk": mine}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/x"}, {"kid": "two"}):
        with pytest.raises(TokenRefused):
            tokens.check(token_of(OTHER, header=header, exp=NOW + 60))
    with pytest.raises(TokenRefused):  # what must be understood, and is not
        tokens.check(assembled({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}, {}, b"x" * 64))
    tokens.check(token_of(KEY, header={"nonce": "x", "typ": "at+jwt"}, exp=NOW + 60))


async def test_garbage_is_refused_and_costs_little(tokens: TokenVerifier) -> None:
    deep = b"[" * 5000
    hostile = [
        "", ".", "..", "...", "a.b.c", "é.é.é", "x" * MAX_TOKEN, "." * MAX_TOKEN, "x" * (1 << 20),
        assembled(deep, {}), assembled({"alg": "ES256"}, deep), assembled({"alg": "ES256", "kid": {}}, {}),
        assembled({"alg": "ES256", "kid": "one", "b64": False}, {}), assembled(b"\xff", b"\xff"),
        assembled({"alg": "RSA-OAEP", "enc": "A256GCM", "zip": "DEF"}, {}) + ".x.y",
    ]  # fmt: skip
    dice = random.Random(1)
    for _ in range(300):
        good = told()
        bad = bytearray(good.encode())
        for _ in range(dice.randint(1, 5)):
            bad[dice.randrange(len(bad) - 1)] = dice.randrange(33, 127)  # of the last, four bits say nothing
        if bad.decode() != good:  # of one that signs with chance, a character may be what it was
            hostile.append(bad.decode())
    began = time.process_time()
    for each in hostile:
        with pytest.raises(TokenRefused):
            tokens.check(each)
    assert (time.process_time() - began) / len(hostile) < 0.01


async def test_numbers_that_json_has_not_are_refused(tokens: TokenVerifier) -> None:
    for word in ("Infinity", "NaN", "-Infinity", "9" * 5000):
        claims = f'{{"iss": "{ISSUER}", "aud": "{AUDIENCE}", "sub": "ann", "exp": {word}}}'.encode()
        signed = jws.serialize_compact({"alg": "ES256", "kid": "one"}, claims, KEY, algorithms=["ES256"])
        with pytest.raises(TokenRefused):
            tokens.check(signed)


async def test_no_refusal_repeats_the_token(tokens: TokenVerifier) -> None:
    for claims, _ in CLAIMS:
        rest = {name: value for name, value in claims.items() if name != "sub"}
        signed = token_of(KEY, claims.get("sub", "ann"), algorithm="", **({"exp": NOW + 60} | rest))
        with pytest.raises(TokenRefused) as refused:
            tokens.check(signed)
        assert signed[:20] not in str(refused.value)


async def test_keys_rotate_with_their_file(tmp_path: Path) -> None:
    """The new one is taken without a restart, the old one is not any more; a broken file changes nothing."""
    file = write_keys(tmp_path / "keys.json", KEY)
    changes: list[frozenset[str]] = []
    tokens = TokenVerifier(TokenOptions(file, ISSUER, AUDIENCE), now=lambda: NOW)
    await tokens.start(changes.append)
    try:
        tokens.check(told())
        new = make_key(kid="two")
        write_keys(file, KEY, new)
        await wait_until(lambda: len(changes) == 1, timeout=30, description="the second key is there")
        assert tokens.check(token_of(new, exp=NOW + 60)).user == tokens.check(told()).user
        file.write_text("{")
        write_keys(tmp_path / "other.json", new).replace(file)
        await wait_until(lambda: len(changes) >= 2, timeout=30, description="the first key is gone")
        assert tokens.check(token_of(new, exp=NOW + 60)).key in changes[-1]
        with pytest.raises(TokenRefused):
            tokens.check(told())
    finally:
        await tokens.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", r"no JSON from line 1, column 1 on; the form is \{"),
        ('{"keys":\n [c2VjcmV0', r"no JSON from line 2, column 3 on; the form is \{"),
        ("\x00", r"no JSON from line 1, column 1 on; the form is \{"),
        ("[]", "the form is"),
        ('{"keys": []}', "0 keys for signatures; 1 to"),
        ('{"keys": {}}', "the form is"),
        ('{"keys": "c2VjcmV0"}', "the form is"),
        ('{"keys": [1]}', "the form is"),
        ('{"kty": "EC"}', "the form is"),
        (
            json.dumps({"keys": [KEY.as_dict(private=False), {"kty": "RSA", "n": "c2VjcmV0"}]}),
            r"keys\[1\] is no whole key",
        ),
        (
            '{"keys": [{"use": "enc"}, {"kty": "EC", "crv": "P-256", "x": "c2VjcmV0", "y": "A"}]}',
            r"keys\[1\] is no whole",
        ),
        ('{"keys": [{"x": "c2VjcmV0"}]}', r"keys\[0\] is no whole key"),
        ('{"keys": [{"kty": "c2VjcmV0"}]}', "none of its keys is of RSA, EC or Ed25519"),
        ('{"keys": [{"kty": []}]}', r"keys\[0\] is no whole key"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}', "secret key"),
        (json.dumps({"keys": [KEY.as_dict(private=True)]}), "secret key"),
        (json.dumps({"keys": [KEY.as_dict(private=False)] * (MOST_KEYS + 1)}), "1 to"),
        (json.dumps({"keys": [KEY.as_dict(private=False), OTHER.as_dict(private=False)]}), "one kid"),
        (json.dumps({"keys": [KEY.as_dict(private=False) | {"use": "enc"}]}), "1 to"),
        (" " * (300 << 10), "at most"),
        ("[" * 5000, "it is no JSON; the form is"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_refused_without_its_text(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(InvalidValue, match=why) as refused:
        read_keys(file)
    assert "c2VjcmV0" not in str(refused.value)
    assert str(KEY.as_dict(private=True)["d"]) not in str(refused.value)


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # the library warns, and takes it
def test_a_weak_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [RSAKey.generate_key(1024, {"kid": "x"}).as_dict(private=False)]}))
    with pytest.raises(InvalidValue, match="2048 bits"):
        read_keys(file)
    with pytest.raises(InvalidValue, match="No such file"):
        read_keys(tmp_path / "none.json")

"""Certificates and keys of the tests, made where they are needed: authorities, those that they sign, and tokens."""

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from joserfc import jws, jwt
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

ISSUER, AUDIENCE = "https://login.example", "headgate"


class Authority:
    """Signs certificates; `file` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._begin(self._name, self._key, days=2)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = self._write(name, made)

    def issue(self, *names: str, file: str = "", days: int = 2, server: bool = False) -> tuple[Path, Path]:
        """Return the files of a certificate with these common names, and of its key; with 0 days it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        made = self._begin(subject, key, days=days)
        made = made.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        if server:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(names[0])]), critical=False)
        called = file or (names[0] if names else "nobody")
        secret = self._folder / f"{called}.key"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return self._write(called, made), secret

    def keystore(self, name: str, password: str) -> Path:
        """Return a store of Java with a certificate of this name and its key."""
        certificate, key = (file.read_bytes() for file in self.issue(name))
        secret = serialization.load_pem_private_key(key, None)
        assert isinstance(secret, ec.EllipticCurvePrivateKey)
        sealed = serialization.BestAvailableEncryption(password.encode())
        file = self._folder / f"{name}.p12"
        file.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(), secret, x509.load_pem_x509_certificate(certificate), None, sealed
            )
        )
        return file

    def truststore(self, password: str) -> Path:
        """Return a store of Java that trusts this authority."""
        held = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(self.file.read_bytes()), b"authority")
        sealed = serialization.BestAvailableEncryption(password.encode())
        file = self._folder / "trusted.p12"
        file.write_bytes(pkcs12.serialize_java_truststore([held], sealed))
        return file

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=3))
        return made.not_valid_after(now + dt.timedelta(days=days, seconds=-1))

    def _write(self, name: str, made: x509.CertificateBuilder) -> Path:
        file = self._folder / f"{name}.pem"
        file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return file


def make_key(kind: str = "EC", kid: str | None = "one") -> Any:
    """Return a key of RSA, EC or OKP (Ed25519) to sign tokens with."""
    called: Any = {"kid": kid} if kid else None
    if kind == "RSA":
        return RSAKey.generate_key(2048, called)
    return ECKey.generate_key("P-256", called) if kind == "EC" else OKPKey.generate_key("Ed25519", called)


def write_keys(file: Path, *keys: Key, **more: object) -> Path:
    """Write the public halves of keys; a reader sees those of before or these."""
    told: dict[str, Any] = dict(KeySet(list(keys)).as_dict(private=False))
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(json.dumps({"keys": [each | more for each in told["keys"]]}), encoding="utf-8")
    return fresh.replace(file)


def token_of(key: Any, user: object = "ann", *, algorithm: str = "", header: Any = None, **claims: object) -> str:
    """Return a token for a user, good for an hour; a claim that is None is left out."""
    found = algorithm or {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[key.key_type]
    told = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": int(time.time()) + 3600} | claims
    told = {name: value for name, value in told.items() if value is not None}
    start = {"alg": found} | ({"kid": key.kid} if key.kid else {}) | (header or {})
    return jwt.encode(start, told, key, registry=jws.JWSRegistry(algorithms=[found], strict_check_header=False))

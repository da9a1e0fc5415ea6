"""URLs of Redis and of nodes have these parts in common. Errors do not repeat them."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from headgate.errors import InvalidValue

_PARTS: Final = re.compile(r"([^/?#]*)([^?#]*)\??([^#]*)", re.DOTALL)
_ENCODE: Final = (
    "the URL cannot be read: in a user name or a password write %23 for '#', %2F for '/', %3F for '?' and %40 for '@', "
    "or keep the password in a file: ?password_file=/run/secrets/password"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*", re.ASCII)
_NAME: Final = re.compile(rb"[\w.-]+", re.ASCII)
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:\s]+))(?::(\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class UrlParts:
    """A URL is taken apart here; its text form shows no password.

    Attributes:
        username: None where there is none.
        password: None where there is none; it may be empty.
        location: the hosts, with their ports.
        path: from its first slash on, as it is written.
        query: without its ``?``.
    """

    username: str | None
    password: str | None = field(repr=False)
    location: str
    path: str
    query: str


@contextmanager
def parts_of(url: str) -> Iterator[UrlParts]:
    """Take apart what follows ``://``.

    Where the characters of a password that is not encoded may have gone to other parts, none is repeated: what the
    body of ``with`` raises of those parts is replaced.

    Raises:
        InvalidValue: there is a part after ``#``, or the body finds the form wrong.
    """
    rest = url.partition("://")[2]
    match = _PARTS.match(rest)
    authority, path, query = match.groups() if match else ("", "", "")
    userinfo, _, location = authority.rpartition("@")
    username, colon, password = userinfo.partition(":")
    if "#" in rest:
        raise InvalidValue(_ENCODE)
    try:
        yield UrlParts(unquote(username) or None, unquote(password) if colon else None, location, path, query)
    except InvalidValue:
        if "@" in path + query:
            raise InvalidValue(_ENCODE) from None
        raise


def hosts_of(location: str, default: int) -> tuple[tuple[str, int], ...]:
    """Return the host and the port of each of ``host``, ``host:port`` and ``[address]:port``, with commas between.

    Args:
        location: as a URL has it.
        default: port of those that name none.

    Raises:
        InvalidValue: one is none of these; it is named by its place, for it may be a password that lost its host.
    """
    parts = enumerate(location.split(","), start=1)
    return tuple(host_and_port(text, default, f"host {place} of the URL") for place, text in parts)


def host_and_port(text: str, default: int, what: str) -> tuple[str, int]:
    """Return the host and the port of one; ``what`` names it in the error, and arguments are those of `hosts_of`.

    Raises:
        InvalidValue: it is none.
    """
    wrong = f"{what}: expected host or host:port with a port from 1 to 65535"
    match = _HOST.fullmatch(text)
    if match is None:
        raise InvalidValue(wrong)
    address, name, port = match.groups()
    number = int(port or default)
    try:
        is_name = name is None or bool(_NAME.fullmatch(name.encode("idna")))
    except UnicodeError:
        is_name = False
    if not is_name or not 0 < number < 65536:
        raise InvalidValue(wrong)
    return address or name, number


def shown_hosts(hosts: Iterable[tuple[str, int]]) -> str:
    """Return hosts as a URL has them: ``host:port,[address]:port``."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def unknown_scheme(scheme: str, forms: str) -> InvalidValue:
    """Return the error for a scheme that is none; what does not look like one may be a part of a password."""
    named = f" {scheme!r}" if _SCHEME.fullmatch(scheme) else ""
    return InvalidValue(f"URL scheme{named} is unknown; use {forms}")


def read_secret(file: str, option: str = "password_file") -> str:
    """Return what a file of a password holds.

    Raises:
        InvalidValue: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidValue(f"{option} {file!r} cannot be read: {why}") from None

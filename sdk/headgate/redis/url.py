"""What a Redis URL says, without its secrets ever being printed.

Accepted forms::

    redis://[user:password@]host[:port][/db]          standalone, or a cluster's node: found out on connecting
    rediss://...                                      the same over TLS
    unix:///path/to/redis.sock[?db=0]
    redis+sentinel://host[:port],host[:port]/service[/db]
    redis+cluster://host[:port],host[:port]

``+tls`` before ``+sentinel`` or ``+cluster`` is spelled ``rediss+sentinel`` and ``rediss+cluster``. A password can be
kept out of the URL: ``?password_file=/run/secrets/redis``. Windows and rates of the connection's producers and
consumers can be said too: ``?consumer_window=pull``, see :mod:`headgate.core.url_options`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from headgate.core.url_options import UrlOptions, take_options
from headgate.errors import InvalidValue
from headgate.url_parts import host_and_port, read_secret

Kind = Literal["single", "unix", "sentinel", "cluster"]
SCHEMES: Final[dict[str, tuple[Kind, bool]]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_PORTS: Final[dict[Kind, int]] = {"single": 6379, "cluster": 6379, "sentinel": 26379, "unix": 0}
_OPTIONS: Final = {"db", "password_file", "ca_file", "cert_file", "key_file"}
FORMS: Final = (
    "redis://host:6379/0, rediss://..., unix:///path.sock, redis+sentinel://h1,h2/service, redis+cluster://h1,h2"
)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A Redis URL taken apart; its text form shows no password."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    path: str
    service: str
    db: int
    username: str | None
    password: str | None = field(repr=False)
    options: tuple[tuple[str, str], ...] = ()
    said: UrlOptions = field(default_factory=UrlOptions)

    def __str__(self) -> str:
        scheme = next(s for s, form in SCHEMES.items() if form == (self.kind, self.tls))
        user = f"{self.username or ''}:***@" if self.password else f"{self.username}@" if self.username else ""
        if self.kind == "unix":
            return f"unix://{self.path}?db={self.db}"
        where = ",".join(f"{host}:{port}" for host, port in self.hosts)
        service = f"/{self.service}" if self.service else ""
        return f"{scheme}://{user}{where}{service}/{self.db}"


def parse_url(url: str) -> RedisUrl:
    """Return the parts of a URL.

    Raises:
        InvalidValue: the form is unknown; what is wrong is said without repeating a password.
    """
    if not isinstance(url, str) or "://" not in url:  # it may hold a password, so it is not repeated
        got = type(url).__name__ if not isinstance(url, str) else "text without ://" if url else "nothing"
        raise InvalidValue(f"a Redis URL is one of {FORMS}; got {got}")
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise InvalidValue(f"URL scheme {scheme!r} is unknown; use {FORMS}")
    kind, tls = SCHEMES[scheme]
    parts = urlsplit(f"x://{rest}")
    userinfo, _, location = parts.netloc.rpartition("@")
    username, colon, password = userinfo.partition(":")
    said, options = take_options(parts.query)
    if unknown := set(options) - _OPTIONS:
        raise InvalidValue(f"URL option {sorted(unknown)[0]!r} is unknown; there are {', '.join(sorted(_OPTIONS))}")
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    service = ""
    if kind == "sentinel":
        if not path:
            raise InvalidValue("a Sentinel URL names its service: redis+sentinel://host:26379/mymaster")
        service = path.pop(0)
    db = options.pop("db", None) or (path[0] if path and kind != "unix" else "0")
    if not db.isdecimal() or (kind != "unix" and len(path) > 1):
        raise InvalidValue(f"URL path {parts.path!r}: expected /<db number>")
    if kind == "cluster" and db != "0":
        raise InvalidValue("a cluster has only database 0")
    if kind == "unix" and (location or not parts.path):
        raise InvalidValue("a socket URL has three slashes: unix:///path/to/redis.sock")
    secret = unquote(password) if colon else None
    if file := options.pop("password_file", None):
        secret = read_secret(file)
    return RedisUrl(
        kind=kind,
        tls=tls,
        hosts=tuple(host_and_port(part, _PORTS[kind]) for part in location.split(",")) if kind != "unix" else (),
        path=unquote(parts.path) if kind == "unix" else "",
        service=service,
        db=int(db),
        username=unquote(username) or None,
        password=secret,
        options=tuple(sorted(options.items())),
        said=said,
    )

"""A Redis URL is read without its secrets ever being printed.

Accepted forms::

    redis://[user:password@]host[:port][/db]          standalone, or a cluster's node: found out on connecting
    rediss://...                                      the same over TLS
    unix:///path/to/redis.sock[?db=0]
    redis+sentinel://host[:port],host[:port]/service[/db]
    redis+cluster://host[:port],host[:port]

``+tls`` before ``+sentinel`` or ``+cluster`` is spelled ``rediss+sentinel`` and ``rediss+cluster``; it holds for the
Sentinels too. TLS takes ``?ca_file=``, ``?cert_file=`` and ``?key_file=``. A password can be kept out of the URL:
``?password_file=/run/secrets/redis``. Sentinels that ask for a password get ``?sentinel_user=`` and
``?sentinel_password_file=`` (or ``?sentinel_password=``), and never that of the Redis. A URL may also carry windows
and rates for the connection's producers and consumers: ``?consumer_window=pull``, see
:mod:`headgate.core.addresses.url_options`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote

from headgate._util.url_parts import UrlParts, hosts_of, parts_of, read_secret, shown_hosts, unknown_scheme
from headgate.core.addresses.url_options import UrlOptions, take_options, unknown_option
from headgate.errors import InvalidValue

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
FILES: Final = frozenset({"password_file", "sentinel_password_file", "ca_file", "cert_file", "key_file"})
"""Options that name files of the host where they are read."""
_OPTIONS: Final = {"db", "password_file", "ca_file", "cert_file", "key_file"}
_OF_SENTINELS: Final = {"sentinel_user", "sentinel_password", "sentinel_password_file"}
FORMS: Final = (
    "redis://host:6379/0, rediss://..., unix:///path.sock, redis+sentinel://h1,h2/service, redis+cluster://h1,h2"
)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A Redis URL is taken apart; its text form shows no password."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    path: str
    service: str
    db: int
    username: str | None
    password: str | None = field(repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(repr=False, default=None)
    options: tuple[tuple[str, str], ...] = ()
    url_options: UrlOptions = field(default_factory=UrlOptions)

    def __str__(self) -> str:
        scheme = next(s for s, form in SCHEMES.items() if form == (self.kind, self.tls))
        user = f"{self.username or ''}:***@" if self.password else f"{self.username}@" if self.username else ""
        if self.kind == "unix":
            return f"unix://{self.path}?db={self.db}"
        service = f"/{self.service}" if self.service else ""
        return f"{scheme}://{user}{shown_hosts(self.hosts)}{service}/{self.db}"


def parse_url(url: str) -> RedisUrl:
    """Return the parts of a URL.

    Raises:
        InvalidValue: the form is unknown; the error repeats no password.
    """
    if not isinstance(url, str) or "://" not in url:  # it may hold a password, so it is not repeated
        got = type(url).__name__ if not isinstance(url, str) else "text without ://" if url else "nothing"
        raise InvalidValue(f"a Redis URL is one of {FORMS}; got {got}")
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise unknown_scheme(scheme, FORMS)
    kind, tls = SCHEMES[scheme]
    with parts_of(url) as parts:
        return _read(kind, parts, tls=tls)


def _read(kind: Kind, parts: UrlParts, *, tls: bool) -> RedisUrl:
    url_options, options = take_options(parts.query)
    known = _OPTIONS | (_OF_SENTINELS if kind == "sentinel" else set())
    if unknown := set(options) - known:
        raise unknown_option(sorted(unknown)[0], *known)
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    service = ""
    if kind == "sentinel":
        if not path:
            raise InvalidValue("a Sentinel URL names its service: redis+sentinel://host:26379/mymaster")
        service = path.pop(0)
    if "@" in parts.path and kind != "unix":
        raise InvalidValue("the URL's path: no '@' can be in it")
    db = options.pop("db", None) or (path[0] if path and kind != "unix" else "0")
    if not db.isdecimal() or (kind != "unix" and len(path) > 1):
        raise InvalidValue("the URL's path: expected /<db number>")
    if kind == "cluster" and db != "0":
        raise InvalidValue("a cluster has only database 0")
    if kind == "unix" and (parts.location or not parts.path):
        raise InvalidValue("a socket URL has three slashes: unix:///path/to/redis.sock")
    file, sentinel_file = options.pop("password_file", None), options.pop("sentinel_password_file", None)
    sentinel_password = options.pop("sentinel_password", None)
    return RedisUrl(
        kind=kind,
        tls=tls,
        hosts=hosts_of(parts.location, _PORTS[kind]) if kind != "unix" else (),
        path=unquote(parts.path) if kind == "unix" else "",
        service=service,
        db=int(db),
        username=parts.username,
        password=read_secret(file) if file else parts.password,
        sentinel_username=options.pop("sentinel_user", None),
        sentinel_password=(
            read_secret(sentinel_file, "sentinel_password_file") if sentinel_file else sentinel_password
        ),
        options=tuple(sorted(options.items())),
        url_options=url_options,
    )

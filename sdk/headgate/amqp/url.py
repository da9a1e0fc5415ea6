"""A URL of nodes is read without its secrets ever being printed.

Accepted forms::

    amqp://[user:password@]host[:port][,host2[:port]...]     any of these nodes: they all serve the same state
    amqps://...                                              the same over TLS

A password can be kept out of the URL: ``?password_file=/run/secrets/headgate``. ``?token_file=`` is of a token (JWT) to
sign in by, read anew for each connection. TLS takes ``?ca_file=``, ``?cert_file=`` and ``?key_file=``; a client without
a user signs in by that certificate where the node takes it. Windows and rates of the connection's producers and
consumers are options too: ``?consumer_window=pull``, see :mod:`headgate.core.addresses.url_options`.
"""

import re
import ssl
from dataclasses import dataclass, field
from typing import Final

from headgate._util.certificates import named
from headgate._util.url_parts import UrlParts, hosts_of, parts_of, read_secret, shown_hosts, unknown_scheme
from headgate.core.addresses.url_options import UrlOptions, take_options, unknown_option
from headgate.errors import InvalidValue

PORTS: Final = {"amqp": 5672, "amqps": 5671}
FORMS: Final = "amqp://host:5672, amqp://user:password@host1,host2, amqps://..."
_OPTIONS: Final = {"password_file", "token_file", "ca_file", "cert_file", "key_file"}
_FILES: Final = ("ca_file", "cert_file", "key_file")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class AmqpUrl:
    """A URL of nodes is taken apart here; its text form shows no password.

    Attributes:
        tls: whether the connections are encrypted.
        hosts: name and port of each node.
        username: None to come without a name.
        password: of that user.
        token_file: with the token to sign in by; None for none.
        files: of TLS, by option.
        url_options: its options for producers and consumers.
    """

    tls: bool
    hosts: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    token_file: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    url_options: UrlOptions = field(default_factory=UrlOptions)

    def __str__(self) -> str:
        user = f"{self.username}{':***' if self.password else ''}@" if self.username else ""
        return f"{'amqps' if self.tls else 'amqp'}://{user}{self.where}"

    @property
    def where(self) -> str:
        """The nodes: ``host:port,host:port``."""
        return shown_hosts(self.hosts)

    @property
    def has_certificate(self) -> bool:
        """Whether TLS shows a certificate of the client's own."""
        return any(option == "cert_file" for option, _ in self.files)

    def token(self) -> str | None:
        """Return the token as its file has it now; None without one.

        Raises:
            InvalidValue: the file cannot be read, or holds something else.
        """
        if self.token_file is None:
            return None
        token = read_secret(self.token_file, "token_file")
        if not _TOKEN.fullmatch(token):
            raise InvalidValue(f"token_file {self.token_file!r} holds no token: a line of letters, digits and ._~+/=-")
        return token

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS goes by; None without it.

        Raises:
            InvalidValue: a file cannot be read.
        """
        if not self.tls:
            return None
        files = dict(self.files)
        try:
            with named(ca_file=files.get("ca_file")):
                context = ssl.create_default_context(cafile=files.get("ca_file"))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if "cert_file" in files:
                with named(cert_file=files["cert_file"], key_file=files.get("key_file")):
                    context.load_cert_chain(files["cert_file"], files.get("key_file"))
        except OSError as error:
            raise InvalidValue(f"a certificate of {self} cannot be used: {error.strerror}") from None
        return context


def parse_url(url: str) -> AmqpUrl:
    """Return the parts of a URL of nodes.

    Raises:
        InvalidValue: the form is unknown; the error repeats no password.
    """
    scheme = url.partition("://")[0]
    if scheme not in PORTS:
        raise unknown_scheme(scheme, FORMS)
    with parts_of(url) as parts:
        return _read(scheme, parts)


def _read(scheme: str, parts: UrlParts) -> AmqpUrl:
    url_options, options = take_options(parts.query)
    if unknown := set(options) - _OPTIONS:
        raise unknown_option(sorted(unknown)[0], *_OPTIONS)
    if parts.path.strip("/"):
        raise InvalidValue("a node's URL has no path; name the namespace in code: connect(url, namespace=...)")
    tls = scheme == "amqps"
    if not tls and (files := [name for name in _FILES if name in options]):
        raise InvalidValue(f"URL option {files[0]!r} is for TLS: amqps://...")
    file = options.get("password_file")
    secret = read_secret(file) if file else parts.password
    if secret is not None and parts.username is None:
        raise InvalidValue("a URL with a password needs a user: amqp://user:password@host")
    if "token_file" in options and parts.username is not None:
        raise InvalidValue("give either a user or a token_file: the token names its user")
    url = AmqpUrl(
        tls=tls,
        hosts=hosts_of(parts.location, PORTS[scheme]),
        username=parts.username,
        password=secret,
        token_file=options.get("token_file"),
        files=tuple((name, options[name]) for name in _FILES if name in options),
        url_options=url_options,
    )
    url.token()  # a token that cannot be read is an error at once
    return url

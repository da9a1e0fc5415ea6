"""Reach of a policy into a node's host and network, as its operator allows at the start.

A policy is written by people who may have no account on the hosts of nodes. Without these options it leads nowhere but
to the variables ``HEADGATE_SITE_...``, which are set for that purpose alone.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from headgate._util.url_parts import host_and_port
from headgate.backends import REDIS_FILES, REDIS_SCHEMES, place_of
from headgate.core.links.link import Site, is_site_variable
from headgate.errors import InvalidValue

MOST: Final = 65_536
"""Bytes of a file with a URL."""
_USUAL_PORTS: Final = (6379, 26379)
"""Of Redis and of a Sentinel: what a host without a port allows."""
_NO_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class PolicyReach:
    """A policy's reach lists the places that the policy may name at one node.

    Attributes:
        secrets: the folder whose files ``[[site]]`` may name: URLs, passwords, certificates; None for none.
        hosts: ``host``, ``host:port`` or the path of a socket, to which a URL in the policy itself may lead.
        stores: URLs at or below which a ``[[store]]`` may be.
    """

    secrets: Path | None = None
    hosts: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not host.startswith("/"):
                host_and_port(host, _NO_PORT, repr(host))
        for url in self.stores:
            _store_path(url)

    def url_of(self, site: Site) -> str:
        """Return the URL of a site, read from where the policy says that it is.

        Raises:
            InvalidValue: it is not there, leads to no Redis, or is not among what a policy may name; what a file or a
                variable holds is not repeated.
        """
        where, _, what = site.url.partition(":")
        if where == "env":
            return _checked(site, self._variable(site, what))
        if where == "file":
            return _checked(site, self._content(site, what))
        return self._direct(site)

    def check_store(self, url: str) -> None:
        """See that the segments of a store may be kept under a URL.

        Raises:
            InvalidValue: they may not.
        """
        try:
            wanted = _store_path(url)
            allowed = any(
                scheme == wanted[0] and wanted[1][: len(parts)] == parts
                for scheme, parts in map(_store_path, self.stores)
            )
        except InvalidValue:
            allowed = False
        if not allowed:
            raise InvalidValue(
                f"this node keeps no segments at {url!r}; its operator can allow it with --store-root {url!r}, or a "
                "folder above"
            )

    def _variable(self, site: Site, name: str) -> str:
        if not is_site_variable(name):
            raise InvalidValue(
                f"site {site.name}: a policy may not name variable {name!r}; call it HEADGATE_SITE_{_variable_of(site)}"
            )
        url = os.environ.get(name, "")
        if not url:
            raise InvalidValue(f"site {site.name}: the environment of this node has no {name}; set it to a Redis URL")
        return url

    def _content(self, site: Site, name: str) -> str:
        file = self._file(site, name)
        try:
            with file.open("rb") as opened:
                return opened.read(MOST).decode().strip()
        except OSError as error:
            raise InvalidValue(f"site {site.name}: the file {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidValue(f"site {site.name}: the file {name} is not UTF-8") from None

    def _file(self, site: Site, name: str) -> Path:
        """Return where a file is that a policy names; a refusal does not tell whether it is there."""
        root = self.secrets.resolve() if self.secrets is not None else None
        try:
            file = (root / name).resolve() if root is not None else None
        except (OSError, ValueError, RuntimeError):  # a NUL, a circle of symbolic links
            file = None
        if root is None or file is None or not file.is_relative_to(root):
            given = f"{self.secrets}" if self.secrets is not None else "DIR"
            raise InvalidValue(
                f"site {site.name}: a policy may not name file {name!r} of this node; put it into the folder that "
                f"the node is started with: --site-secrets {given}"
            )
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise InvalidValue(f"site {site.name}: the file {name} cannot be read: it is not a regular file")
        return file

    def _direct(self, site: Site) -> str:
        """Return a URL that stands in the policy itself, its files as full paths."""
        text, mark, query = site.url.partition("?")
        ends = place_of(_checked(site, text)).ends  # without the query: none of its files is read yet
        if "#" in site.url or not all(map(self._allows, ends)):
            raise InvalidValue(
                f"site {site.name}: no policy may lead this node to {text!r}; its operator can allow it with "
                f"--site-host HOST:PORT, or sets HEADGATE_SITE_{_variable_of(site)} to the site's URL"
            )
        pairs = parse_qsl(query, keep_blank_values=True)
        return f"{text}{mark}{urlencode([(k, str(self._file(site, v)) if k in REDIS_FILES else v) for k, v in pairs])}"

    def _allows(self, end: str | tuple[str, int]) -> bool:
        if isinstance(end, str):
            return end in self.hosts
        for allowed in self.hosts:
            host, port = host_and_port(allowed, _NO_PORT, allowed) if not allowed.startswith("/") else ("", 0)
            if host.lower() == end[0].lower() and end[1] in (_USUAL_PORTS if port == _NO_PORT else (port,)):
                return True
        return False


def _variable_of(site: Site) -> str:
    return site.name.upper().replace("-", "_")


def _checked(site: Site, url: str) -> str:
    if url.partition("://")[0] not in REDIS_SCHEMES:
        raise InvalidValue(
            f"site {site.name}: {site.url.partition('?')[0]} does not lead to a Redis; use a URL such as redis://host:6379"
        )
    return url


def _store_path(url: str) -> tuple[str, tuple[str, ...]]:
    """Return scheme and folders of a store's URL; symbolic links of this host are followed.

    Raises:
        InvalidValue: it can be read in more than one way.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or "::" in url or (scheme in ("file", "local") and not rest.startswith("/")):
        raise InvalidValue(f"{url!r} is not a root of stores; use one like 'file:///var/spool' or 's3://bucket/prefix'")
    if scheme in ("file", "local"):
        return "file", tuple(part for part in os.path.realpath(rest).split("/") if part)  # "/" itself has none
    parts = tuple(part for part in rest.split("/") if part)
    if any(part in (".", "..") or "%" in part or "\\" in part for part in parts):
        raise InvalidValue(f"{url!r} has a folder that file systems read differently; write it in full")
    return scheme, parts

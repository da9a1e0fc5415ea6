"""A URL names the way to the state, which is chosen here. To add a way, name its schemes in ``_WAYS``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core.addresses.url_options import UrlOptions
from headgate.redis.backend import Backend
from headgate.redis.server import Server
from headgate.redis.url import FILES, FORMS, SCHEMES, parse_url


@dataclass(frozen=True, slots=True)
class BackendUrl:
    """A URL taken apart, before anything is connected.

    Attributes:
        text: the URL without its secrets.
        options: what it says for producers and consumers.
        backend: makes what reaches it, not open yet.
        ends: of a Redis, the path of its socket, or host and port of each server that it names.
    """

    text: str
    options: UrlOptions
    backend: Callable[[], Backend]
    ends: tuple[str | tuple[str, int], ...] = ()


def _redis(url: str) -> BackendUrl:
    parsed = parse_url(url)
    ends = (parsed.path,) if parsed.kind == "unix" else parsed.hosts
    return BackendUrl(str(parsed), parsed.url_options, lambda: Server(parsed), ends)


def _nodes(url: str) -> BackendUrl:
    from headgate.amqp.url import parse_url as parse_nodes

    parsed = parse_nodes(url)

    def backend() -> Backend:
        from headgate.amqp.remote import NodeBackend  # needs the extra amqp, and says so

        return NodeBackend(parsed)

    return BackendUrl(str(parsed), parsed.url_options, backend)


REDIS_FORMS: Final = FORMS
"""URLs of a Redis, as errors show them."""
REDIS_FILES: Final = FILES
"""Options of a Redis' URL that name files of the host where it is read."""
REDIS_SCHEMES: Final = tuple(SCHEMES)
_WAYS: Final[Mapping[str, Callable[[str], BackendUrl]]] = {
    **dict.fromkeys(SCHEMES, _redis),
    "amqp": _nodes,
    "amqps": _nodes,
}
"""Scheme -> what reads such a URL."""


def place_of(url: str) -> BackendUrl:
    """Return where a URL leads.

    Raises:
        InvalidValue: its form is unknown; the error repeats no password.
    """
    scheme = url.partition("://")[0] if isinstance(url, str) else ""
    return _WAYS.get(scheme, _redis)(url)  # which says what is wrong with a scheme that nobody knows

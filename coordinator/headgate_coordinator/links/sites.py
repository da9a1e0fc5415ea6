"""Clients of other sites, one for each, made when a link leads there and kept while the policy names it so."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import headgate
from headgate.backends import REDIS_SCHEMES
from headgate.client import Client
from headgate.core.link import Site
from headgate.errors import HeadgateError, InvalidValue, PolicyError


def url_of(site: Site) -> str:
    """Return the URL of a site, read from where the policy says that it is.

    Raises:
        InvalidValue: it is not there, or leads to no Redis; what it holds is not repeated.
    """
    where, _, what = site.url.partition(":")
    if where == "env":
        url = os.environ.get(what, "")
        if not url:
            raise InvalidValue(f"site {site.name}: the environment of this node has no {what}; set it to a Redis URL")
    elif where == "file":
        try:
            url = Path(what).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidValue(f"site {site.name}: the file {what} cannot be read: {error.strerror}") from None
    else:
        url = site.url
    if url.partition("://")[0] not in REDIS_SCHEMES:
        raise InvalidValue(f"site {site.name}: {site.url} leads to no Redis; use a URL such as redis://host:6379")
    return url


class Sites:
    """The other sites that this node is connected to.

    Args:
        namespace: of this node, and of a site that names none.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._clients: dict[Site, Client] = {}
        self._opening: dict[Site, asyncio.Lock] = {}

    async def client(self, site: Site) -> Client:
        """Return the client of a site.

        Raises:
            PolicyError: the site says in its policy that it is another one.
            InvalidValue: its URL is not where it should be, or is none.
            CoordinatorUnavailable: it does not answer.
        """
        async with self._opening.setdefault(site, asyncio.Lock()):
            if site not in self._clients:
                client = await headgate.connect(url_of(site), namespace=site.namespace or self._namespace)
                try:
                    called = (await client.policy()).site
                except HeadgateError:
                    await client.close()
                    raise
                if called not in ("", site.name):
                    await client.close()
                    raise PolicyError(f"site {site.name} calls itself {called!r}; loops are found by these names")
                self._clients[site] = client
            return self._clients[site]

    async def keep(self, sites: Iterable[Site]) -> None:
        """Close the clients of all sites but these."""
        wanted = set(sites)
        gone = [self._clients.pop(site) for site in tuple(self._clients) if site not in wanted]
        await asyncio.gather(*(client.close() for client in gone))

    async def close(self) -> None:
        """Close all."""
        await self.keep(())

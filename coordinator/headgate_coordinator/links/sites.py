"""Clients of other sites, one for each, kept while the policy names it."""

import asyncio
from collections.abc import Iterable

import headgate
from headgate._util.tasks import carried_through
from headgate.client import Client
from headgate.core.links.link import Site
from headgate.errors import AccessDenied, PolicyError
from headgate_coordinator.security.policy_reach import PolicyReach


class Sites:
    """`Sites` keeps the clients of the other sites that this node is connected to.

    Args:
        namespace: of this node, and of a site that names none.
        reach: what the policy may name at this node.
    """

    def __init__(self, namespace: str, reach: PolicyReach) -> None:
        self._namespace = namespace
        self._reach = reach
        self._clients: dict[Site, Client] = {}
        self._opening: dict[Site, asyncio.Lock] = {}

    async def client(self, site: Site) -> Client:
        """Return the client of a site.

        Raises:
            PolicyError: the site says in its policy that it is another one.
            InvalidValue: its URL is not where it should be, is none, or is not open to a policy here.
            CoordinatorUnavailable: it does not answer.
        """
        async with self._opening.setdefault(site, asyncio.Lock()):
            if site not in self._clients:
                client = await headgate.connect(self._reach.url_of(site), namespace=site.namespace or self._namespace)
                client.parts.registry.spooling.spools.check_url = self._reach.check_store
                try:
                    called = (await client.policy()).site
                except AccessDenied:  # to one who has but a part of a pool there it is not shown
                    called = ""
                except BaseException:
                    await client.close()
                    raise
                if called not in ("", site.name):
                    await client.close()
                    raise PolicyError(f"site {site.name} calls itself {called!r}; loops are found by these names")
                self._clients[site] = client
            return self._clients[site]

    @carried_through
    async def keep(self, sites: Iterable[Site]) -> None:
        """Close the clients of all sites but these."""
        wanted = set(sites)
        gone = [self._clients.pop(site) for site in tuple(self._clients) if site not in wanted]
        await asyncio.gather(*(client.close() for client in gone))

    async def close(self) -> None:
        """Close all."""
        await self.keep(())

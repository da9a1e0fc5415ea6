"""The two ends of a link: which client, which destination, under which id."""

from typing import NamedTuple

from headgate.client import Client
from headgate.core.links.link import Site, ends_of
from headgate.errors import PolicyError
from headgate.redis.keys import Address, forwarder_id
from headgate_coordinator.links.sites import Sites


class LinkEndpoint(NamedTuple):
    """A link endpoint is a destination, and the client of the site where it lies."""

    client: Client
    address: Address


def unknown_site(link: str, site: str) -> str:
    """Return why a link does not end whose site left the policy, and what to do."""
    return (
        f"the policy does not say where site {site!r} is; keep it until the link has ended, "
        f"or give the link up: headgate links --end '{link}'"
    )


async def places_of(
    link: str, client: Client, sites: Sites, known: dict[str, Site]
) -> tuple[str, LinkEndpoint, LinkEndpoint]:
    """Return the id of a link in the state of both ends, its source and its target.

    Args:
        link: as :attr:`headgate.core.links.link.Link.link` names it.
        client: of this site.
        sites: clients of the others.
        known: the others, by name.

    Raises:
        PolicyError: it leads to a site that is not known.
        InvalidValue, CoordinatorUnavailable: that site cannot be reached.
    """
    ends = ends_of(link)
    there = client
    if ends.site:
        if ends.site not in known:
            raise PolicyError(unknown_site(link, ends.site))
        there = await sites.client(known[ends.site])
    source = LinkEndpoint(client, Address.of(client.namespace, ends.source))
    target = LinkEndpoint(there, Address.of(there.namespace, ends.target))
    return forwarder_id(client.namespace, link), source, target

"""A namespace's links now are those of a policy, and one for each topic that a route by pattern matches."""

import asyncio
from collections.abc import Mapping
from typing import Final

from headgate.client import Client
from headgate.core.addresses.pattern import Pattern
from headgate.core.links.channel import Feed
from headgate.core.links.link import Link
from headgate.core.policy import Policy

MOST: Final = 4096
"""Topics that routes by pattern forward, the first by name: whoever may make a topic makes a link."""


async def links_now(client: Client, policy: Policy) -> Mapping[str, Link | Feed]:
    """Return the links by the names of their leases.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    every_link = await asyncio.to_thread(lambda: policy.every_link)  # once a policy, and it may have thousands
    patterns = [pattern for link in policy.patterns if (pattern := link.pattern)]
    if not patterns:
        return every_link
    every = await client.parts.registry.index.topics(client.namespace, Pattern.parse("#"))
    return policy.links_with(sorted(name for name in every if any(one.matches(name) for one in patterns))[:MOST])

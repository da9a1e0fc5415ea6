"""A durable subscription's client may come back to another node: the link that is left here then ends."""

import asyncio
import logging
from typing import Final

from headgate.errors import HeadgateError
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.node.node import Node

_log = logging.getLogger("headgate.node")
EVERY: Final = 2.0
"""Seconds between looks at what other nodes say; a node without durable links looks at nothing."""


async def give_way(node: Node, registry: NodeRegistry) -> None:
    """End durable links that were attached to another node later, until cancelled."""
    while True:
        await asyncio.sleep(EVERY)
        if not node.claims.any_durable:
            continue
        try:
            others = [entry.claims for entry in await registry.list() if entry.id != node.id]
        except HeadgateError as error:
            _log.debug("other nodes could not be asked which links they took over: %s", error)
            continue
        latest: dict[str, float] = {}
        for claims in others:
            for link, at in claims.items():
                latest[link] = max(at, latest.get(link, 0.0))
        node.claims.give_way(latest)

"""A node moves keys of limiters itself, for users who do not manage the namespace: they see only keys they name."""

from typing import Any

from headgate.context import Context
from headgate.core.limiting.amounts import NO_KEY
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import Script
from headgate_coordinator.node.gateway.required_grants import PIN_SCRIPTS


class PinnedCalls:
    """The calls that clients of such users make are answered here, by what the node has done."""

    def __init__(self, parts: Context, server: Backend) -> None:
        self._registry, self._server = parts.registry, server

    async def make(self, op: Script, address: Address, values: dict[str, Any]) -> list[Any] | None:
        """Bring all keys of a limiter where they belong, or recount one; None for any other call."""
        if op.name not in PIN_SCRIPTS:
            return None
        kind, keys, pinned = await self._registry.kind(address.whole), address.limiter_keys("-"), self._registry.pinned
        if kind != "limiter":
            return [b"UNKNOWN"] if kind is None else [b"KIND", kind.encode()]
        pins = await pinned.settle(address.whole)
        if op.name == "pin":
            return list(await self._server.call(op, keys, [None, 0, 1, 1, 0]))
        if op.name == "join" or values["key"] == NO_KEY:
            return [b"OK", b"0"][: 1 if op.name == "join" else 2]
        reply = await self._server.call(op, keys, [None, pins.slices, 0, values["key"]])
        await pinned.recount(address.whole, pins, values["key"])
        return list(reply)

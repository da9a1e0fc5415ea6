"""A node lends slices their rates itself for users who do not manage the namespace: their reports count for nothing."""

from collections.abc import Sequence
from typing import Any, Final

from headgate.context import Context
from headgate.core.names import slice_name
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import Script

RATE_SCRIPTS: Final = frozenset({"rate_lend", "rate_take"})


class RateCalls:
    """The calls that clients of such users make are answered here: a loan with all its steps, and looks."""

    def __init__(self, parts: Context, server: Backend) -> None:
        self._rates, self._server = parts.rates, server

    async def make(self, op: Script, address: Address, keys: Sequence[bytes], values: dict[str, Any]) -> list[Any]:
        """Lend a slice what it needs of a rate, or look at what it has of it."""
        if op.name == "rate_take":
            look = [None, values["kind"], 0, 0, 0, "keep"]
            return list(await self._server.call(op, keys, look))
        kind = values["kind"]
        part = Address.of(address.namespace, slice_name(address.whole.name, values["slice"]))
        again_ms = await self._rates.lend(part, kind, values["need"], values["want"]) if values["need"] else 0
        return [b"SHORT" if again_ms else b"OK", 0, 0, again_ms]

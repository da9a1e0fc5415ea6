"""A node lends slices their rates itself for users who do not manage the namespace: their reports count for nothing."""

from collections.abc import Sequence
from typing import Any, Final

from headgate.context import Context
from headgate.core.names import slice_name
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import Script
from headgate.redis.stores.rates import Sender
from headgate_coordinator.node.gateway.required_grants import text_of

RATE_SCRIPTS: Final = frozenset({"rate_lend", "rate_take"})


def sender_of(op: Script, rest: Sequence[Any]) -> Sender | None:
    """Return whom such a call names as its sender, by what follows its other arguments; None where it names nobody."""
    if not rest:
        return None
    return Sender(text_of(rest[0]), int(rest[1]) if op.name == "rate_lend" else 1)


class RateCalls:
    """The calls that clients of such users make are answered here: a loan with all its steps, and looks."""

    def __init__(self, parts: Context, server: Backend) -> None:
        self._rates, self._server = parts.rates, server

    async def make(
        self, op: Script, address: Address, keys: Sequence[bytes], values: dict[str, Any], sender: Sender | None,
        rest: Sequence[Any],
    ) -> list[Any]:  # fmt: skip
        """Have a slice, or a sender there, lent what it needs of a rate, or look at what it has."""
        if op.name == "rate_take":
            look = [None, values["kind"], 0, 0, 0, "keep", *((sender.id, 0) if sender else ())]
            return list(await self._server.call(op, keys, look))
        kind = values["kind"]
        part = Address.of(address.namespace, slice_name(address.whole.name, values["slice"]))
        at_once = int(rest[2]) if sender else 0
        if not values["need"]:
            return [b"OK", 0, 0, 0]
        lent = await self._rates.lend(part, kind, values["need"], values["want"], sender, at_once)
        return [b"SHORT" if lent.again_ms else b"OK", 0, 0, lent.again_ms]

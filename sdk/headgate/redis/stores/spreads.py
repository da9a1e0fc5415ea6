"""A spread store reads and changes how messages of a queue go to its slices."""

from typing import Final, Literal

from headgate.core.limits.spread import Spread
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import script

Step = Literal["hold", "change", "go"]
HELD: Final = "spreading"


class SpreadStore:
    """A spread store has the steps by which a queue comes to be spread in another way."""

    def __init__(self, server: Backend) -> None:
        self._server = server

    async def in_force(self, whole: Address) -> tuple[Spread | None, str]:
        """Return how a queue is spread, and what is to come; nothing where nothing is.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        key = whole.shared[0]
        now, to = await self._server.command(key, "HMGET", key, "spread", "spread_to")
        return Spread.read((now or b"").decode()), (to or b"").decode()

    async def held(self, part: Address) -> str:
        """Return the number of the change for which a slice is held; nothing where it is not."""
        key = part.shared[0]
        found: bytes | None = await self._server.command(key, "HGET", key, HELD)
        return (found or b"").decode()

    async def seen(self, part: Address) -> str:
        """Return what whoever then finds a queue spread in some way says with what costs no credit at a slice."""
        key = part.shared[0]
        epoch, spreads = await self._server.command(key, "HMGET", key, "epoch", "spreads")
        return f"{int(epoch or 0)}-{int(spreads or 0)}"

    async def step(self, part: Address, to: str, mode: Step) -> tuple[str, int]:
        """Take a step; returns its code, and how much is not settled yet: where it is nothing, 0.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        op = script("spread")
        code, *numbers = await self._server.call(op, part.keys("-"), op.argv({"run_id": None, "mode": mode, "to": to}))
        return code.decode(), sum(map(int, numbers))

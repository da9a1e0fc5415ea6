"""A consumer's calls that take messages go to Redis through here, and each counts in its user's quota."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from headgate.redis.backend import Backend
from headgate.redis.scripts import Script
from headgate_coordinator.node.credit.in_flight import InFlight

COUNTED: Final = frozenset({"settle", "detach"})
"""Scripts by which consumers take messages, and give them back."""


class CountingBackend:
    """A counting backend takes the calls of one user's consumers to Redis: what they fetch counts in the user's quota.

    Args:
        server: of Redis.
        counts: returns what is in flight to the user; None where no quota bounds it.
    """

    def __init__(self, server: Backend, counts: Callable[[], Awaitable[InFlight | None]]) -> None:
        self._server, self._counts = server, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script; errors as :meth:`Backend.call`."""
        in_flight = await self._counts() if script.name in COUNTED else None
        return await counted(in_flight, self._server, script, keys, argv)


async def counted(
    in_flight: InFlight | None, server: Backend, script: Script, keys: Sequence[bytes], argv: Sequence[Any]
) -> Any:
    """Call a script by which a consumer takes messages, or gives them back; returns its reply."""
    if in_flight is None:
        return await server.call(script, keys, argv)
    if script.name == "settle":
        return await in_flight.settle(keys, argv, partial(server.call, script, keys))
    reply = await server.call(script, keys, argv)
    if script.name == "detach":
        in_flight.detached(keys, argv[2])
    return reply

"""A durable call waits until replicas have what was written, or the disk has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from headgate.core.durability import Durability, WriteProgress
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import Script, script


class DurableBackend:
    """A durable backend stands in for a backend in one call of a store, and waits after it.

    Attributes:
        held: how far what was written had come.
    """

    def __init__(self, server: Backend, durability: Durability, within_ms: int) -> None:
        self.held = WriteProgress()
        self._server = server
        self._durability = durability
        self._within_ms = within_ms

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script and wait; returns its reply. Errors as :meth:`Backend.secure`."""
        reply, self.held = await self._server.secure(script, keys, argv, self._durability, self._within_ms)
        return reply

    @property
    def backend(self) -> Backend:
        """Itself, for a store that makes one call."""
        return cast("Backend", self)


@dataclass(frozen=True, slots=True)
class KnownDurability:
    """The durability known of all earlier writes.

    Attributes:
        code: ``OK``, or ``UNKNOWN`` where the destination is gone.
        held: how far it has come.
        epoch: that it is about.
        last: number of the session's last message that is there.
    """

    code: str
    held: WriteProgress
    epoch: int = 0
    last: int = 0


async def secure(
    server: Backend, address: Address, session: str, durability: Durability, within_ms: int
) -> KnownDurability:
    """Wait until all that was written to a destination before is as safe as that, or the time is over.

    Raises:
        CoordinatorUnavailable: no answer.
        AccessDenied: a command is not allowed.
    """
    op = script("secure")
    argv = op.argv({"run_id": None, "session": session})
    reply, held = await server.secure(op, address.keys(session), argv, durability, within_ms)
    return KnownDurability(reply[0].decode(), held, *map(int, reply[1:]))

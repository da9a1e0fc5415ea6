"""One message as typed calls: deleted, or taken out at its source and let go of there once the target has it."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.core.links.calls import Entry
from headgate.core.names import decode_name, encode_name
from headgate.redis.backend import Backend, call
from headgate.redis.keys import PARTS, Address
from headgate.redis.replies import record
from headgate.redis.stores.links import entry_of

How = Literal["begin", "take", "end"]
LINKS: Final = 1 + PARTS.index("links")


@dataclass(frozen=True, slots=True)
class MoveStarted:
    """The source's answer as a move by hand begins.

    Attributes:
        code: as ``lua/move.lua`` names it.
        fence: number of this call, for the next ones.
        born: which destination of this name it is.
        taken: number of the message that an earlier call took and did not end; 0 for none.
    """

    code: str
    fence: int = 0
    born: int = 0
    taken: int = 0


class MoveStore:
    """A move store moves single messages of one server's destinations. At the target a link's commit stores it."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def discard(self, address: Address, id_: str) -> tuple[str, str]:
        """Delete a message; returns the code, and what follows it: who has it, or the kind of the destination.

        Raises:
            CoordinatorUnavailable: no answer; it may be deleted.
        """
        reply = await call(self.server, "discard", address.keys("-"), id=id_)
        return reply[0].decode(), reply[1].decode() if len(reply) > 1 else ""

    async def begin(self, source: Address, link: str, *, above: int = 0) -> MoveStarted:
        """Begin a move, or to end what an earlier one left: its calls are refused from now on.

        Args:
            source: a queue.
            link: id of the link that stands for moves to that target, see :func:`headgate.redis.keys.move_id`.
            above: what the fence is to be above: the target may remember a higher one.

        Raises:
            CoordinatorUnavailable: no answer; the call may be repeated.
        """
        reply = await self._call(source, link, "begin", fence=above, mark=0)
        return MoveStarted(reply[0].decode(), *map(int, reply[2:]))

    async def take(
        self, source: Address, link: str, id_: str, target: Address, *, fence: int, mark: int
    ) -> tuple[str, str, Entry | None]:
        """Take a message out, so that nobody else gets it; it stays pending. Returns the code, who has it, and itself.

        Args:
            source: as for :meth:`begin`.
            link: likewise.
            id_: of the message.
            target: where it is to go.
            fence: as :meth:`begin` answered.
            mark: of the target; the message gets a number above it.

        Raises:
            CoordinatorUnavailable: no answer; it may have been taken.
        """
        reply = await self._call(source, link, "take", fence=fence, mark=mark, id_=id_, target=encode_name(target.name))
        code = reply[0].decode()
        if code != "OK":
            return code, reply[1].decode() if code == "HELD" else "", None
        return code, "", entry_of(*reply[2:])

    async def end(self, source: Address, link: str, *, fence: int, mark: int) -> str:
        """Let go of the message that was taken, or, where the target's mark is below it, put it back; returns a code.

        Raises:
            CoordinatorUnavailable: no answer; the call may be repeated.
        """
        reply = await self._call(source, link, "end", fence=fence, mark=mark)
        return str(reply[0].decode())

    async def under_way(self, source: Address) -> list[tuple[str, str, int]]:
        """Return what is taken out at a source: the link that stands for it, the target's name, and since which ms."""
        found = []
        key = source.shared[LINKS]
        for name in await self.server.command(source.shared[0], "HKEYS", key):
            if name.startswith(b"moves:"):
                move = record(await self.server.command(source.shared[0], "HGET", key, name) or b"")
                if "to" in move:
                    found.append((name.decode().removeprefix("moves:"), decode_name(move["to"]), int(move["since"])))
        return found

    async def _call(
        self, source: Address, link: str, how: How, *, fence: int, mark: int, id_: str = "0", target: str = "-"
    ) -> Any:
        keys = source.keys(link)
        return await call(self.server, "move", keys, link=link, how=how, fence=fence, mark=mark, id=id_, target=target)

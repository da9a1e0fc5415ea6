"""A link's steps as typed calls: open and read at the source, commit at the target. Each may be repeated by anybody."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.core.durability import Durability, WriteProgress
from headgate.core.links.calls import Committed, Entry, Opened, Put, Read, Skip
from headgate.core.names import slice_name
from headgate.redis.backend import Backend, call
from headgate.redis.keys import PARTS, Address, link_at
from headgate.redis.replies import record
from headgate.redis.scripts import script

_LINKS: Final = 1 + PARTS.index("links")
Spreading = tuple[int, int] | None
MAX_BEYOND: Final = 255
"""Numbers in one call that closes a link."""


class Named(Protocol):
    """A record names the destinations that a link is between."""

    @property
    def source(self) -> str:
        """Where it takes from."""

    @property
    def target(self) -> str:
        """Where it puts to."""


class LinkStore:
    """A link store takes steps of one server's links: the source's for those that begin here, else the target's.

    A call raises CoordinatorUnavailable where there is no answer, and may be repeated.
    """

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def open(self, source: Address, link: str, *, fence: int, window: str, copies: bool = False) -> Opened:
        """Open a link at its source: make its subscription, if there is none, and its consumer, that no lease ends.

        Args:
            source: a queue or a topic.
            link: its id, see :func:`headgate.redis.keys.link_id`.
            fence: number of the caller's lease on the link.
            window: as the operator reads it, ``<messages>/<bytes>``.
            copies: whether the consumers of a queue get each message too.
        """
        how = "copies" if copies else "moves"
        reply = await call(self.server, "link_open", source.keys(link), link=link, fence=fence, window=window, how=how)
        code = reply[0].decode()
        if len(reply) < 4:
            return Opened(code, fence=int(reply[2]) if code == "FENCED" else 0)
        return Opened(code, int(reply[2]), int(reply[3]))

    async def read(
        self, source: Address, link: str, *, fence: int, born: int, mark: int, after: int, messages: int, size: int
    ) -> Read:
        """Accept at the source all up to ``mark``, and read what comes after ``after``; nothing read is removed.

        Args:
            source: as for :meth:`open`.
            link: its id.
            fence: number of the caller's lease on the link.
            born: as :meth:`open` answered.
            mark: number of the last message that the target has for good.
            after: number of the last message that the caller has, at least the target's mark.
            messages: most to return, 0 for none.
            size: most bytes to return; a larger message comes alone.
        """
        reply = await call(
            self.server, "link_read", source.keys(link), link=link, fence=fence, born=born, mark=mark, after=after,
            max_messages=messages, max_bytes=size, how="works", beyond="-",
        )  # fmt: skip
        code = reply[0].decode()
        if code not in ("OK", "MORE"):
            number = int(reply[2]) if len(reply) > 2 else 0
            return Read(code, fence=number if code == "FENCED" else 0, born=number if code == "BORN" else 0)
        flat = reply[4]
        entries = (entry_of(*flat[i : i + 4]) for i in range(0, len(flat), 4))
        return Read(code, int(reply[2]), tuple(entries), int(reply[3]) or None, lacks=tuple(map(int, reply[5:])))

    async def close(
        self, source: Address, link: str, *, fence: int, born: int, mark: int, beyond: Sequence[int] = ()
    ) -> str:
        """Accept all up to the last mark of a link that ends; returns a code, MORE asks to be called again.

        Args:
            source: as for :meth:`open`.
            link: its id.
            fence: number of a lease that the target knows: nothing of an earlier one can raise its mark.
            born: as :meth:`open` answered.
            mark: number of the last message that the target has.
            beyond: numbers above it that the target has too, in order, at most :data:`MAX_BEYOND`.
        """
        reply = await call(
            self.server, "link_read", source.keys(link), link=link, fence=fence, born=born, mark=mark, after=mark,
            max_messages=0, max_bytes=1, how="ends", beyond=" ".join(map(str, beyond)) or "-",
        )  # fmt: skip
        return str(reply[0].decode())

    async def mark(self, namespace: str, ends: Named, link: str, *, here: bool, slices: int = 1) -> int | None:
        """Return how far a link got, all slices of its source together; None where nothing is known of it.

        Where values say to which slice of the target a message goes, each of these knows of its own alone, and the
        source says what it has let go of.

        Args:
            namespace: of its source.
            ends: its source and its target.
            link: its id.
            here: whether the target can be asked; else the source's last knowledge of it is returned.
            slices: that its source has.
        """
        at = Address.of(namespace, ends.target).shared
        here = here and not await self.server.command(at[0], "HGET", at[0], "spread")
        if here:
            names = [f"to:{link_at(link, number)}" for number in range(slices)]
            found = [await self.server.command(at[0], "HGET", at[_LINKS], name) for name in names]
        else:
            found = await self._begun(namespace, ends, link, slices)
        return sum(int(record(one or b"").get("mark" if here else "released", 0)) for one in found) or None

    async def is_open(self, namespace: str, ends: Named, link: str, *, slices: int = 1) -> bool:
        """Return whether a link ever began at its source as it is there; arguments as of :meth:`mark`.

        Before that nothing is kept there for one that copies.
        """
        return None not in await self._begun(namespace, ends, link, slices)

    async def _begun(self, namespace: str, ends: Named, link: str, slices: int) -> list[bytes | None]:
        """Return the records of a link at all slices of its source."""
        names = (slice_name(ends.source, number) for number in range(slices))
        parts = [Address.of(namespace, name).shared for name in names]
        return [await self.server.command(keys[0], "HGET", keys[_LINKS], f"from:{link}") for keys in parts]

    async def fair_by(self, target: Address) -> str:
        """Return what the keys are that take turns at a target; empty where none do."""
        found: bytes | None = await self.server.command(target.shared[0], "HGET", target.shared[0], "fair_by")
        return (found or b"").decode()

    @staticmethod
    def _target(
        *, fence: int, born: int, prev: int, lost: bool, need: int | str, want: int, ttl_ms: int, weight: int,
        keys: str = "", segment: str = "-", spread: Spreading = None,
    ) -> dict[str, Any]:  # fmt: skip
        chain, (number, done) = "lost" if lost else "keep", ("-", 0) if spread is None else spread
        values = {"fence": fence, "ttl_ms": ttl_ms, "weight": weight, "born": born, "prev": prev, "chain": chain}
        return {**values, "need": need, "want": want, "segment": segment, "keys": keys, "spread": number, "done": done}

    async def commit(
        self,
        target: Address,
        link: str,
        entries: Sequence[Put | Skip] = (),
        *,
        fence: int,
        born: int,
        prev: int,
        ttl_ms: int,
        lost: bool = False,
        need: int = 0,
        want: int = 0,
        weight: int = 1,
        keys: str = "",
        segment: str = "-",
        spread: Spreading = None,
    ) -> Committed:
        """Put entries into the target once and in order, as far as credit goes, and ask for more. Without any: reserve.

        Args:
            target: a queue or a topic.
            link: its id.
            entries: at most 256, in the order of the source.
            fence: number of the caller's lease on the link.
            born: of the source, as :meth:`open` answered.
            prev: number of the message before the first entry.
            ttl_ms: how long credit is kept without a call.
            lost: accept a ``prev`` above the target's mark: what lies between is gone. The target's ledger tells.
            need: bytes of the message after these entries, 0 when not known.
            want: bytes of credit to hold.
            weight: share among producers.
            keys: that take turns, of each entry.
            segment: ``<name> <bytes> <messages>`` of the segment, where the entries are references to one.
            spread: of a link that brings each message to the slice of its value: the number of the spread in force,
                and up to which number all is at one of the slices for good.
        """
        values = self._target(
            fence=fence, born=born, prev=prev, lost=lost, need=need, want=want, ttl_ms=ttl_ms, weight=weight,
            keys=keys, segment=segment, spread=spread,
        )  # fmt: skip
        return _committed(
            await call(self.server, "link_commit", target.keys(link), _flat(entries), link=link, **values)
        )

    async def barrier(
        self, target: Address, link: str, *, fence: int, born: int, prev: int, ttl_ms: int, durability: Durability,
        timeout_ms: int, weight: int = 1, spread: Spreading = None,
    ) -> tuple[Committed, WriteProgress]:  # fmt: skip
        """Say the mark again and wait until it is as safe as that; returns the target's answer, and how far that came.

        Both go over one connection in one write, for WAIT is about what its own connection wrote. The link's
        need stays as it is, and its place in line.
        """
        op = script("link_commit")
        values = self._target(
            fence=fence, born=born, prev=prev, lost=False, need="same", want=0, ttl_ms=ttl_ms, weight=weight,
            spread=spread,
        )  # fmt: skip
        argv = op.argv({"run_id": None, "link": link, **values})
        reply, held = await self.server.secure(op, target.keys(link), argv, durability, timeout_ms)
        return _committed(reply), held


def entry_of(identifier: bytes, ttl: bytes, path: bytes, body: bytes) -> Entry:
    """Return a message as scripts answer it: id, what it has left to live and to wait, its path and itself."""
    seq, (life, _, later) = int(identifier.partition(b"-")[0]), ttl.partition(b"+")
    ttl_ms = None if life == b"never" else int(life)
    return Entry(seq, body, ttl_ms, tuple(path.decode().split()), later_ms=int(later or 0))


def _flat(entries: Sequence[Put | Skip]) -> list[Any]:
    flat: list[Any] = []
    for entry in entries:
        if isinstance(entry, Skip):
            flat += (entry.seq, "skip", "", "")
        else:
            ttl: int | str = "never" if entry.ttl_ms is None else entry.ttl_ms
            ttl = f"{ttl}+{entry.later_ms}" if entry.later_ms else ttl
            flat += (entry.seq, ttl, " ".join(entry.path), entry.body)
    return flat


def _committed(reply: list[Any]) -> Committed:
    code = reply[0].decode()
    if len(reply) < 8:
        return Committed(code, fence=int(reply[2]) if code == "FENCED" else 0)
    mark, held, held_m, place, blocked, again_ms = (int(n) for n in reply[2:8])
    beyond = tuple(int(n) for n in reply[8]) if len(reply) > 8 else ()
    return Committed(code, mark, held, held_m, place, blocked, again_ms, beyond=beyond)

"""The scripts of pools as typed calls: one method a script, arguments by name, replies as values with names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from headgate.core.names import decode_name
from headgate.redis.backend import Backend
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.replies import record
from headgate.redis.scripts import script

UNLIMITED: Final = 1 << 53
"""Stands for a limit that there is not, where numbers are compared: above all that can be counted."""
_KNOWN: Final = 11
"""Values of an answer of ``lua/slice.lua`` where its pool resumes at no level; others follow else."""
_DRAWN: Final = 8
"""Values of an answer of ``lua/pool.lua`` of an older node."""

Debt = Literal["keep", "owe", "void", "idle", "ticket"]
"""The ways in which a destination settles what it owes its pool; see ``lua/slice.lua``."""


def site_of(member: str) -> str:
    """Return the site that a member of a pool is; empty where it is a destination, whose encoded name has no ``@``.

    >>> site_of("@berlin"), site_of("orders")
    ('berlin', '')
    """
    return member[1:] if member.startswith("@") else ""


def shown_member(member: str) -> str:
    """Return a member of a pool as people read it.

    >>> shown_member("@berlin"), shown_member("orders%20x")
    ('site berlin', 'orders x')
    """
    return f"site {site}" if (site := site_of(member)) else decode_name(member)


@dataclass(frozen=True, slots=True)
class Share:
    """A share is a pool's record of a member: cumulative bytes, and the epoch of what is behind it.

    That is a destination, or a site's pool.

    ``need`` is what ``granted`` would be for its first in line to go, ``seen_ms`` when it was called for last,
    ``heard``, of a site, the epoch of this pool in which that was, ``least`` the bytes that nobody takes from it,
    ``overdrawn`` the ``returned`` with which it has paid back what it was lent above the limit; None where that is not
    known, or nothing is to be passed on; ``pending`` and ``full``, where the pool resumes at a level, what its slice
    reported last; ``refused``, of a site, ``stale@ms`` or ``ahead@ms`` where a report in its name was refused then.
    """

    member: str
    epoch: int
    granted: int
    returned: int
    weight: int = 1
    reserved: bool = False
    need: int = 0
    seen_ms: int = 0
    heard: int = 0
    least: int = 0
    overdrawn: int | None = None
    pending: int | None = None
    full: int = 0
    refused: str = ""

    @classmethod
    def answered(cls, member: str, held: "Slice", drawn: "PoolDraw") -> "Share":
        """Return what a pool's answer says of a destination, which has that on record."""
        overdrawn = drawn.overdrawn if drawn.overdrawn or held.overdrawn else None
        return cls(member, held.epoch, drawn.granted, drawn.returned, held.weight, overdrawn=overdrawn)

    @property
    def site(self) -> str:
        """Name of the site that it is; empty for a destination."""
        return site_of(self.member)

    @property
    def held(self) -> int:
        """Bytes of its slice."""
        return self.granted - self.returned

    def above(self, level: "Share") -> int:
        """Return the bytes that it holds above the level of another: more than that holds for each unit of weight."""
        if (level.reserved and not self.reserved) or level.held < level.least:
            return max(0, self.held - self.least)
        return max(0, self.held - max(self.least, level.held * self.weight // level.weight))


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice is a destination's record of its part of a pool; see ``lua/slice.lua``.

    ``pending``, ``full`` and ``waits`` are known where the pool resumes at a level.
    """

    code: str
    epoch: int = 0
    pool_epoch: int = 0
    granted: int = 0
    returned: int = 0
    need: int = 0
    used: int = 0
    reserved: bool = False
    learning_ms: int = 0
    weight: int = 1
    overdrawn: int = 0
    pending: int | None = None
    full: int | None = None
    waits: str = "no"

    @property
    def held(self) -> int:
        """Bytes of the slice."""
        return self.granted - self.returned

    @property
    def is_held_up(self) -> bool:
        """Whether its first in line waits for its pool to resume, or for it to hear that it is full."""
        return self.waits == "here" or (self.waits == "yes" and is_odd(self.full))

    @property
    def lacks(self) -> int:
        """Bytes that are missing for the first in line."""
        return self.need - self.granted


@dataclass(frozen=True, slots=True)
class PoolDraw:
    """A draw holds the answer of ``lua/pool.lua``.

    ``served`` are other members that it granted something; ``overdrawn`` is as of a :class:`Share`, 0 while nothing is
    above the limit.
    """

    code: str
    pool_epoch: int = 0
    granted: int = 0
    returned: int = 0
    place: int = 0
    limit: int = UNLIMITED
    served: tuple[Share, ...] = ()
    overdrawn: int | None = 0
    full: int | None = None


def is_odd(full: int | None) -> bool:
    """Return whether a number of the state says that a pool is full, and lends nothing before it resumes."""
    return full is not None and full % 2 == 1


def served_of(flat: list[bytes]) -> tuple[Share, ...]:
    """Return the members that a script says it has served."""
    return tuple(
        Share(flat[i].decode(), int(flat[i + 1]), int(flat[i + 2]), int(flat[i + 3])) for i in range(0, len(flat), 4)
    )


def limit_of(text: bytes | str) -> int:
    """Return bytes from the state's spelling of a limit."""
    return UNLIMITED if text in (b"unlimited", "unlimited") else int(text)


class PoolStore:
    """A pool store reaches pools and the slices that destinations hold of them.

    Every method is one script call, atomic in one slot.
    """

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def _call(
        self, name: str, keys: tuple[bytes, ...], values: dict[str, Any], rest: tuple[str, ...] = ()
    ) -> Any:
        op = script(name)
        return await self.server.call(op, keys, op.argv({"run_id": None, **values}, rest))

    async def slice(
        self, address: Address, pool: str, *, share: Share | None = None, pool_epoch: int = 0, target: int = 0,
        debt: Debt = "keep", full: int | None = None,
    ) -> Slice:  # fmt: skip
        """Tell a destination what the pool has on record for it, ask it to give back; without ``share`` only look.

        Args:
            address: the destination.
            pool: encoded name.
            share: the pool's record.
            pool_epoch: the pool's, 0 when not known; answers of an earlier one are refused from then on.
            target: the total of bytes to give back, as far as they are not in use.
            debt: ``owe`` to give back the rest too, as soon as it is not in use; ``void`` to owe nothing any more;
                ``idle`` to have sessions give back what they hold and do not use; ``ticket`` where a message is to go
                above the limit. Where the pool's record says what it was lent so, that comes back before all else.
            full: as the pool answered it, where it resumes at a level.
        """
        above = share.overdrawn if share else None
        reply = await self._call(
            "slice",
            address.keys("-"),
            {
                "pool": pool,
                "epoch": share.epoch if share else 0,
                "pool_epoch": pool_epoch,
                "granted": share.granted if share else 0,
                "returned": share.returned if share else 0,
                "target": target if above is None else above,
                "debt": debt if above is None or debt == "ticket" else "above",
            },
            () if full is None else (str(full),),
        )
        if len(reply) == 1:
            return Slice(reply[0].decode())
        epoch, heard, granted, returned, need, used = (int(n) for n in reply[1:7])
        code, reserved = reply[0].decode(), reply[7] == b"yes"
        more = [int(number) for number in (*reply[8:_KNOWN], 0)]  # an older node does not say what is above the limit
        slice_ = Slice(code, epoch, heard, granted, returned, need, used, reserved, more[0], more[1], more[2])
        if len(reply) <= _KNOWN:
            return slice_
        return replace(slice_, pending=int(reply[11]), full=int(reply[12]), waits=reply[13].decode())

    async def draw(
        self, pool: PoolAddress, member: str, held: Slice, *, with_ticket: bool = False, short: bool = False
    ) -> PoolDraw:
        """Tell a pool what a destination has on record, and ask for what its first in line needs.

        Args:
            pool: whose.
            member: the destination, encoded.
            held: what it has on record.
            with_ticket: whether this is for a message that may go above the limit, at a slice.
            short: whether all were asked, and nothing is to be had: then it is full.
        """
        report = () if held.pending is None else (str(held.pending), str(held.full), "yes" if short else "no")
        reply = await self._call(
            "pool",
            pool.keys,
            {
                "member": member,
                "epoch": held.epoch,
                "pool_epoch": held.pool_epoch,
                "granted": held.granted,
                "returned": held.returned,
                "need": held.need,
                "reserved": "ticket" if with_ticket else "yes" if held.reserved else "no",
                "weight": held.weight,
            },
            report,
        )
        if len(reply) == 1:
            return PoolDraw(reply[0].decode())
        epoch, granted, returned, place = (int(n) for n in reply[1:5])
        above = reply[7] if len(reply) > 7 else b"0"
        overdrawn = None if above == b"-" else int(above)
        limit, served = limit_of(reply[5]), served_of(reply[6])
        full = None if held.pending is None or len(reply) <= _DRAWN else int(reply[8])
        return PoolDraw(reply[0].decode(), epoch, granted, returned, place, limit, served, overdrawn, full)

    async def ticket(self, address: Address, session: str, *, since: int) -> tuple[str, dict[str, int]]:
        """Let a wait of a deadlock go above the limit, as ``Store.resolve``; returns the code, and what a slice lacks.

        With ``SHORT`` that is by the encoded name of the pool that may lend it: all that the message lacks there.
        """
        values = {"session": session, "since": since, "mode": "ticket", "wait": "", "text": ""}
        reply = await self._call("resolve", address.keys(session), values)
        short = reply[2] if len(reply) > 2 else []
        return reply[0].decode(), {short[i].decode(): int(short[i + 1]) for i in range(0, len(short), 2)}

    async def set(
        self,
        pool: PoolAddress,
        settings: Mapping[str, str],
        *,
        mode: Literal["change", "recover", "ready", "remove"] = "change",
        pool_epoch: int = 0,
        ttl_ms: int = 0,
    ) -> tuple[str, int, bool, tuple[Share, ...]]:
        """Create or change a pool; returns the code, the epoch, whether it learns, and who was served."""
        rest = tuple(text for pair in settings.items() for text in pair)
        reply = await self._call(
            "pool_set", pool.keys, {"mode": mode, "pool_epoch": pool_epoch, "ttl_ms": ttl_ms}, rest
        )
        return reply[0].decode(), int(reply[1]), int(reply[2]) > 0, served_of(reply[3])

    async def forget(self, pool: PoolAddress, member: str, epoch: int) -> tuple[str, tuple[Share, ...]]:
        """End the account of a destination that is gone; returns the code and who was served."""
        reply = await self._call("pool_forget", pool.keys, {"member": member, "epoch": epoch})
        return reply[0].decode(), served_of(reply[3])

    async def fields(self, pool: PoolAddress) -> dict[str, str]:
        """Return the pool's own hash; empty when there is no such pool."""
        flat = await self.server.command(pool.keys[0], "HGETALL", pool.key)
        return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}

    async def members(self, pool: PoolAddress, *, most: int = 1000, match: str = "*") -> list[Share]:
        """Return about ``most`` members, the largest slices first; reads a piece at a time, changes nothing.

        Args:
            pool: whose.
            most: members to read.
            match: pattern of Redis for their names; of sites it is ``@*``.
        """
        found: dict[str, Share] = {}
        cursor = b"0"
        while True:
            cursor, flat = await self.server.command(
                pool.keys[0], "HSCAN", pool.keys[1], cursor, "MATCH", match, "COUNT", 500
            )
            for i in range(0, len(flat), 2):
                name, values = flat[i].decode(), record(flat[i + 1])
                found[name] = Share(
                    name, int(values["epoch"]), int(values["granted"]), int(values["returned"]),
                    int(values.get("weight", 1)), values["reserved"] == "1", int(values["need"]), int(values["seen"]),
                    int(values.get("heard", 0)), int(values.get("least", 0)),
                    int(values["overdrawn"]) if "overdrawn" in values else None,
                    int(values["pending"]) if "pending" in values else None, int(values.get("full", 0)),
                    values.get("refused", ""),
                )  # fmt: skip
            if cursor == b"0" or len(found) >= most:
                return sorted(found.values(), key=lambda share: -share.held)

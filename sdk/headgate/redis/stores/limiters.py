"""The scripts of limiters as typed calls."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.core.names import slice_name
from headgate.redis.backend import Backend, call
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate.redis.stores.limiter_levels import LimiterLevels, levels_together

Op = Literal["admit", "settle", "release", "renew", "claim", "sample"]
MOST_SWEEPS: Final = 256
"""Calls that one sweep makes; each looks at up to 512 records of keys."""
NO_KEY = "*"
"""Stands for no key; no key is spelled so once it is encoded."""


@dataclass(frozen=True, slots=True)
class HoldCall:
    """A hold call asks for one operation on one hold.

    Attributes:
        op: what is to be done.
        id: the hold's, ``<session>.<n>``.
        key: encoded, or :data:`NO_KEY`.
        amounts: ``<limit>=<number>,...``, or ``-`` for none.
        ttl_ms: length of its lease.
        wait_ms: 0 where it is refused rather than let wait.
    """

    op: Op
    id: str
    key: str = NO_KEY
    amounts: str = "-"
    ttl_ms: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class HoldAnswers:
    """`HoldAnswers` keeps the reply of one call.

    Attributes:
        code: of the script.
        epoch: of the limiter; 0 where the code is not ``OK``.
        answers: one for each operation, as the header of ``lua/admit.lua`` lists them.
    """

    code: str
    epoch: int
    answers: tuple[str, ...]


class LimiterStore:
    """A limiter store reaches limiters in Redis; every method is one script call, atomic in one slot."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def admit(
        self, address: Address, session: str, *, seq: int, epoch: int, calls: Sequence[HoldCall]
    ) -> HoldAnswers:
        """Make one numbered call with up to 128 operations."""
        words = [value for c in calls for value in (c.op, c.id, c.key, c.amounts, c.ttl_ms, c.wait_ms)]
        return await self.decide(address, session, seq=seq, epoch=epoch, words=words)

    async def decide(
        self, address: Address, session: str, *, seq: int, epoch: int, words: Sequence[str | int]
    ) -> HoldAnswers:
        """Make one numbered call, with its operations as the script takes them: six words each."""
        op = script("admit")
        argv = [*op.pick({"run_id": None, "session": session, "seq": seq, "epoch": epoch}), *words]
        reply = await self.server.call(op, address.limiter_keys(session), argv)
        code = reply[0].decode()
        if code != "OK":
            return HoldAnswers(code, 0, tuple(_texts(reply[1:])))
        return HoldAnswers(code, int(reply[1]), tuple(_texts(reply[2:])))

    async def sweep(self, address: Address) -> int:
        """End holds whose lease is over, serve the line, delete whole records; returns ms until the next lease ends."""
        left = 0
        for _ in range(MOST_SWEEPS):
            reply = await call(self.server, "admit", address.limiter_keys("-"), session="-", seq=0, epoch=0)
            left = int(reply[2]) if reply[0] == b"OK" else 1
            if left:
                break
        return left

    async def hold_off(self, address: Address, session: str, *, key: str, ms: int, reason: str) -> tuple[str, int]:
        """Let nothing more be admitted for a while; returns the code, and for how many ms."""
        keys = address.limiter_keys(session)
        reply = await call(self.server, "hold_off", keys, session=session, key=key, ms=ms, reason=reason)
        return reply[0].decode(), int(reply[1]) if reply[0] == b"OK" else 0

    async def pause(self, address: Address, session: str, *, ms: int, reason: str) -> tuple[str, int]:
        """Have a gate or a bucket admit nothing for a while; returns the code, and for how many ms."""
        reply = await call(self.server, "pause", address.keys(session), session=session, ms=ms, reason=reason)
        return reply[0].decode(), int(reply[1]) if reply[0] == b"OK" else 0

    async def levels(
        self, address: Address, *, key: str = NO_KEY, session: str = "", most: int = 0, slices: int = 1
    ) -> LimiterLevels | None:
        """Read what is taken, and up to ``most`` keys and holds; None where there is no such limiter.

        Of one with ``slices`` all are read, each at an instant of its own.
        """
        if slices == 1:
            return await self._levels_of(address, key, session, most)
        parts = (Address.of(address.namespace, slice_name(address.name, number)) for number in range(slices))
        found = await asyncio.gather(*(self._levels_of(part, key, session, most) for part in parts))
        there = [one for one in found if one is not None]
        return levels_together(there) if found[0] is not None else None

    async def _levels_of(self, address: Address, key: str, session: str, most: int) -> LimiterLevels | None:
        who = session or "-"
        reply = await call(self.server, "levels", address.limiter_keys("-"), key=key, who=who, most=most)
        if reply[0] != b"OK":
            return None
        return LimiterLevels(
            limits=_rows(reply[2]), of_key=_rows(reply[3]), keys=int(reply[4]), waiting=int(reply[5]),
            records=_pairs(reply[6]), line=tuple(_texts(reply[7])), holds=_pairs(reply[8]), own=_pairs(reply[9]),
            learning_ms=int(reply[10]), reason=reply[11].decode("utf-8", "replace"), now_ms=int(reply[12]),
            clock_ms=int(reply[13]), head=reply[14].decode(), admitted=int(reply[15]), refused=int(reply[16]),
            all_holds=int(reply[17]), by_band=_rows(reply[18]), **_shadows(reply[19:]),
        )  # fmt: skip


def _texts(values: Iterable[bytes | int]) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _rows(value: bytes) -> tuple[str, ...]:
    return tuple(value.decode().split(";")) if value else ()


def _pairs(values: Sequence[bytes]) -> dict[str, str]:
    texts = _texts(values)
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _shadows(reply: Sequence[bytes]) -> dict[str, Any]:
    """Return what the reply has of shadow limits, where there are any."""
    if not reply:
        return {}
    own, of_key, would_wait, shadowed, *_ = reply
    return {
        "shadows": _rows(own), "of_key_shadows": _rows(of_key), "would_wait": int(would_wait),
        "shadowed": _rows(shadowed),
    }  # fmt: skip

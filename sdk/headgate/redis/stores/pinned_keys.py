"""This module calls the scripts that move keys of a limiter between its slices."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.core.limiting.pins import PinnedSlice, Pins
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate.redis.stores.limiters import NO_KEY

MOST_PAIRS: Final = 128
"""Keys of one call, as the header of ``lua/join.lua`` says."""


class KeyRecord(NamedTuple):
    """A key has a record of what it holds and owes at a slice, as ``lua/parted.lua`` spells it."""

    key: str
    text: str


class Parted(NamedTuple):
    """`Parted` is one look at the keys of a slice that belong to others.

    Attributes:
        cursor: where the next look goes on; 0 where there is none.
        records: of those keys.
        learning_ms: how long it is not known what they hold, for state may have been lost; nothing was read then.
        is_gone: whether there is no such slice.
    """

    cursor: int = 0
    records: tuple[KeyRecord, ...] = ()
    learning_ms: int = 0
    is_gone: bool = False


class PinnedKeyStore:
    """A store reaches one slice of a limiter in Redis; every method is one script call, atomic in one slot."""

    def __init__(self, server: Backend) -> None:
        self._server = server

    async def pin(self, address: Address, pins: Pins | None = None, epoch: int = 0) -> PinnedSlice | None:
        """Say over how many slices keys are spread, or only read what is known of that; None where it is gone.

        Args:
            address: the slice.
            pins: None only reads.
            epoch: of the slice, where all that came to it was known in that; else 0.
        """
        op = script("pin")
        known = pins or Pins()
        values = {"version": known.version, "slices": known.slices, "before": known.before, "epoch": epoch}
        reply = await self._server.call(op, address.limiter_keys("-"), op.argv({"run_id": None, **values}))
        if reply[0] != b"OK":
            return None
        there, sure = Pins.read(reply[2].decode())
        return PinnedSlice(int(reply[1]), there, sure)

    async def parted(self, address: Address, slices: int, cursor: int = 0, key: str = NO_KEY) -> Parted:
        """Look at some keys of a slice that belong to others of so many ``slices``, or at one key."""
        op = script("parted")
        argv = op.argv({"run_id": None, "slices": slices, "cursor": cursor, "key": key})
        reply = await self._server.call(op, address.limiter_keys("-"), argv)
        if reply[0] == b"LEARNING":
            return Parted(learning_ms=int(reply[1]))
        if reply[0] != b"OK":
            return Parted(is_gone=True)
        texts = [value.decode() for value in reply[2:]]
        return Parted(int(reply[1]), tuple(map(KeyRecord, texts[::2], texts[1::2])))

    async def join(self, address: Address, version: int, source: int, records: Sequence[KeyRecord]) -> bool:
        """Have a slice take in keys of another, or forget its own of others where it is its own ``source``.

        Returns:
            Whether it did; else other pins are in force there.
        """
        op = script("join")
        calls = []
        for at in range(0, len(records), MOST_PAIRS):
            argv = op.pick({"run_id": None, "version": version, "from": source})
            words = [word for record in records[at : at + MOST_PAIRS] for word in record]
            calls.append(self._server.call(op, address.limiter_keys("-"), [*argv, *words]))
        return all(reply[0] == b"OK" for reply in await asyncio.gather(*calls))

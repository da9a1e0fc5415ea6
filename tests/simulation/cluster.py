"""A cluster of a world: three masters with a replica each, slots that move, and maps that are out of date."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from tests.simulation.deployments import Sharded
from tests.simulation.server import Redis
from tests.simulation.shards import Shard

SLOTS: Final = 48
"""Slots of the ring: clients read it whole again and again, and one of 16384 takes as long as all else."""
GOSSIP: Final = 0.3
"""Seconds in which the others hear of a change."""
RESHARD: Final = "reshard"


@lru_cache(maxsize=4096)
def slot_of(key: bytes | str, _buckets: int = SLOTS) -> int:
    """Return the slot of a key, of those that lie together on the real ring."""
    text = key.encode() if isinstance(key, str) else key
    return key_slot(text) * SLOTS // REDIS_CLUSTER_HASH_SLOTS


@dataclass(slots=True)
class Move:
    """A slot on its way from one master to another."""

    source: Redis
    target: Redis


class Cluster(Sharded):
    """Three masters; each server answers by what it knows of who has which slot."""

    url = "redis+cluster://m0,m1,m2"
    masters = ("m0", "m1", "m2")

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._owners = [self.shards[slot * len(self.shards) // SLOTS] for slot in range(SLOTS)]
        self._moves: dict[int, Move] = {}
        self._known = {server: self._map() for server in self.servers}
        self._epoch = 0
        self._epochs: dict[Redis, int] = {}
        for server in self.servers:
            server.mode = "cluster"
            server.redirects = self._redirects
            server.slots = self._slots

    def has(self, shard: Shard, name: str) -> bool:
        return self._owners[slot_of(name)] is shard

    def befall(self, what: str, which: int, seconds: float) -> None:
        if what == RESHARD:
            self._reshard(which, seconds)
        else:
            super().befall(what, which, seconds)

    def led(self, shard: Shard) -> None:
        """Have a new master know at once that it is one."""
        self._tell(shard.master)

    # Slots that move. Calls for a slot on its way find all of its keys at one master, or are to come again.

    def _reshard(self, which: int, seconds: float) -> None:
        names = sorted(self.oracle.last)
        if not names:
            return
        slot = slot_of(names[int(100 * seconds) % len(names)])
        source = self._owners[slot]
        target = self.shards[(self.shards.index(source) + 1 + which % 2) % len(self.shards)]
        if source.busy or target.busy:
            return
        source.busy = target.busy = True
        self._moves[slot] = Move(source.master, target.master)
        self.later(seconds / 3, self._hand, slot, 2)
        self.later(2 * seconds / 3, self._hand, slot, 1)
        self.later(seconds, self._moved, slot, source, target)

    def _hand(self, slot: int, part: int) -> None:
        """Have so great a part of the keys that are left go over."""
        move = self._moves[slot]
        keys = [key for key in move.source.all_keys() if slot_of(key) == slot]
        move.source.hand(keys[::part], move.target)

    def _moved(self, slot: int, source: Shard, target: Shard) -> None:
        self._hand(slot, 1)
        del self._moves[slot]
        self._owners[slot] = target
        self._tell(source.master, target.master)
        source.ends()
        target.ends()

    # What each server knows.

    def _map(self) -> list[Redis]:
        return [shard.master for shard in self._owners]

    def _tell(self, *first: Redis) -> None:
        """Have some servers know the map at once, and the others hear of it; who is frozen does so later."""
        self._epoch += 1
        known = self._map()
        for server in self.servers:
            after = 0.0 if server in first else GOSSIP * self.chance.random()
            server.later(after, self._hear, server, known, self._epoch)

    def _hear(self, server: Redis, known: list[Redis], epoch: int) -> None:
        if epoch > self._epochs.get(server, 0):
            self._known[server], self._epochs[server] = known, epoch

    def _redirects(self, server: Redis, words: Sequence[bytes], asks: bool) -> str | None:
        """Return why a server does not serve a command."""
        if words[0].upper() == b"EVALSHA":
            keys = words[3 : 3 + int(words[2])]
        else:
            keys = [word for word in words[1:] if word.startswith(b"hg:")][:1]
        if not keys or words[0].upper() == b"SCAN":  # which each server answers for itself
            return None
        slot = slot_of(keys[0])
        owner, move = self._known[server][slot], self._moves.get(slot)
        if owner is server and server.follows:
            owner = server.follows
        there = server.exist(keys) if move and server in (move.source, move.target) else len(keys)
        if owner is server:
            if move is None or there == len(keys):
                return None
            if there:
                return "TRYAGAIN Multiple keys request during rehashing of slot"
            return f"ASK {slot} {move.target.process.name}:6379"
        if asks and move is not None and move.target is server:
            return None if there == len(keys) or len(keys) == 1 else "TRYAGAIN Multiple keys request during rehashing"
        return f"MOVED {slot} {owner.process.name}:6379"

    def _slots(self, server: Redis) -> list[Any]:
        """Return the answer to CLUSTER SLOTS."""
        ranges: list[Any] = []
        for slot, owner in enumerate(self._known[server]):
            if ranges and ranges[-1][2][0] == owner.process.name.encode():
                ranges[-1][1] = slot
                continue
            shard = next(shard for shard in self.shards if owner in shard)
            other = shard.replica if owner is shard.master else shard.master
            ranges.append([slot, slot, _node(owner), _node(other)])
        return ranges


def _node(server: Redis) -> list[Any]:
    return [server.process.name.encode(), 6379, server.process.name.encode().ljust(40, b"0")]

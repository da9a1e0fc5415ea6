"""The servers of a world: one alone, a master that Sentinels watch, or the masters of a cluster."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import hiredis

from tests.simulation.doors import Channels, Door
from tests.simulation.judge.oracle import Oracle
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.server import Backing, Redis, Rewrite, lost_after
from tests.simulation.shards import Shard

HOME: Final = "home"
PART: Final = "part"
"""Sites: one whose pool it is, and one that has a part of it."""
THERE: Final = "r"
"""The queue of the part; all else is at the home."""
APART: Final = 400.0
"""Seconds by which the clock of the part is behind that of the home."""
SERVICE: Final = "main"
SENTINELS: Final = 3
HEARS_WITHIN: Final = 1.0
"""Seconds in which a Sentinel hears of a failover that another one led."""


class Deployment:
    """One server alone, which comes back without the last of what it did.

    Attributes:
        oracle, later: set by who tells a history; ``later`` has something happen so many seconds from now.
    """

    url = "redis://redis:6379"
    masters: tuple[str, ...] = ("redis",)

    def __init__(
        self, loop: VirtualLoop, network: Network, backing: Backing, *, rewrite: Rewrite | None, chance: Random
    ) -> None:
        self.loop, self.network, self.chance = loop, network, chance
        self.oracle: Oracle
        self.later: Callable[..., None]
        names = [name for master in self.masters for name in self._names(master)]
        self.servers = [
            Redis(loop, network, backing, name=name, database=number, rewrite=rewrite)
            for number, name in enumerate(names)
        ]
        self._lagging: set[Redis] = set()

    @property
    def sites(self) -> Sequence[Sequence[Redis]]:
        """The servers of each site, whose clocks agree."""
        return (self.servers,)

    def _names(self, master: str) -> tuple[str, ...]:
        return (master,)

    def serving(self, which: int) -> Redis:
        """Return a server that is in charge."""
        return self.servers[which % len(self.servers)]

    def befall(self, what: str, which: int, seconds: float) -> None:
        """Have something happen to a server, which ends by itself."""
        redis = self.serving(which)
        match what:
            case "down" if redis.serves:
                redis.stop()
                self.later(seconds, redis.start)
            case "failover" if redis not in self._lagging:
                self._lag(redis, self.servers.index(redis))
                self.later(seconds / 4, self._lose, redis, self.servers.index(redis), lost_after(seconds))
            case "hang":
                redis.process.frozen = True
                self.later(seconds, self.loop.thaw, redis.process)
            case _:
                pass

    def lies_at(self, server: Redis, name: str) -> bool:
        """Return whether a destination lies at a server."""
        del name
        return server in self.servers

    def _lag(self, redis: Redis, number: int) -> None:
        """Have a database beside get no more of a server."""
        self._lagging.add(redis)
        redis.keep(len(self.servers) + number, lags=True)
        redis.after_unsent = partial(self.oracle.kept, number, anew=False)
        self.oracle.kept(number)

    def _lose(self, redis: Redis, number: int, most: int) -> None:
        self._lagging.discard(redis)
        lost = redis.catch_up(len(self.servers) + number, most)
        if redis.serves:
            redis.stop()
            redis.lose(len(self.servers) + number)
            self.oracle.restored(number, partial(self.lies_at, redis), lost)
            self.later(0.1, redis.start)


class TwoSites(Deployment):
    """A server at each of two sites."""

    url = f"redis://{HOME}:6379"
    masters = (HOME, PART)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.servers[1].process.ahead = -APART

    @property
    def sites(self) -> Sequence[Sequence[Redis]]:
        """Each alone."""
        return [(server,) for server in self.servers]

    def lies_at(self, server: Redis, name: str) -> bool:
        return (server is self.servers[1]) == (name == f"hg:{{sim/{THERE}}}")


class Sharded(Deployment):
    """Masters with a replica each; what befalls one befalls its shard."""

    def __init__(self, loop: VirtualLoop, network: Network, *args: Any, **named: Any) -> None:
        super().__init__(loop, network, *args, **named)
        pairs = zip(self.servers[::2], self.servers[1::2], strict=True)
        self.shards = [Shard(*pair, self) for pair in pairs]
        for server in self.servers:
            server.hears = self.servers

    def _names(self, master: str) -> tuple[str, ...]:
        return master, f"{master}r"

    def serving(self, which: int) -> Redis:
        return self.shards[which % len(self.shards)].master

    def befall(self, what: str, which: int, seconds: float) -> None:
        """Have something happen to a shard."""
        self.shards[which % len(self.shards)].befall(what, seconds)

    def has(self, shard: Shard, name: str) -> bool:
        """Return whether a destination lies at a shard."""
        del name
        return shard in self.shards

    def kept(self, shard: Shard, *, anew: bool = False) -> None:
        """Have the oracle remember a state that a replica may take over with."""
        self.oracle.kept(self.shards.index(shard), anew=anew)

    def restored(self, shard: Shard, lost: int) -> None:
        """Tell the oracle that this is what there is again."""
        self.oracle.restored(self.shards.index(shard), partial(self.has, shard), lost)

    def led(self, shard: Shard) -> None:
        """Hear that another server is in charge."""


class Watched(Sharded):
    """A master and its replica, watched by Sentinels that hear of a failover one after the other."""

    url = f"redis+sentinel://{','.join(f'z{number}:26379' for number in range(SENTINELS))}/{SERVICE}"
    masters = ("a",)

    def __init__(self, loop: VirtualLoop, network: Network, *args: Any, **named: Any) -> None:
        super().__init__(loop, network, *args, **named)
        self._sentinels = [Sentinel(loop, network, f"z{number}", "a") for number in range(SENTINELS)]

    def led(self, shard: Shard) -> None:
        """Have one Sentinel know at once, and the others hear of it."""
        first = self.chance.randrange(SENTINELS)
        for number, sentinel in enumerate(self._sentinels):
            after = 0.0 if number == first else HEARS_WITHIN * self.chance.random()
            self.loop.at(self.loop.now + after, sentinel.learn, shard.master.process.name, shard.led)


class Sentinel:
    """A Sentinel, and what it believes."""

    def __init__(self, loop: VirtualLoop, network: Network, name: str, master: str) -> None:
        self.process = Process(name)
        self.channels = Channels()
        self._master, self._epoch = master, 0
        network.listen(name, self.process, loop.begin(self.process), lambda: Door(self))

    def learn(self, master: str, epoch: int) -> None:
        """Believe that a server is the master since a failover, and say so."""
        if epoch > self._epoch:
            before, self._master, self._epoch = self._master, master, epoch
            said = f"{SERVICE} {before} 6379 {master} 6379".encode()
            self.channels.publish(b"+switch-master", said)

    def do(self, door: Door, words: Sequence[bytes]) -> None:
        """Do one command and answer it."""
        if self.channels.do(door, words):
            return
        match [word.upper() for word in words]:
            case [b"SENTINEL", b"MASTERS"]:
                state = {
                    "name": SERVICE, "ip": self._master, "port": 6379, "flags": "master",
                    "num-other-sentinels": SENTINELS - 1, "config-epoch": self._epoch,
                }  # fmt: skip
                door.say([[str(part).encode() for pair in state.items() for part in pair]])
            case _:
                door.say(hiredis.ReplyError(f"ERR unknown command {words[0]!r}"))

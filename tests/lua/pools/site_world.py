"""A pool at one site, three destinations that share it, and a part of it at another site, with three of its own.

Letters between the sites lie in ``mail`` of the world, and may be delivered late, twice or never. Either side may lose
all of its pool, or go back to what it was some time ago, as a failover to a replica that was behind has it.
"""

from typing import Any, Final

from hypothesis import strategies as st

from headgate.namespace.pool_sites import take_in
from headgate.redis.stores.pool_sites import Held, Letter, PoolSiteStore
from tests.lua.place import BEGIN_MS
from tests.lua.pool_world import NAMES, PoolWorld
from tests.lua.pools.pool_actions import ACTIONS, act
from tests.support.rewriting import RewritingServer, virtual_clock

LIMIT: Final = 100
MOST: Final = 60
OF: Final = "hq/memory"

sides = st.sampled_from(["hq", "eu"])
LETTERS = st.one_of(
    st.tuples(st.just("report")),
    st.tuples(st.just("carry"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("carry"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("round")),
    st.tuples(st.just("round")),
    st.tuples(st.just("idle"), st.integers(1, 60)),
)
OBTAIN = st.tuples(st.just("obtain"), sides, st.sampled_from(NAMES), st.integers(5, 60))
EVENTS = st.one_of(
    OBTAIN,
    OBTAIN,
    LETTERS,
    st.tuples(st.just("at"), sides, ACTIONS),
)
LOSSES = st.one_of(
    EVENTS,
    OBTAIN,
    st.tuples(st.just("keep"), sides),
    st.tuples(st.just("keep"), sides),
    st.tuples(st.just("go back"), sides),
    st.tuples(st.just("at"), sides, st.tuples(st.just("lose pool"))),
    st.tuples(st.just("at"), sides, st.tuples(st.just("restart"), st.integers(0, 1000))),
    st.tuples(st.just("at"), sides, st.tuples(st.just("rebuild"))),
)


class SiteWorld:
    """Both sites, on one server, each of which has a run of its own."""

    def __init__(self, hq: PoolWorld, eu: PoolWorld, name: str = "eu") -> None:
        self.hq, self.eu, self.name = hq, eu, name
        self.mail: list[tuple[str, Any]] = []
        self.kept: dict[str, list[bytes | None]] = {}
        self.number = 0
        self.runs = 0
        self.least = 0
        self.asked = set[str]()

    @classmethod
    async def of(cls, url: str, namespace: str, rule: tuple[str, str] | None = None) -> "SiteWorld":
        """Open both; with a rule, one goes to Redis as another."""
        worlds = []
        for site in ("hq", "eu"):
            server = RewritingServer(url, virtual_clock, lambda source: source.replace(*rule) if rule else source)
            await server.open()
            worlds.append(PoolWorld(server, f"{namespace}-{site}"))
        hq, eu = worlds
        return cls(hq, eu)

    @property
    def key(self) -> bytes:
        """Of the letters."""
        return self.hq.pool.site_key(self.name)

    async def open(self, limit: int = LIMIT, most: int = MOST, least: int = 0) -> None:
        self.least = least
        self.hq.settings = {"limit_bytes": str(limit), "sites": f"eu={most}"} | (
            {"leasts": f"eu={least}"} if least else {}
        )
        self.eu.settings = {"limit_bytes": "unlimited", "part_of": OF}
        for world in (self.hq, self.eu):
            world.now = BEGIN_MS
            await world.clock(0)
            await world.open("unlimited")
            await world.store.set(world.pool, world.settings)

    async def close(self) -> None:
        for world in (self.hq, self.eu):
            world.server.run = None
            await world.close()
        await self.hq.server.command(self.key, "DEL", self.key)
        for world in (self.hq, self.eu):
            await world.server.close()

    async def look(self) -> Held:
        return await PoolSiteStore(self.eu.server).share(self.eu.pool)

    async def report(self, text: str) -> Letter:
        """Deliver a report; returns the answer to it."""
        store = PoolSiteStore(self.hq.server)
        await self.hq.server.command(self.key, "HSET", self.key, "report", text)
        _, epoch, _, _, served = await store.account(self.hq.pool, self.name)
        await self.hq.pools.deliver(self.hq.pool, served, epoch)
        return await self.answer()

    async def answer(self) -> Letter:
        """Return the answer that lies there."""
        return Letter.read(await self.hq.server.command(self.key, "HGET", self.key, "answer"))

    async def hear(self, letter: Letter, idle: int = 0) -> Held:
        """Deliver an answer."""
        return await take_in(self.eu.pools, self.eu.pool, letter, of=OF, idle=idle, asked=self.asked)

    def stamped(self, held: Held) -> str:
        self.number += 1
        return f"{held.report} at={self.number}"

    async def round(self) -> Held:
        """Take all the steps of one round."""
        letter = await self.report(self.stamped(await self.look()))
        return await self.hear(letter) if letter.text else await self.look()

    async def settle(self) -> Held:
        """Take rounds until both sides agree."""
        for _ in range(5):
            await self.round()
        return await self.round()

    async def obtain(self, site: str, name: str, size: int) -> None:
        """Have a destination wait for that much more, and whoever can fetch it."""
        world = self.hq if site == "hq" else self.eu
        await world.producers[name].ask(need=world.producers[name].held + size)
        await world.run(name)
        if site == "eu":
            for _ in range(3):
                await self.round()
        if (await world.run(name)).lacks <= 0:
            await world.producers[name].renew()

    async def act(self, event: tuple[Any, ...]) -> None:
        what, *rest = event
        match what:
            case "report":
                if (held := await self.look()).code != "UNKNOWN":
                    self.mail.append(("report", self.stamped(held)))
            case "carry":
                await self._carry(rest[0], again=rest[1])
            case "round":
                await self.round()
            case "obtain":
                await self.obtain(*rest)
            case "idle":
                await self.hear(Letter(), idle=rest[0])
            case "at":
                world = self.hq if rest[0] == "hq" else self.eu
                await act(world, rest[1])
                other = self.eu if rest[0] == "hq" else self.hq
                await other.clock(world.now - other.now)
            case "keep":
                self.kept[rest[0]] = await self._dump(rest[0])
            case "go back":
                await self._go_back(rest[0])

    async def _carry(self, index: int, *, again: bool) -> None:
        if not self.mail:
            return
        what, content = self.mail[index % len(self.mail)]
        if not again:
            self.mail.pop(index % len(self.mail))
        if what == "report":
            letter = await self.report(content)
            if letter.text:
                self.mail.append(("answer", letter))
        else:
            held = await self.hear(content)
            if held.code != "UNKNOWN":
                self.mail.append(("report", self.stamped(held)))

    def _keys(self, site: str) -> tuple[bytes, ...]:
        return (*self.hq.pool.keys, self.key) if site == "hq" else self.eu.pool.keys

    async def _dump(self, site: str) -> list[bytes | None]:
        world = self.hq if site == "hq" else self.eu
        return [await world.server.command(key, "DUMP", key) for key in self._keys(site)]

    async def _go_back(self, site: str) -> None:
        world = self.hq if site == "hq" else self.eu
        for key, dump in zip(self._keys(site), self.kept.get(site, []), strict=False):
            await world.server.command(key, "DEL", key)
            if dump is not None:
                await world.server.command(key, "RESTORE", key, 0, dump)
        self.runs += 1
        world.server.run = f"later {self.runs}".encode()
        for other in (self.hq, self.eu):
            await other.clock(1)

    async def check(self) -> None:
        """All that is held at both sites is within the limit, and what is held here within what the other knows."""
        here, there = await self.hq.slices(), await self.eu.slices()
        total = sum(here.values()) + sum(there.values())
        assert total <= LIMIT, (here, there)
        assert sum(there.values()) <= MOST
        assert sum(here.values()) <= LIMIT - self.least, "what is the least of the other is nobody's here"

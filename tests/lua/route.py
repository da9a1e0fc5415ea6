"""A link between two destinations of one server under the test's clock, called step by step."""

from dataclasses import dataclass, field

from headgate.core.links.calls import Committed, Entry, Opened, Put, Read, Skip
from headgate.redis.keys import Address, link_id
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from tests.lua.place import TTL_MS, Place
from tests.support.rewriting import RewritingServer

LINK = link_id("a route")


@dataclass
class Route:
    """Two destinations, and what a worker of the link between them would know."""

    server: RewritingServer
    namespace: str
    kind: str = "queue"
    copies: bool = False
    fence: int = 1
    born: int = 0
    store: LinkStore = field(init=False)
    source: Place = field(init=False)
    target: Place = field(init=False)

    def __post_init__(self) -> None:
        self.store = LinkStore(self.server)
        self.source = Place(self.server, Address.of(self.namespace, "from"))
        self.target = Place(self.server, Address.of(self.namespace, "to"))
        self.source.sessions.add(LINK)
        self.target.sessions.add(LINK)

    @classmethod
    async def make(
        cls, server: RewritingServer, namespace: str, kind: str = "queue", *, copies: bool = False, **settings: str
    ) -> "Route":
        route = cls(server, namespace, kind, copies)
        await route.source.create(kind, limit=1000)
        await route.target.create("queue", **{"limit": "1000", **settings})  # type: ignore[arg-type]  # all text
        assert (await route.open()).code == "OK"
        return route

    async def wait(self, ms: int) -> None:
        await self.source.wait(ms)
        await self.target.wait(ms)

    async def close(self) -> None:
        await self.source.server.forget(self.source.address, *self.source.sessions)
        await self.source.server.forget(self.target.address, *self.target.sessions)

    async def open(self) -> Opened:
        opened = await self.store.open(
            self.source.address, LINK, fence=self.fence, window="10/1000", copies=self.copies
        )
        self.born = opened.born or self.born
        return opened

    async def read(self, mark: int = 0, after: int | None = None, *, messages: int = 256, size: int = 1 << 30) -> Read:
        return await self.store.read(
            self.source.address, LINK, fence=self.fence, born=self.born, mark=mark,
            after=mark if after is None else after, messages=messages, size=size,
        )  # fmt: skip

    async def end(self) -> int:
        """End it as `links/removal` does, and return the mark of the target."""
        self.fence += 1
        await self.open()
        mark = (await self.commit()).mark
        while await self.store.close(self.source.address, LINK, fence=self.fence, born=self.born, mark=mark) == "MORE":
            pass
        while await Store(self.server).detach(self.source.address, LINK, f"{LINK}.1", failed=False) == "MORE":
            pass
        return mark

    async def commit(
        self, *entries: Put | Skip, prev: int = 0, need: int = 0, want: int = 0, lost: bool = False, segment: str = "-"
    ) -> Committed:
        return await self.store.commit(
            self.target.address, LINK, entries, fence=self.fence, born=self.born, prev=prev, need=need, want=want,
            lost=lost, ttl_ms=TTL_MS, segment=segment,
        )  # fmt: skip

    async def stored(self) -> list[bytes]:
        return list((await self.target.look()).messages.values())

    async def check(self) -> None:
        """Expect the counters of both sides to be true."""
        for place in (self.source, self.target):
            count = await place.recount()
            assert count.equal, count
            assert min(count.stored) >= 0


def puts(entries: tuple[Entry, ...], *, place: str = "here") -> list[Put]:
    return [Put(entry.seq, entry.body, entry.ttl_ms, (*entry.path, place)) for entry in entries]

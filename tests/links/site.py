"""Destinations on real servers, with a simple producer and consumer, and workers of a link between them."""

from dataclasses import dataclass, field
from typing import Any

from headgate.core.links.calls import Call
from headgate.redis.keys import Address, link_id
from headgate.redis.replies import Account
from headgate.redis.server import Server
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker

LINK = link_id("from one site to another")
TTL_MS = 10_000


@dataclass
class Site:
    """One server, and what was made on it."""

    server: Server
    namespace: str
    seq: int = 1
    spent: int = 0
    made: set[str] = field(default_factory=set)

    @property
    def store(self) -> Store:
        return Store(self.server)

    def address(self, name: str) -> Address:
        return Address.of(self.namespace, name)

    def end(self, name: str, *, hints: bool = False) -> LinkSide:
        return LinkSide(LinkStore(self.server), self.address(name), self.server.wake_ups() if hints else None)

    async def make(self, name: str, kind: str = "queue", limit: int | str = "unlimited", **more: int | str) -> None:
        self.made.add(name)
        settings = {"kind": kind, "limit_bytes": str(limit), "limit_messages": "unlimited"} | {
            name: str(value) for name, value in more.items()
        }
        await self.store.apply(self.address(name), settings, mode="ensure", ttl_ms=TTL_MS)

    async def send(self, name: str, *bodies: bytes) -> None:
        """Publish as one session that holds what it needs."""
        size, count = sum(map(len, bodies)), len(bodies)
        need, need_m = self.spent + size, self.seq - 1 + count
        account = Account("sender", 1, 0, self.spent, self.seq - 1, need=need, need_m=need_m, want=need, want_m=need_m)
        credit = await self.store.acquire(self.address(name), account, ttl_ms=60_000)
        assert credit.granted >= need, credit
        account = Account("sender", 1, credit.epoch, credit.granted, credit.granted_m)
        for first in range(0, count, 256):
            part = bodies[first : first + 256]
            done = await self.store.publish(self.address(name), account, seq=self.seq, bodies=part, ttl_ms=60_000)
            assert done.code == "OK", done
            self.seq += len(part)
        self.spent = need

    async def stored(self, name: str) -> list[bytes]:
        return [body for _, body, *_ in await self.store.browse(self.address(name), after=None, count=100_000)]

    async def take(self, name: str, most: int = 256) -> list[bytes]:
        """Consume what there is, up to so many messages."""
        if not hasattr(self, "_fetches"):
            self._fetches: dict[str, int] = {}
        if name not in self._fetches:
            self._fetches[name] = 0
            await self.store.attach(
                self.address(name), "taker", number=1, subscription="queue", durable=True, window="1/1", ttl_ms=60_000
            )
        self._fetches[name] += 1
        arguments: dict[str, Any] = {"fetch": self._fetches[name], "max_messages": most, "max_bytes": 1 << 30}
        got = await self.store.settle(self.address(name), "taker", "taker.1", ttl_ms=60_000, **arguments)
        ids = [identifier for identifier, _, _ in got.messages]
        await self.store.settle(self.address(name), "taker", "taker.1", ttl_ms=60_000, accepted=ids)
        return [body for _, body, _ in got.messages]

    async def check(self) -> None:
        for name in self.made:
            count = await self.store.recount(self.address(name))
            assert count.equal, (name, count)

    async def close(self) -> None:
        for name in self.made:
            address = self.address(name)
            await self.store.remove(address, everything=True)
            keys = [f"{address.key}:receipt:{session}".encode() for session in ("sender", LINK)]
            await self.server.command(keys[0], "UNLINK", *keys)


@dataclass
class Sites:
    """Two sites; a link goes from ``orders`` at the one to ``orders`` at the other."""

    here: Site
    there: Site

    def worker(self, fence: int = 1, how: Forwarding | None = None, *, hints: bool = False) -> LinkWorker:
        return LinkWorker(
            LINK, self.here.end("orders", hints=hints), self.there.end("orders", hints=hints),
            how or Forwarding("here/orders", "there/orders", window=4096), fence=fence, dead=self.here.end("dead"),
        )  # fmt: skip

    async def make(self, limit: int | str = "unlimited") -> None:
        await self.here.make("orders")
        await self.here.make("dead")
        await self.there.make("orders", limit=limit)

    async def check(self) -> None:
        await self.here.check()
        await self.there.check()

    async def close(self) -> None:
        await self.here.close()
        await self.there.close()


class Dead(Exception):
    """The worker is no more."""


async def work(worker: LinkWorker, *, calls: int = 10_000, answered: bool = True) -> int:
    """Make calls one after the other until they change nothing more; at call number ``calls`` the worker dies.

    Raises:
        Dead: it died, after that call was done, or before.
    """
    forwarder, done, now, rounds = worker.forwarder, 0, 0.0, 0
    forwarder.woken(source=True, target=True)
    before: Any = None
    while now < 5 and rounds < 6:
        wanted: list[Call] = forwarder.calls(now)
        if not wanted:
            now += 2.0
            forwarder.woken(target=True)
        for call in wanted:
            done += 1
            if done == calls and not answered:
                raise Dead
            answer, replicas = await worker.perform(call)
            if done == calls:
                raise Dead
            forwarder.hear(call, answer, now, replicas=replicas)
        state = (forwarder.mark, forwarder.durable, forwarder.released, forwarder.in_hand, forwarder.held)
        if state != before:
            before, now, rounds = state, 0.0, 0
        rounds += 1
    return done

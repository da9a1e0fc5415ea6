"""A pool, three destinations that share it, and the steps between them, each taken by nobody in particular."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.core.names import decode_name, encode_name
from headgate.namespace.pool_slices import Pools
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.replies import Account, Credit, record
from headgate.redis.stores.pools import UNLIMITED, PoolStore, Share, Slice, limit_of
from tests.lua.place import BEGIN_MS, Place, Producer
from tests.support.rewriting import RewritingServer, virtual_clock

NAMES: Final = ("a", "b", "c")


class PoolWorld:
    """What is on its way between slots lies in ``mail``, and may be delivered late, twice or never."""

    def __init__(
        self, server: RewritingServer, namespace: str, pool: str = "memory", names: Sequence[str] = NAMES
    ) -> None:
        self.server = server
        self.store = PoolStore(server)
        self.pool = PoolAddress.of(namespace, pool)
        self.pools = Pools(self.store, namespace, ttl_ms=1000)
        self.places = {name: Place(server, Address.of(namespace, decode_name(name))) for name in names}
        self.producers: dict[str, Producer] = {}
        self.mail: list[tuple[str, Any, int]] = []
        self.now = BEGIN_MS
        self.lowered = False
        self.settings = {"limit_bytes": "100"}

    async def open(self, limit: int | str = 100, reserve: int = 0) -> None:
        await self.clock(0)
        await self.store.set(self.pool, {"limit_bytes": str(limit), "reserve_bytes": str(reserve)})
        for place in self.places.values():
            await self.make(place)
        await self.rebuild()
        self.producers = {name: self.producer(place) for name, place in self.places.items()}

    def producer(self, place: Place) -> Producer:
        """Return who asks for what the pool lends."""
        return place.producer("s")

    async def used(self, place: Place) -> int:
        """Return what is pending and leased of what the pool lends, recounted and found right."""
        return await place.usage()

    async def make(self, place: Place) -> None:
        """Make a destination that shares the pool."""
        await place.create(limit="unlimited", pools=encode_name(self.pool.name))

    async def close(self) -> None:
        for place in self.places.values():
            await self.server.forget(place.address, "s", *place.sessions)
        beside = (f"{self.pool.key}:clock", f"{self.pool.key}:trace")
        await self.server.command(self.pool.keys[0], "DEL", *self.pool.keys, *beside)

    async def clock(self, ms: int) -> None:
        self.now += ms
        for place in self.places.values():
            place.now = self.now
            await place.wait(0)
        await self.server.command(self.pool.keys[0], "SET", f"{self.pool.key}:clock", self.now * 1000)

    async def rebuild(self) -> bool:
        code, epoch, _, _ = await self.store.set(self.pool, {}, mode="ready")
        return code == "UNKNOWN" or await self.pools.rebuild(self.pool, epoch)

    async def look(self, name: str) -> Slice:
        return await self.store.slice(self.places[name].address, encode_name(self.pool.name))

    async def step(self, index: int, *, again: bool) -> None:
        """Deliver one letter."""
        if not self.mail:
            return
        what, content, epoch = self.mail[index % len(self.mail)]
        if not again:
            self.mail.pop(index % len(self.mail))
        if what == "draw":
            name, held = content
            drawn = await self.store.draw(self.pool, name, held)
            self.mail += [("apply", share, drawn.pool_epoch) for share in drawn.served]
            if drawn.code == "OK":
                own = Share(name, held.epoch, drawn.granted, drawn.returned)
                self.mail.append(("apply", own, drawn.pool_epoch))
        else:
            held = await self.store.slice(
                self.places[content.member].address, encode_name(self.pool.name), share=content, pool_epoch=epoch
            )
            self.mail.append(("draw", (content.member, held), 0))

    async def ask_back(self, name: str, size: int, *, owe: bool) -> None:
        shares = {share.member: share for share in await self.store.members(self.pool)}
        if share := shares.get(name):
            held = await self.store.slice(
                self.places[name].address, encode_name(self.pool.name), share=share,
                target=share.returned + size, debt="owe" if owe else "keep",
            )  # fmt: skip
            self.mail.append(("draw", (name, held), 0))

    async def run(self, name: str) -> Slice:
        """Take all the steps of one refill, without taking back from others."""
        held = await self.look(name)
        drawn = await self.store.draw(self.pool, name, held)
        share = Share(name, held.epoch, drawn.granted, drawn.returned)
        await self.pools.deliver(self.pool, drawn.served, drawn.pool_epoch)
        return await self.store.slice(
            self.places[name].address, encode_name(self.pool.name), share=share, pool_epoch=drawn.pool_epoch
        )

    async def slice_of(self, name: str) -> dict[str, int]:
        """Return the record that a destination has of its slice."""
        key = self.places[name].address.key
        text = await self.server.command(key.encode(), "HGET", f"{key}:slices", encode_name(self.pool.name))
        return {field: int(value) for field, value in record(text).items()}

    async def slices(self) -> dict[str, int]:
        """Return what each destination holds; checks that none uses more."""
        found = {}
        for name, place in self.places.items():
            key = place.address.key
            text = await self.server.command(key.encode(), "HGET", f"{key}:slices", encode_name(self.pool.name))
            values = record(text or b"granted=0 returned=0")
            found[name] = int(values["granted"]) - int(values["returned"])
            used = await self.used(place)
            assert 0 <= used <= found[name], f"{name} uses {used} of a slice of {found[name]}"
        return found

    async def check(self) -> None:
        """Nothing is held twice, by whatever steps it came to this."""
        held, fields = await self.slices(), await self.store.fields(self.pool)
        members = {share.member: share for share in await self.store.members(self.pool)}
        if not fields:
            assert sum(held.values()) <= 100
            return
        granted = int(fields["granted_bytes"])
        assert granted == sum(share.held for share in members.values())
        if int(fields["learning"]) == 0:
            for name, size in held.items():
                assert size <= (members[name].held if name in members else 0), (name, size, members)
        if not self.lowered:
            limit = limit_of(fields["limit_bytes"])
            assert sum(held.values()) <= limit or limit == UNLIMITED
            assert int(fields["peak_bytes"]) <= limit


class ThreeSlices(Pools):
    """The pool of a queue that never had more than three slices: others have no clock here."""

    async def _candidates(self, pool: PoolAddress) -> list[str]:
        return (await super()._candidates(pool))[:3]


class SlicedWorld(PoolWorld):
    """A queue over three slots, each of which is a member of the pool that they have for themselves."""

    def __init__(self, server: RewritingServer, namespace: str, limit: int = 100) -> None:
        super().__init__(server, namespace, "orders#0", ("orders", "orders%.1", "orders%.2"))
        self.pools = ThreeSlices(self.store, namespace, ttl_ms=1000)
        self.limit = limit

    async def make(self, place: Place) -> None:
        if place is self.places["orders"]:
            await place.create(limit=self.limit, slices="3")
        else:
            await place.create(limit=self.limit, of_slices="3")


class Counted(Producer):
    """A session that asks for messages where others ask for bytes."""

    @property
    def held(self) -> int:
        return self.granted_m - self.used_m - self.returned_m

    def account(self, need: int = 0, window: int = 0, weight: int = 1, ahead: tuple[int, int] = (0, 0)) -> Account:
        account, base = super().account(0, 0, weight), self.used_m + self.returned_m
        need_m = base + need if need else self.granted_m
        return replace(account, need_m=need_m, want_m=max(need_m, base + window))

    async def give_back(self, size: int, messages: int = 0) -> Credit:
        return await super().give_back(0, size + messages)


class MessagesWorld(SlicedWorld):
    """The same, with a limit in messages, which its slices share in another pool."""

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        super().__init__(server, namespace)
        self.pool = PoolAddress.of(namespace, "orders#m")

    async def make(self, place: Place) -> None:
        if place is self.places["orders"]:
            await place.create(limit="unlimited", messages=100, slices="3")
        else:
            await place.create(limit="unlimited", messages=100, of_slices="3")

    def producer(self, place: Place) -> Producer:
        place.sessions.add("s")
        return Counted(place, "s")

    async def used(self, place: Place) -> int:
        seen, count = await place.look(), await place.recount()
        assert count.equal, count
        return seen.pending.messages + seen.leased.messages


class Runner:
    """A loop with a server on it, and namespaces that no example used before."""

    def __init__(self, url: str, namespace: str) -> None:
        self.runner = asyncio.Runner()
        self.server = RewritingServer(url, virtual_clock)
        self.numbers = itertools.count()
        self.namespace, self.url = namespace, url
        self.runner.run(self.server.open())

    def another(self) -> tuple[str, str]:
        """Return the URL of the server, and a namespace that no example used before."""
        return self.url, f"{self.namespace}-{next(self.numbers)}"

    def world(self) -> PoolWorld:
        return PoolWorld(self.server, f"{self.namespace}-{next(self.numbers)}")

    def sliced(self) -> SlicedWorld:
        return SlicedWorld(self.server, f"{self.namespace}-{next(self.numbers)}")

    def messages(self) -> MessagesWorld:
        return MessagesWorld(self.server, f"{self.namespace}-{next(self.numbers)}")

    def close(self) -> None:
        self.runner.run(self.server.close())
        self.runner.close()


async def held(world: PoolWorld, **sizes: int) -> None:
    """Let destinations hold and use so much of a pool of 100."""
    for name, size in sizes.items():
        await world.producers[name].ask(need=size)
        assert (await world.run(name)).lacks <= 0
        await world.pools.give_back(world.places[name].address, world.pool.name)
        await world.clock(0)


async def granted(world: PoolWorld) -> int:
    return int((await world.store.fields(world.pool))["granted_bytes"])

"""A full Redis: what takes room is refused whole, what frees room works, so that it can always be drained."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headgate.errors import CoordinatorUnavailable
from headgate.namespace.pool_slices import Pools
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore, Slice
from tests.lua.place import TTL_MS, Consumer, Place
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.servers import RedisServer, ServerBinary, oldest_and_newest


@pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
async def full(request: pytest.FixtureRequest) -> AsyncIterator["Full"]:
    binary: ServerBinary = request.param
    with RedisServer.start(binary, persist=False) as redis:
        server = RewritingServer(redis.url, virtual_clock)
        await server.open()
        yield Full(server, Address.of("full", "orders"))
        await server.close()


class Full(Place):
    """A place on a server of its own, whose memory can be used up."""

    async def fill(self, spare: int = -1) -> None:
        """Let Redis have no memory left, or only so many bytes."""
        info = await self.server.command(b"", "INFO", "memory")
        used = int(dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)["used_memory"])
        await self.server.command(b"", "CONFIG", "SET", "maxmemory", used + spare if spare >= 0 else 1)

    async def drain(self) -> None:
        await self.server.command(b"", "CONFIG", "SET", "maxmemory", 0)

    async def wait_though_full(self, ms: int) -> None:
        await self.drain()
        await self.wait(ms)
        await self.fill()

    async def refused(self, call: Callable[[], Awaitable[object]]) -> None:
        """Check that a call is refused for want of memory, and changes nothing."""
        before = await self.look()
        with pytest.raises(CoordinatorUnavailable, match="out of memory"):
            await call()
        assert await self.look() == before


async def test_publishing_into_a_full_redis_is_refused_and_works_again_when_it_is_drained(full: Full) -> None:
    await full.create(limit=1 << 40)
    ann, bob = full.producer("ann"), await full.consumer("bob")
    await ann.ask(window=1 << 30)
    ann.granted_m = (await ann.call(ann.account(window=1 << 30))).granted_m
    await full.fill(spare=4 << 20)

    async def store_for_ever() -> None:
        while True:
            await ann.ask(need=200_000, window=1 << 30)
            await ann.publish(200_000)

    with pytest.raises(CoordinatorUnavailable, match="out of memory"):
        await store_for_ever()
    seen = await full.look()
    assert seen.pending.messages == len(seen.messages) == ann.used_m > 5
    await full.refused(lambda: ann.publish_as(ann.account(), ann.seq, 200_000))
    while ids := await bob.fetch(4):
        await bob.accept(*ids)
    assert (await full.look()).pending.bytes == 0
    await ann.ask(need=200_000, window=1 << 30)
    await ann.publish(200_000)
    assert len(await bob.fetch()) == 1


async def test_what_takes_room_is_refused_whole_even_when_there_is_something_to_reap(full: Full) -> None:
    """Mutant: `reap_leases` begins with what is allowed, and the caller fails in the middle."""
    await full.create(limit=1000)
    ann, dead = full.producer("ann"), full.producer("dead", ttl_ms=1000)
    await ann.ask(window=100)
    await dead.ask(window=100)
    await full.wait(700)
    await full.reap()
    await full.wait(400)
    await full.fill()
    bob = Consumer(full, "bob", "queue")
    await full.refused(lambda: ann.publish_as(ann.account(), 1, 10))
    await full.refused(lambda: ann.ask(window=200))
    await full.refused(lambda: full.producer("new").ask(need=10))
    await full.refused(bob.attach)
    await full.drain()
    assert await full.usage() == 200
    await ann.publish(10)
    assert "dead" not in (await full.look()).sessions


async def test_what_frees_room_works_in_a_full_redis(full: Full) -> None:
    """Mutant: `settle` begins with what Redis does not allow."""
    await full.create(limit=1000)
    ann, bob, cid = full.producer("ann"), await full.consumer("bob"), await full.consumer("cid")
    waiting = full.producer("waiting")
    await ann.send(300, 300, 300)
    await ann.ask(window=100)
    await waiting.ask(need=900)
    ids = await bob.fetch()
    await full.fill()
    assert (await bob.call()).code == "OK", "a lease is renewed"
    assert (await bob.accept(ids[0])).stale == 0
    assert (await bob.call(released=[ids[1]], fetch=2, max_messages=9, max_bytes=999)).messages
    assert await cid.detach() == "OK"
    assert (await ann.give_back(40)).code == "OK"
    assert (await ann.leave()).code == "LEFT"
    assert (await bob.accept(*ids[1:])).stale == 0
    seen = await full.look()
    assert (seen.pending.bytes, seen.leased.bytes, seen.line) == (0, 900, [])
    assert await full.usage() == 900


async def test_leases_are_reclaimed_in_a_full_redis(full: Full) -> None:
    """Mutant: `reap` begins with what Redis does not allow."""
    await full.create(limit=1000)
    await full.producer("dead").ask(window=500)
    for _ in range(4):
        await full.wait_though_full(TTL_MS // 2)
        await full.reap()
    assert (await full.look()).leased.bytes == 0


async def test_settling_reclaims_in_a_full_redis(full: Full) -> None:
    """Mutant: `settle` begins with what Redis does not allow."""
    await full.create(limit=1000)
    bob = await full.consumer("bob")
    await full.producer("dead").ask(window=500)
    for _ in range(4):
        await full.wait_though_full(TTL_MS // 2)
        assert (await bob.call()).code == "OK"
    assert (await full.look()).leased.bytes == 0


async def test_an_operator_can_purge_change_repair_and_delete_in_a_full_redis(full: Full) -> None:
    """Mutants: `apply` and `recount` begin with what Redis does not allow."""
    await full.create(limit=1000)
    ann = full.producer("ann")
    await ann.send(500)
    await full.fill()
    await full.change(limit_bytes="2000")
    assert (await full.store.recount(full.address, repair=True)).equal
    assert await full.store.remove(full.address, everything=False) == (1, 500)
    assert await full.store.remove(full.address, everything=False) == (0, 0)
    assert (await full.look()).fields["limit_bytes"] == "2000"
    snapshot = await full.store.snapshot(full.address)
    assert snapshot is not None
    await full.store.remove(full.address, everything=True)
    assert await full.store.snapshot(full.address) is None


async def test_a_subscription_can_be_removed_from_a_full_redis(full: Full) -> None:
    """Mutant: `detach` begins with what Redis does not allow."""
    await full.create("topic")
    red = await full.consumer("bob", "red", durable=True)
    await full.producer("ann").send(10, 20)
    await red.fetch(1)
    await full.fill()
    assert await red.detach() == "OK"
    while await full.store.detach(full.address, "bob", "!red", failed=False) == "MORE":
        pass
    assert (await full.look()).pending.bytes == 0


async def test_a_slice_goes_back_to_its_pool_in_a_full_redis(full: Full) -> None:
    """Mutant: `slice`, or `pool`, begins with what Redis does not allow."""
    store, pool = PoolStore(full.server), PoolAddress.of(full.address.namespace, "memory")
    pools = Pools(store, full.address.namespace, ttl_ms=1000)
    await full.create(limit=1000, pools="memory")
    await full.server.command(pool.keys[0], "SET", f"{pool.key}:clock", full.now * 1000)
    for name in ("x", "z"):
        await full.server.set_clock(Address.of(full.address.namespace, name), full.now)
    _, epoch, _, _ = await store.set(pool, {"limit_bytes": "500"})
    await pools.rebuild(pool, epoch)
    ann = full.producer("ann")
    await ann.ask(need=300)
    await pools.step(full.address, "memory", lambda *_: None, set())
    await ann.renew()
    assert ann.granted == 300
    await pools.give_back(full.address, "memory")
    x = (await store.draw(pool, "x", Slice("OK", 1, need=50))).granted
    assert (await store.draw(pool, "z", Slice("OK", 1, need=200))).place == 1
    await full.fill()
    await ann.give_back(200)
    await pools.give_back(full.address, "memory")
    fields = await store.fields(pool)
    assert fields["granted_bytes"] == str(100 + x + 200), "what came back was granted to who waited"
    drawn = await store.draw(pool, "x", Slice("OK", 1, granted=x, returned=1, need=x + 300))
    assert (drawn.code, drawn.returned, drawn.place) == ("OK", 1, 1)
    await store.set(pool, {"limit_bytes": "600"})
    await store.forget(pool, "none", 1)
    await full.drain()

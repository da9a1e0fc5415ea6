"""P9: every script touches one hash slot and declares every key. Run on three masters, every command watched."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from headgate.core.durability import MEMORY
from headgate.core.links.calls import Put, Read, Skip
from headgate.errors import CoordinatorUnavailable
from headgate.redis.durable_calls import secure
from headgate.redis.keys import Address
from headgate.redis.scripts import parse, script_names
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.moves import MoveStore
from headgate.redis.stores.paces import Pace, PaceStore
from headgate.redis.stores.pools import PoolStore, Slice
from headgate.redis.stores.rates import Hand, RateStore
from headgate.redis.stores.spools import SpoolStore
from headgate.redis.stores.spreads import SpreadStore
from tests.lua.contracts.test_contract import KEYS
from tests.lua.place import TTL_MS, Consumer, Place
from tests.lua.pool_world import NAMES, PoolWorld
from tests.support.rewriting import RewritingServer, virtual_clock, watched
from tests.support.shared import SharedServers

pytestmark = [pytest.mark.every_cluster, pytest.mark.docker]
READ_ONLY: Final = {
    "GET", "HGET", "HGETALL", "HMGET", "HLEN", "HKEYS", "HEXISTS", "HSCAN", "ZRANGE", "ZRANK", "ZSCORE", "ZCARD",
    "ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "XLEN", "XRANGE", "XPENDING", "EXISTS", "PUBLISH", "TIME",
}  # fmt: skip
ALLOWED_WHEN_FULL: Final = {"HDEL", "DEL", "UNLINK", "ZREM", "XACK", "XDEL"}


@pytest.fixture
async def places(cluster_url: str, namespace: str) -> AsyncIterator[list[Place]]:
    """Destinations with names of every sort, and as many more as it takes to have some on each of the three masters."""
    server = RewritingServer(cluster_url, virtual_clock, watched)
    await server.open()
    addresses = [Address.of(namespace, name) for name in ("a", "d é", "e/f", "g.h")]
    for number in range(100):
        if len({server._lane(address.shared[0]) for address in addresses}) == 3:
            break
        addresses.append(Address.of(namespace, f"more-{number}"))
    places = [Place(server, address) for address in addresses]
    yield places
    for place in places:
        await place.server.forget(place.address, *place.sessions)
    await server.close()


async def live(place: Place, kind: str) -> None:
    """Let every script do, of all that it can do, as much as fits in one short life."""
    await place.create(kind, limit=300)
    ann, bob = place.producer("ann"), await place.consumer("bob", "red")
    await place.consumer("cid", "blue", durable=True)
    dead, dying = place.producer("dead", ttl_ms=1000), await place.consumer("dying", "red")
    await ann.ask(window=200)
    await ann.publish(*[20] * 5)
    await dead.ask(window=100)
    await dying.fetch(1)
    waiting = place.producer("waiting")
    await waiting.ask(need=150)
    since = int((await place.look()).sessions["waiting"]["since"])
    assert await place.store.resolve(place.address, "waiting", since=since, mode="ticket") in ("OK", "GONE")
    ids = await bob.fetch()
    answer = await bob.call(
        accepted=ids[:1], rejected=ids[1:2], released=ids[2:3], failed=ids[3:], fetch=bob.fetches + 1, max_messages=2,
        max_bytes=99,
    )  # fmt: skip
    await bob.call(fetch=bob.fetches + 1, max_messages=2, max_bytes=99)
    assert answer.code == "OK"
    assert await place.store.drop(place.address, "ann", messages=1, size=20) == "OK"
    assert (await secure(place.server, place.address, "ann", MEMORY, 1)).code == "OK"
    for _ in range(8):
        await place.wait(TTL_MS // 4)
        await bob.call()
        await ann.renew()
        await place.reap()
    await place.change(limit_bytes="500")
    await place.store.snapshot(place.address, session="waiting", entries=10)
    await place.store.detach(place.address, "cid", "!blue", failed=False)
    await place.store.remove(place.address, everything=False)
    place.server.run = b"another run"
    await ann.renew()
    place.server.run = None
    await ann.give_back(10)
    await ann.leave()
    assert (await place.recount()).equal
    await place.store.recount(place.address, repair=True)
    await bob.detach()
    await place.store.detach(place.address, "ann", "!red", failed=False)
    await place.store.remove(place.address, everything=True)


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_every_script_keeps_to_its_declared_keys_in_one_slot(
    places: list[Place], kind: str, shared_servers: SharedServers
) -> None:
    """Mutant: `publish` writes a receipt that is nobody's key."""
    for place in places:
        await live(place, kind)
        assert {"XADD", "XACK", "XDEL", "XCLAIM", "PUBLISH", "UNLINK"} <= set(
            await place.server.take_trace(place.address)
        )
    nodes = {shared_servers.cluster().urls.index(await where(place, shared_servers)) for place in places}
    assert nodes == {0, 1, 2}, "the test's names lie on all masters"


async def where(place: Place, shared_servers: SharedServers) -> str:
    """Return the URL of the master that has the destination."""
    cluster: Any = place.server._cluster
    port = cluster.get_node_from_key(place.address.key).port
    return next(url for url in shared_servers.cluster().urls if f":{port}" in url)


async def test_buckets_keep_to_their_keys_too(places: list[Place]) -> None:
    for place in places:
        await place.create("bucket", rate="10", burst="5")
        place.sessions.add("ann")
        for _ in range(2):
            code, _ = await place.store.take(place.address, "ann", seq=1, line=[(1, 0), (9, 0), (5, 0), (3, 900)])
            assert code == "OK"
        await place.change(rate="20", burst="5")
        assert "SET" in await place.server.take_trace(place.address)


async def test_a_key_that_is_not_declared_would_be_noticed(places: list[Place]) -> None:
    place, source = (
        places[0],
        "--[[\n  x - x.\n  Codes    OK\n]]\nredis.call('SET', KEYS[1] .. ':x', 1)\nreturn { 'OK' }\n",
    )
    with pytest.raises(CoordinatorUnavailable, match="undeclared key"):
        await place.server.call(parse("x", source), place.address.keys("-"), ())


async def test_what_frees_room_begins_with_what_a_full_redis_allows(places: list[Place]) -> None:
    place = places[0]
    await place.create("topic", limit=100)
    ann, bob = place.producer("ann"), await place.consumer("bob", "red", durable=True)
    await ann.send(30, 30)
    await ann.ask(window=20)
    waiting = place.producer("waiting")
    await waiting.ask(need=90)
    ids = await bob.fetch(1)
    dead = place.producer("dead", ttl_ms=1000)
    await dead.ask(window=10)

    async def unsubscribe() -> str:
        return await place.store.detach(place.address, "ann", "!red", failed=False)

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bob.accept(*ids),
        lambda: bob.call(fetch=9, max_messages=9, max_bytes=99),
        place.reap,
        lambda: ann.give_back(5),
        ann.leave,
        bob.detach,
        unsubscribe,
        lambda: place.change(limit_bytes="90"),
        lambda: place.store.recount(place.address, repair=True),
        lambda: place.store.remove(place.address, everything=False),
        lambda: place.store.remove(place.address, everything=True),
    ]
    for call in calls:
        await place.wait(700)  # something is due in most of them
        await place.server.take_trace(place.address)
        await call()
        writes = [name for name in await place.server.take_trace(place.address) if name not in READ_ONLY]
        assert writes[0] in ALLOWED_WHEN_FULL, (call, writes)


async def read_link(place: Place, **arguments: int) -> Read:
    values = {"fence": 1, "born": 1, "mark": 0, "after": 0, "messages": 9, "size": 99} | arguments
    return await LinkStore(place.server).read(place.address, "x", **values)


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_links_keep_to_their_keys_too(places: list[Place], kind: str) -> None:
    place = places[0]
    store = LinkStore(place.server)
    await place.create(kind, limit=300)
    bob = await place.consumer("bob", "red")
    opened = await store.open(place.address, "x", fence=1, window="9/99")
    await place.producer("ann").send(10, 20, 30, expires_ms=50_000)
    first = await bob.fetch(1)
    await read_link(place, born=opened.born)
    await bob.call(failed=first)
    await place.server.take_trace(place.address)
    await read_link(place, born=opened.born, mark=2, after=3)
    writes = [name for name in await place.server.take_trace(place.address) if name not in READ_ONLY]
    assert writes[0] in ALLOWED_WHEN_FULL
    assert {"XACK", "XREADGROUP", "HSET"} <= set(writes)
    for fence, entries in ((1, ()), (1, (Put(5, b"x" * 10, 5000, ("here",)), Skip(6))), (2, ())):
        answer = await store.commit(
            place.address, "y", entries, fence=fence, born=1, prev=0, ttl_ms=TTL_MS, need=10, want=50
        )
        assert answer.code == "OK"
    while await place.store.detach(place.address, "x", "x.1", failed=False) == "MORE":
        pass


async def test_every_script_says_unknown_of_what_is_not_there(places: list[Place]) -> None:
    place = places[1]
    await place.wait(0)
    ann, bob = place.producer("ann"), Consumer(place, "bob", "queue")
    replies: dict[str, object] = {
        "acquire": (await ann.ask(window=10)).code,
        "publish": (await ann.publish_as(ann.account(), 1, 10)).code,
        "attach": await bob.attach(),
        "detach": await bob.detach(),
        "settle": (await bob.call()).code,
        "take": (await place.store.take(place.address, "ann", seq=1, line=[(1, 1)]))[0],
        "reap": (await place.store.reap(place.address))[0],
        "recount": (await place.recount()).code,
        "slice": (await PoolStore(place.server).slice(place.address, "memory")).code,
        "link_open": (await LinkStore(place.server).open(place.address, "x", fence=1, window="1/1")).code,
        "link_read": (await read_link(place)).code,
        "link_commit": (
            await LinkStore(place.server).commit(place.address, "x", fence=1, born=1, prev=0, ttl_ms=TTL_MS)
        ).code,
        "drop": await place.store.drop(place.address, "ann", messages=1, size=1),
        "resolve": await place.store.resolve(place.address, "ann", since=1, mode="ticket"),
        "pause": (await LimiterStore(place.server).pause(place.address, "ann", ms=1, reason="429"))[0],
    }
    replies["discard"] = (await MoveStore(place.server).discard(place.address, "1-1"))[0]
    replies["spread"] = (await SpreadStore(place.server).step(place.address, "1 2 -", "hold"))[0]
    replies["move"] = (await MoveStore(place.server).begin(place.address, "x")).code
    replies["rate_take"] = (await RateStore(place.server).take(place.address, "send")).code
    replies["rate_lend"] = (await RateStore(place.server).lend(place.address, "send", 1, Hand("OK"))).code
    paces = PaceStore(place.server)
    replies["pace"] = (await paces.look(place.address, "bob", 1)).code
    judged = await paces.judge(place.address, "bob", 1, began=0, busy_ms=0, total=Pace("OK"), parts="x")
    replies["judge"] = judged.code
    replies["secure"] = (await secure(place.server, place.address, "ann", MEMORY, 1)).code
    spool = SpoolStore(place.server)
    replies["hold"] = await spool.hold(place.address, ann.account(), "orders/x", 1, ttl_ms=TTL_MS)
    replies |= {"free": "UNKNOWN", "unspool": "UNKNOWN"}
    assert await spool.free(place.address, ["orders/x"]) == (0, 0)
    await spool.unspool(place.address, ["disk/x"])
    assert await spool.spent(place.address) == (0, 0, [])
    assert set(replies.values()) == {"UNKNOWN"}
    assert await place.store.snapshot(place.address) is None
    assert await place.store.place(place.address) == 0
    assert await place.store.remove(place.address, everything=True) == (0, 0)
    assert set(script_names()) - set(replies) - set(KEYS) == {"apply", "place", "snapshot", "remove", "spent"}


async def test_pools_keep_to_their_keys_too_and_say_unknown(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, virtual_clock, watched)
    await server.open()
    world = PoolWorld(server, namespace)
    await world.clock(0)
    unknown = {
        (await world.store.draw(world.pool, "a", Slice("OK", 1))).code,
        (await world.store.set(world.pool, {}, mode="ready"))[0],
        (await world.store.forget(world.pool, "a", 1))[0],
    }
    assert unknown == {"UNKNOWN"}
    await world.open(100)
    for name in NAMES:
        await world.producers[name].ask(need=50)
        await world.run(name)
    await world.ask_back("a", 50, owe=True)
    await world.producers["a"].give_back(50)
    await world.pools.give_back(world.places["a"].address, "memory")
    await world.check()
    await world.store.forget(world.pool, "a", (await world.look("a")).epoch)
    names = await server.command(world.pool.keys[0], "LRANGE", f"{world.pool.key}:trace", 0, -1)
    assert {b"HSET", b"ZADD", b"ZREM", b"HDEL"} <= set(names)
    await world.close()
    await server.close()

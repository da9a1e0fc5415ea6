"""A real ledger of every operation, under a clock that the test moves, as rows for a replay and for a DataFrame."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from headgate.redis.keys import Address
from headgate.redis.store import Store
from tests.lua.place import Place
from tests.lua.route import Route, puts
from tests.support.rewriting import RewritingServer

Row = tuple[Any, ...]


async def rows(place: Place) -> list[Row]:
    """Return the ledger, as :data:`headgate_pipeline.audit.findings.ROW` has it."""
    key = f"{place.address.key}:ledger"
    found = []
    for entry_id, (_, entry) in await place.server.command(key.encode(), "XRANGE", key, "-", "+"):
        text = entry.decode().split(",")
        seq, counters = int(entry_id.partition(b"-")[0]), map(int, text[8:])
        found.append(
            (seq, int(text[1]), text[2], text[3], *map(int, text[4:7]), text[7], *counters, int(text[0]), None)
        )
    return found


def entry(destination: str, row: Sequence[Any], namespace: str = "tests") -> tuple[Any, ...]:
    """Return a row as :data:`headgate_pipeline.ledger.schema.ENTRY` has it."""
    seq, ms, op, session, size, messages, first, detail, pending, pending_m, leased, leased_m, epoch, version, why = row
    at = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
    return (
        namespace, destination, seq, version, at, op, session, size, messages, first, detail, pending, pending_m,
        leased, leased_m, epoch, why, None,
    )  # fmt: skip


async def of_queue(server: RewritingServer, namespace: str) -> list[Row]:
    """Let all that can happen to a queue happen to the target of a link; return its ledger."""
    route = await Route.make(server, namespace)
    place = route.target
    await place.change(limit_bytes="300", limit_messages="40")
    ann, bob, cid, dead = (place.producer(name) for name in ("ann", "bob", "cid", "dead"))
    consumer = await place.consumer("eve")
    await dead.ask(need=50)
    for round_ in range(6):
        await place.wait(7)
        await ann.send(30, 20)
        await bob.ask(need=60, window=100)
        await bob.publish(25, 35, window=40)
        ids = await consumer.fetch(3)
        await place.wait(5)
        await consumer.call(accepted=ids[:1], rejected=ids[1:2], failed=ids[2:3])
        await bob.give_back(10)
        if round_ % 2:
            ids = await consumer.fetch()
            await consumer.accept(*ids)
            consumer.held.clear()
    await place.wait(3)
    await bob.ask(window=0)
    await cid.ask(need=220)  # blocked: dead holds 50
    await place.wait(11)
    await place.change(limit_bytes="200")
    await cid.ask()  # gives up
    await cid.ask(need=160)
    await place.wait(6_000)
    await ann.renew()
    await bob.renew()
    await cid.ask(need=160)
    await place.reap()
    await place.wait(3_100)
    await place.reap()  # of the dead: what it held is cid's now
    await place.wait(3_100)
    await ann.renew()  # late
    await cid.publish(100, 60) if cid.held >= 160 else await cid.ask(need=160)
    consumer = await place.consumer("fay")  # eve is gone too
    await consumer.accept(*await consumer.fetch())
    await ann.send(1, 2, 3, expires_ms=2_000)
    await place.wait(2_500)
    await place.reap()
    await place.store.drop(place.address, "ann", messages=3, size=300)
    await place.store.drop(place.address, "ann", messages=5, size=330)
    await place.store.remove(place.address, everything=False)
    await place.store.recount(place.address, repair=True)
    await place.change(oversize="allow-one")
    bob.start_anew()
    await bob.send(40)
    ids = await consumer.fetch()
    await consumer.call(accepted=ids[:1])
    await link(route)
    await waits(place)
    for number in range(25):
        await place.wait(3)
        await ann.send(number % 7 + 1, 5)
        await consumer.accept(*await consumer.fetch())
    await consumer.detach()
    await ann.leave()
    found = await rows(place)
    await route.close()
    return found


async def link(route: Route) -> None:
    """Bring messages over the link, twice."""
    mark = 0
    sender = route.source.producer("ann")
    for sizes in ((10, 20), (5,)):
        await sender.send(*sizes)
        there = puts((await route.read(mark=mark)).entries)
        await route.commit(want=60, prev=mark)
        done = await route.commit(*there, prev=mark, want=0)
        assert done.mark > mark, done
        mark = done.mark


async def waits(place: Place) -> None:
    """Have a deadlock ended by a ticket, and messages purged."""
    await place.change(limit_bytes="600")
    filler, waiter = place.producer("filler"), place.producer("waiter")
    await filler.send(*[30] * 4)
    await waiter.ask(need=590)
    await place.wait(9)
    since = int((await place.look()).sessions["waiter"]["since"])
    assert await place.store.resolve(place.address, "waiter", since=since, mode="ticket") == "OK"
    await waiter.publish(590)
    await filler.leave()
    await waiter.leave()
    await place.store.remove(place.address, everything=False)


async def of_bucket(server: RewritingServer, namespace: str) -> list[Row]:
    """Take tokens from a bucket, and return its ledger."""
    place = Place(server, Address.of(namespace, "bucket"))
    await place.wait(0)
    store = Store(server)
    await store.apply(place.address, {"kind": "bucket", "rate": "50", "burst": "10"}, mode="ensure", ttl_ms=1000)
    place.sessions.add("s")
    for seq in range(1, 12):
        await place.wait(20 * seq)
        await store.take(place.address, "s", seq=seq, line=[(2, 10_000), (3, 10_000), (9, 0)])
    found = await rows(place)
    await server.forget(place.address, *place.sessions)
    return found

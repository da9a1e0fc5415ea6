"""A spool store: the segments that it counts, and the room that they leave; P1 and P2 as at any destination."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from headgate.redis.keys import Address
from headgate.redis.stores.spools import SpoolStore
from tests.lua.place import TTL_MS, Place, Producer
from tests.support.rewriting import RewritingServer, virtual_clock


class Depot(Place):
    """A spool store, and the sessions that enter segments there."""

    @property
    def calls(self) -> SpoolStore:
        return SpoolStore(self.server)

    async def open(self, limit: int | str = 1000, **settings: Any) -> None:
        assert await self.create("store", limit=limit, url="memory://x", **settings) == "CREATED"

    async def hold(self, session: Producer, name: str, size: int, *, times: int = 1) -> str:
        """Enter a segment; when it was taken, the session knows that its credit is spent."""
        account = session.account()
        codes = {
            await self.calls.hold(self.address, account, f"orders/{name}", size, ttl_ms=session.ttl_ms)
            for _ in range(times)
        }
        if codes == {"OK"}:
            session.used, session.used_m = session.used + size, session.used_m + 1
        return codes.pop() if len(codes) == 1 else str(codes)

    async def segments(self) -> dict[str, tuple[int, str]]:
        cursor, found = await self.calls.held(self.address)
        assert cursor == b"0"
        return found

    async def counts(self) -> tuple[int, int, int]:
        """Return pending bytes and segments, and leased bytes; recounted and found right."""
        seen, count = await self.look(), await self.recount()
        assert count.equal, count
        return seen.pending.bytes, seen.pending.messages, seen.leased.bytes


@pytest.fixture
async def depot(redis_url: str, namespace: str) -> AsyncIterator[Depot]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    depot = Depot(server, Address.of_store(namespace, "disk"))
    yield depot
    await server.forget(depot.address, *depot.sessions)
    await server.close()


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_segment_turns_credit_into_what_is_stored_once(depot: Depot, times: int) -> None:
    """Mutants: a repeated call counts again; the credit stays; nothing is counted."""
    await depot.open()
    ann = depot.producer("ann")
    await ann.ask(window=600)
    assert await depot.hold(ann, "s1", 400, times=times) == "OK"
    assert await depot.counts() == (400, 1, 200)
    assert await depot.segments() == {"orders/s1": (400, "ann")}
    await ann.renew()
    assert await depot.counts() == (400, 1, 200)


async def test_a_segment_is_of_the_session_that_publishes_it(depot: Depot) -> None:
    """A node enters those of its clients. Mutant: it is of who paid, and a sweep takes it while it may be published."""
    await depot.open()
    node = depot.producer("node")
    await node.ask(window=600)
    code = await depot.calls.hold(depot.address, node.account(), "orders/s1", 400, ttl_ms=TTL_MS, sender="ann")
    assert code == "OK"
    assert await depot.segments() == {"orders/s1": (400, "ann")}


async def test_no_segment_is_entered_without_credit(depot: Depot) -> None:
    """Mutants: more bytes than are held; more segments."""
    await depot.open(limit=1000, messages=2)
    ann = depot.producer("ann")
    await ann.renew()
    assert await depot.hold(ann, "s1", 1) == "OVERUSE"
    await ann.ask(need=300)
    assert await depot.hold(ann, "s1", 301) == "OVERUSE"
    assert await depot.hold(ann, "s1", 200) == "OK"
    assert await depot.hold(ann, "s2", 50) == "OK"
    assert await depot.hold(ann, "s3", 10) == "OVERUSE", "two segments, and no more"
    assert await depot.counts() == (250, 2, 50)


async def test_segments_of_all_sessions_stay_within_the_limit(depot: Depot) -> None:
    await depot.open(limit=1000)
    ann, bob = depot.producer("ann"), depot.producer("bob")
    await ann.ask(need=600)
    assert (await bob.ask(need=600)).place == 1
    assert await depot.hold(bob, "s1", 600) == "OVERUSE"
    assert await depot.hold(ann, "s2", 600) == "OK"
    assert await depot.usage() == 600
    assert (await bob.ask(need=600)).place == 1
    assert await depot.calls.free(depot.address, ["orders/s2"]) == (1, 600)
    await bob.ask(need=600)
    assert await depot.hold(bob, "s1", 600) == "OK", "what was freed was handed to who waited"
    assert await depot.counts() == (600, 1, 0)


async def test_room_that_is_freed_is_handed_over_at_once(depot: Depot) -> None:
    """Mutant: nobody hears of it."""
    await depot.open(limit=100)
    ann, bob = depot.producer("ann"), depot.producer("bob")
    await ann.ask(need=100)
    await depot.hold(ann, "s1", 100)
    assert (await bob.ask(need=80)).place == 1
    await depot.calls.free(depot.address, ["orders/s1"])
    seen = await depot.look()
    assert seen.line == []
    assert seen.held("bob").bytes == 80


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_segment_is_freed_once(depot: Depot, times: int) -> None:
    """Mutants: it stays; its bytes are freed again."""
    await depot.open()
    ann = depot.producer("ann")
    await ann.ask(window=900)
    for name, size in (("s1", 100), ("s2", 200)):
        assert await depot.hold(ann, name, size) == "OK"
    freed = [await depot.calls.free(depot.address, ["orders/s1", "orders/s9"]) for _ in range(times)]
    assert freed == [(1, 100)] + [(0, 0)] * (times - 1)
    assert await depot.counts() == (200, 1, 600)
    assert await depot.segments() == {"orders/s2": (200, "ann")}


async def test_many_segments_are_freed_in_several_calls(depot: Depot) -> None:
    await depot.open(limit="unlimited")
    ann = depot.producer("ann")
    ann.hear(await ann.call(replace(ann.account(), want=3000, want_m=300)))
    names = [f"s{number}" for number in range(300)]
    assert {await depot.hold(ann, name, 10) for name in names} == {"OK"}
    assert await depot.calls.free(depot.address, [f"orders/{name}" for name in names]) == (300, 3000)
    assert await depot.counts() == (0, 0, 0)


async def test_the_credit_of_the_dead_comes_back_and_their_segments_stay(depot: Depot) -> None:
    """They may be referred to. Mutant: they go with the account."""
    await depot.open()
    dead = depot.producer("dead", ttl_ms=1000)
    await dead.ask(window=500)
    await depot.hold(dead, "s1", 200)
    await depot.sweep(2500)
    assert await depot.counts() == (200, 1, 0)
    assert await depot.hold(dead, "s2", 100) == "EXPIRED"
    assert await depot.hold(dead, "s1", 200) == "OK", "what is here already is here"
    assert await depot.segments() == {"orders/s1": (200, "dead")}


async def test_an_older_incarnation_of_a_session_enters_nothing(depot: Depot) -> None:
    """Mutant: it does."""
    await depot.open()
    ann = depot.producer("ann")
    await ann.ask(window=500)
    late = ann.account()
    ann.start_anew()
    await ann.ask(window=500)
    calls = depot.calls
    assert await calls.hold(depot.address, late, "orders/s1", 100, ttl_ms=TTL_MS) == "FENCED"
    assert await depot.counts() == (0, 0, 500)


async def test_after_a_restart_credit_is_claimed_before_anything_is_entered(depot: Depot) -> None:
    """Mutant: it is entered with credit that may be another's."""
    await depot.open()
    ann = depot.producer("ann")
    await ann.ask(window=500)
    depot.server.run = b"another run"
    bob = depot.producer("bob")
    await bob.ask(need=900)
    assert await depot.hold(ann, "s1", 100) == "EPOCH"
    await ann.renew()
    assert await depot.hold(ann, "s1", 100) == "OK"
    assert await depot.hold(bob, "s2", 100) == "OVERUSE", "nothing is granted while the store learns"
    assert (await depot.recount()).equal
    depot.server.run = None


async def test_the_smallest_of_what_is_freed_wakes_a_store_that_had_hysteresis(depot: Depot) -> None:
    await depot.open(limit=100, resume_bytes="30")
    ann, bob = depot.producer("ann"), depot.producer("bob")
    await ann.ask(window=100)
    for number in range(4):
        assert await depot.hold(ann, f"s{number}", 20) == "OK"
    assert (await bob.ask(need=50)).place == 1
    await depot.calls.free(depot.address, ["orders/s0", "orders/s1"])
    assert (await depot.look()).line == ["bob"], "40 are stored"
    await depot.calls.free(depot.address, ["orders/s2"])
    assert (await depot.look()).line == []


async def test_a_recount_of_a_store_counts_its_segments(depot: Depot) -> None:
    """Mutants: its counters are taken for empty; too many are read at once."""
    await depot.open()
    ann = depot.producer("ann")
    await ann.ask(window=500)
    await depot.hold(ann, "s1", 100)
    await depot.hold(ann, "s2", 50)
    key = depot.address.shared[0]
    await depot.server.command(key, "HSET", key, "pending_bytes", "7", "leased_bytes", "9")
    count = await depot.recount()
    assert not count.equal
    repaired = await depot.store.recount(depot.address, repair=True)
    assert not repaired.equal
    assert await depot.counts() == (150, 2, 350)
    assert (await depot.store.recount(depot.address, most=1)).code == "TOO_MANY"

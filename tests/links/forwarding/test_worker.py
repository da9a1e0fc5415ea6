"""A link between two real servers: workers that die at any call, two at once, a target that is full or lost."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator

import pytest

from headgate.core.links.calls import Regression
from headgate.core.links.trouble import NO_ROOM
from headgate.redis.replies import Account
from headgate.redis.server import Server
from headgate.redis.url import parse_url
from headgate_coordinator.links.rules import Forwarding, Phase
from tests.links.site import LINK, TTL_MS, Dead, Site, Sites, work
from tests.support.servers import RedisServer, available_servers
from tests.support.waiting import wait_until

BODIES = [f"message {number}".encode() * (number % 5 + 1) for number in range(40)]


async def test_all_messages_get_there_in_order(sites: Sites) -> None:
    await sites.make()
    worker = sites.worker()
    await work(worker)
    await sites.here.send("orders", *BODIES)
    await work(worker)
    assert await sites.there.stored("orders") == BODIES
    assert await sites.here.stored("orders") == []
    await worker.leave()
    await sites.check()


@pytest.mark.parametrize("answered", [True, False])
async def test_a_worker_that_dies_at_any_call_loses_and_doubles_nothing(sites: Sites, answered: bool) -> None:
    await sites.make()
    fences = itertools.count(1)
    await work(sites.worker(next(fences)))
    await sites.here.send("orders", *BODIES)
    for calls in itertools.count(1):
        try:
            await work(sites.worker(next(fences), Forwarding("a", "b", window=300)), calls=calls, answered=answered)
        except Dead:
            continue
        break
    assert await sites.there.stored("orders") == BODIES
    assert await sites.here.stored("orders") == []
    last = sites.worker(next(fences))
    await work(last)
    await last.leave()
    fields = await sites.there.store.snapshot(sites.there.address("orders"))
    assert fields is not None
    assert (fields.fields["leased_bytes"], fields.fields["leased_messages"]) == ("0", "0")
    await sites.check()


@pytest.mark.whole  # test_chaos.py kills processes
async def test_a_hundred_workers_die_at_random_while_messages_come_and_go(sites: Sites) -> None:
    await sites.make(limit=600)
    dice = random.Random(5)
    sent, fence = 0, 0
    got: list[bytes] = []
    while len(got) < 400:
        fence += 1
        if sent < 400:
            await sites.here.send(
                "orders", *(b"%04d" % number * dice.randint(1, 9) for number in range(sent, sent + 4))
            )
            sent += 4
        worker = sites.worker(fence, Forwarding("a", "b", window=200, messages=dice.randint(1, 20)))
        with contextlib.suppress(Dead):
            await work(worker, calls=dice.randint(1, 20) if sent < 400 else 10_000, answered=dice.random() < 0.5)
        got += await sites.there.take("orders", dice.randint(1, 20))
    assert [int(body[:4]) for body in got] == list(range(400))
    assert fence >= 100
    await sites.check()


async def test_two_workers_at_once_lose_and_double_nothing(sites: Sites) -> None:
    """Neither is fenced: both have the same number, as if the leases had failed."""
    await sites.make(limit=2000)
    workers = [sites.worker(7, Forwarding("a", "b", window=500)) for _ in range(2)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    got: list[bytes] = []
    bodies = [b"%05d" % number * 10 for number in range(600)]

    async def drained() -> bool:
        for worker in workers:
            worker.forwarder.woken(source=True, target=True)
            worker._event.set()
        got.extend(await sites.there.take("orders"))
        return len(got) >= len(bodies)

    for first in range(0, len(bodies), 100):
        await sites.here.send("orders", *bodies[first : first + 100])
    await wait_until(drained, timeout=120)
    await wait_until(lambda: empty(sites))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert got == bodies
    assert sum(worker.forwarder.committed for worker in workers) >= len(bodies)
    await sites.check()


async def empty(sites: Sites) -> bool:
    return not await sites.here.stored("orders")


async def test_a_later_lease_ends_the_earlier_worker(sites: Sites) -> None:
    await sites.make()
    old, new = sites.worker(1), sites.worker(2)
    await sites.here.send("orders", *BODIES)
    task = asyncio.create_task(old.run())
    await work(new)
    old.forwarder.woken(source=True)
    old._event.set()
    await asyncio.wait_for(task, 10)
    assert old.forwarder.fence == 2
    assert await sites.there.stored("orders") == BODIES


async def test_with_hints_a_message_goes_over_without_waiting_for_a_look(sites: Sites) -> None:
    await sites.make()
    worker = sites.worker(hints=True)
    task = asyncio.create_task(worker.run())
    await wait_until(lambda: worker.forwarder.mark is not None)
    for body in BODIES[:5]:
        await sites.here.send("orders", body)

        async def there(body: bytes = body) -> bool:
            return body in await sites.there.stored("orders")

        await wait_until(there)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for end in (worker.source, worker.target):
        assert end.wake_ups is not None
        await end.wake_ups.close()


async def test_an_idle_link_gives_its_credit_back(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_coordinator.links.worker.IDLE", 0.1)
    await sites.make()
    worker = sites.worker()
    task = asyncio.create_task(worker.run())
    await sites.here.send("orders", b"one")
    await wait_until(lambda: worker.forwarder.committed == 1)

    async def nothing_held() -> bool:
        seen = await sites.there.store.snapshot(sites.there.address("orders"))
        return seen is not None and seen.fields["leased_bytes"] == "0" and worker.forwarder.held == 0

    await wait_until(nothing_held)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_limit_at_the_target_stops_the_link_and_then_the_producers_of_the_source(sites: Sites) -> None:
    await sites.here.make("orders", limit=300)
    await sites.there.make("orders", limit=200)
    worker = sites.worker(how=Forwarding("a", "b", window=100))
    for _ in range(5):
        await sites.here.send("orders", b"x" * 100)
        await work(worker)
    account = Account("late", 1, 0, need=100, need_m=1, want=100, want_m=1, size=100)
    assert (await sites.here.store.acquire(sites.here.address("orders"), account, ttl_ms=TTL_MS)).place == 1
    assert len(await sites.there.stored("orders")) == 2
    assert worker.forwarder.trouble == NO_ROOM
    await sites.there.take("orders", 1)
    await work(worker)
    granted = await sites.here.store.acquire(sites.here.address("orders"), account, ttl_ms=TTL_MS)
    assert (granted.place, granted.granted) == (0, 100)
    await sites.check()


@pytest.mark.parametrize("calls", range(1, 16))
async def test_a_head_that_never_fits_goes_to_the_dead_letters_once(sites: Sites, calls: int) -> None:
    await sites.make(limit=200)
    await sites.here.send("orders", b"a", b"b" * 300, b"c")
    try:
        await work(sites.worker(1), calls=calls)
    except Dead:
        await work(sites.worker(2))
    assert await sites.there.stored("orders") == [b"a", b"c"]
    assert await sites.here.stored("dead") == [b"b" * 300]
    assert await sites.here.stored("orders") == []
    await sites.check()


async def test_a_target_that_comes_back_empty_is_reported(sites: Sites) -> None:
    await sites.make()
    worker = sites.worker()
    await sites.here.send("orders", *BODIES[:3])
    await work(worker)
    await sites.there.store.remove(sites.there.address("orders"), everything=True)
    await sites.there.make("orders")
    await sites.here.send("orders", *BODIES[3:5])
    await work(worker)
    assert worker.forwarder.regressions == [Regression(0, 3)]
    assert await sites.there.stored("orders") == BODIES[3:5]
    seen = await sites.there.store.snapshot(sites.there.address("orders"), entries=50)
    assert seen is not None
    assert any(f"regressed:{LINK}:0:3" in entry for entry in seen.ledger)


@pytest.fixture
def pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A server, and another that may become its replica."""
    newest = available_servers()[-1]
    with RedisServer.start(newest, port=0, persist=False) as server, RedisServer.start(newest, persist=False) as copy:
        yield server, copy


async def test_the_source_keeps_what_no_replica_of_the_target_has(
    sites: Sites, pair: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_coordinator.links.worker.BARRIER_MS", 20)
    primary, replica = (Server(parse_url(server.url)) for server in pair)
    await primary.open()
    await replica.open()
    sites.there.server = primary
    await sites.make()
    await sites.here.send("orders", *BODIES)
    worker = sites.worker(how=Forwarding("a", "b", replicas=1))
    await work(worker)
    assert worker.forwarder.phase == Phase.COMMITTED
    assert await sites.there.stored("orders") == BODIES
    assert await sites.here.stored("orders") == BODIES
    host, port = primary.url.hosts[0]
    await replica.command(b"", "REPLICAOF", host, port)
    await wait_until(lambda: in_step(primary))
    monkeypatch.setattr("headgate_coordinator.links.worker.BARRIER_MS", 1000)
    await work(worker)
    assert await sites.here.stored("orders") == []
    assert worker.forwarder.phase in (Phase.IDLE, Phase.RESERVED)
    await replica.command(b"", "REPLICAOF", "NO", "ONE")
    copied = Site(replica, sites.there.namespace)
    assert await copied.stored("orders") == BODIES, "what the source let go of is there"
    await sites.there.close()
    sites.there.made.clear()
    await primary.close()
    await replica.close()


async def in_step(primary: Server) -> bool:
    return b"state=online" in await primary.command(b"", "INFO", "replication")

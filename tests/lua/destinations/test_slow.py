"""Slow consumers: too many wait, or too few are settled, and never one that had nothing to do."""

from typing import Any

from tests.lua.place import TTL_MS, Consumer, Place

PERIOD = 2000


async def stock(place: Place, count: int, **settings: Any) -> None:
    await place.create(limit=1 << 30, slow_period_ms=str(PERIOD), **settings)
    ann = place.producer("ann")
    for _ in range(count // 8):
        await ann.send(*[10] * 8)


async def attach(place: Place, session: str, window: str, subscription: str = "queue") -> Consumer:
    place.sessions.add(session)
    await place.store.attach(
        place.address, session, number=1, subscription=subscription, durable=False, window=window, ttl_ms=TTL_MS
    )
    return Consumer(place, session, subscription)


async def work(consumer: Consumer, ms: int, settle: int, *, window: int, every: int = 500) -> list[str]:
    """Settle so many of what is held at each step, and fetch up to the window; return what the answers were."""
    codes = []
    for _ in range(0, ms, every):
        await consumer.place.wait(every)
        done, consumer.held = consumer.held[:settle], consumer.held[settle:]
        consumer.fetches += 1
        answer = await consumer.call(
            accepted=done, fetch=consumer.fetches, max_messages=window - len(consumer.held), max_bytes=1 << 20
        )
        consumer.held += [id_ for id_, _, _ in answer.messages]
        codes.append(answer.code)
    return codes


async def is_slow(consumer: Consumer) -> bool:
    key = consumer.place.address.shared[12]
    record = await consumer.place.server.command(key, "HGET", key, consumer.id) or b""
    return b"slow=1" in record


async def ledger(place: Place) -> str:
    key = place.address.shared[-1]
    return b" ".join(entry[1][1] for entry in await place.server.command(key, "XRANGE", key, "-", "+")).decode()


async def test_who_settles_less_than_the_rate_although_it_has_some_is_slow(place: Place) -> None:
    """Mutant: the rate is not looked at."""
    await stock(place, 80, slow_rate="4")
    slow, brisk = await attach(place, "slow", "5/unlimited"), await attach(place, "brisk", "5/unlimited")
    await slow.fetch(5)
    await brisk.fetch(5)
    for _ in range(8):
        await work(slow, 500, 1, window=5)
        await work(brisk, 500, 5, window=5)
    assert (await is_slow(slow), await is_slow(brisk)) == (True, False)
    assert "slow:slow.1" in await ledger(place)
    for _ in range(8):
        await work(slow, 500, 5, window=5)
    assert not await is_slow(slow)
    assert (await ledger(place)).count(":slow.1") >= 3


async def test_a_consumer_that_takes_one_at_a_time_is_judged_by_the_rate_alone(place: Place) -> None:
    await stock(place, 80, slow_rate="1", slow_multiple="2")
    pull = await attach(place, "pull", "pull")
    await pull.fetch(1)
    await work(pull, 3000, 1, window=1)
    assert not await is_slow(pull)
    await work(pull, 3000, 0, window=1)
    assert await is_slow(pull)


async def test_who_has_nothing_to_do_is_never_slow(place: Place) -> None:
    """Mutant: empty hands count as work."""
    await stock(place, 8, slow_rate="100", slow_multiple="1", slow_action="detach")
    bob = await attach(place, "bob", "5/unlimited")
    ann = place.producer("ann")
    ann.seq = 9
    assert set(await work(bob, 500, 5, window=5)) == {"OK"}
    await work(bob, 1000, 8, window=5)
    assert set(await work(bob, 10_000, 5, window=5)) == {"OK"}
    ann.start_anew()
    ann.inc = 2
    for _ in range(10):  # bursts, each done with before the next
        await ann.send(*[10] * 8)
        await ann.send(*[10] * 8)
        codes = await work(bob, 3 * 450, 5, window=5, every=450)
        codes += await work(bob, 1500, 5, window=5)
        assert set(codes) == {"OK"}
    assert not await is_slow(bob)


async def test_who_has_too_many_waiting_for_it_is_slow(place: Place) -> None:
    """Mutant: what waits is not looked at."""
    await stock(place, 40, slow_multiple="3")
    bob = await attach(place, "bob", "10/unlimited")
    await bob.fetch(10)
    await work(bob, 2500, 1, window=10)
    assert await is_slow(bob)
    await work(bob, 2500, 4, window=10)
    assert not await is_slow(bob), "30 are three windows, and no more"


async def test_on_a_topic_each_subscription_is_judged_by_what_waits_for_it(place: Place) -> None:
    await place.create("topic", limit=1 << 30, slow_multiple="3", slow_period_ms=str(PERIOD))
    red, blue = await attach(place, "red", "5/unlimited", "r"), await attach(place, "blue", "5/unlimited", "b")
    ann = place.producer("ann")
    for _ in range(4):
        await ann.send(*[10] * 8)
    await red.fetch(5)
    await blue.fetch(5)
    for _ in range(6):
        await work(red, 500, 1, window=5)
        await work(blue, 500, 5, window=5)
    assert (await is_slow(red), await is_slow(blue)) == (True, False)


async def test_who_is_detached_loses_what_it_holds_and_is_told(place: Place) -> None:
    """Mutants: it stays; it is told that its session expired."""
    await stock(place, 16, slow_rate="4", slow_action="detach")
    bob, cid = await attach(place, "bob", "5/unlimited"), await attach(place, "cid", "5/unlimited")
    held = await bob.fetch(5)
    codes = await work(bob, 5000, 0, window=5)
    assert (codes[0], codes[-1]) == ("OK", "SLOW")
    await place.reap()
    assert (await cid.fetch(5)) == held, "others get it"
    assert (await place.look()).failures == {"queue|" + id_.decode(): 1 for id_ in held}
    assert (await bob.accept(held[0])).code == "SLOW"
    await bob.detach()
    assert (await bob.accept(held[0])).code == "EXPIRED"
    await attach(place, "bob", "5/unlimited")
    assert (await bob.call()).code == "OK"
    assert (await place.recount()).equal


async def test_what_it_held_was_tried_also_when_it_closes_before_anybody_sweeps(place: Place) -> None:
    """Mutant: it gives back untried what it was detached for."""
    await stock(place, 16, slow_rate="4", slow_action="detach")
    bob, cid = await attach(place, "bob", "5/unlimited"), await attach(place, "cid", "5/unlimited")
    held = await bob.fetch(5)
    await place.wait(PERIOD)
    await bob.call()
    await place.wait(PERIOD)
    await bob.call()
    assert (await bob.call()).code == "SLOW"
    await bob.detach()
    assert await cid.fetch(5) == held
    assert (await place.look()).failures == {"queue|" + id_.decode(): 1 for id_ in held}
    assert (await place.recount()).equal


async def test_one_that_is_silent_is_noticed_by_a_sweep(place: Place) -> None:
    """Mutant: a sweep looks at nobody."""
    await stock(place, 16, slow_rate="4", slow_action="detach")
    bob = await attach(place, "bob", "5/unlimited")
    await bob.fetch(5)
    await bob.call()
    await place.wait(PERIOD)
    for _ in range(3):
        await place.reap()
    assert (await bob.call()).code == "SLOW"
    assert bob.id not in (await place.look()).consumers


async def test_no_record_outlives_its_consumer(place: Place) -> None:
    """Mutant: the record of a dead session's consumer stays."""
    await stock(place, 16, slow_rate="4")
    bob, cid = await attach(place, "bob", "5/unlimited"), await attach(place, "cid", "5/unlimited")
    await bob.fetch(5)
    await cid.fetch(5)
    await cid.detach()
    await place.sweep(2 * TTL_MS)
    key = place.address.shared[12]
    assert await place.server.command(key, "HLEN", key) == 0

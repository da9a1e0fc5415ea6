"""P4: what a dead session held comes back within its TTL and a second; nothing of a living one's is touched."""

import pytest

from tests.lua.place import TTL_MS, Place

pytestmark = pytest.mark.docker

HOUR_MS = 3_600_000


async def test_a_dead_sessions_credit_is_back_within_its_ttl_and_a_second(place: Place) -> None:
    """Mutant: `grace` is longer than the TTL."""
    (dead,) = await place.full(100)
    bob = place.producer("bob")
    assert (await bob.ask(need=60)).place == 1
    for _ in range(0, TTL_MS + 500, 500):
        await place.wait(500)
        await bob.ask(need=60)
    await place.wait(500)
    credit = await bob.ask(need=60)
    assert (credit.granted, credit.place) == (60, 0)
    assert list((await place.look()).sessions) == ["bob"]
    assert await place.usage() == 60
    assert (await dead.ask(need=10)).code == "EXPIRED"


@pytest.mark.parametrize("ttl_ms", [1000, 3000, 60_000])
async def test_each_session_has_the_ttl_that_it_names(place: Place, ttl_ms: int) -> None:
    """Mutant: `renew` takes ten seconds for everybody."""
    await place.create(limit=100)
    ann = place.producer("ann", ttl_ms=ttl_ms)
    await ann.ask(window=50)
    await place.sweep(ttl_ms // 2, every=ttl_ms // 20)
    assert await place.usage() == 50
    await place.sweep(ttl_ms // 2 + 1000, every=min(500, ttl_ms // 20))
    assert await place.usage() == 0


async def test_a_living_session_keeps_everything(place: Place) -> None:
    """Mutant: a renewal does not take the first strike back."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=50)
    for quiet in (TTL_MS // 4, TTL_MS * 7 // 10, TTL_MS * 7 // 10, TTL_MS // 4):
        await place.sweep(quiet)
        assert (await ann.renew()).granted == 50
    assert await place.usage() == 50


async def test_a_clock_that_jumps_an_hour_ahead_reclaims_the_dead_and_nobody_else(place: Place) -> None:
    """Mutant: one strike is enough."""
    await place.create(limit=1000)
    healthy = [place.producer(f"healthy{number}") for number in range(40)]
    dead = [place.producer(f"dead{number}") for number in range(10)]
    for producer in (*healthy, *dead):
        await producer.ask(window=20)
    await place.wait(HOUR_MS)
    for _ in range(8):  # each renews once in a quarter of its TTL, as always
        for number, producer in enumerate(healthy):
            if number % 5 == 0:
                await place.reap()
            assert (await producer.renew()).granted == 20
        await place.wait(TTL_MS // 4)
    seen = await place.look()
    assert sorted(seen.sessions) == sorted(producer.session for producer in healthy)
    assert await place.usage() == 40 * 20


@pytest.mark.parametrize("ttl_ms", [TTL_MS // 4, TTL_MS, 3 * TTL_MS])
@pytest.mark.parametrize("back_ms", [HOUR_MS, TTL_MS // 2])
async def test_a_clock_that_jumps_back_does_not_keep_the_dead_for_an_hour(
    place: Place, ttl_ms: int, back_ms: int
) -> None:
    """Mutants: `reap` does not clamp leases, or as if each session had the destination's TTL."""
    await place.create(limit=100)
    await place.producer("dead", ttl_ms=ttl_ms).ask(window=50)
    living = place.producer("living", ttl_ms=ttl_ms)
    await living.ask(window=50)
    await place.wait(-back_ms)
    for _ in range(4):
        await place.sweep(ttl_ms // 4)
        await living.renew()
    assert list((await place.look()).sessions) == ["living"]
    assert await place.usage() == 50


async def test_one_call_reclaims_a_bounded_number(place: Place) -> None:
    """Mutant: MAX_REAPED is a thousand."""
    await place.create(limit=1000)
    for number in range(100):
        await place.producer(f"dead{number}").ask(window=10)
    for _ in range(7):
        await place.wait(TTL_MS)
        await place.reap()
    left = len((await place.look()).sessions)
    calls = 0
    while left:
        await place.wait(TTL_MS)
        await place.reap()
        now = len((await place.look()).sessions)
        assert left - now <= 16
        left, calls = now, calls + 1
    assert 6 <= calls <= 14
    assert await place.usage() == 0


async def test_a_session_that_is_late_but_comes_is_not_reclaimed_by_its_own_call(place: Place) -> None:
    """Mutant: `reap_leases` does not know its caller."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=50)
    await place.wait(TTL_MS)
    await place.reap()
    await place.wait(TTL_MS)
    assert (await ann.renew()).granted == 50
    await ann.publish(50)
    assert await place.usage() == 50


async def test_a_reclaimed_session_cannot_use_what_it_held(place: Place) -> None:
    """Mutant: `publish` takes a batch of a session that is gone."""
    (dead,) = await place.full(100)
    await place.sweep(TTL_MS + 1000)
    bob = place.producer("bob")
    await bob.send(100)
    assert (await dead.publish_as(dead.account(), 1, 50)).code == "EXPIRED"
    assert await place.usage() == 100


async def test_a_reclaimed_session_that_held_messages_and_no_bytes_begins_anew(place: Place) -> None:
    """Mutant: a claim is compared in bytes alone, so the session keeps messages that it has not, and waits with them.

    What it gives back of them would be more than it holds, and that would cost it its place in line.
    """
    await place.create(limit=100)
    await place.producer("bob").send(100)
    ann = place.producer("ann")
    credit = await ann.ask(window=50)
    assert (credit.granted, credit.granted_m) == (0, 8)
    await place.sweep(TTL_MS + 1000)
    assert (await ann.ask(need=10)).code == "EXPIRED"
    ann.inc, ann.granted_m = 2, 0
    assert (await ann.ask(need=10)).place == 1


async def test_deliveries_of_the_dead_go_to_others_as_failed_attempts(place: Place) -> None:
    """Mutant: `drain_consumer` counts no attempt."""
    await place.create()
    await place.producer("ann").send(10, 20, 30)
    dead, bob = await place.consumer("dead"), await place.consumer("bob")
    ids = await dead.fetch()
    for _ in range(5):
        await place.sweep(TTL_MS // 4)
        await bob.call()
    bob.fetches += 1
    answer = await bob.call(fetch=bob.fetches, max_messages=9, max_bytes=999)
    assert [(identifier, failures) for identifier, _, failures in answer.messages] == [(i, 1) for i in ids]
    assert (await dead.accept(*ids)).code == "EXPIRED"
    seen = await place.look()
    assert (list(seen.consumers), seen.pending.bytes, seen.number("returned")) == (["bob.1"], 60, 0)


async def test_whoever_consumes_on_has_what_the_dead_hold_after_a_clock_that_jumps_back(place: Place) -> None:
    """Mutant: only whoever waits for credit looks whether leases end too late."""
    await place.create()
    await place.producer("ann").send(10, 20, 30)
    dead, bob = await place.consumer("dead"), await place.consumer("bob")
    ids = await dead.fetch()
    await bob.call()
    await place.wait(-HOUR_MS)
    for _ in range(5):
        await bob.call()
        await place.wait(TTL_MS // 4)
    bob.fetches += 1
    answer = await bob.call(fetch=bob.fetches, max_messages=9, max_bytes=999)
    assert [identifier for identifier, *_ in answer.messages] == ids


async def test_a_dead_consumers_many_deliveries_move_in_pieces(place: Place) -> None:
    """Mutant: MAX_MOVED is a thousand."""
    await place.create(limit=10_000)
    ann, dead = place.producer("ann"), await place.consumer("dead")
    for _ in range(3):
        await ann.send(*[1] * 8)
        for _ in range(9):
            await ann.send(*[1] * 8)
    assert len(await dead.fetch()) == 240
    await place.producer("dead").leave()
    moved = []
    while (await place.look()).orphans:
        before = (await place.look()).returned
        await place.reap()
        moved.append((await place.look()).returned - before)
    assert moved == [64, 64, 64, 48]

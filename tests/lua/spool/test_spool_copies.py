"""Copies of a topic's spooled payloads in memory, so that one lazy subscription sends nobody else to the store."""

import pytest

from tests.lua.place import Consumer, Place, Producer
from tests.lua.pools.test_sliced_messages import lend
from tests.lua.spool.test_spool import STORE, references, referred


async def copies(place: Place) -> dict[int, bytes]:
    """Return the copies that there are, by number, found to be what is counted and within their part."""
    refs = place.address.shared[9]
    flat = await place.server.command(refs, "HGETALL", refs)
    found = {int(flat[i][1:]): flat[i + 1] for i in range(0, len(flat), 2) if flat[i][:1] == b"p"}
    fields = (await place.look()).fields
    assert int(fields.get("hot_bytes", "0")) == sum(map(len, found.values())) <= int(fields["limit_bytes"]) // 8
    assert (await place.recount()).equal
    return found


async def topic(place: Place, *names: str, limit: int = 800) -> tuple[Producer, list[Consumer]]:
    await place.create("topic", limit=limit, store=STORE, when_full="spool")
    return place.producer("ann"), [await place.consumer(name, name) for name in names]


async def bodies(consumer: Consumer, messages: int = 256) -> list[bytes]:
    consumer.fetches += 1
    answer = await consumer.call(fetch=consumer.fetches, max_messages=messages, max_bytes=1 << 30)
    consumer.held += [identifier for identifier, _, _ in answer.messages]
    return [body for _, body, _ in answer.messages]


async def test_who_keeps_up_is_given_the_payload_itself(place: Place) -> None:
    """Mutant: the reference, as all are."""
    ann, (red, blue) = await topic(place, "red", "blue")
    await referred(ann, "s1", 20, 30, copies=True)
    assert await bodies(red) == [b"A" * 20, b"B" * 30]
    assert await copies(place) == {1: b"A" * 20, 2: b"B" * 30}
    assert await bodies(blue, 1) == [b"A" * 20]
    await red.call(released=red.held)
    assert await bodies(red) == [b"A" * 20, b"B" * 30], "and again, when it came back"


async def test_a_copy_goes_when_one_subscription_is_left(place: Place) -> None:
    """It is not for who is behind. Mutants: it stays; it is not counted off."""
    ann, (red, blue) = await topic(place, "red", "blue")
    await referred(ann, "s1", 20, 30, copies=True)
    await bodies(red)
    await red.accept(red.held[0])
    assert sorted(await copies(place)) == [2]
    assert await bodies(blue) == [references("s1", 20, 30)[1][0], b"B" * 30]
    await red.accept(red.held[1])
    await blue.accept(*blue.held)
    assert await copies(place) == {}


async def test_a_copy_stays_while_two_subscriptions_are_left(place: Place) -> None:
    """Mutant: it goes with the first."""
    ann, (red, _, _) = await topic(place, "red", "blue", "green")
    await referred(ann, "s1", 20, copies=True)
    await bodies(red)
    await red.accept(*red.held)
    assert sorted(await copies(place)) == [1]


async def test_copies_take_an_eighth_of_the_limit_at_most(place: Place) -> None:
    """Mutant: there is no end."""
    ann, _ = await topic(place, "red", "blue")
    await referred(ann, "s1", 40, 40, 40, 40, copies=True)
    assert sorted(await copies(place)) == [1, 2], "100 bytes; those of one batch do not push each other out"
    await referred(ann, "s2", 101, copies=True)
    assert 5 not in await copies(place), "and what is larger than all is not copied"


async def test_newer_copies_take_the_place_of_older_ones(place: Place) -> None:
    """Mutants: they do not; every second is forgotten and stays."""
    ann, (red, _) = await topic(place, "red", "blue")
    for number in range(6):
        await referred(ann, f"s{number}", 40, copies=True)
        assert max(await copies(place)) == number + 1
    assert sorted(await copies(place)) == [5, 6]
    assert [len(body) for body in await bodies(red)][-2:] == [40, 40]


async def test_copies_of_what_expires_or_is_purged_go(place: Place) -> None:
    """Mutants: one that expires, or is purged, stays and is counted."""
    ann, _ = await topic(place, "red", "blue")
    await referred(ann, "s1", 20, copies=True, expires_ms=1000)
    await referred(ann, "s2", 30, copies=True)
    await place.wait(1000)
    await place.reap()
    assert sorted(await copies(place)) == [2]
    await place.store.remove(place.address, everything=False)
    assert await copies(place) == {}


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_for_one_subscription_nothing_is_copied(place: Place, kind: str) -> None:
    """Mutant: it is."""
    await place.create(kind, limit=800, store=STORE, when_full="spool")
    red = await place.consumer("red", "red")
    await referred(place.producer("ann"), "s1", 20, copies=True)
    assert await copies(place) == {}
    assert await bodies(red) == references("s1", 20)[1]


async def test_room_is_kept_for_copies(place: Place) -> None:
    """Mutant: memory may be full of messages and copies, above the limit."""
    ann, _ = await topic(place, "red", "blue", limit=800)
    await ann.ask(window=800)
    assert ann.held == 800 - 100


async def test_slices_keep_no_copies_and_have_the_whole_limit(place: Place) -> None:
    """Their pool lends all of it. Mutant: each keeps an eighth for copies."""
    await place.create("topic", limit=800, store=STORE, when_full="spool", slices="4")
    for name in ("red", "blue"):
        await place.consumer(name, name)
    ann = place.producer("ann")
    await referred(ann, "s1", 20, copies=True)
    assert await copies(place) == {}
    await lend(place, 800, of="0")
    assert (await ann.ask(need=800)).place == 0
    assert ann.held == 800


async def test_slices_let_go_of_copies_that_are_there(place: Place) -> None:
    """Older clients send payloads beside references."""
    ann, (red, _) = await topic(place, "red", "blue", limit=800)
    await referred(ann, "s1", 20, 30, copies=True)
    await place.change(slices="4")
    assert await bodies(red) == [b"A" * 20, b"B" * 30]
    await referred(ann, "s2", 9, copies=True)
    assert await copies(place) == {}

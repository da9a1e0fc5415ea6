"""Spooled messages: references in the stream, and what is known of the segments that they lead to.

Memory counts the references, rates and windows the payloads; a segment is spent once none of its messages is left.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from headgate.core.segment import pack
from headgate.redis.keys import Address
from headgate.redis.replies import Account, Credit
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.stores import folder
from tests.lua.place import TTL_MS, Consumer, Place, Producer
from tests.lua.route import Route

STORE = "disk"


def references(name: str, *sizes: int) -> tuple[int, list[bytes]]:
    """Return the bytes of a segment of payloads of these sizes, and the references to it."""
    data, made = pack([bytes([65 + n % 26]) * size for n, size in enumerate(sizes)], STORE, name)
    return len(data), made


ONE = len(references("s1", 9)[1][0])
"""Bytes of a reference to one of two payloads of 1 to 9 bytes, in a segment with a name of two letters."""


async def refer(
    producer: Producer,
    name: str,
    *sizes: int,
    account: Account | None = None,
    seq: int = 0,
    expires_ms: int = 0,
    copies: bool = False,
) -> Credit:
    """Publish references to a segment; what was taken is taken into the producer's totals."""
    size, bodies = references(name, *sizes)
    place = producer.place
    along = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)] if copies else ()
    if not producer.epoch:
        await producer.renew()
    credit = await place.store.publish(
        place.address, account or producer.account(), seq=seq or producer.seq, bodies=bodies,
        ttl_ms=producer.ttl_ms, beyond="spool", segment=f"{STORE}/{name} {size} {len(bodies)}",
        expires_ms=expires_ms, copies=along,
    )  # fmt: skip
    if credit.code == "OK":
        stored = bodies[: credit.stored]
        producer.used, producer.used_m = producer.used + sum(map(len, stored)), producer.used_m + len(stored)
        producer.seq += len(stored)
    return producer.hear(credit)


async def referred(producer: Producer, name: str, *sizes: int, expires_ms: int = 0, copies: bool = False) -> None:
    credit = await refer(producer, name, *sizes, expires_ms=expires_ms, copies=copies)
    assert (credit.code, credit.stored) == ("OK", len(sizes)), credit


async def spent(place: Place) -> list[str]:
    _, _, segments = await SpoolStore(place.server).spent(place.address)
    return [segment.partition("/")[2] for segment in segments]


async def segments(place: Place) -> dict[str, int]:
    found = await SpoolStore(place.server).segments(place.address)
    return {segment.partition("/")[2]: last for segment, last in found.items()}


async def spooled_bytes(place: Place) -> int:
    return int((await place.look()).fields.get("spooled_bytes", "0"))


# References in the stream.


async def test_memory_counts_references_and_the_store_their_payload(place: Place) -> None:
    await place.create(limit=1000)
    ann = place.producer("ann")
    await referred(ann, "s1", 5000, 7000)
    seen = await place.look()
    assert list(seen.messages.values()) == references("s1", 5000, 7000)[1]
    assert seen.pending.bytes == sum(map(len, seen.messages.values())) < 100
    assert await spooled_bytes(place) == 12_000
    assert await segments(place) == {"s1": 2}
    assert await place.usage() == seen.pending.bytes


async def test_references_go_beyond_the_credit_in_hand_up_to_the_limit(place: Place) -> None:
    """Mutants: up to the hard limit; one more than fits."""
    await place.create(limit=5 * ONE, hard_bytes="100000")
    ann = place.producer("ann")
    await referred(ann, "s1", 9, 9)
    await referred(ann, "s2", 9, 9)
    credit = await refer(ann, "s3", 9, 9)
    assert (credit.code, credit.granted, credit.granted_m) == ("FULL", 4 * ONE, 5 * ONE)
    assert await segments(place) == {"s1": 2, "s2": 4}
    assert await place.usage() == 4 * ONE
    await referred(ann, "s4", 9)
    assert await place.usage() == 5 * ONE
    assert (await refer(ann, "s5", 1)).code == "FULL"


async def test_what_others_hold_is_no_room_for_references(place: Place) -> None:
    """Mutant: only what is stored counts."""
    await place.create(limit=100)
    bob = place.producer("bob")
    await bob.ask(window=100)
    assert (await refer(place.producer("ann"), "s1", 9)).code == "FULL"
    await bob.give_back(ONE)
    await referred(place.producer("ann"), "s1", 9)
    assert await place.usage() == 100


async def test_references_are_limited_in_messages_too(place: Place) -> None:
    """Mutant: messages are not looked at."""
    await place.create(limit=1000, messages=3)
    ann = place.producer("ann")
    assert (await refer(ann, "s1", 9, 9, 9, 9)).code == "FULL"
    await referred(ann, "s1", 9, 9, 9)
    assert (await refer(ann, "s2", 9)).code == "FULL"
    assert (await place.recount()).equal


async def test_no_reference_goes_beyond_the_credit_while_the_destination_learns(place: Place) -> None:
    """Others may hold what it has forgotten. Mutant: it goes."""
    await place.create(limit=1000)
    ann = place.producer("ann")
    await ann.renew()
    place.server.run = b"another run"
    await ann.renew()
    assert (await refer(ann, "s1", 9)).code == "FULL"
    assert await segments(place) == {}
    for _ in range(3):
        await place.wait(TTL_MS // 2)
        await ann.renew()
    await referred(ann, "s1", 9)
    place.server.run = None


async def test_a_quarter_of_the_limit_is_kept_for_references(place: Place) -> None:
    """Or messages that went before would leave none. Mutants: nothing is kept; it is kept where there is no store."""
    await place.create(limit=400, store=STORE, when_full="spool")
    bob = place.producer("bob")
    await bob.ask(window=400)
    assert bob.held == 300
    dan = place.producer("dan")
    assert (await dan.ask(need=1)).place == 1
    await referred(place.producer("ann"), "s1", 9, 9)
    assert await place.usage() == 300 + 2 * ONE
    await place.change(store="", when_full="")
    assert (await dan.ask(need=1)).place == 0
    assert await place.usage() <= 400


@pytest.mark.parametrize("when_full", ["", "block", "fail"])
async def test_nothing_is_kept_for_references_where_nothing_is_spooled(place: Place, when_full: str) -> None:
    """A store may be inherited. Mutant: `name_rules` does not look at `when_full`."""
    await place.create(limit=400, store=STORE, when_full=when_full)
    ann = place.producer("ann")
    assert (await ann.ask(need=400)).code == "OK"
    assert ann.held == 400
    await ann.publish(400)
    await place.change(when_full="spool")
    assert (await ann.ask(need=301)).code == "TOO_LARGE"


async def test_what_can_never_be_whole_in_memory_is_too_large(place: Place) -> None:
    """Who cannot spool it, such as a link, would wait for ever. Mutant: it is compared with the whole limit."""
    await place.create(limit=400, store=STORE, when_full="spool")
    assert (await place.producer("bob").ask(need=301)).code == "TOO_LARGE"
    assert (await place.producer("ann").ask(need=300)).code == "OK"


@pytest.mark.parametrize("beyond", ["refuse", "hard"])
async def test_nobody_sends_a_reference_of_his_own(place: Place, beyond: str) -> None:
    """He would read what is others' in the store. Mutant: it is taken as any message is."""
    await place.create(limit=1000, hard_bytes="1000")
    ann = place.producer("ann")
    await ann.ask(window=500)
    size, bodies = references("s1", 50)
    credit = await place.store.publish(
        place.address,
        ann.account(),
        seq=1,
        bodies=[b"x", *bodies],
        ttl_ms=TTL_MS,
        beyond=beyond,  # type: ignore[arg-type]
    )
    assert credit.code == "BODY"
    credit = await place.store.publish(
        place.address, ann.account(), seq=1, bodies=[*bodies, b"x"], ttl_ms=TTL_MS, beyond="spool",
        segment=f"{STORE}/s1 {size} 2",
    )  # fmt: skip
    assert credit.code == "BODY"
    assert (await place.look()).messages == {}
    assert await segments(place) == {}


@pytest.mark.parametrize("times", [2, 3])
async def test_references_whose_answer_was_lost_are_published_once(place: Place, times: int) -> None:
    """Mutant: the segment is entered again."""
    await place.create(limit=1000)
    ann = place.producer("ann")
    await ann.renew()
    account = ann.account()
    answers = [await refer(ann, "s1", 30, 40, account=account, seq=1) for _ in range(times)]
    assert [answer.code for answer in answers] == ["OK"] + ["DUPLICATE"] * (times - 1)
    assert {(answer.first, answer.stored) for answer in answers} == {(1, 2)}
    assert sorted((await place.look()).messages) == [1, 2]
    assert await spooled_bytes(place) == 70
    ann.seq = 3
    await ann.renew()
    await referred(ann, "s2", 50)
    assert (await refer(ann, "s1", 30, 40, account=account, seq=1)).code == "PASSED"
    assert await segments(place) == {"s1": 2, "s2": 3}
    assert (await place.recount()).equal


async def test_a_rate_counts_the_payload(place: Place) -> None:
    """Mutants: the size of the reference is looked at, or charged."""
    await place.create(limit="unlimited", send_byte_rate="1000.0", send_byte_burst="500")
    ann = place.producer("ann")
    credit = await refer(ann, "s1", 300, 150, 300)
    assert (credit.code, credit.stored, credit.again_ms) == ("OK", 2, 250)
    assert await segments(place) == {"s1": 2}, "those that did not go are in no segment"
    assert (await refer(ann, "s2", 300)).stored == 0
    assert "s2" not in await segments(place), "and a segment of which nothing went is not entered"
    await place.wait(250)
    assert (await refer(ann, "s3", 300)).stored == 1
    assert (await place.recount()).equal


# Delivery.


async def test_a_fetch_fills_its_window_with_payload(place: Place) -> None:
    """Mutant: it counts the references."""
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await referred(ann, "s1", *[1000] * 6)
    first = await bob.fetch(size=2500)
    assert len(first) == 2
    assert len(await bob.fetch(size=1000)) == 1
    await bob.call(released=bob.held)
    again = await bob.fetch(size=2500)
    assert again == first, "what came back is delivered within the window too"
    assert len(await bob.fetch(size=10_000)) == 4


async def test_a_payload_larger_than_the_window_comes_alone(place: Place) -> None:
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await referred(ann, "s1", 900, 900)
    assert len(await bob.fetch(size=100)) == 1
    await bob.call(released=bob.held)
    assert len(await bob.fetch(size=100)) == 1


# Segments of which no message is left.


async def test_a_segment_is_spent_when_its_last_message_is_accepted(place: Place) -> None:
    """Mutants: it is spent with its first; with those of others."""
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    await referred(ann, "s1", 20, 20)
    await ann.send(10)
    await referred(ann, "s2", 20)
    ids = await bob.fetch()
    assert await spent(place) == []
    await bob.accept(ids[0], ids[1], ids[4])
    assert await spent(place) == ["s2"]
    await bob.call(failed=[ids[2]])
    assert await spent(place) == ["s2"]
    await bob.accept(*await bob.fetch(1))
    assert sorted(await spent(place)) == ["s1", "s2"]
    assert await segments(place) == {"s1": 3, "s2": 5}, "they are known until they are deleted"


async def test_messages_that_expire_or_are_purged_free_their_segments(place: Place) -> None:
    await place.create(limit=10_000)
    ann = place.producer("ann")
    await referred(ann, "s1", 20, 20, expires_ms=1000)
    await referred(ann, "s2", 20)
    await place.wait(1000)
    await place.reap()
    assert await spent(place) == ["s1"]
    await place.store.remove(place.address, everything=False)
    assert sorted(await spent(place)) == ["s1", "s2"]
    await referred(ann, "s3", 20)
    assert sorted(await spent(place)) == ["s1", "s2"]


async def test_a_segment_of_a_topic_waits_for_every_subscription(place: Place) -> None:
    await place.create("topic", limit=10_000)
    ann, red, blue = place.producer("ann"), await place.consumer("red", "red"), await place.consumer("blue", "blue")
    await referred(ann, "s1", 20, 20)
    await red.accept(*await red.fetch())
    assert await spent(place) == []
    held = await blue.fetch()
    await blue.accept(held[0])
    assert await spent(place) == []
    await blue.detach()
    await place.sweep(TTL_MS)
    assert await spent(place) == ["s1"], "and not for one that is gone"


async def test_what_no_subscription_takes_is_spent_at_once(place: Place) -> None:
    await place.create("topic", limit=10_000)
    await referred(place.producer("ann"), "s1", 20)
    assert await spent(place) == ["s1"]
    assert (await place.recount()).equal


async def test_spent_segments_are_found_piece_by_piece(place: Place) -> None:
    """Mutant: only in the first piece."""
    await place.create(limit="unlimited")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for number in range(5):
        await referred(ann, f"s{number}", 20)
    ids = await bob.fetch()
    await bob.accept(ids[1], ids[4])
    calls, after, found = SpoolStore(place.server), 0, []
    for _ in range(3):
        after, has, some = await calls.spent(place.address, after=after, most=2)
        assert has == 5
        found.append([segment.partition("/")[2] for segment in some])
    assert (after, found) == (0, [["s1"], [], ["s4"]])


@dataclass
class Spooling:
    """A link whose source has a spooled message that comes back under a later number."""

    route: Route
    bob: Consumer


@pytest.fixture
async def spooling(place: Place, namespace: str) -> AsyncIterator[Spooling]:
    route = await Route.make(place.server, namespace)
    bob = await route.source.consumer("bob")
    await referred(route.source.producer("ann"), "s1", 20)
    await referred(route.source.producer("dan"), "s2", 20)
    yield Spooling(route, bob)
    await route.check()
    await route.close()


async def test_a_reference_that_gets_a_later_number_keeps_its_segment(spooling: Spooling) -> None:
    """Mutant: it is spent once its last number is gone."""
    route, bob = spooling.route, spooling.bob
    first = await bob.fetch(1)
    assert [entry.seq for entry in (await route.read()).entries] == [2]
    await bob.call(failed=first)
    assert [entry.seq for entry in (await route.read()).entries] == [2, 3]
    assert await segments(route.source) == {"s1": 3, "s2": 2}
    assert (await route.read(mark=2, after=3)).released == 2
    assert await spent(route.source) == ["s2"]
    assert (await route.read(mark=3)).released == 3
    assert sorted(await spent(route.source)) == ["s1", "s2"]


async def test_a_segment_that_is_forgotten_stays_so(spooling: Spooling) -> None:
    """Mutant: a message that comes back enters it again, without its bytes."""
    route, bob = spooling.route, spooling.bob
    first = await bob.fetch(1)
    await route.read()
    await SpoolStore(route.source.server).unspool(route.source.address, [f"{STORE}/s1"])
    await bob.call(failed=first)
    await route.read()
    assert await segments(route.source) == {"s2": 2}
    assert await spooled_bytes(route.source) == 20


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_segment_is_forgotten_once(place: Place, times: int) -> None:
    """Mutants: its bytes are counted again; they stay."""
    await place.create(limit=10_000)
    ann = place.producer("ann")
    await referred(ann, "s1", 20)
    await referred(ann, "s2", 30)
    for _ in range(times):
        await SpoolStore(place.server).unspool(place.address, [f"{STORE}/s1", f"{STORE}/s9"])
    assert await segments(place) == {"s2": 2}
    assert await spooled_bytes(place) == 30
    refs = place.address.shared[9]
    assert await place.server.command(refs, "HKEYS", refs) == [f"{STORE}/s2".encode()]


def test_folders_of_destinations_are_their_own() -> None:
    names = ["a", "a/b", "a.b", "A", "ä", "a b", ".."]
    assert len({folder(Address.of("default", name)) for name in names}) == len(names)
    assert all("/" not in folder(Address.of("default", name)) for name in names)

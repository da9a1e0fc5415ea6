"""Spooled messages: references in the stream, and what is known of the segments that they lead to.

References have a limit of their own, rates and windows count the payloads; a segment is spent once none of its messages
is left.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from headgate.core.segment import pack
from headgate.redis.keys import PARTS, Address
from headgate.redis.replies import Account, Credit
from headgate.redis.stores.pools import PoolStore, Share
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.stores import folder
from tests.lua.place import TTL_MS, Consumer, Place, Producer
from tests.lua.promises.hearing import Ear
from tests.lua.route import Route
from tests.support.waiting import wait_until

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
    seen: str = "",
) -> Credit:
    """Publish references to a segment; what was taken is taken into the producer's totals."""
    size, bodies = references(name, *sizes)
    place = producer.place
    along = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)] if copies else ()
    if not producer.epoch:
        await producer.renew()
    credit = await place.store.publish(
        place.address, account or producer.account(), seq=seq or producer.seq, bodies=bodies,
        ttl_ms=producer.ttl_ms, beyond="spool", segment=f"{STORE}/{name} {size} {len(bodies)} {seen}".rstrip(),
        expires_ms=expires_ms, copies=along,
    )  # fmt: skip
    if credit.code == "OK":
        stored = bodies[: credit.stored]
        producer.used_m += len(stored)
        producer.seq += len(stored)
    return producer.hear(credit)


async def referred(
    producer: Producer, name: str, *sizes: int, expires_ms: int = 0, copies: bool = False, seen: str = ""
) -> None:
    credit = await refer(producer, name, *sizes, expires_ms=expires_ms, copies=copies, seen=seen)
    assert (credit.code, credit.stored) == ("OK", len(sizes)), credit


async def spent(place: Place) -> list[str]:
    _, _, segments = await SpoolStore(place.server).spent(place.address)
    return [segment.partition("/")[2] for segment in segments]


async def segments(place: Place) -> dict[str, int]:
    found = await SpoolStore(place.server).segments(place.address)
    return {segment.partition("/")[2]: last for segment, last in found.items()}


async def spooled_bytes(place: Place) -> int:
    return int((await place.look()).fields.get("spooled_bytes", "0"))


async def reference_bytes(place: Place) -> int:
    return int((await place.look()).fields.get("reference_bytes", "0"))


# References in the stream.


@pytest.mark.parametrize("expires_ms", [0, 600_000])
async def test_a_destination_counts_references_and_the_store_their_payload(place: Place, expires_ms: int) -> None:
    """Mutant: they count under the limit."""
    await place.create(limit=1000)
    ann = place.producer("ann")
    await referred(ann, "s1", 5000, 7000, expires_ms=expires_ms)
    seen = await place.look()
    made = references("s1", 5000, 7000)[1]
    assert list(seen.messages.values()) == made
    assert seen.pending.bytes == 0
    assert await reference_bytes(place) == sum(map(len, made)) < 100
    assert await spooled_bytes(place) == 12_000
    assert await segments(place) == {"s1": 2}
    assert await place.usage() == 0
    bob = await place.consumer("bob")
    await bob.accept(*await bob.fetch())
    assert (await place.recount()).equal
    assert await reference_bytes(place) > 0, "until their segment is deleted"
    await SpoolStore(place.server).unspool(place.address, [f"{STORE}/s1"])
    assert await reference_bytes(place) == 0


@pytest.mark.parametrize("pools", ["", "memory"])
async def test_references_have_a_limit_of_their_own(place: Place, pools: str) -> None:
    """Others may hold all there is, also of a pool. Mutants: one more than fits; none where others hold memory."""
    await place.create(limit=100, limit_reference_bytes=str(5 * ONE))
    bob = place.producer("bob")
    await bob.ask(window=100)
    assert bob.held == 100, "nothing is kept for references"
    await place.change(pools=pools)
    ann = place.producer("ann")
    await referred(ann, "s1", 9, 9)
    await referred(ann, "s2", 9, 9)
    credit = await refer(ann, "s3", 9, 9)
    assert (credit.code, credit.granted_m) == ("FULL", 1)
    assert await segments(place) == {"s1": 2, "s2": 4}
    assert await reference_bytes(place) == 4 * ONE
    await referred(ann, "s4", 9)
    assert await reference_bytes(place) == 5 * ONE
    credit = await refer(ann, "s5", 1)
    assert (credit.code, credit.granted_m) == ("FULL", 0)
    assert await place.usage() == 100
    assert await SpoolStore(place.server).room(place.address) == 0
    await place.change(limit_reference_bytes="unlimited")
    await referred(ann, "s5", *[1] * 50)


async def test_room_for_references_comes_back_with_each_segment(place: Place) -> None:
    """And those who wait are told. Mutants: it does not come back; nobody is told."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await referred(ann, "s1", 9, 9)
    await referred(ann, "s2", 9)
    subscriber = await place.server.subscriber()
    async with subscriber.pubsub() as pubsub:
        await pubsub.subscribe(f"{place.address.key}:wake")
        await SpoolStore(place.server).unspool(place.address, [f"{STORE}/s1"])
        assert await reference_bytes(place) == ONE

        async def heard() -> bool:
            message = await pubsub.get_message(timeout=0.05)
            return bool(message and message["data"] == b"references")

        await wait_until(heard, description="room for references is announced")
    await subscriber.aclose()


async def test_a_lowered_limit_stops_no_references(place: Place) -> None:
    """Mutant: they are refused as what goes above the limit."""
    await place.create(limit=100)
    bob = place.producer("bob")
    await bob.ask(window=100)
    await bob.publish(100)
    await place.change(limit_bytes="50")
    await referred(place.producer("ann"), "s1", 9)


async def test_references_have_64_mib_where_nothing_says_otherwise(place: Place) -> None:
    """Mutant: they have no limit."""
    await place.create(limit=100)
    ann = place.producer("ann")
    key = place.address.shared[0]
    await place.server.command(key, "HSET", key, "reference_bytes", str((64 << 20) - ONE))
    credit = await refer(ann, "s1", 9, 9)
    assert (credit.code, credit.granted_m) == ("FULL", 1)
    await referred(ann, "s1", 9)
    assert await SpoolStore(place.server).room(place.address) == 0
    await SpoolStore(place.server).unspool(place.address, [f"{STORE}/s1"])
    assert await reference_bytes(place) == 0, "and what scripts of before left is gone with the last segment"


async def test_a_slice_has_its_part_of_the_references(place: Place) -> None:
    """Mutant: it has all that the whole destination may have."""
    await place.create(limit=1000, limit_reference_bytes=str(6 * 64))
    assert await SpoolStore(place.server).room(place.address) == 6
    await place.change(of_slices="3")
    assert await SpoolStore(place.server).room(place.address) == 2


async def test_room_for_references_is_seen_before_anything_is_written(place: Place) -> None:
    """Mutants: messages are not looked at; nor what others hold of them."""
    await place.create(limit=1000, messages=3)
    calls, bob = SpoolStore(place.server), place.producer("bob")
    assert await calls.room(place.address) == 3
    await bob.ask(need=9)
    assert await calls.room(place.address) < 3
    await bob.publish(9)
    await bob.leave()
    assert await calls.room(place.address) == 2
    await place.change(limit_reference_bytes="100")
    assert await calls.room(place.address) == 1


async def test_references_are_limited_in_messages_too(place: Place) -> None:
    """Mutant: messages are not looked at."""
    await place.create(limit=1000, messages=3)
    ann = place.producer("ann")
    assert (await refer(ann, "s1", 9, 9, 9, 9)).code == "FULL"
    await referred(ann, "s1", 9, 9, 9)
    assert (await refer(ann, "s2", 9)).code == "FULL"
    assert (await place.recount()).equal


async def test_what_is_in_hand_is_for_references_up_to_a_limit_that_was_set_since(place: Place) -> None:
    """Each has some, and nothing more of it is granted. Mutants: it is for none; for more than the limit."""
    await place.create(limit=1000)
    ann, bob = place.producer("ann"), place.producer("bob")
    for one in (ann, bob):
        await one.ask(window=100)
    assert min(ann.granted_m, bob.granted_m) > 3
    await place.change(limit_messages="3")
    refused = await refer(ann, "s1", 9, 9, 9, 9)
    assert (refused.code, refused.granted_m) == ("FULL", 3)
    await referred(ann, "s1", 9, 9)
    await referred(bob, "s2", 9)
    assert (await refer(bob, "s3", 9)).code == (await refer(ann, "s3", 9)).code == "FULL"
    assert (await place.recount()).equal


async def test_a_slice_has_references_for_the_messages_that_it_was_lent(place: Place) -> None:
    """Mutants: it has all that the limit says; nobody hears that it was lent more, or hears that of bytes."""
    await place.create(limit=1000, messages=9, slices="4", when_full="spool", store=STORE)
    calls, pools, ann = SpoolStore(place.server), PoolStore(place.server), place.producer("ann")

    async def lend(of: str, amount: int) -> list[tuple[str, str]]:
        pool = f"{place.address.name}%.{of}"
        epoch = (await pools.slice(place.address, pool)).epoch
        async with Ear.at(place) as ear:
            share = Share(place.address.name, epoch, amount, 0)
            await pools.slice(place.address, pool, share=share, pool_epoch=epoch)
            return [heard for heard in await ear.heard() if heard[1] == "references"]

    assert (await refer(ann, "s1", 9)).code == "FULL"
    assert await calls.room(place.address) == 0
    assert await lend("0", 10) == []
    assert await lend("m", 2) == [("", "references")]
    assert await lend("m", 2) == []
    assert await calls.room(place.address) == 2
    refused = await refer(ann, "s1", 9, 9, 9)
    assert (refused.code, refused.granted_m) == ("FULL", 2)
    await referred(ann, "s1", 9, 9)
    assert (await refer(ann, "s2", 9)).code == "FULL"
    assert await lend("m", 3) != []
    assert (await ann.ask(need=5)).place == 0, "it holds what is left"
    assert (await calls.room(place.address), await calls.room(place.address, ann.session)) == (0, 1)
    await place.change(when_full="block")
    assert await lend("m", 4) == []
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


@pytest.mark.parametrize("when_full", ["", "block", "fail"])
async def test_nothing_is_kept_for_copies_where_nothing_is_spooled(place: Place, when_full: str) -> None:
    """A store may be inherited. Mutant: `name_rules` does not look at `when_full`."""
    await place.create("topic", limit=400, store=STORE, when_full=when_full)
    ann = place.producer("ann")
    assert (await ann.ask(need=400)).code == "OK"
    assert ann.held == 400
    await ann.publish(400)
    await place.change(when_full="spool")
    assert (await ann.ask(need=351)).code == "TOO_LARGE"


async def test_what_can_never_be_whole_in_memory_is_too_large(place: Place) -> None:
    """Who cannot spool it, such as a link, would wait forever. Mutant: it is compared with the whole limit."""
    await place.create("topic", limit=400, store=STORE, when_full="spool")
    assert (await place.producer("bob").ask(need=351)).code == "TOO_LARGE"
    assert (await place.producer("ann").ask(need=350)).code == "OK"


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


@pytest.mark.parametrize("expires_ms", [0, 600_000])
async def test_a_fetch_fills_its_window_with_payload(place: Place, expires_ms: int) -> None:
    """Mutant: it counts the references."""
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await referred(ann, "s1", *[1000] * 6, expires_ms=expires_ms)
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


async def test_a_fetch_of_references_is_in_the_ledger(place: Place) -> None:
    """An audit counts what consumers were given. Mutants: what counts no bytes is left out; it counts some."""
    await place.create(limit=10_000)
    await referred(place.producer("ann"), "s1", 20, 20)
    bob = await place.consumer("bob")
    await bob.fetch()
    ledger = place.address.shared[PARTS.index("ledger") + 1]
    ((_, (_, entry)),) = await place.server.command(ledger, "XREVRANGE", ledger, "+", "-", "COUNT", 1)
    assert b"fetched:0:2" in entry


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
    assert (await place.recount()).equal, "a purge frees no more than they counted for"
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

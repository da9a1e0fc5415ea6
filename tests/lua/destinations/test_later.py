"""Messages for later, and failed ones that wait: not before their time, and then before all that is new."""

from typing import Any

import pytest

from headgate.core.links.calls import Put
from headgate.redis.keys import PARTS, link_id
from headgate.redis.stores.links import LinkStore
from tests.lua.place import TTL_MS, Place

pytestmark = pytest.mark.one_server

LATER, MESSAGES = (1 + PARTS.index(part) for part in ("later", "messages"))
DAY = 86_400_000
UNTOUCHED = b"\x00\x53\x70\xc0\x05\x04\x40\x40\x40\x41\x00\x53\x75\xa0\x01x"
"""A message of AMQP whose header says that nobody had it before."""


async def waiting(place: Place) -> dict[str, int]:
    """Return what waits, with the ms until it is due."""
    key = place.address.shared[LATER]
    flat = await place.server.command(key, "ZRANGE", key, 0, -1, "WITHSCORES")
    return {flat[i].decode(): int(float(flat[i + 1])) - place.now for i in range(0, len(flat), 2)}


async def notes(place: Place) -> list[str]:
    """Return what became of what waits, as the ledger has it."""
    snapshot = await place.store.snapshot(place.address, entries=100)
    assert snapshot is not None
    found = (note for entry in reversed(snapshot.ledger) for note in entry.split(",")[7].split(";"))
    return [note[6:].replace(str(place.now), "NOW") for note in found if note.startswith("later:")]


async def truth(place: Place) -> None:
    """See that counters are right, that what waits is there, and that the moment of the first is known."""
    count, seen = await place.recount(), await place.look()
    assert count.equal, count
    assert seen.number("returned") == seen.returned
    there = await waiting(place)
    assert {int(name.rpartition("|")[2].partition("-")[0]) for name in there} <= set(seen.messages)
    aside = {f"{sub}|{seq}" for sub, held in seen.holders.items() for seq, who in held.items() if who == "~later"}
    failed = {name.partition("-")[0] for name in there if "|" in name}
    assert failed <= aside, "each of them is in nobody's hands"
    sent = {int(name.partition("-")[0]) for name in there if "|" not in name}
    assert {int(name.rpartition("|")[2]) for name in aside - failed} <= sent, "all that is aside comes again"
    due = min(there.values(), default=None)
    assert seen.fields.get("next_due") == (None if due is None else str(place.now + due))
    assert int(seen.fields.get("later", 0)) == len(there)
    assert ("next_due" in seen.fields["rules"]) == (due is not None), "nobody else asks for it"


async def test_a_message_for_later_waits_and_others_go_on(place: Place) -> None:
    await place.create(limit=100)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, 12, 13, later="500 - @1800000000300 @1")
    assert await waiting(place) == {"1-10": 500, "3-12": 300}
    assert await bob.fetch() == [b"2-11", b"4-13"], "what is due in the past is due now"
    assert (await place.look()).pending.bytes == 46, "all of them count"
    await truth(place)
    await place.wait(299)
    assert await bob.fetch() == []
    await place.wait(1)
    await ann.send(14)
    assert await bob.fetch() == [b"3-12", b"5-14"], "before what is new"
    await place.wait(200)
    assert await bob.fetch() == [b"1-10"]
    await bob.accept(b"1-10", b"2-11", b"3-12", b"4-13", b"5-14")
    assert (await place.look()).pending.bytes == 0
    await truth(place)
    assert await notes(place) == ["waits:1:NOW", "waits:1:1800000000300", "due:1:1800000000300", "due:1:NOW"]


async def test_what_nobody_read_before_it_was_due_is_delivered_in_its_place(place: Place) -> None:
    await place.create()
    ann = place.producer("ann")
    await ann.send(10, 11, 12, later="500 - 500")
    await place.wait(500)
    bob = await place.consumer("bob")
    assert await bob.fetch() == [b"1-10", b"2-11", b"3-12"]
    assert await waiting(place) == {}
    await truth(place)


async def test_of_many_that_are_due_at_once_each_is_delivered_once(place: Place) -> None:
    """More than one call moves: the last are read by themselves, and not given back when their turn to move comes."""
    await place.create(limit="unlimited")
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    for _ in range(38):
        await ann.send(*[1] * 8, later="500 " * 8)
    await place.wait(500)
    got = [*await bob.fetch(200), *await cid.fetch(200)]
    for _ in range(3):
        await place.reap()
    got += [*await bob.fetch(200), *await cid.fetch(200)]
    assert len(got) == len(set(got)) == 304
    assert await waiting(place) == {}
    await truth(place)


async def test_what_is_due_at_once_comes_in_order_and_straight_to_whoever_fetches(place: Place) -> None:
    """Ids are text in the set that waits, and 10 is not to come before 2. A fetch moves what it gets, and no more."""
    await place.create(limit="unlimited")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for _ in range(38):
        await ann.send(*[1] * 8, later="500 " * 8)
    for _ in range(2):
        assert await bob.fetch() == [], "it is read, and set aside"
    await place.wait(500)
    got = await bob.fetch(120)
    assert len(await waiting(place)) == 184
    assert (await place.look()).returned == 0, "nothing is given back on the way"
    got += [*await bob.fetch(120), *await bob.fetch(64)]
    assert got == [b"%d-1" % number for number in range(1, 305)]
    await truth(place)


async def test_of_what_is_due_only_what_fits_is_taken_and_the_rest_comes_to_others(place: Place) -> None:
    await place.create(limit="unlimited")
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, 30, 10, 10, later="500 500 500 500")
    assert await bob.fetch() == await cid.fetch() == []
    await place.wait(500)
    assert await bob.fetch(4, 25) == [b"1-10"], "the next would be beyond the bytes"
    assert (await place.look()).returned == 3
    await truth(place)
    assert await cid.fetch(4) == [b"2-30", b"3-10", b"4-10"]
    await truth(place)


async def test_no_message_waits_for_more_than_a_year(place: Place) -> None:
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, later="9999999999999999999 @9999999999999999999")
    await ann.send(12)
    got = await bob.fetch()
    await bob.call(failed=[got[0] + b"+99999999999999999999"])
    assert set((await waiting(place)).values()) == {366 * DAY}
    await truth(place)


async def test_consumers_hear_when_the_next_is_due(place: Place) -> None:
    """One that waits looks by itself within the last second; of many, those that are first."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, later="5000")
    assert (await bob.call(fetch=1, max_messages=5, max_bytes=100, waits=1)).again_ms == 0, "it looks each second"
    await place.wait(4400)
    assert (await bob.call(fetch=2, max_messages=5, max_bytes=100, waits=1)).again_ms == 600
    for number in range(16):
        cid = await place.consumer(f"c{number}")
        assert (await cid.call(fetch=1, max_messages=5, max_bytes=100, waits=1)).again_ms == (600 if number < 15 else 0)
    assert (await bob.call(fetch=3, max_messages=5, max_bytes=100, waits=1)).beside is False, "nobody holds it"


async def test_a_failed_message_waits_longer_each_time(place: Place) -> None:
    await place.create(retry_delay_ms="1000", retry_factor="2.0", retry_max_ms="3000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11)
    for wait in (1000, 2000, 3000, 3000):
        got = await bob.fetch()
        assert got[0] == b"1-10"
        await bob.call(failed=[b"1-10"], released=got[1:])
        assert await waiting(place) == {"queue|1-10": wait}
        await truth(place)
        assert await bob.fetch() == [b"2-11"], "others go on"
        await bob.call(released=[b"2-11"])
        await place.wait(wait - 1)
        assert await bob.fetch() == [b"2-11"]
        await bob.call(released=[b"2-11"])
        await place.wait(1)
    await bob.fetch()
    await bob.accept(b"1-10", b"2-11")
    await truth(place)


async def test_a_consumer_says_how_long_a_message_waits(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, 11, 12, 13)
    assert len(await bob.fetch()) == 4
    answer = await bob.call(failed=[b"1-10+30", b"2-11+0"], released=[b"3-12+40"], accepted=[b"4-13+50"])
    assert answer.stale == 0
    assert await waiting(place) == {"queue|1-10": 30, "queue|3-12": 40}
    assert (await cid.call(accepted=[b"1-10"])).stale == 1, "nobody has it"
    assert await cid.fetch() == [b"2-11"]
    await place.wait(40)
    answer = await cid.call(fetch=cid.fetches + 1, max_messages=9, max_bytes=100)
    assert [(id_, attempts) for id_, _, attempts in answer.messages] == [(b"1-10", 1), (b"3-12", 0)]
    await truth(place)


async def test_who_waits_is_woken_when_the_next_is_due_sooner(place: Place) -> None:
    await place.create(retry_delay_ms="100")
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10)
    await bob.fetch()
    assert await cid.fetch() == []
    assert "cid.1" in (await place.look()).hungry
    await bob.call(failed=[b"1-10"])
    assert "cid.1" not in (await place.look()).hungry, "it looks, and hears of it"


async def test_what_the_dead_held_waits_as_what_failed(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    assert await bob.fetch() == [b"1-10"]
    await place.sweep(2 * TTL_MS)
    there = await waiting(place)
    assert set(there) == {"queue|1-10"} or not there
    cid = await place.consumer("cid")
    await place.wait(1000)
    answer = await cid.call(fetch=1, max_messages=9, max_bytes=100)
    assert [(id_, attempts) for id_, _, attempts in answer.messages] == [(b"1-10", 1)]
    assert [event.split(":")[:2] for event in await notes(place)] == [["waits", "1"], ["due", "1"]]
    await truth(place)


async def test_each_subscription_of_a_topic_gets_it_at_its_time(place: Place) -> None:
    """One that read it, one that did not, one that is removed, and one that fails on it when it is due."""
    await place.create("topic", retry_delay_ms="1000")
    bob, cid = await place.consumer("bob", "red"), await place.consumer("cid", "blue", durable=True)
    eve, dan = await place.consumer("eve", "grey"), await place.consumer("dan", "green")
    ann = place.producer("ann")
    await ann.send(10, 11, later="500 -")
    assert await bob.fetch() == [b"2-11"]
    assert await eve.fetch() == [b"2-11"]
    await eve.accept(b"2-11")
    await eve.detach()
    await place.reap()
    await truth(place)
    await place.wait(500)
    assert await cid.fetch() == [b"1-10", b"2-11"]
    assert await bob.fetch() == [b"1-10"]
    assert await dan.fetch() == [b"1-10", b"2-11"]
    await dan.call(failed=[b"1-10"])
    await bob.accept(b"1-10", b"2-11")
    assert await waiting(place) == {"green|1-10": 1000}
    assert await dan.fetch() == []
    await truth(place)
    await place.wait(1000)
    assert await dan.fetch() == [b"1-10"]
    assert (await cid.call(accepted=[b"1-10", b"2-11"])).stale == 0, "it came back to nobody else"
    await dan.accept(b"1-10", b"2-11")
    assert (await place.look()).pending.bytes == 0
    await truth(place)


async def test_a_delivery_that_failed_does_not_come_with_the_message_it_belongs_to(place: Place) -> None:
    """A topic's message is due; a subscription that read it at that moment, and failed, waits its own time."""
    await place.create("topic", retry_delay_ms="1000")
    readers = [await place.consumer(f"c{number}", f"s{number}") for number in range(2)]
    ann = place.producer("ann")
    for _ in range(56):
        await ann.send(*[1] * 8, later="500 " * 8)  # more than three calls move
    await ann.send(2, later="500")
    await place.wait(500)
    last = b"449-2"
    for number in (1, 2):
        await readers[0].call(fetch=number, max_messages=256, max_bytes=1000)
    await readers[0].call(failed=[last])
    assert (await waiting(place))["s0|449-2"] == 1000
    for _ in range(6):
        await place.reap()
    assert set(await waiting(place)) == {"s0|449-2"}
    again = await readers[0].call(fetch=3, max_messages=256, max_bytes=1000)
    assert not again.messages, "it has all others, and that one waits"
    await truth(place)


async def test_what_waits_expires_all_the_same(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, expires_ms=400, later="500 -")
    assert await bob.fetch() == [b"2-11"]
    await bob.call(failed=[b"2-11"])
    assert set(await waiting(place)) == {"1-10", "queue|2-11"}
    await place.wait(400)
    await place.reap()
    assert await waiting(place) == {}
    assert (await place.look()).pending.bytes == 0
    assert [event.split(":")[:2] for event in await notes(place)][-2:] == [["gone", "1"], ["gone", "1"]]
    await truth(place)


async def test_a_purge_takes_what_waits(place: Place) -> None:
    await place.create("topic", retry_delay_ms="1000")
    bob, _ = await place.consumer("bob", "red"), await place.consumer("cid", "blue")
    ann = place.producer("ann")
    await ann.send(10, 11, later="500 -")
    assert await bob.fetch() == [b"2-11"]
    await bob.call(failed=[b"2-11"])
    assert await place.store.remove(place.address, everything=False) == (2, 21)
    assert await waiting(place) == {}
    await truth(place)


async def test_a_subscription_that_is_removed_lets_go_of_what_waits(place: Place) -> None:
    await place.create("topic", retry_delay_ms="1000")
    bob, cid = await place.consumer("bob", "red"), await place.consumer("cid", "blue")
    ann = place.producer("ann")
    await ann.send(10, 11, 12, later="500 - -")
    assert await bob.fetch() == [b"2-11", b"3-12"]
    await bob.call(failed=[b"2-11", b"3-12"])
    await bob.detach()
    await place.reap()
    assert set(await waiting(place)) == {"1-10"}
    assert await cid.fetch() == [b"2-11", b"3-12"]
    await cid.accept(b"2-11", b"3-12")
    await place.wait(500)
    assert await cid.fetch() == [b"1-10"]
    await cid.accept(b"1-10")
    assert (await place.look()).pending.bytes == 0
    await truth(place)


async def test_a_clock_that_is_set_back_lets_nothing_go_before_its_time(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, later="500 -")
    assert await bob.fetch() == [b"2-11"]
    await bob.call(failed=[b"2-11"])
    await place.wait(-3_600_000)
    await place.reap()
    assert await bob.fetch() == []
    await place.wait(3_600_000 + 499)
    assert await bob.fetch() == []
    await place.wait(501)
    assert await bob.fetch() == [b"1-10", b"2-11"]
    await truth(place)


async def test_what_was_due_and_not_read_waits_again_where_the_clock_is_set_back(place: Place) -> None:
    await place.create("topic")
    ann, bob = place.producer("ann"), await place.consumer("bob", "red")
    await ann.send(10, later="500")
    await place.wait(500)
    await place.reap()
    assert await waiting(place) == {}
    await ann.send(11, later="9000")
    await place.wait(-400)
    assert await bob.fetch() == []
    assert (await waiting(place))["1-10"] == 400
    await place.wait(400)
    assert await bob.fetch() == [b"1-10"]


async def test_where_keys_take_turns_it_is_in_turn_when_it_is_due(place: Place) -> None:
    await place.create(fair_by="header:tenant", retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, 12, 13, keys="a a a b", later="500 - - -")
    assert await bob.fetch(1) == [b"2-11"]
    await bob.call(failed=[b"2-11"])
    await truth(place)
    assert await bob.fetch() == [b"4-13", b"3-12"]
    await place.wait(500)
    await ann.send(14, keys="a")
    assert await bob.fetch() == [b"1-10", b"5-14"]
    await place.wait(500)
    assert await bob.fetch() == [b"2-11"]
    await truth(place)
    await place.change(fair_by="")
    await ann.send(15, later="100")
    assert await bob.fetch() == []
    await place.change(fair_by="producer")
    await place.wait(100)
    assert await bob.fetch() == [b"6-15"]
    await truth(place)


async def test_what_was_there_before_keys_took_turns_waits_too(place: Place) -> None:
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, later="500 -")
    await place.change(fair_by="producer")
    assert await bob.fetch() == [b"2-11"]
    await truth(place)
    await place.wait(500)
    assert await bob.fetch() == [b"1-10"]


async def test_a_fetch_passes_over_what_is_not_due_and_over_no_more(place: Place) -> None:
    """Ten thousand that wait do not keep one from a small window; each call looks at so many of them."""
    await place.create(limit="unlimited")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for _ in range(75):
        await ann.send(*[1] * 8, later="500 " * 8)
    await ann.send(2)
    got, calls = list[bytes](), 0
    while not got:
        got, calls = await bob.fetch(8), calls + 1
    assert (got, calls) == ([b"601-2"], 3)
    await truth(place)
    await place.wait(500)
    seen = 0
    for _ in range(10):
        seen += len(await bob.fetch())
    assert seen == 600
    await truth(place)


async def test_a_fetch_passes_over_no_more_bytes_than_it_may(place: Place) -> None:
    await place.create(limit="unlimited")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for _ in range(5):
        await ann.send(1_000_000, later="500")
    await ann.send(2)
    assert await bob.fetch(1) == []
    assert await bob.fetch(1) == [b"6-2"]


async def test_messages_that_wait_are_not_taken_to_be_in_the_hands_of_others(place: Place) -> None:
    await place.create()
    ann, bob, _ = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, later="5000")
    assert (await bob.call(fetch=1, max_messages=9, max_bytes=100, waits=1)).beside is False


async def test_a_sweep_comes_when_the_next_is_due(place: Place) -> None:
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, later="300")
    assert await bob.fetch() == []
    assert (await place.store.reap(place.address))[1] == 300
    await place.wait(300)
    await place.reap()
    assert (await place.look()).returned == 1


async def test_a_snapshot_says_how_many_wait(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, 12, later="500 - -")
    await bob.fetch()
    await bob.call(failed=[b"2-11"])
    snapshot = await place.store.snapshot(place.address)
    assert snapshot is not None
    assert (snapshot.fields["later"], int(snapshot.fields["next_due"]) - place.now) == ("2", 500)


async def test_what_waits_is_nobodys_to_accept(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    await bob.fetch()
    await bob.call(failed=[b"1-10"])
    assert (await bob.accept(b"1-10")).stale == 1
    assert (await place.look()).pending.bytes == 10


async def test_what_waits_is_nobodys_to_accept_whatever_stands_beside_it(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, 12)
    await bob.fetch()
    await bob.call(failed=[b"2-11"])
    assert (await bob.accept(b"3-12", b"2-11", b"1-10")).stale == 1, "also where they do not go up"
    await place.wait(1000)
    answer = await bob.call(accepted=[b"2-11"], fetch=2, max_messages=5, max_bytes=100)
    assert answer.stale == 1, "its time came in this very call"
    assert [one[0] for one in answer.messages] == [b"2-11"]
    await truth(place)


async def test_what_comes_back_in_the_call_that_fetches_is_in_order_with_what_is_due(place: Place) -> None:
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, 12)
    await bob.fetch()
    await bob.call(failed=[b"2-11"])
    await place.wait(1000)
    answer = await bob.call(released=[b"1-10"], fetch=2, max_messages=1, max_bytes=100)
    assert [one[0] for one in answer.messages] == [b"1-10"]
    answer = await bob.call(released=[b"3-12"], fetch=3, max_messages=5, max_bytes=100)
    assert [(one[0], one[2]) for one in answer.messages] == [(b"2-11", 1), (b"3-12", 0)]
    await truth(place)


async def test_who_gets_it_first_hears_that_nobody_had_it_and_later_ones_that_somebody_did(place: Place) -> None:
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.ask(len(UNTOUCHED))
    spent = ann.account(ahead=(len(UNTOUCHED), 1))
    assert (await place.store.publish(
        place.address, spent, seq=1, bodies=[UNTOUCHED], ttl_ms=TTL_MS, expires_ms=0, later="500"
    )).code == "OK"  # fmt: skip
    assert await bob.fetch() == []
    await place.wait(500)
    ((first, body, attempts),) = (await bob.call(fetch=2, max_messages=5, max_bytes=100)).messages
    assert (body, attempts) == (UNTOUCHED, 0)
    await bob.call(released=[first + b"+500"], fetch=3, max_messages=5, max_bytes=100)
    await place.wait(500)
    ((again, body, attempts),) = (await bob.call(fetch=4, max_messages=5, max_bytes=100)).messages
    assert (again, body != UNTOUCHED, attempts) == (first, True, 0)


async def test_what_is_read_as_new_waits_no_more(place: Place) -> None:
    """A fetch takes out what is due first, and reads another, which nobody had read: that is not to come again."""
    await place.create()
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, 11, later="600 500")
    await place.wait(700)
    assert await bob.fetch(1) == [b"1-10"]
    assert await waiting(place) == {}
    assert await cid.fetch(5) == [b"2-11"]
    await truth(place)


async def test_others_are_woken_for_what_is_due_and_not_taken(place: Place) -> None:
    await place.create()
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, 11, later="500 500")
    assert await bob.fetch() == await cid.fetch() == []
    await place.wait(500)
    assert await bob.fetch(1) == [b"1-10"]
    assert "cid.1" not in (await place.look()).hungry, "it looks"
    assert await cid.fetch(1) == [b"2-11"]


async def test_a_link_takes_along_what_is_left(place: Place) -> None:
    """It need not wait; what it gives back of that waits here still, and its target keeps to what is left."""
    await place.create()
    links, link = LinkStore(place.server), link_id("orders -> stock")
    ann = place.producer("ann")
    opened = await links.open(place.address, link, fence=1, window="9/1000")
    await ann.send(10, 11, later="500 -")
    await place.wait(100)
    read = await links.read(place.address, link, fence=1, born=opened.born, mark=0, after=0, messages=9, size=1000)
    assert [(entry.seq, entry.later_ms) for entry in read.entries] == [(1, 400), (2, 0)]
    place.sessions.add(link)
    puts = [Put(100 + entry.seq, entry.body, None, (), entry.later_ms) for entry in read.entries]
    how: dict[str, Any] = {"fence": 1, "born": opened.born, "prev": 100, "ttl_ms": TTL_MS}
    await links.commit(place.address, link, lost=True, need=99, want=99, **how)
    answer = await links.commit(place.address, link, puts, **how)
    assert answer.mark == 102
    assert await waiting(place) == {"1-10": 400, "3-10": 400}
    assert await place.store.detach(place.address, link, f"{link}.1", failed=False) == "OK"
    bob = await place.consumer("bob")
    assert await bob.fetch() == [b"2-11", b"4-11"]
    await truth(place)
    await place.wait(400)
    assert await bob.fetch() == [b"1-10", b"3-10"]


async def test_what_a_link_has_in_hand_does_not_come_back_as_it_is_due(place: Place) -> None:
    await place.create()
    links, link = LinkStore(place.server), link_id("orders -> stock")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    opened = await links.open(place.address, link, fence=1, window="9/1000")
    place.sessions.add(link)
    await ann.send(10, later="500")
    read = await links.read(place.address, link, fence=1, born=opened.born, mark=0, after=0, messages=9, size=1000)
    assert len(read.entries) == 1
    await place.wait(500)
    assert await bob.fetch() == []
    await truth(place)


async def test_a_repair_puts_right_what_waits(place: Place) -> None:
    """A member without its message goes; what is aside without a member is due at once."""
    await place.create(retry_delay_ms="1000")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 11, later="500 -")
    assert await bob.fetch() == [b"2-11"]
    await bob.call(failed=[b"2-11"])
    key = place.address.shared[LATER]
    await place.server.command(key, "ZREM", key, "1-10")
    await place.server.command(key, "ZADD", key, str(place.now + 9000), "queue|77-5", str(place.now + 9000), "78-5")
    await place.store.recount(place.address, repair=True)
    assert await waiting(place) == {"queue|1-10": 0, "queue|2-11": 1000}
    await truth(place)
    assert await bob.fetch() == [b"1-10"]

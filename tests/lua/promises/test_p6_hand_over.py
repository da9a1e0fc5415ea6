"""P6 and P7: room that frees is handed over at once, in order, to those that it admits; nobody barges."""

from collections.abc import AsyncIterator

import pytest

from tests.lua.place import TTL_MS, Consumer, Place
from tests.lua.promises.hearing import Ear


@pytest.fixture
async def ear(place: Place) -> AsyncIterator[Ear]:
    async with Ear.at(place) as ear:
        yield ear


def credited(heard: list[tuple[str, str]]) -> list[str]:
    return [session for session, words in heard if words.startswith("credit")]


async def test_a_settlement_hands_what_it_frees_to_who_waits(place: Place, ear: Ear) -> None:
    """Mutant: `settle` does not hand over."""
    await place.create(limit=100)
    ann, waiting, bob = place.producer("ann"), place.producer("waiting"), await place.consumer("bob")
    await ann.send(100)
    await waiting.ask(need=60)
    ids = await bob.fetch()
    await ear.heard()
    await bob.accept(*ids)
    seen = await place.look()
    assert (seen.granted("waiting").bytes, seen.line) == (60, [])
    (told,) = [words for session, words in await ear.heard() if session == "waiting"]
    assert told.split() == ["credit", str(seen.number("epoch")), "1", "60", "8"]


async def test_credit_given_back_goes_to_who_waits(place: Place) -> None:
    """Mutant: `ask` does not hand over."""
    (holder,) = await place.full(100)
    waiting = place.producer("waiting")
    await waiting.ask(need=30)
    await holder.give_back(40)
    assert (await place.look()).granted("waiting").bytes == 30


async def test_who_leaves_hands_over(place: Place) -> None:
    """Mutant: leaving does not hand over."""
    (holder,) = await place.full(100)
    waiting = place.producer("waiting")
    await waiting.ask(need=100)
    await holder.leave()
    assert (await place.look()).granted("waiting").bytes == 100


@pytest.mark.parametrize("by", ["reap", "attach", "detach", "publish"])
async def test_whichever_call_reclaims_hands_over(place: Place, by: str) -> None:
    """Mutants: `reap` does not hand over; `attach` does not hand over."""
    await place.create(limit=100)
    other, consumer = place.producer("other"), await place.consumer("bob")
    await other.ask(window=20)
    dead, waiting = place.producer("dead", ttl_ms=1000), place.producer("waiting")
    await dead.ask(need=80)
    await place.wait(700)
    await place.reap()
    assert (await waiting.ask(need=50)).place == 1
    await place.wait(400)
    match by:
        case "reap":
            await place.reap()
        case "attach":
            await place.consumer("cid")
        case "detach":
            await consumer.detach()
        case _:
            await other.publish(5)
    seen = await place.look()
    assert ("dead" in seen.sessions, seen.granted("waiting").bytes) == (False, 50)


async def test_a_raised_limit_is_handed_over_at_once(place: Place, ear: Ear) -> None:
    """P12. Mutant: `apply` does not hand over."""
    await place.full(100)
    waiting = place.producer("waiting")
    await waiting.ask(need=50)
    await ear.heard()
    await place.change(limit_bytes="150")
    assert (await place.look()).granted("waiting").bytes == 50
    assert await ear.heard() == [
        ("waiting", f"credit {(await place.look()).number('epoch')} 1 50 8"),
        ("", "settings"),
    ]


async def test_freed_room_wakes_only_those_that_it_admits(place: Place, ear: Ear) -> None:
    """Mutant: every hand-over is told to everybody."""
    (holder,) = await place.full(100)
    waiting = [place.producer(f"w{number}") for number in range(10)]
    for producer in waiting:
        await producer.ask(need=10)
    await ear.heard()
    await holder.give_back(35)
    heard = await ear.heard()
    assert credited(heard) == ["w0", "w1", "w2"]
    assert {session for session, words in heard if words.startswith("credit")} <= {p.session for p in waiting}
    assert (await place.look()).line == [f"w{number}" for number in range(3, 10)]


async def test_waiters_are_served_in_the_order_in_which_they_came(place: Place, ear: Ear) -> None:
    """Mutant: tickets are not counted up, so that the names decide."""
    (holder,) = await place.full(100)
    order = ["zoe", "ann", "mia", "bob"]
    for session in order:
        await place.producer(session).ask(need=20)
    await ear.heard()
    for _ in order:
        await holder.give_back(20)
    assert credited(await ear.heard()) == order


async def test_nobody_barges_in_before_those_who_wait(place: Place) -> None:
    """Mutant: `ask` grants although others wait."""
    await place.full(90)
    big, small = place.producer("big"), place.producer("small")
    assert (await big.ask(need=50)).place == 1
    assert (await small.ask(need=5)).place == 2
    assert (await small.ask(window=5)).granted == 0


async def test_a_large_message_at_the_head_is_not_starved_by_small_ones(place: Place) -> None:
    """Mutant: the line is walked past a head that does not fit."""
    (holder,) = await place.full(100)
    big, small = place.producer("big"), place.producer("small")
    await big.ask(need=60)
    await small.ask(need=5)
    for _ in range(5):
        await holder.give_back(10)
        assert (await place.look()).line == ["big", "small"]
    await holder.give_back(10)
    seen = await place.look()
    assert (seen.line, seen.granted("big").bytes) == (["small"], 60)


async def test_a_place_in_line_is_kept_while_asking_again(place: Place) -> None:
    """Mutant: asking again is joining again."""
    (holder,) = await place.full(100)
    first, second = place.producer("first"), place.producer("second")
    await first.ask(need=20)
    await second.ask(need=20)
    for _ in range(3):
        await place.wait(1000)
        await holder.renew()
        assert (await first.ask(need=20)).place == 1
        assert (await second.ask(need=20)).place == 2


async def test_who_no_longer_needs_credit_leaves_the_line(place: Place) -> None:
    """Mutant: `ask` keeps who is not blocked in line."""
    await place.full(100)
    first, second, third = (place.producer(session) for session in ("first", "second", "third"))
    for producer in (first, second, third):
        await producer.ask(need=20)
    assert (await second.ask()).place == 0
    assert (await third.ask(need=20)).place == 2
    assert (await place.look()).line == ["first", "third"]


@pytest.mark.parametrize("ttl_ms", [TTL_MS, 3_600_000])
async def test_a_silent_waiter_does_not_hold_up_the_living(place: Place, ttl_ms: int) -> None:
    """Mutant: `hand_over` waits for everybody, or as long as a long lease lasts."""
    (holder,) = await place.full(100)
    dead, waiting = place.producer("dead", ttl_ms=ttl_ms), place.producer("waiting")
    await dead.ask(need=50)
    for _ in range(7):
        await place.wait(1000)
        await waiting.ask(need=50)
        await holder.renew()
    await holder.give_back(50)
    seen = await place.look()
    assert (seen.line, seen.granted("waiting").bytes, seen.granted("dead").bytes) == ([], 50, 0)
    assert await place.usage() == 100


async def test_a_waiter_that_settles_and_asks_no_more_loses_its_place(place: Place) -> None:
    """A late copy of its asking put it in line, say. Mutant: `settle` hears of those that wait."""
    (holder,) = await place.full(100)
    dead, waiting = place.producer("dead"), place.producer("waiting")
    consumer = await place.consumer("dead")
    await dead.ask(need=50)
    for _ in range(7):
        await place.wait(1000)
        await waiting.ask(need=50)
        await consumer.call()
        await holder.renew()
    await holder.give_back(50)
    seen = await place.look()
    assert (seen.line, seen.granted("waiting").bytes, seen.granted("dead").bytes) == ([], 50, 0)


async def test_a_waiter_keeps_its_place_while_it_asks_as_often_as_it_renews_its_lease(place: Place) -> None:
    """One call that is lost costs nothing. Mutant: whoever is silent for 3 s loses the place."""
    (holder,) = await place.full(100)
    first, second = place.producer("first"), place.producer("second")
    await first.ask(need=50)
    await second.ask(need=50)
    for _ in range(2 * TTL_MS // 4 // 1000):
        await place.wait(1000)
        await second.ask(need=50)
        await holder.renew()
    await holder.give_back(50)
    seen = await place.look()
    assert (seen.line, seen.granted("first").bytes, seen.granted("second").bytes) == (["second"], 50, 0)


async def test_a_waiter_that_can_never_be_served_does_not_hold_up_the_others(place: Place) -> None:
    """Mutant: `never_fits` never says so."""
    (holder,) = await place.full(100)
    huge, waiting = place.producer("huge"), place.producer("waiting")
    await huge.ask(need=90)
    await waiting.ask(need=30)
    await place.change(limit_bytes="80")
    await holder.give_back(60)
    seen = await place.look()
    assert (seen.line, seen.granted("waiting").bytes) == ([], 30)
    assert (await huge.ask(need=90)).code == "TOO_LARGE"


async def test_what_is_left_when_all_were_served_goes_to_the_caller(place: Place) -> None:
    """P5. Mutant: `ask` ends with the hand-over."""
    (holder,) = await place.full(100)
    waiting = place.producer("waiting")
    await waiting.ask(need=20)
    holder.returned = 100
    credit = await holder.ask(window=30)
    assert credit.granted == 130
    assert (await holder.ask(window=30)).granted == 130, "asking again gets no more"
    assert await place.usage() == 50


async def test_a_message_that_needs_more_than_is_wanted_gets_what_it_needs(place: Place) -> None:
    """Mutant: `publish` takes the caller's word for what it wants."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=10)
    account = ann.account(need=40, window=0, ahead=(10, 1))
    stingy = type(account)(**{name: getattr(account, name) for name in account.__slots__} | {"want": 0})
    assert (await ann.publish_as(stingy, 1, 10)).granted == 50


async def test_holders_of_idle_credit_are_asked_for_it_at_most_five_times_a_second(place: Place, ear: Ear) -> None:
    """Mutant: `ask` recalls whenever somebody is blocked."""
    await place.full(60, 40)
    waiting = place.producer("waiting")
    await ear.heard()
    for _ in range(10):
        await waiting.ask(need=20)
        await place.wait(50)
    recalls = [words for session, words in await ear.heard() if session == "" and words.startswith("recall")]
    assert 2 <= len(recalls) <= 3
    assert recalls[0].startswith(f"recall {100 // 3} {2**52} "), "what one of weight 1 may keep"


async def test_a_message_wakes_as_many_consumers_as_it_feeds(place: Place, ear: Ear) -> None:
    """Mutant: one message wakes sixteen."""
    await place.create()
    for number in range(5):
        await (await place.consumer(f"c{number}")).fetch()
    ann = place.producer("ann")
    await ann.ask(window=100)
    await ear.heard()
    await ann.publish(10, 10)
    assert await ear.heard() == [("c0", "ready c0.1"), ("c1", "ready c1.1")]
    await ann.publish(10)
    assert await ear.heard() == [("c2", "ready c2.1")]


async def test_a_message_of_a_topic_wakes_one_consumer_of_each_subscription(place: Place, ear: Ear) -> None:
    """Mutants: it wakes all; one of all; others for what comes back to one; not first where somebody waits."""
    await place.create("topic")
    red, blue = await place.consumer("red0", "red"), await place.consumer("blue0", "blue")
    ann = place.producer("ann")
    await ann.ask(window=100)
    for consumer in (red, blue):
        await consumer.fetch()
    await ear.heard()
    await ann.publish(10)
    assert await ear.heard() == [("", "ready")], "one word is for all where nobody shares"
    more = [await place.consumer(f"red{number}", "red") for number in (1, 2, 3)]
    for consumer in (red, blue, *more):
        await consumer.fetch()
    await ear.heard()
    await ann.publish(10)
    assert sorted(await ear.heard()) == [("blue0", "ready blue0.1"), ("red0", "ready red0.1")]
    ids = await red.fetch(1)
    await blue.fetch()
    await red.call(released=ids)
    assert await ear.heard() == [("red1", "ready red1.1")]
    await more[0].call(max_messages=1)
    assert await ear.heard() == [("red2", "ready red2.1")], "who was woken and has no room says so"
    assert await red.fetch() == ids
    await more[1].call(fetch=2, max_messages=9, max_bytes=99, waits=1)
    await ear.heard()
    await ann.publish(10)
    assert sorted(await ear.heard()) == [("blue0", "ready blue0.1"), ("red2", "ready red2.1")], "somebody waits there"


async def test_where_very_many_of_a_topic_are_hungry_one_word_is_for_all(place: Place, ear: Ear) -> None:
    """Mutant: they are told one by one, each by a call of its own."""
    await place.create("topic")
    for number in range(129):
        await (await place.consumer(f"c{number}", "red")).fetch()
    ann = place.producer("ann")
    await ann.ask(window=100)
    await ear.heard()
    await ann.publish(10)
    assert await ear.heard() == [("", "ready")]


async def test_who_is_paused_is_not_woken_in_the_place_of_others(place: Place, ear: Ear) -> None:
    """Mutant: it stays hungry."""
    await place.create()
    for name in ("bob", "cid"):
        await (await place.consumer(name)).fetch()
    await place.store.attach(
        place.address, "bob", number=1, subscription="queue", durable=True, window="paused", ttl_ms=TTL_MS
    )
    ann = place.producer("ann")
    await ann.ask(window=100)
    await ear.heard()
    await ann.publish(10)
    assert await ear.heard() == [("cid", "ready cid.1")]


async def test_what_comes_back_wakes_a_hungry_consumer(place: Place, ear: Ear) -> None:
    """Mutant: `put_back` wakes nobody."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(10)
    ids = await bob.fetch(1)
    await cid.fetch()
    await ear.heard()
    await bob.call(released=ids)
    assert await ear.heard() == [("cid", "ready cid.1")]


async def test_the_dead_are_not_woken(place: Place, ear: Ear) -> None:
    """Mutant: a reclaimed session's consumers stay hungry."""
    await place.create()
    dead, bob = await place.consumer("dead"), await place.consumer("bob")
    await dead.fetch()
    for _ in range(5):
        await place.sweep(TTL_MS // 4)
        await bob.call()
    await bob.fetch()
    await ear.heard()
    await place.producer("ann").send(10)
    assert [session for session, words in await ear.heard() if words.startswith("ready")] == ["bob"]


async def test_who_waits_beside_what_others_hold_has_them_asked_for_it(place: Place, ear: Ear) -> None:
    """Mutants: nobody is asked; who works would keep all of it; each call asks anew."""
    await place.create()
    bob, cid, dan = await place.consumer("bob"), await place.consumer("cid"), await place.consumer("dan")
    await place.producer("ann").send(*[10] * 8)
    await bob.fetch(6)
    await cid.fetch(2)
    await ear.heard()
    await dan.call(fetch=1, max_messages=9, max_bytes=99)
    assert not [word for _, word in await ear.heard() if "wanted" in word], "it has room, but nobody waits there"
    await dan.call(fetch=2, max_messages=9, max_bytes=99, waits=1)
    assert await ear.heard() == [("bob", "wanted bob.1 2"), ("cid", "wanted cid.1 2")]
    await dan.call(fetch=3, max_messages=9, max_bytes=99, waits=1)
    assert not await ear.heard(), "at most five times a second"
    await place.wait(200)
    await dan.call(fetch=4, max_messages=9, max_bytes=99, waits=1)
    assert len(await ear.heard()) == 2


async def test_consumers_at_which_somebody_waits_are_woken_before_those_that_have_room(place: Place, ear: Ear) -> None:
    """Mutants: all are woken in the order in which they found nothing; or in that of their last look."""
    await place.create()
    bob, cid, dan = await place.consumer("bob"), await place.consumer("cid"), await place.consumer("dan")
    for fetch in (1, 2):
        for consumer, waits in ((bob, 0), (cid, 1), (dan, 1)):
            await consumer.call(fetch=fetch, max_messages=9, max_bytes=99, waits=waits)
        await bob.call(fetch=3, max_messages=9, max_bytes=99)
    await dan.call(fetch=4, max_messages=9, max_bytes=99, waits=1)
    await cid.call(fetch=4, max_messages=9, max_bytes=99, waits=1)
    ann = place.producer("ann")
    for name in ("cid", "dan", "bob"):
        await ear.heard()
        await ann.send(10)
        assert await ear.heard() == [(name, f"ready {name}.1")]


@pytest.mark.parametrize("slices", ["", "3"])
async def test_of_a_slice_those_that_hold_least_of_it_are_woken_first(place: Place, ear: Ear, slices: str) -> None:
    """Mutants: they take turns, so that a slice goes at the pace of the slowest; those of any queue do not."""
    await place.create()
    bob, cid, ann = await place.consumer("bob"), await place.consumer("cid"), place.producer("ann")
    await ann.send(10, 10)
    await ann.ask(window=100)
    await place.change(of_slices=slices)
    for consumer, most in ((bob, 2), (bob, 9), (cid, 9)):
        await consumer.fetch(most)
    for name in ("cid", "bob") if slices else ("bob", "cid"):
        await ear.heard()
        await ann.publish(10)
        assert await ear.heard() == [(name, f"ready {name}.1")]


async def test_each_subscription_of_a_topic_has_its_holders_asked(place: Place, ear: Ear) -> None:
    """Mutants: one subscription's look keeps those of others from theirs; so does one that has a single consumer."""
    await place.create("topic")
    for name in ("red", "blue"):
        await place.consumer(f"{name}1", name)
    lonely, lines = await place.consumer("lonely", "white"), []
    await place.producer("ann").send(10)
    for name in ("red", "blue"):
        await Consumer(place, f"{name}1", name).call(fetch=1, max_messages=1, max_bytes=99)
        lines.append(await place.consumer(f"{name}2", name))
    await lonely.accept(*await lonely.fetch())
    await ear.heard()
    for line in (lonely, *lines):
        answer = await line.call(fetch=9, max_messages=9, max_bytes=99, waits=1)
        assert answer.beside == (line is not lonely)
    assert await ear.heard() == [("red1", "wanted red1.1 0"), ("blue1", "wanted blue1.1 0")]
    for name in ("red1", "red2"):
        await Consumer(place, name, "red").detach()
    for _ in range(3):
        await place.reap()
    fields = (await place.store.snapshot(place.address)).fields  # type: ignore[union-attr]  # it is there
    assert [field for field in fields if field.startswith("sought")] == ["sought_ms|blue"]


async def test_of_many_who_hold_messages_nobody_is_passed_over_for_ever(place: Place, ear: Ear) -> None:
    """Mutant: of many, those who hold most are asked each time, and they may have nothing to give back."""
    await place.create()
    holders = [await place.consumer(f"c{number}") for number in range(66)]
    ann = place.producer("ann")
    for _ in range(11):
        await ann.send(*[10] * 6)
    for holder in holders:
        await holder.fetch(1)
    dan, asked = await place.consumer("dan"), set()
    for fetch in range(1, 6):
        await ear.heard()
        await dan.call(fetch=fetch, max_messages=9, max_bytes=99, waits=1)
        heard = [words.split()[1] for _, words in await ear.heard()]
        assert len(heard) == len(set(heard)) == 64
        asked.update(heard)
        await place.wait(200)
    assert len(asked) == 66


async def test_who_gives_back_is_not_woken_for_it(place: Place, ear: Ear) -> None:
    """Mutant: it is the first in the line of those who have room, and the one who waits hears nothing."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(10, 10)
    ids = await bob.fetch()
    await cid.fetch()
    await ear.heard()
    await bob.call(released=[ids[1]])
    assert await ear.heard() == [("cid", "ready cid.1")]


async def test_who_has_no_room_for_what_it_was_woken_for_has_another_one_woken(place: Place, ear: Ear) -> None:
    """Mutant: the other one waits until it looks by itself. A consumer of slices got messages elsewhere meanwhile."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    for consumer in (bob, cid):
        await consumer.fetch()
    await place.producer("ann").send(10)
    assert ("bob", "ready bob.1") in await ear.heard()
    await bob.call()
    assert not await ear.heard()
    await bob.call(max_messages=1)
    assert await ear.heard() == [("cid", "ready cid.1")]


async def test_who_leaves_without_what_it_was_woken_for_has_another_one_woken(place: Place, ear: Ear) -> None:
    """Mutants: the other one waits until it looks by itself; it is woken for one that was not, or is paused."""
    await place.create()
    bob, cid, dan, eve = [await place.consumer(name) for name in ("bob", "cid", "dan", "eve")]
    for consumer in (bob, cid, dan):
        await consumer.fetch()
    await place.producer("ann").send(10)
    assert ("bob", "ready bob.1") in await ear.heard()
    await dan.detach()
    assert not await ear.heard()
    await place.store.attach(
        place.address, "eve", number=1, subscription="queue", durable=True, window="paused", ttl_ms=TTL_MS
    )
    await eve.detach()
    assert not await ear.heard()
    await bob.detach()
    assert await ear.heard() == [("cid", "ready cid.1")]


async def test_holders_are_asked_for_what_a_limit_that_begins_to_bind_does_not_cover(place: Place, ear: Ear) -> None:
    """Mutants: nobody is asked; each may keep a share of the whole limit, whatever is stored."""
    await place.create(limit=100, enforce="with-consumers")
    ann, bob = place.producer("ann"), place.producer("bob")
    for producer in (ann, bob):
        await producer.ask(10, window=500)
    await ann.publish(60)
    await ear.heard()
    await place.consumer("cid")
    epoch = (await place.look()).number("epoch")
    assert ("", f"recall 20 {1 << 52} {epoch}") in await ear.heard()
    await place.change(limit_bytes="80")
    assert ("", f"recall 10 {1 << 52} {epoch}") in await ear.heard()

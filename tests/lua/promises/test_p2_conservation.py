"""P2: pending is what is stored, leased is what is held; nothing is negative, and each settlement frees once."""

from tests.lua.place import Consumer, Place
from tests.model.credit import Amount


async def test_a_published_message_turns_credit_into_pending(place: Place) -> None:
    """Mutant: `publish` does not take the bytes out of leased."""
    await place.create()
    ann = place.producer("ann")
    await ann.ask(window=100)
    await ann.publish(30, 20)
    seen = await place.look()
    assert (seen.pending, seen.leased) == (Amount(50, 2), Amount(50, 6))
    assert await place.usage() == 100


async def test_an_accepted_message_is_gone(place: Place) -> None:
    """Mutant: `settle` does not take what it freed out of pending."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(30, 20)
    await bob.accept(*await bob.fetch())
    seen = await place.look()
    assert (seen.pending, seen.messages) == (Amount(), {})
    assert await place.usage() == 0


async def test_a_message_settled_twice_frees_once(place: Place) -> None:
    """Mutant: `settle_ids` frees without XACK == 1."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(30, 20)
    first, _ = await bob.fetch()
    assert (await bob.accept(first, first)).stale == 1
    assert (await bob.accept(first)).stale == 1
    assert (await bob.call(rejected=[first])).stale == 1
    assert (await place.look()).pending == Amount(20, 1)
    assert await place.usage() == 20


async def test_of_many_that_are_settled_at_once_those_in_hand_are_freed(place: Place) -> None:
    """Mutant: the sizes of all that were named are freed, whatever Redis knew of them."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(30, 20, 10, 40)
    before, first, second = await bob.fetch(3)
    await bob.accept(before)
    number, _ = second.split(b"-")
    nobodys = b"%d-40" % (int(number) + 1)
    assert (await bob.accept(nobodys, first, first, second, before, b"7-7")).stale == 4
    seen = await place.look()
    assert (seen.pending, set(seen.messages)) == (Amount(40, 1), {int(number) + 1})
    assert await place.usage() == 40
    assert (await bob.accept(before, first, second)).stale == 3
    assert await bob.fetch() == [nobodys]


async def test_what_was_given_back_cannot_be_accepted_any_more(place: Place) -> None:
    """Mutant: `settle` asks nobody who holds what is accepted."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    ids = await bob.fetch()
    await bob.call(released=ids)
    assert (await bob.accept(*ids)).stale == 1
    seen = await place.look()
    assert seen.number("returned") == seen.returned == 1
    assert await bob.fetch() == ids


async def test_what_another_consumer_holds_is_not_settled(place: Place) -> None:
    """Mutant: `settle` asks who holds what is accepted or rejected only while something was given back."""
    await place.create()
    ann, bob, eve = place.producer("ann"), await place.consumer("bob"), await place.consumer("eve")
    await ann.send(10)
    ids = await bob.fetch()
    assert (await eve.accept(*ids)).stale == 1
    assert (await eve.call(rejected=ids)).stale == 1
    assert (await place.look()).number("pending_messages") == 1
    assert (await bob.accept(*ids)).stale == 0
    assert (await place.look()).number("pending_messages") == 0


async def test_in_any_order_what_a_consumer_holds_is_settled_beside_others(place: Place) -> None:
    """Mutant: only what one look from the first id to the last finds is its own."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await place.consumer("eve")
    for _ in range(6):
        await ann.send(10)
    ids = await bob.fetch(6)
    assert len(ids) == 6
    assert (await bob.accept(ids[4], ids[0], ids[2], ids[2])).stale == 1
    assert (await bob.accept(ids[1], ids[5], ids[3])).stale == 0
    assert (await place.look()).number("pending_messages") == 0


async def test_an_id_given_back_twice_in_one_call_counts_once(place: Place) -> None:
    """Mutant: `mine` lists an id as often as it is named."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    ids = await bob.fetch()
    assert (await bob.call(released=[*ids, *ids], failed=ids)).stale == 2
    seen = await place.look()
    assert seen.number("returned") == seen.returned == 1


async def test_what_is_no_id_is_stale_and_spoils_nothing(place: Place) -> None:
    """Mutant: `is_id` takes everything: XACK complains when half of the work is done."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 10)
    first, second = await bob.fetch()
    bad = [b"", b"x", b"1", b"1-", b"-1", b"1-2-3", b"99999999999999999999999-1", b"0x1-1", b" 1-1"]
    answer = await bob.call(accepted=[first, *bad], released=[second, *bad])
    assert (answer.code, answer.stale) == ("OK", 2 * len(bad))
    assert (await bob.call(fetch=bob.fetches, after=b"99999999999999999999999-1")).code == "AGAIN"
    assert await place.usage() == 10


async def test_a_topics_message_is_pending_until_all_subscriptions_settled_it(place: Place) -> None:
    """Mutant: `publish` counts no references."""
    await place.create("topic")
    ann = place.producer("ann")
    red, blue = await place.consumer("bob", "red"), await place.consumer("cid", "blue")
    await ann.send(10, 20)
    await red.accept(*await red.fetch())
    assert (await place.look()).pending == Amount(30, 2)
    await blue.accept(*await blue.fetch())
    assert (await place.look()).pending == Amount()
    assert await place.usage() == 0


async def test_a_removed_subscription_is_not_waited_for(place: Place) -> None:
    """Mutant: `drain_subscription` settles nothing."""
    await place.create("topic")
    ann = place.producer("ann")
    red, blue = await place.consumer("bob", "red"), await place.consumer("cid", "blue", durable=True)
    await ann.send(10, 10)
    await red.accept((await red.fetch())[0])
    await blue.detach()
    while await place.store.detach(place.address, "ann", "!blue", failed=False) == "MORE":
        pass
    assert sorted((await place.look()).messages) == [2], "the first was settled by all that is left"
    await red.accept(*red.held)
    assert await place.usage() == 0


async def test_a_subscription_removed_before_any_message_is_removed_once(place: Place) -> None:
    """Mutant: `end_subscription` marks the end with the number 0, which is no mark."""
    await place.create("topic")
    red, blue = await place.consumer("bob", "red", durable=True), await place.consumer("cid", "blue")
    await red.detach()
    other = await place.consumer("dan", "green")
    await other.detach()  # its subscription is drained later, and so is red's
    for _ in range(3):
        await place.store.detach(place.address, "ann", "!red", failed=False)
    seen = await place.look()
    assert seen.number("subscriptions") == 1
    assert list(seen.subscriptions) == ["blue"]
    await place.producer("ann").send(10)
    assert len(await blue.fetch()) == 1


async def test_a_new_consumer_does_not_join_a_subscription_that_has_just_ended(place: Place) -> None:
    """Mutant: `attach` does not look again after it has reaped."""
    await place.create("topic")
    await place.consumer("bob", "red")
    await place.producer("bob").leave()
    late = Consumer(place, "cid", "red")
    assert [await late.attach(), await late.attach()] == ["GONE", "OK"], "each call works off a piece"
    seen = await place.look()
    assert [name for name, s in seen.subscriptions.items() if s["consumers"] == "1"] == ["red"]
    assert "red" in seen.holders, "the group that it reads from exists"


async def test_purging_frees_everything_but_credit(place: Place) -> None:
    """Mutant: `remove` leaves pending as it was."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 10, 10)
    await ann.ask(window=40)
    await bob.call(released=await bob.fetch(1))
    await bob.fetch(2)
    assert await place.store.remove(place.address, everything=False) == (3, 30)
    seen = await place.look()
    assert (seen.pending, seen.leased.bytes, seen.number("returned")) == (Amount(), 40, 0)
    assert (await bob.accept(*bob.held)).stale == len(bob.held)
    assert await place.usage() == 40


async def test_what_was_largest_is_forgotten_with_the_last_message(place: Place) -> None:
    """Mutant: a purge keeps it, and consumers then fetch as few at a time as of the large one."""
    await place.create()
    producer = place.producer("p")
    await producer.ask(need=510)
    await producer.publish(500, 10)
    assert (await place.look()).number("largest_bytes") == 500
    await place.store.remove(place.address, everything=False)
    assert (await place.look()).number("largest_bytes") == 0


async def test_what_is_purged_is_held_by_no_consumer(place: Place) -> None:
    """Mutant: `remove` does not count what it takes out of consumers' hands as settled."""
    await place.create("queue")
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.ask(window=100)
    await ann.publish(10, 20, 30)
    await bob.fetch(2)
    await place.store.remove(place.address, everything=False)
    snapshot = await place.store.snapshot(place.address)
    assert snapshot is not None
    held = snapshot.consumers[bob.id]
    assert (held["delivered"], held["delivered_b"]) == (held["settled"], held["settled_b"]) == ("2", "30")


async def test_a_repair_makes_the_counters_true_again(place: Place) -> None:
    """Mutant: `recount` does not write what it counted."""
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.send(60)
    await ann.ask(window=40)
    key = place.address.shared[0]
    await place.server.command(key, "HSET", key, "pending_bytes", 10, "leased_bytes", 90, "blocked", 3)
    assert not (await place.recount()).equal
    assert (await place.store.recount(place.address, repair=True)).stored[0] == 10
    assert await place.usage() == 100
    assert (await bob.ask(need=10)).place == 1


async def test_a_recount_of_too_much_is_refused(place: Place) -> None:
    """Mutant: `recount` without its look at `most`."""
    await place.create()
    await place.producer("ann").send(1, 1, 1)
    assert (await place.store.recount(place.address, most=2)).code == "TOO_MANY"

"""P5: every script may be applied one to three times, late or out of order, with the effect of once."""

import re

import pytest

from tests.lua.place import TTL_MS, Consumer, Place

pytestmark = pytest.mark.docker


async def test_a_batch_published_three_times_is_stored_once(place: Place) -> None:
    """Mutant: `publish` does not look at the receipt."""
    await place.create()
    ann = place.producer("ann")
    await ann.ask(window=100)
    account = ann.account(window=100)
    replies = [await ann.publish_as(account, 1, 30, 20) for _ in range(3)]
    assert [(r.code, r.first, r.granted) for r in replies] == [("OK", 1, 100), *[("DUPLICATE", 1, 100)] * 2]
    assert list((await place.look()).messages) == [1, 2]
    assert await place.usage() == 100


async def test_a_batch_of_long_ago_is_not_stored_again(place: Place) -> None:
    """Mutant: `publish` knows only its last batch."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10)
    await ann.send(10, 10)
    assert (await ann.publish_as(ann.account(), 1, 10)).code == "PASSED"
    assert (await ann.publish_as(ann.account(), 3, 10)).code == "PASSED"
    assert len((await place.look()).messages) == 3


async def test_a_batch_whose_answer_was_lost_is_known_after_the_session_died(place: Place) -> None:
    """Mutant: the receipt does not outlive the lease."""
    await place.create()
    ann = place.producer("ann")
    await ann.ask(window=50)
    account = ann.account()
    await ann.publish_as(account, 1, 50)
    await place.sweep(TTL_MS + 1000)
    assert (await ann.publish_as(account, 1, 50)).code == "DUPLICATE"
    ann.start_anew()
    await ann.ask(window=50)
    assert (await ann.publish_as(ann.account(), 1, 50)).code == "DUPLICATE"
    assert len((await place.look()).messages) == 1
    receipt = place.address.keys("ann")[-1]
    assert await place.server.command(receipt, "PTTL", receipt) > 3_500_000


async def test_a_session_of_the_same_id_is_told_what_was_published_before_it(place: Place) -> None:
    """Mutants: `acquire` deletes the receipt of who leaves and keeps it; it does not tell."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10, 10, 10)
    assert (await ann.leave(keep=True)).code == "LEFT"
    ann.start_anew()
    assert [(await ann.call(ann.account(need=10), resume=True)).first for _ in range(2)] == [3, 3]
    assert (await place.producer("bob").call(ann.account(), resume=True)).first == 3, "the session says who it is"
    await ann.leave()
    ann.start_anew()
    assert (await ann.call(ann.account(need=10), resume=True)).first == 0


async def test_numbers_that_a_failover_lost_are_told_in_the_ledger(place: Place) -> None:
    """Mutants: `publish` says nothing about a gap; what is lost is not counted."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10)
    ann.seq = 5
    await ann.send(10)
    ledger = f"{place.address.key}:ledger".encode()
    entries = await place.server.command(ledger, "XREVRANGE", ledger, "+", "-", "COUNT", 1)
    assert b"lost:3" in entries[0][1][1]
    assert await losses_of(place) == (0, 3, 3)


async def losses_of(place: Place) -> tuple[int, int, int]:
    """Return the epochs that began, and the messages that were lost in all and in this one."""
    look = await place.look()
    return look.number("epochs"), look.number("lost_messages"), look.number("epoch_lost")


async def lost_in(place: Place) -> list[bytes]:
    """Return what the ledger says was lost."""
    ledger = f"{place.address.key}:ledger".encode()
    entries = await place.server.command(ledger, "XRANGE", ledger, "-", "+")
    return [event for _, fields in entries for event in re.findall(rb"lost:\d+", fields[1])]


@pytest.mark.parametrize("keep", [False, True])
async def test_what_an_epoch_lost_of_a_session_is_told_once(place: Place, keep: bool) -> None:
    """Mutants: `acquire` does not count; it counts again what it noted; it forgets how many they were."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10, 10, 10)
    before = ann.account()
    if keep:
        await ann.leave(keep=True)
        ann.start_anew()
        before = ann.account()
    assert (await ann.call(before, sent=7)).lost == 0, "it is not for the same epoch to say"
    place.server.run = b"another run"
    answers = [await ann.call(before, sent=7) for _ in range(3)]
    assert [answer.lost for answer in answers] == [4, 4, 4]
    assert await lost_in(place) == [b"lost:4"]
    ann.hear(answers[-1])
    ann.seq = 8
    await place.wait(TTL_MS)
    await ann.send(10)
    assert await lost_in(place) == [b"lost:4"], "and not by who publishes then"
    assert await losses_of(place) == (1, 4, 4)
    place.server.run = b"a third run"
    assert (await ann.call(ann.account(), sent=8)).lost == 0
    assert await losses_of(place) == (2, 4, 0), "in all, and in this epoch"


async def test_a_session_whose_receipt_is_gone_too_lost_all_that_it_has_receipts_for(place: Place) -> None:
    """Mutant: without a receipt nothing is counted."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10, 10, 10)
    receipt = place.address.keys("ann")[-1]
    await place.server.command(receipt, "DEL", receipt)
    place.server.run = b"another run"
    assert (await ann.call(ann.account(), sent=3)).lost == 3
    assert await lost_in(place) == [b"lost:3"]


async def test_a_session_that_left_and_then_ends_is_forgotten(place: Place) -> None:
    """Mutant: only who has an account is forgotten."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10)
    await ann.leave(keep=True)
    receipt = place.address.keys("ann")[-1]
    assert await place.server.command(receipt, "EXISTS", receipt)
    await ann.leave()
    assert not await place.server.command(receipt, "EXISTS", receipt)


async def test_credit_given_back_again_frees_nothing_more(place: Place) -> None:
    """Mutant: `give_back` takes the total for what is new."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=100)
    ann.returned = 30
    account = ann.account(window=ann.held)
    for _ in range(3):
        await ann.call(account)
    assert await place.usage() == 70
    await ann.publish(70)
    await ann.call(account)
    assert await place.usage() == 70


async def test_a_call_that_was_overtaken_takes_nothing_back(place: Place) -> None:
    """Mutant: `give_back` believes a total that shrinks."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=40)
    old = ann.account(window=40)
    await ann.ask(window=90)
    await ann.give_back(20)
    assert (await ann.call(old)).granted == 90
    assert await place.usage() == 70


async def test_more_given_back_than_held_is_refused(place: Place) -> None:
    """Mutant: `acquire` without OVERUSE."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=40)
    await ann.publish(30)
    ann.returned = 20
    assert (await ann.renew()).code == "OVERUSE"
    assert await place.usage() == 40


async def test_a_zombie_of_an_older_incarnation_is_fenced_from_publishing(place: Place) -> None:
    """Mutant: `publish` does not compare the incarnation."""
    await place.create(limit=100)
    zombie = place.producer("ann")
    await zombie.ask(window=50)
    late = zombie.account()
    zombie.start_anew()
    await zombie.ask(window=50)
    assert (await zombie.publish_as(late, 1, 50)).code == "FENCED"
    assert (await place.look()).messages == {}
    assert await place.usage() == 50


async def test_a_zombie_of_an_older_incarnation_is_fenced_from_credit(place: Place) -> None:
    """Mutant: `acquire` does not compare the incarnation."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=50)
    late, leave = ann.account(window=80), ann.account(weight=0)
    ann.start_anew()
    await ann.ask(window=20)
    fenced = await ann.call(late)
    assert (fenced.code, fenced.granted) == ("FENCED", ann.inc)
    assert (await ann.call(leave, leave=True)).code == "FENCED"
    assert await place.usage() == 20


async def test_a_higher_incarnation_frees_what_the_older_held(place: Place) -> None:
    """Mutant: `open_account` keeps the older incarnation's lease."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=80)
    ann.start_anew()
    assert (await ann.ask(window=80)).granted == 80
    assert await place.usage() == 80


async def test_leaving_twice_is_leaving_once(place: Place) -> None:
    """Mutant: `acquire` opens an account only to leave."""
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(window=60)
    await bob.ask(window=40)
    assert [(await ann.leave()).code for _ in range(3)] == ["LEFT"] * 3
    assert await place.usage() == 40
    assert (await place.look()).number("weight") == 1


async def test_a_fetch_whose_answer_was_lost_is_answered_again(place: Place) -> None:
    """Mutant: `settle` takes a repeated fetch for a new one."""
    await place.create()
    await place.producer("ann").send(10, 10, 10)
    bob = await place.consumer("bob")
    bob.fetches = 1
    first = await bob.call(fetch=1, max_messages=2, max_bytes=99)
    again = await bob.call(fetch=1, max_messages=2, max_bytes=99)
    rest = await bob.call(fetch=1, max_messages=2, max_bytes=99, after=first.messages[0][0])
    assert (again.code, again.messages) == ("AGAIN", first.messages)
    assert rest.messages == first.messages[1:]
    assert len(await bob.fetch()) == 1, "the third"


async def test_a_fetch_that_was_overtaken_delivers_to_nobody(place: Place) -> None:
    """Mutant: `settle` takes an older fetch for a new one."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10)
    await bob.fetch(1)
    await bob.fetch(1)
    await ann.send(10)
    late = await bob.call(fetch=1, max_messages=9, max_bytes=99)
    assert (late.code, late.messages) == ("OK", ())
    assert len(await bob.fetch()) == 1


async def test_a_failed_attempt_counts_once(place: Place) -> None:
    """Mutant: `settle` gives back again what a repeated call names."""
    await place.create()
    await place.producer("ann").send(10)
    bob = await place.consumer("bob")
    ids = await bob.fetch()
    for expected in ("OK", "AGAIN", "AGAIN"):  # it fails, and comes right back in the same call
        answer = await bob.call(failed=ids, fetch=2, max_messages=1, max_bytes=99)
        assert (answer.code, [m[0] for m in answer.messages]) == (expected, ids)
    assert (await place.look()).failures == {"queue|1-10": 1}


async def test_attaching_again_changes_nothing(place: Place) -> None:
    """Mutant: `attach` takes a known consumer for a new one."""
    await place.create()
    await place.producer("ann").send(10)
    bob = await place.consumer("bob")
    ids = await bob.fetch()
    assert [await bob.attach(), await bob.attach()] == ["OK", "OK"]
    seen = await place.look()
    assert (seen.number("consumers"), seen.subscriptions["queue"]["consumers"]) == (1, "1")
    assert (await bob.accept(*ids)).stale == 0


@pytest.mark.parametrize("failed", [False, True])
async def test_detaching_again_changes_nothing(place: Place, failed: bool) -> None:
    """Mutant: `put_back` counts a release as a failure."""
    await place.create()
    await place.producer("ann").send(10)
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    ids = await bob.fetch()
    assert [await bob.detach(failed=failed) for _ in range(3)] == ["OK"] * 3
    seen = await place.look()
    assert (seen.number("consumers"), seen.number("returned")) == (1, 1)
    assert seen.failures == ({"queue|1-10": 1} if failed else {})
    assert await cid.fetch() == ids


async def test_a_late_settlement_of_a_consumer_that_is_gone_is_refused(place: Place) -> None:
    """Mutant: `settle` lets an orphan settle, which has held more than one call puts back."""
    await place.create()
    ann = place.producer("ann")
    for _ in range(10):
        await ann.send(*[1] * 8)
    bob = await place.consumer("bob")
    ids = await bob.fetch()
    await place.producer("bob").leave()
    await place.producer("bob", inc=2).ask(window=10)
    late = Consumer(place, "bob", "queue")
    assert (await late.accept(ids[-1])).code == "EXPIRED"
    assert (await place.look()).pending.messages == len(ids) == 80


async def test_slots_of_a_bucket_are_taken_once(place: Place) -> None:
    """Mutant: `take` does not look at the receipt."""
    await place.create("bucket", rate="10", burst="5")
    place.sessions.add("ann")
    line = [(3, 1000), (3, 1000), (9, 1000), (4, 0)]
    first = await place.store.take(place.address, "ann", seq=1, line=line)
    again = await place.store.take(place.address, "ann", seq=1, line=line)
    assert again == first == ("OK", ["0", "100000", "never:5", "late:500000"])
    _, (wait,) = await place.store.take(place.address, "ann", seq=2, line=[(1, 9000)])
    assert wait == "200000"


async def test_a_setting_of_an_older_policy_does_not_overwrite_a_newer_one(place: Place) -> None:
    """Mutant: `apply` without OLD."""
    await place.create()
    await place.change(limit_bytes="50", policy_version="7")
    code, _ = await place.store.apply(
        place.address, {"limit_bytes": "90", "policy_version": "6"}, mode="change", ttl_ms=TTL_MS
    )
    assert (code, (await place.look()).fields["limit_bytes"]) == ("OLD", "50")
    assert await place.create(limit=70) == "OK", "'ensure' leaves what is there"
    assert (await place.look()).fields["limit_bytes"] == "50"

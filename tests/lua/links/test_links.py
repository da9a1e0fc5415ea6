"""A link's steps, one by one: what is read stays, what is committed is there once and in order, and paid."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.durability import MEMORY
from headgate.core.links.calls import Put, Skip
from headgate.redis.keys import link_id
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from tests.lua.place import TTL_MS
from tests.lua.route import LINK, Route, puts
from tests.support.rewriting import RewritingServer

pytestmark = pytest.mark.docker


@pytest.fixture
async def topic_route(server: RewritingServer, namespace: str) -> AsyncIterator[Route]:
    route = await Route.make(server, namespace, "topic")
    yield route
    await route.check()
    await route.close()


async def filled(route: Route, *sizes: int, want: int = 500) -> list[Put]:
    """Send to the source, read there, reserve at the target; return what is to be put there."""
    await route.source.producer("ann").send(*sizes)
    entries = (await route.read()).entries
    assert [len(entry.body) for entry in entries] == list(sizes)
    assert (await route.commit(want=want)).held == want
    return puts(entries)


def test_the_id_of_a_link_is_readable_and_its_own() -> None:
    assert link_id("orders -> west") == link_id("orders -> west")
    assert link_id("orders -> west").startswith("link~orders-west~")
    assert link_id("orders/-> west") != link_id("orders -> west")
    assert len(link_id("x" * 255)) <= 80


async def test_a_message_goes_through_all_steps(route: Route) -> None:
    one, two = await filled(route, 10, 20)
    assert (await route.source.look()).pending.messages == 2, "reading removes nothing"
    done = await route.commit(one, two, want=500)
    assert (done.code, done.mark, done.held) == ("OK", 2, 500)
    assert await route.stored() == [one.body, two.body]
    assert (await route.target.look()).pending.bytes == 30
    released = await route.read(mark=2)
    assert (released.code, released.released, released.entries) == ("OK", 2, ())
    assert (await route.source.look()).pending.messages == 0


async def test_what_was_read_is_read_again_by_whoever_comes_next(route: Route) -> None:
    await filled(route, 10, 20, 30)
    route.fence = 2
    await route.open()
    again = (await route.read()).entries
    assert [entry.seq for entry in again] == [1, 2, 3]
    assert [entry.seq for entry in (await route.read(after=1)).entries] == [2, 3]
    assert (await route.read(messages=0)).entries == ()


async def test_what_is_in_hand_comes_before_what_is_new_and_both_within_the_bytes(route: Route) -> None:
    ann = route.source.producer("ann")
    await ann.send(10, 20)
    await route.read(messages=1)
    assert [entry.seq for entry in (await route.read()).entries] == [1, 2]
    await ann.send(30, 40)
    assert [entry.seq for entry in (await route.read()).entries] == [1, 2, 3, 4]
    await ann.send(50, 60)
    assert [entry.seq for entry in (await route.read(after=4)).entries] == [5, 6]
    assert [entry.seq for entry in (await route.read(after=4, size=100)).entries] == [5]


async def test_what_a_link_has_read_is_never_given_to_others_while_it_lives_on(route: Route) -> None:
    """The target may have it: no lease ends at the source that could give it to another consumer."""
    one = (await filled(route, 10))[0]
    bob = await route.source.consumer("bob")
    await route.commit(one)
    await route.source.sweep(5 * TTL_MS)
    await bob.attach()
    assert await bob.fetch() == []
    assert (await route.read(mark=1)).released == 1


@pytest.mark.parametrize("times", [2, 3])
async def test_a_commit_that_is_repeated_stores_and_pays_once(route: Route, times: int) -> None:
    one, two = await filled(route, 10, 20)
    for _ in range(times):
        assert (await route.commit(one, two)).mark == 2
    assert await route.stored() == [one.body, two.body]
    assert (await route.commit()).held == 470
    assert (await route.commit(one)).mark == 2, "late"


async def test_a_batch_without_its_predecessor_is_refused_with_the_mark(route: Route) -> None:
    one, two, three = await filled(route, 10, 20, 30)
    refused = await route.commit(two, prev=1)
    assert (refused.code, refused.mark) == ("GAP", 0)
    assert await route.stored() == []
    await route.commit(one)
    assert (await route.commit(three, prev=2)).code == "GAP"
    assert (await route.commit(two, three, prev=1)).mark == 3
    assert await route.stored() == [one.body, two.body, three.body]


async def test_a_commit_goes_as_far_as_the_credit_and_waits_in_line_for_the_next(route: Route) -> None:
    await route.target.change(limit_bytes="100")
    one, two, three = await filled(route, 40, 50, 30, want=100)
    stopped = await route.commit(one, two, three)
    assert (stopped.code, stopped.mark, stopped.place) == ("NOCREDIT", 2, 1)
    assert await route.stored() == [one.body, two.body]
    bob = await route.target.consumer("bob")
    ids = await bob.fetch(1)
    await bob.accept(*ids)
    assert (await route.commit(two, three, prev=1)).mark == 3, "it was handed over what bob freed"


async def test_a_barrier_leaves_the_link_in_line(route: Route) -> None:
    await route.target.change(limit_bytes="100")
    one, two = await filled(route, 60, 50, want=100)
    assert (await route.commit(one, two)).place == 1
    answer, _ = await route.store.barrier(
        route.target.address, LINK, fence=1, born=route.born, prev=0, ttl_ms=TTL_MS, durability=MEMORY, timeout_ms=1
    )
    assert (answer.mark, answer.held, answer.place) == (1, 0, 1)
    bob = await route.target.consumer("bob")
    await bob.accept(*await bob.fetch(1))
    assert (await route.target.look()).leased.bytes == 50, "it was handed over what bob freed"


async def test_a_link_that_waits_keeps_nothing_that_others_wait_for(route: Route) -> None:
    """Else it and a sender before it in line, each with what the other lacks, wait for ever; so does one of a pool."""
    one, two = await filled(route, 60, 600)
    bob = route.target.producer("bob")
    assert (await bob.ask(900)).place == 1
    waits = await route.commit(one, two)
    assert (waits.code, waits.mark, waits.held, waits.place) == ("NOCREDIT", 1, 0, 1), "bob had his turn"
    seen = await route.target.look()
    assert (seen.pending.bytes, seen.leased.bytes, seen.number("blocked")) == (60, 900, 1)
    await bob.leave()
    assert (await route.target.look()).leased.bytes == 600, "it asked for all that it needs"
    assert (await route.commit(two, prev=1)).mark == 2


async def test_what_a_link_gives_back_was_no_part_of_its_turn(route: Route) -> None:
    """Mutants: it has had its turn for all that it was granted; it stands where it stood before it gave back."""
    await route.target.change(limit_bytes="200")
    one, two = await filled(route, 60, 60, want=0)
    ann, bob, hog = route.target.producer("ann"), await route.target.consumer("bob"), route.target.producer("hog")
    await hog.send(200)
    await hog.leave()
    assert (await ann.ask(60, 100)).place == 1
    assert (await route.commit(need=60, want=100)).place == 2
    await bob.accept(*await bob.fetch(1))
    assert (await route.target.look()).leased.bytes == 200, "each has 100"
    ann.hear(await ann.renew())
    await ann.publish(100)
    assert (await ann.ask(60)).place == 1
    again = await route.commit(one, two)
    assert (again.mark, again.held, again.place) == (1, 0, 1), "ann had 100, and it 60"


async def test_a_link_has_its_turns_where_messages_are_few_and_bytes_are_many(route: Route) -> None:
    """Mutants: its turn is one for all bytes that it was granted; what it gives back of them is taken off its turn."""
    await route.target.change(limit_bytes="unlimited", limit_messages="2")
    entries = await filled(route, *[10] * 8, want=0)
    ann, bob = route.target.producer("ann"), await route.target.consumer("bob")
    mark = sent = 0
    for _ in range(11):
        if (await ann.ask(10, 500)).place == 0:
            await ann.publish(10, need=10, window=500)
            sent += 1
        mark = (await route.commit(entries[min(mark, 7)], prev=mark, need=10, want=500)).mark
        await bob.accept(*await bob.fetch(1))
    assert abs(mark - sent) <= 2, (mark, sent)


async def test_a_link_brings_a_message_above_the_limit_where_one_goes_alone(route: Route) -> None:
    """Mutant: what it has in hand is taken for another message."""
    await route.target.change(limit_bytes="100", oversize="allow-one")
    one, two = await filled(route, 60, 300, want=100)
    assert (await route.commit(one, two)).place == 1
    bob = await route.target.consumer("bob")
    await bob.accept(*await bob.fetch(1))
    assert await route.target.usage() == 300, "it was handed over what bob freed"
    assert (await route.commit(two, prev=1)).mark == 2
    await route.check()


async def test_a_message_above_the_limit_is_named_and_skipped_on_request(route: Route) -> None:
    await route.target.change(limit_bytes="100")
    one, large, three = await filled(route, 10, 200, 30, want=100)
    told = await route.commit(one, large, three)
    assert (told.code, told.mark) == ("TOO_LARGE", 1)
    assert (await route.commit(need=200)).code == "TOO_LARGE"
    assert (await route.commit(Skip(2), three, prev=1)).mark == 3
    assert await route.stored() == [one.body, three.body]


async def test_a_skip_needs_its_predecessor_too(route: Route) -> None:
    await filled(route, 10, 20)
    assert (await route.commit(Skip(2), prev=1)).code == "GAP"


async def test_an_older_lease_is_fenced_at_both_ends(route: Route) -> None:
    one = (await filled(route, 10))[0]
    route.fence = 5
    await route.open()
    await route.commit()
    route.fence = 4
    assert ((await route.open()).code, (await route.open()).fence) == ("FENCED", 5)
    assert ((await route.read()).code, (await route.read()).fence) == ("FENCED", 5)
    late = await route.commit(one)
    assert (late.code, late.fence) == ("FENCED", 5)
    assert await route.stored() == []


async def test_a_commit_pays_with_its_own_credit_only(route: Route) -> None:
    one, two = await filled(route, 40, 50, want=50)
    done = await route.commit(one, two, want=0)
    assert (done.code, done.mark) == ("NOCREDIT", 1)


async def test_credit_of_before_a_lower_limit_pays_for_nothing_above_it(route: Route) -> None:
    """Mutant: a link writes above the limit with what it was granted before; what is left of that goes back."""
    one, two = await filled(route, 10, 20)
    await route.target.change(limit_bytes="25")
    done = await route.commit(one, two, want=500)
    assert (done.code, done.mark, done.held) == ("NOCREDIT", 1, 0)
    seen = await route.target.look()
    assert (seen.pending.bytes, seen.leased.bytes, seen.number("blocked")) == (10, 0, 1)


async def test_a_new_lease_frees_the_credit_of_the_one_before(route: Route) -> None:
    await filled(route, 10, want=600)
    route.fence = 2
    assert (await route.commit(want=100)).held == 100
    assert (await route.target.look()).leased.bytes == 100


async def test_the_fence_outlives_the_account(route: Route) -> None:
    one = (await filled(route, 10))[0]
    route.fence = 2
    await route.commit()
    await route.target.sweep(2 * TTL_MS)
    route.fence = 1
    assert (await route.commit(one)).code == "FENCED"


async def test_credit_of_a_dead_worker_is_back_and_its_late_commit_is_not_paid(route: Route) -> None:
    one = (await filled(route, 10))[0]
    await route.target.sweep(TTL_MS)
    assert await route.target.usage() == 0
    late = await route.commit(one)
    assert (late.code, late.mark) == ("NOCREDIT", 0)
    assert late.held == 10, "it has what it needs by the same call"
    assert (await route.commit(one)).mark == 1


async def test_messages_of_a_source_that_was_made_anew_are_not_taken_for_those_before(route: Route) -> None:
    one = (await filled(route, 10))[0]
    await route.commit(one)
    await route.source.store.remove(route.source.address, everything=True)
    await route.wait(1000)
    await route.source.create(limit=1000)
    before = route.born
    assert (await route.read()).code == "CLOSED"
    await route.open()
    assert route.born > before
    await route.source.producer("bea").send(33)
    entries = (await route.read()).entries
    assert [entry.seq for entry in entries] == [1], "the same number"
    assert (await route.commit(*puts(entries))).mark == 1
    assert [len(body) for body in await route.stored()] == [10, 33]
    route.born = before
    assert (await route.commit(one)).code == "STALE"
    assert (await route.read()).code == "BORN"


async def test_opening_a_link_again_does_not_change_which_source_it_is(route: Route) -> None:
    born = route.born
    await route.wait(1000)
    assert (await route.open()).born == born


async def test_no_number_that_a_failover_lost_is_given_to_another_message(route: Route) -> None:
    one = (await filled(route, 10))[0]
    await route.commit(one)
    route.server.run = b"another run"
    await route.source.reap()
    await route.wait(2 * TTL_MS)
    await route.source.producer("bea").send(10)
    entries = (await route.read(mark=1)).entries
    assert entries[0].seq >= route.source.now * 1000 - 2 * TTL_MS * 1000
    route.server.run = None


async def test_a_target_that_lost_its_mark_says_so_and_goes_on_only_when_told(route: Route) -> None:
    one, two = await filled(route, 10, 20)
    await route.commit(one)
    await route.read(mark=1)
    await route.target.forget()
    await route.target.create(limit=1000)
    assert (await route.commit(two, prev=1)).code == "GAP"
    known = await route.commit(prev=1, lost=True)
    assert (known.code, known.mark) == ("OK", 1)
    seen = await route.target.store.snapshot(route.target.address, entries=1)
    assert seen is not None
    assert f"regressed:{LINK}:0:1" in seen.ledger[0]
    await route.commit(two, prev=1, want=100)
    assert (await route.commit(two, prev=1)).mark == 2


async def test_a_message_that_comes_back_below_the_mark_gets_a_new_number(route: Route) -> None:
    """A queue's other consumer had it in hand when later ones went over the link: their mark must not swallow it."""
    bob = await route.source.consumer("bob")
    await route.source.producer("ann").send(11, 12, 13)
    first = await bob.fetch(1)
    entries = (await route.read()).entries
    assert [entry.seq for entry in entries] == [2, 3]
    await route.commit(want=500)
    await route.commit(*puts(entries))
    await bob.call(failed=first)
    entries = (await route.read(mark=3)).entries
    assert [(entry.seq, len(entry.body)) for entry in entries] == [(4, 11)]
    assert (await route.source.look()).failures == {"queue|4-11": 1}
    assert (await route.source.look()).pending.messages == 1
    assert (await route.commit(*puts(entries), prev=3)).mark == 4


async def test_a_message_that_comes_back_gets_a_new_number_although_the_reader_of_later_ones_died(route: Route) -> None:
    """Nobody knows whether the target has them by now."""
    bob = await route.source.consumer("bob")
    await route.source.producer("ann").send(11, 12)
    first = await bob.fetch(1)
    assert [entry.seq for entry in (await route.read()).entries] == [2]
    await bob.call(failed=first)
    route.fence = 2
    await route.open()
    assert [entry.seq for entry in (await route.read()).entries] == [2, 3]


async def test_what_a_link_gives_back_piece_by_piece_stays_in_order_though_its_end_is_begun_anew(route: Route) -> None:
    """The answer to the first piece was lost, so the end of the link began again: with what it releases."""
    ann = route.source.producer("ann")
    for _ in range(13):
        await ann.send(*[5] * 8)
    assert len((await route.read()).entries) == 104
    store, address = Store(route.server), route.source.address
    assert await store.detach(address, LINK, f"{LINK}.1", failed=False) == "MORE"
    route.fence = 2
    await route.open()
    assert (await route.read(messages=0)).code == "OK"
    while await store.detach(address, LINK, f"{LINK}.1", failed=False) == "MORE":
        pass
    assert list((await route.source.look()).messages) == [*range(1, 105)]


async def test_what_an_ended_link_had_in_hand_comes_first_when_it_is_opened_again(
    route: Route,
) -> None:
    entries = await filled(route, 10, 11, 12, 13)
    await route.commit(want=500)
    await route.commit(entries[0])
    assert (await route.source.look()).messages.keys() == {1, 2, 3, 4}
    await route.source.producer("bea").send(14)
    assert await route.end() == 1
    route.fence += 1
    await route.open()
    assert [entry.seq for entry in (await route.read(mark=1)).entries] == [2, 3, 4, 5]


async def test_a_source_that_forgot_how_far_a_link_got_hears_it_from_the_target(route: Route) -> None:
    bob = await route.source.consumer("bob")
    await route.source.producer("ann").send(11, 12)
    await bob.call(failed=await bob.fetch(1))
    entries = (await route.read(after=1)).entries
    assert [(entry.seq, len(entry.body)) for entry in entries] == [(2, 12), (3, 11)]


@pytest.mark.parametrize("size", [1, 4000])
@pytest.mark.parametrize("fair_by", ["", "priority", "producer"])
async def test_much_that_a_failover_brought_back_is_let_go_of_in_a_few_calls(
    server: RewritingServer, namespace: str, size: int, fair_by: str
) -> None:
    """The source is as it was before the link read 600 messages, which the target has: the link has no credit left."""
    route = await Route.make(server, namespace, limit="9000000")
    await route.source.change(limit_bytes="9000000", fair_by=fair_by)
    ann = route.source.producer("ann")
    for _ in range(75):
        await ann.send(*[size] * 8)
    await ann.send(7)
    calls = 0
    while not (answer := await route.read(mark=600, after=600, messages=1)).entries:
        assert answer.code == "MORE", "it does not rest"
        calls += 1
        assert calls < 6
    assert [entry.seq for entry in answer.entries] == [601]
    assert (await route.read(mark=600, after=601, messages=1)).code == "OK"
    assert (await route.source.look()).pending.messages == 1
    await route.check()
    await route.close()


async def test_another_subscription_keeps_a_topics_message_after_the_link_let_it_go(topic_route: Route) -> None:
    route = topic_route
    red = await route.source.consumer("red", "red")
    one = (await filled(route, 10))[0]
    await route.commit(one)
    await route.read(mark=1)
    assert (await route.source.look()).pending.messages == 1
    assert await red.fetch() == [b"1-10"]
    await red.accept(b"1-10")
    assert (await route.source.look()).pending.messages == 0


async def test_what_is_released_is_given_to_who_waits(route: Route) -> None:
    one = (await filled(route, 990))[0]
    waiting = route.source.producer("waiting")
    assert (await waiting.ask(need=500)).place == 1
    await route.commit(one, want=990)
    await route.commit(one)
    await route.read(mark=1)
    assert (await route.source.look()).granted("waiting").bytes == 500


async def test_one_call_releases_a_bounded_number(server: RewritingServer, namespace: str) -> None:
    route = await Route.make(server, namespace, limit="9000")
    ann = route.source.producer("ann")
    await route.source.change(limit_bytes="9000")
    for _ in range(38):
        await ann.send(*[1] * 8)
    await route.read()
    await route.read(after=256)
    some = await route.read(mark=300)
    assert (some.code, some.released) == ("MORE", 256)
    rest = await route.read(mark=300)
    assert (rest.code, rest.released) == ("OK", 300)
    await route.check()
    await route.close()


async def test_a_releases_repetition_settles_nothing_more(route: Route) -> None:
    puts_ = await filled(route, 10, 20, 30)
    await route.commit(*puts_)
    for _ in range(3):
        assert (await route.read(mark=2, messages=0)).released == 2
    assert (await route.read(mark=1, messages=0)).released == 2, "late"
    assert (await route.source.look()).pending.messages == 1
    assert (await route.source.look()).consumers[f"{LINK}.1"]["settled"] == "2"


async def test_path_and_lifetime_go_along(route: Route) -> None:
    await route.source.producer("ann").send(10, expires_ms=5000)
    await route.wait(1000)
    entry = (await route.read()).entries[0]
    assert (entry.ttl_ms, entry.path) == (4000, ())
    await route.commit(want=100)
    await route.commit(Put(entry.seq, entry.body, entry.ttl_ms, ("east/a", "west/b")))
    await route.wait(3999)
    carrier = Route(route.server, route.namespace)
    carrier.source = route.target
    await carrier.open()
    assert [(e.ttl_ms, e.path) for e in (await carrier.read()).entries] == [(1, ("east/a", "west/b"))]
    assert (await route.target.store.browse(route.target.address, after=None, count=1))[0][2] is not None


async def test_a_path_without_a_lifetime_is_not_read_as_one(route: Route) -> None:
    one = (await filled(route, 10))[0]
    await route.commit(one)
    assert (await route.target.store.browse(route.target.address, after=None, count=1))[0][2] is None
    bob = await route.target.consumer("bob")
    assert await bob.fetch() == [b"1-10"]


async def test_the_targets_rate_holds_for_links(server: RewritingServer, namespace: str) -> None:
    route = await Route.make(server, namespace, send_rate="10", send_burst="2")
    batch = await filled(route, 10, 20, 30)
    slow = await route.commit(*batch)
    assert (slow.code, slow.mark, slow.again_ms) == ("RATE", 2, 100)
    assert (await route.commit(*batch[2:], prev=2)).mark == 2
    await route.wait(100)
    assert (await route.commit(*batch[2:], prev=2)).mark == 3
    await route.check()
    await route.close()


async def test_a_stopped_target_takes_nothing(route: Route) -> None:
    one = (await filled(route, 10))[0]
    await route.target.change(stopped="for a while")
    stopped = await route.commit(one)
    assert (stopped.code, stopped.held, stopped.held_m, stopped.place) == ("STOPPED", 0, 0, 0), (
        "others have a use for it"
    )
    await route.target.change(stopped="")
    assert (await route.commit(one)).code == "NOCREDIT"
    assert (await route.commit(one)).mark == 1


async def test_a_link_that_is_removed_gives_all_back(route: Route) -> None:
    one, _ = await filled(route, 10, 20)
    await route.commit(one)
    await route.read(mark=1, messages=0)
    while await route.source.store.detach(route.source.address, LINK, f"{LINK}.1", failed=False) == "MORE":
        pass
    bob = await route.source.consumer("bob")
    assert await bob.fetch() == [b"2-20"]
    sender = route.target.producer(LINK)
    await sender.leave()
    assert (await route.target.look()).leased.bytes == 0


async def test_gates_and_what_is_not_there_are_refused(route: Route) -> None:
    gate = Route(route.server, f"{route.namespace}")
    await gate.source.store.remove(gate.source.address, everything=True)
    await gate.target.store.remove(gate.target.address, everything=True)
    assert (await gate.open()).code == (await gate.read()).code == (await gate.commit()).code == "UNKNOWN"
    await gate.source.create("gate")
    await gate.target.create("gate")
    assert (await gate.open()).code == (await gate.commit()).code == "KIND"


async def test_a_link_that_finds_nothing_has_others_asked_for_what_they_hold(route: Route) -> None:
    """Mutants: nobody is asked; the worker rests as it would at an empty source."""
    bob, channel = await route.source.consumer("bob"), f"{route.source.address.key}:wake:bob"
    assert (await route.read()).again_ms is None
    await route.source.producer("ann").send(10, 10)
    ids = await bob.fetch()
    listener = await route.server.subscriber()
    pubsub = listener.pubsub()
    await pubsub.subscribe(channel)
    await pubsub.get_message(timeout=1)
    assert (await route.read()).again_ms == 1000
    heard = await pubsub.get_message(ignore_subscribe_messages=True, timeout=60)
    assert heard is not None
    assert heard["data"] == b"wanted bob.1 1"
    await bob.call(released=ids[1:])
    assert [entry.body for entry in (await route.read()).entries] == [b"B" * 10]
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    await listener.aclose()


@pytest.fixture
async def copying_route(server: RewritingServer, namespace: str) -> AsyncIterator[Route]:
    route = await Route.make(server, namespace, copies=True)
    yield route
    await route.check()
    await route.close()


async def test_a_link_that_copies_leaves_each_message_to_the_queues_consumers(copying_route: Route) -> None:
    route = copying_route
    bob = await route.source.consumer("bob")
    one, two = await filled(route, 10, 20)
    ids = await bob.fetch()
    assert len(ids) == 2
    await route.commit(one, two)
    await bob.accept(ids[0])
    assert (await route.source.look()).pending.messages == 2, "the link has them still"
    await route.read(mark=1)
    seen = await route.source.look()
    assert (seen.pending.messages, list(seen.messages)) == (1, [2])
    await route.read(mark=2)
    assert (await route.source.look()).pending.messages == 1, "the consumer has it still"
    await bob.accept(ids[1])
    assert await route.stored() == [one.body, two.body]
    seen = await route.source.look()
    assert (seen.pending.messages, seen.messages, seen.references) == (0, {}, {})


async def test_a_link_copies_what_comes_after_it_began_and_takes_nothing_with_it_as_it_ends(
    server: RewritingServer, namespace: str
) -> None:
    route = Route(server, namespace, copies=True)
    await route.source.create("queue", limit=1000)
    await route.target.create("queue", limit=1000)
    ann = route.source.producer("ann")
    await ann.send(10)
    await route.open()
    await ann.send(20, 30)
    assert [entry.seq for entry in (await route.read(messages=1)).entries] == [2]
    for member in (f"{LINK}.1", f"!{LINK}"):
        await route.source.store.detach(route.source.address, LINK, member, failed=False)
    bob = await route.source.consumer("bob")
    ids = await bob.fetch()
    assert [int(one.split(b"-")[0]) for one in ids] == [1, 2, 3]
    await bob.accept(*ids)
    seen = await route.source.look()
    assert (seen.pending.messages, seen.messages, seen.references) == (0, {}, {})
    await route.check()
    await route.close()


async def test_who_ends_with_messages_of_a_queue_that_is_copied_frees_each_once(copying_route: Route) -> None:
    """Mutant: what a consumer settles while the link's part is worked off is freed, and freed again with that."""
    route = copying_route
    bob = await route.source.consumer("bob")
    ann = route.source.producer("ann")
    for _ in range(20):
        await ann.send(*[1] * 8)
    await route.read()
    ids = await bob.fetch()
    member = f"{LINK}.1"
    while await route.source.store.detach(route.source.address, LINK, member, failed=False) == "MORE":
        pass
    assert await route.source.store.detach(route.source.address, LINK, f"!{LINK}", failed=False) == "MORE"
    await bob.accept(*ids)
    while await route.source.store.detach(route.source.address, LINK, f"!{LINK}", failed=False) == "MORE":
        pass
    seen = await route.source.look()
    assert (seen.pending.messages, seen.messages, seen.references) == (0, {}, {})


async def test_a_link_that_copies_is_woken_however_many_consumers_wait(copying_route: Route) -> None:
    route = copying_route
    for name in ("bob", "cid", "dan"):
        waiting = await route.source.consumer(name)
        waiting.fetches = 1
        assert (await waiting.call(fetch=1, max_messages=1, max_bytes=1000, waits=1)).messages == ()
    assert (await route.read()).entries == ()
    assert (await route.source.look()).hungry[0] == f"{LINK}.1"
    await route.source.producer("ann").send(10)
    assert len((await route.source.look()).hungry) == 2, "the link, and one of the consumers"


@pytest.mark.one_server
async def test_a_link_is_a_subscription_as_any_of_a_topic_that_has_a_bound(topic_route: Route) -> None:
    source = topic_route.source
    await source.change(max_subscriptions="1")
    assert (await topic_route.open()).code == "OK", "it is there already"
    other = LinkStore(source.server)
    assert (await other.open(source.address, link_id("two"), fence=1, window="10/1000")).code == "FULL"
    assert list((await source.look()).subscriptions) == [LINK]
    await source.change(max_subscriptions="2")
    assert (await other.open(source.address, link_id("two"), fence=1, window="10/1000")).code == "OK"

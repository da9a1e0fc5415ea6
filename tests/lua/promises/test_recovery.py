"""P1 and P3 after a failover, a restart or a loss of everything: sessions get what they claim, and nothing is new."""

import pytest

import headgate
from headgate.redis.keys import PARTS
from tests.lua.place import TTL_MS, Place, Producer

pytestmark = pytest.mark.docker


async def two_holders(place: Place) -> tuple[Producer, Producer]:
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(window=50)
    await bob.ask(window=30)
    await ann.publish(20)
    return ann, bob


async def restarted(place: Place) -> int:
    """Let the server be another run of itself; returns the epoch there was."""
    epoch = (await place.look()).number("epoch")
    place.server.run = b"another run"
    return epoch


async def test_another_run_of_the_server_begins_an_epoch(place: Place) -> None:
    """Mutant: `begin_epoch` keeps the epoch."""
    ann, _ = await two_holders(place)
    before = await restarted(place)
    assert (await ann.publish_as(ann.account(), 2, 10)).code == "EPOCH"
    credit = await ann.renew()
    assert (credit.code, credit.granted) == ("OK", 50)
    assert credit.epoch > before
    assert (await place.look()).number("epoch") == credit.epoch
    await ann.publish(10)
    assert await place.usage() == 80


async def test_a_run_that_has_all_of_the_one_before_goes_on_where_it_ended(place: Place) -> None:
    """Mutant: an epoch begins all the same."""
    ann, _ = await two_holders(place)
    before = (await place.look()).fields
    place.server.run = b"another.7<" + before["run_id"].encode()
    await ann.publish(10)
    assert (await place.producer("new").ask(need=10)).granted == 10
    after = (await place.look()).fields
    assert [after[name] for name in ("epoch", "run_id", "promotion")] == [before["epoch"], "another", "7"]


async def test_who_does_not_know_what_became_of_the_run_before_is_told_its_name(place: Place) -> None:
    """Nothing is written. Mutants: whatever it was counts as handed over, or nobody asks."""
    ann, bob = await two_holders(place)
    place.server.run = b"another.7"
    await ann.renew()
    before = (await place.look()).fields
    for unknown in (b"third<another", b"third<another.8", b"third<third", b"third<", b"another.8<another"):
        place.server.run = unknown
        with pytest.raises(headgate.CoordinatorUnavailable, match=r"RUN another\.7"):
            await bob.renew()
    assert (await place.look()).fields == before
    place.server.run = b"third<another.7"
    assert (await bob.renew()).epoch == int(before["epoch"])
    place.server.run = None  # it asks, and hears that nobody knows
    assert (await bob.renew()).epoch > int(before["epoch"])


async def test_the_same_run_after_another_promotion_may_have_lost_state(place: Place) -> None:
    """It was a replica meanwhile. Who does not know of its last promotion learns. Mutant: one process is one run."""
    ann, bob = await two_holders(place)
    place.server.run = b"another.7"
    epoch = (await ann.renew()).epoch
    for run, later in ((b"another.7", False), (b"another", False), (b"another.9", True), (b"another", False)):
        await place.wait(1)
        place.server.run = run
        now = (await bob.renew()).epoch
        assert (now > epoch) == later
        epoch = now


async def test_a_failover_back_to_the_server_before_begins_an_epoch(place: Place) -> None:
    """It was a replica meanwhile, and may be behind. Mutant: the run before is excused."""
    ann, bob = await two_holders(place)
    first = (await place.look()).fields["run_id"].encode()
    await restarted(place)
    epoch = (await ann.renew()).epoch
    await place.wait(60_000)
    place.server.run = first
    again = await bob.renew()
    assert again.epoch > epoch
    assert (await place.producer("new").ask(need=10)).granted == 0, "nothing new while it learns"
    assert (await place.look()).number("message_seq") >= place.now * 1000, "no number is given again"


@pytest.mark.parametrize("ttl_ms", [1000, 120_000])
async def test_learning_lasts_as_long_as_the_longest_lease_there_is(place: Place, ttl_ms: int) -> None:
    """Mutant: it lasts as long as the longest that ever was."""
    await place.create(limit=100)
    gone, short = place.producer("gone", ttl_ms=600_000), place.producer("short", ttl_ms=ttl_ms)
    await gone.ask(need=10)
    await gone.leave()
    await short.ask(need=10)
    await restarted(place)
    assert (await short.renew()).code == "OK"
    assert (await place.look()).number("learning_until") == place.now + ttl_ms


async def test_learning_without_a_session_left_lasts_as_long_as_any_lease_did(place: Place) -> None:
    """Who held something may not be known any more. Mutant: it does not learn."""
    await place.create(limit=100)
    gone = place.producer("gone", ttl_ms=60_000)
    await gone.ask(need=10)
    await gone.leave()
    await restarted(place)
    await place.reap()
    assert (await place.look()).number("learning_until") == place.now + 60_000


async def test_a_clock_that_was_set_back_has_nobody_wait_for_more_than_a_lease(place: Place) -> None:
    """Mutants: it learns until the clock has caught up; or for as long anew with each call."""
    await place.create(limit=100)
    await two_holders(place)
    await restarted(place)
    new = place.producer("new")
    assert (await new.ask(need=10)).place == 1
    await place.wait(-3_600_000)
    for _ in range(4):
        assert (await new.ask(need=10)).place == 1
        await place.wait(TTL_MS // 4)
    assert (await new.ask(need=10)).granted == 10


async def test_nothing_new_is_granted_while_the_destination_learns(place: Place) -> None:
    """Mutant: `ask` grants while it learns."""
    ann, _ = await two_holders(place)
    await restarted(place)
    new = place.producer("new")
    credit = await new.ask(need=10)
    assert (credit.code, credit.granted, credit.place) == ("OK", 0, 1)
    assert (await ann.ask(window=60)).granted == 50
    await place.wait(TTL_MS)
    assert (await new.ask(need=10)).granted == 10


async def test_the_line_is_not_served_while_the_destination_learns(place: Place) -> None:
    """Mutant: `hand_over` grants while the destination learns."""
    (holder,) = await place.full(100)
    waiting = place.producer("waiting")
    await waiting.ask(need=50)
    await restarted(place)
    await holder.leave()
    assert (await place.look()).granted("waiting").bytes == 0
    await place.wait(TTL_MS)
    assert (await waiting.ask(need=50)).granted == 50


async def test_what_was_claimed_and_given_back_is_passed_on_while_the_destination_learns(place: Place) -> None:
    """Nobody holds more for it. Mutants: it is not counted, or for good, or of a former epoch; who leaves keeps it."""
    ann, bob = await two_holders(place)
    await restarted(place)
    new = place.producer("new")
    await new.ask(need=40)
    await ann.renew()
    await ann.give_back(25, 4)
    assert (await new.ask(need=40)).granted == 0, "it goes to the first in line, for all that it needs"
    await ann.give_back(5, 1)
    assert (await bob.renew()).granted == 30
    await bob.leave()
    assert (await new.ask(need=40)).granted == 40
    other = place.producer("other")
    assert (await other.ask(need=30)).granted == 0
    await other.leave()
    place.server.run = b"a third run"
    await new.renew()
    assert (await place.producer("newest").ask(need=1)).granted == 0, (
        "what was given back before is claimed by others now"
    )
    assert await place.usage() == 60


async def test_what_is_given_back_at_a_former_server_is_not_passed_on_here(place: Place) -> None:
    """It may have been granted there. Mutant: what a claim does not claim counts as given back."""
    ann, _ = await two_holders(place)
    await restarted(place)
    await ann.give_back(30)
    assert (await place.producer("new").ask(need=10)).granted == 0
    late = place.producer("bob", epoch=1, granted=30, granted_m=8)
    await late.leave()
    assert (await place.producer("new").ask(need=10)).granted == 0


async def test_no_message_goes_alone_while_the_destination_learns(place: Place) -> None:
    """Mutant: one does."""
    await place.create(limit=100, oversize="allow-one")
    await restarted(place)
    assert (await place.producer("new").ask(need=150)).granted == 0


async def test_what_may_not_yet_be_granted_shuts_no_destination(place: Place) -> None:
    """Mutant: who waits for what a failover may have lost finds it full."""
    await place.create(limit=100, resume_bytes="10")
    ann = place.producer("ann")
    await ann.ask(window=30)
    await ann.publish(30)
    await restarted(place)
    new = place.producer("new")
    await new.ask(need=10)
    await place.wait(TTL_MS)
    assert (await new.ask(need=10)).granted == 10


async def test_grants_that_a_failover_lost_are_given_back_to_who_claims_them(place: Place) -> None:
    """Mutant: nobody may claim."""
    ann, bob = await two_holders(place)
    await restarted(place)
    key = place.address.shared[1]
    record = await place.server.command(key, "HGET", key, "ann")
    lost = record.replace(b"granted=50", b"granted=40")
    await place.server.command(key, "HSET", key, "ann", lost)
    bare = place.address.shared[0]
    await place.server.command(bare, "HINCRBY", bare, "leased_bytes", -10)
    assert (await ann.renew()).granted == 50
    assert (await bob.renew()).granted == 30
    assert await place.usage() == 80 + 20 - 20
    assert (await place.look()).held("ann").bytes == 30


async def test_after_a_loss_of_everything_sessions_get_what_they_claim(place: Place) -> None:
    """Mutants: 'recover' does not learn; it is not counted as an epoch."""
    ann, bob = await two_holders(place)
    await place.forget()
    await place.wait(1000)
    assert (await ann.renew()).code == "UNKNOWN"
    assert await place.create(limit=100, mode="recover") == "CREATED"
    assert (await place.look()).number("epochs") == 1
    assert (await place.producer("new").ask(need=10)).granted == 0
    for producer, granted, held in ((ann, 50, 30), (bob, 30, 30)):
        credit = await producer.renew()
        assert (credit.code, credit.granted) == ("OK", granted)
        assert (await place.look()).held(producer.session).bytes == held
    assert await place.usage() == 60
    await ann.publish(30)
    assert await place.usage() == 60


async def test_accounts_that_outlived_their_counters_count_once_and_for_nothing_else(place: Place) -> None:
    """Redis evicts key by key. Mutant: sessions of before stay, so claims add nothing, and what ends takes twice."""
    await place.create("gate", limit=100)
    ann, bob, dead = (place.producer(name) for name in ("ann", "bob", "dead"))
    for producer in (ann, bob, dead):
        await producer.ask(window=30)
    shared = place.address.shared
    await place.server.command(shared[0], "UNLINK", shared[0], shared[1 + PARTS.index("ledger")])
    await place.wait(1000)
    assert await place.create("gate", limit=100, mode="recover") == "CREATED"
    assert (await place.look()).leased.bytes == 0
    for producer, leased in ((ann, 30), (bob, 60)):
        assert (await producer.renew()).code == "OK"
        assert (await place.look()).leased.bytes == leased
    await ann.leave()
    await bob.leave()
    await place.sweep(3 * TTL_MS)
    assert await place.usage() == 0
    assert (await place.producer("new").ask(window=100)).granted == 100


async def test_a_claim_that_comes_too_late_is_refused(place: Place) -> None:
    """Mutant: claims are open for ever."""
    ann, _ = await two_holders(place)
    await place.forget()
    await place.wait(1000)
    await place.create(limit=100, mode="recover")
    await place.wait(TTL_MS)
    new = place.producer("new")
    assert (await new.ask(window=40)).granted == 40
    assert (await ann.renew()).code == "EXPIRED"
    assert await place.usage() == 40


async def test_a_claim_to_a_destination_that_did_not_learn_is_refused(place: Place) -> None:
    """Mutant: claims are open for ever."""
    ann, _ = await two_holders(place)
    await place.forget()
    await place.wait(1000)
    await place.create(limit=100)
    assert (await place.producer("new").ask(window=40)).granted == 40
    assert (await ann.renew()).code == "EXPIRED"
    assert await place.usage() == 40


async def test_claims_never_add_up_to_more_than_the_limit(place: Place) -> None:
    """Mutant: `acquire` takes a claim that does not fit."""
    await two_holders(place)
    await place.forget()
    await place.wait(1000)
    await place.create(limit=100, mode="recover")
    codes = []
    for number in range(4):
        liar = place.producer(f"liar{number}", epoch=1, granted=40, granted_m=4)
        codes.append((await liar.renew()).code)
        assert await place.usage() <= 100
    assert codes == ["OK", "OK", "EXPIRED", "EXPIRED"]


@pytest.mark.parametrize(
    ("granted", "used", "returned", "held"), [(50, 80, 0, 0), (50, 30, 40, 20), (50, 0, 90, 0), (0, 9, 9, 0)]
)
async def test_a_claim_that_contradicts_itself_holds_nothing_negative(
    place: Place, granted: int, used: int, returned: int, held: int
) -> None:
    """Mutant: a claim may have used more than it was granted."""
    await place.create(limit=100, mode="recover")
    odd = place.producer("odd", epoch=1, granted=granted, used=used, returned=returned)
    odd.epoch = (await place.look()).number("epoch") - 1
    assert (await odd.call(odd.account())).code == "OK"
    seen = await place.look()
    assert 0 <= seen.held("odd").bytes <= held
    assert await place.usage() == seen.held("odd").bytes


async def test_a_batch_of_an_older_epoch_is_not_stored_before_its_credit_is_claimed(place: Place) -> None:
    """Mutant: `publish` does not compare the epoch."""
    ann, _ = await two_holders(place)
    late = ann.account()
    await restarted(place)
    await place.reap()
    assert (await ann.publish_as(late, 2, 30)).code == "EPOCH"
    assert len((await place.look()).messages) == 1

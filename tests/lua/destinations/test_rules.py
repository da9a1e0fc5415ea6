"""Rules beyond a plain limit: enforcement off, hysteresis, stopped by hand, one large message, a hard limit."""

from dataclasses import replace

import pytest

from tests.lua.place import Place, Producer


async def refused(producer: Producer, *sizes: int, hard: bool = False) -> str:
    """Publish what is not paid, as a client that counts messages would, and return the code."""
    credit = await producer.place.store.publish(
        producer.place.address, producer.account(), seq=producer.seq, bodies=[b"x" * size for size in sizes],
        ttl_ms=producer.ttl_ms, beyond="hard" if hard else "refuse",
    )  # fmt: skip
    if credit.code == "OK":
        producer.used, producer.used_m = producer.used + sum(sizes), producer.used_m + len(sizes)
        producer.granted, producer.granted_m = credit.granted, credit.granted_m
        producer.seq += len(sizes)
    return credit.code


async def test_without_enforcement_the_limit_does_not_bind(place: Place) -> None:
    """Mutant: `judge_rules` asks only for `with-consumers`."""
    await place.create(limit=100, enforce="off")
    ann = place.producer("ann")
    assert (await ann.ask(need=500)).place == 0
    await ann.publish(500)
    assert await place.usage() == 500
    await place.change(enforce="")
    assert (await ann.ask(need=1)).place == 1


async def test_a_limit_that_only_consumers_enforce(place: Place) -> None:
    """Mutant: `judge_rules` does not look at `active`."""
    await place.create(limit=100, enforce="with-consumers")
    ann = place.producer("ann")
    await ann.send(150)
    assert await place.usage() == 150


async def test_once_full_nobody_is_served_until_pending_is_down_to_where_it_resumes(place: Place) -> None:
    """Mutant: `room` does not ask whether it is shut."""
    await place.create(limit=100, resume_bytes="40")
    ann, bob = place.producer("ann"), place.producer("bob")
    reader = await place.consumer("zoe")
    for size in (30, 30, 30):
        await ann.send(size)
    assert (await bob.ask(need=20)).place == 1
    first, second, _ = await reader.fetch()
    await reader.accept(first)
    assert (await bob.ask(need=20)).place == 1, "60 are pending, 40 are free"
    await reader.accept(second)
    assert (await bob.ask(need=20)).granted == 20
    assert await place.usage() == 50


async def test_a_share_to_resume_at_follows_the_limit(place: Place) -> None:
    """Mutant: `level` keeps it as it was set."""
    await place.create(limit=1000, resume_bytes="40%")
    await place.change(limit_bytes="100")
    ann, bob = place.producer("ann"), place.producer("bob")
    reader = await place.consumer("zoe")
    for size in (30, 30, 30):
        await ann.send(size)
    assert (await bob.ask(need=20)).place == 1
    first, second, _ = await reader.fetch()
    await reader.accept(first)
    assert (await bob.ask(need=20)).place == 1
    await reader.accept(second)
    assert (await bob.ask(need=20)).granted == 20
    await place.change(limit_bytes="unlimited")
    assert (await bob.ask(need=200)).place == 0, "a share of no limit: there is nothing to resume from"


async def test_a_change_of_settings_opens_what_was_shut(place: Place) -> None:
    """Mutant: `apply` leaves `shut` as it is."""
    await place.create(limit=100, resume_bytes="40")
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.send(90)
    assert (await bob.ask(need=20)).place == 1
    await place.change(limit_bytes="200")
    assert (await bob.ask(need=20)).granted == 20


async def test_stopped_by_hand_nobody_sends_and_credit_in_hand_is_of_no_use(place: Place) -> None:
    """Mutant: `publish` does not look at `stopped`."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(need=20)
    await place.change(stopped="maintenance until noon")
    assert await refused(ann, 20) == "STOPPED"
    assert (await ann.ask(need=40)).place == 1
    await place.change(stopped="")
    assert (await ann.ask(need=40)).place == 0
    await ann.publish(20, 20)


async def test_stopped_by_hand_nothing_is_granted(place: Place) -> None:
    """Mutant: `room` does not look at `stopped`."""
    await place.create(limit=100, stopped="maintenance")
    assert (await place.producer("ann").ask(need=20)).place == 1
    assert await place.usage() == 0


async def test_a_message_above_the_limit_goes_alone(place: Place) -> None:
    """Mutant: `goes_alone` does not ask what is pending."""
    await place.create(limit=100, oversize="allow-one")
    ann, bob, reader = place.producer("ann"), place.producer("bob"), await place.consumer("zoe")
    await bob.send(10)
    assert (await ann.ask(need=300)).place == 1
    assert (await bob.ask(need=10)).place == 2, "small ones do not starve it"
    await reader.accept(*await reader.fetch())
    assert (await ann.ask(need=300)).granted == 300
    await ann.publish(300)
    assert await place.usage() == 300
    assert (await bob.ask(need=10)).place == 1
    await reader.accept(*await reader.fetch())
    assert (await bob.ask(need=10)).granted == 20


async def test_several_messages_of_one_session_are_not_above_the_limit_together(place: Place) -> None:
    """Mutant: they are taken for one."""
    await place.create(limit=100, oversize="allow-one")
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=60)
    await bob.ask(need=10)
    two = replace(ann.account(need=60 + 50), size=50, want=60)  # 60 are paid, or the permits of a call
    assert ann.hear(await ann.call(two)).place == 1
    await bob.give_back(10)
    assert ann.hear(await ann.call(two)).granted == 60
    one = ann.account(need=60 + 90)  # 60 are in hand
    assert ann.hear(await ann.call(one)).granted == 150
    await ann.publish(150, need=120)
    assert await place.usage() == 150
    reader = await place.consumer("zoe")
    await reader.accept(*await reader.fetch())
    assert (await ann.renew()).granted == 270, "nothing is paid beside it, so it need not say how large it is"
    await ann.publish(120)


async def test_a_message_above_the_limit_that_was_raised_meanwhile_is_served_as_others(place: Place) -> None:
    """Mutant: it is granted what it wants, which is nothing."""
    await place.create(limit=100, oversize="allow-one")
    ann, bob = place.producer("ann"), place.producer("bob")
    await bob.ask(need=10)
    assert (await ann.ask(need=150)).place == 1
    await place.change(limit_bytes="1000")
    await bob.renew()
    assert (await place.look()).held("ann").bytes == 150


async def test_credit_of_before_the_limit_was_lowered_is_not_for_one_batch(place: Place) -> None:
    """Mutant: all of a batch goes alone."""
    await place.create(limit=100, oversize="allow-one")
    ann = place.producer("ann")
    await ann.ask(need=80)
    await ann.ask(need=10, window=90)
    await place.change(limit_bytes="50")
    two = await ann.publish_as(ann.account(ahead=(80, 2)), 1, 40, 40)
    assert two.code == "ABOVE"
    assert (await ann.publish_as(ann.account(ahead=(80, 1)), 1, 80)).code == "OK"


async def test_a_message_above_the_limit_is_refused_unless_the_rule_lets_it(place: Place) -> None:
    """Mutant: `too_large` ignores the limit."""
    await place.create(limit=100, oversize="refuse")
    assert (await place.producer("ann").ask(need=300)).code == "TOO_LARGE"


@pytest.mark.parametrize(("sizes", "code"), [((60,), "OK"), ((60, 40), "OK"), ((60, 41), "FULL")])
async def test_whose_clients_count_messages_goes_up_to_the_hard_limit(
    place: Place, sizes: tuple[int, ...], code: str
) -> None:
    """Mutant: `publish` takes the hard limit for none."""
    await place.create(limit=100, hard_bytes="150")
    ann = place.producer("ann")
    await ann.ask(need=50)
    await ann.publish(50)
    await ann.ask(need=1)  # one byte, and messages
    assert (await refused(ann, *sizes, hard=True)) == code
    assert await place.usage() == (50 + sum(sizes) if code == "OK" else 51)


async def test_without_a_hard_limit_the_limit_itself_is_hard(place: Place) -> None:
    """Mutant: `publish` takes a missing hard limit for none."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(need=1)
    assert await refused(ann, 101, hard=True) == "FULL"
    assert await refused(ann, 100) == "OVERUSE"
    assert await refused(ann, 100, hard=True) == "OK"
    assert await place.usage() == 100


async def test_rules_that_go_back_to_their_defaults_cost_nothing_any_more(place: Place) -> None:
    """Mutant: `name_rules` names them all."""
    await place.create(limit=100, enforce="off", oversize="allow-one", send_rate="5.0", send_burst="5")
    assert (await place.look()).fields["rules"] == "enforce oversize send_rate"
    await place.change(enforce="always", oversize="refuse", send_rate="", send_burst="")
    assert (await place.look()).fields["rules"] == ""

"""P8 for destinations: what all senders together send in any window T is at most rate*T + burst."""

import random

import pytest

from headgate.redis.replies import Credit
from tests.lua.place import Place, Producer
from tests.lua.promises.test_p8_rates import most_beyond


async def offer(producer: Producer, *sizes: int) -> Credit:
    """Publish a batch that is paid, and return the answer: perhaps only the first of it were stored."""
    ahead = (sum(sizes), len(sizes))
    credit = await producer.publish_as(producer.account(ahead=ahead), producer.seq, *sizes)
    if credit.code == "OK":
        stored = sizes[: credit.stored]
        producer.used, producer.used_m = producer.used + sum(stored), producer.used_m + len(stored)
        producer.seq += len(stored)
    return credit


@pytest.mark.parametrize(("rate", "burst"), [(10, 5), (1000, 3), (3, 20)])
async def test_no_window_stores_more_messages_than_rate_and_burst(place: Place, rate: int, burst: int) -> None:
    """Mutant: the rate is not charged."""
    await place.create(limit="unlimited", send_rate=str(float(rate)), send_burst=str(burst))
    chance, stored = random.Random(3), []
    producers = [place.producer(f"p{n}") for n in range(3)]
    for turn in range(90):
        producer = producers[turn % 3]
        sizes = [1] * chance.randint(1, 8)
        await producer.ask(need=len(sizes))
        credit = await offer(producer, *sizes)
        stored.append((place.now * 1000, credit.stored))
        assert credit.stored == len(sizes) or credit.again_ms > 0
        await place.wait(chance.choice((0, 0, 1, 10, 200, 1000 * burst // rate, credit.again_ms)))
    assert sum(count for _, count in stored) > 40
    assert most_beyond(stored, rate, burst) <= 0


async def test_bytes_have_a_rate_of_their_own(place: Place) -> None:
    """Mutant: sizes are not looked at."""
    await place.create(limit="unlimited", send_byte_rate="100.0", send_byte_burst="50")
    ann = place.producer("ann")
    await ann.ask(need=200)
    credit = await offer(ann, 30, 15, 30)
    assert (credit.stored, credit.again_ms) == (2, 250)
    await place.wait(250)
    assert (await offer(ann, 30)).stored == 1
    assert (await offer(ann, 1)).stored == 0


async def test_a_message_above_the_burst_goes_when_the_burst_is_whole_and_is_owed(place: Place) -> None:
    """Mutant: it waits for more than the burst can ever hold."""
    await place.create(limit="unlimited", send_byte_rate="100.0", send_byte_burst="50")
    ann = place.producer("ann")
    await ann.ask(need=300)
    assert (await offer(ann, 200)).stored == 1
    credit = await offer(ann, 10)
    assert (credit.stored, credit.again_ms) == (0, 1600)


async def test_the_right_time_to_come_again_is_told(place: Place) -> None:
    """Mutant: the answer says to come again at once."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="2")
    ann = place.producer("ann")
    await ann.ask(need=10)
    credit = await offer(ann, 1, 1, 1)
    assert (credit.stored, credit.again_ms) == (2, 100)
    await place.wait(99)
    assert (await offer(ann, 1)).stored == 0
    await place.wait(1)
    assert (await offer(ann, 1)).stored == 1


async def test_a_batch_cut_short_and_repeated_is_stored_once(place: Place) -> None:
    """P5. Mutant: a repeated batch is said to be stored whole."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="2")
    ann = place.producer("ann")
    await ann.ask(need=10)
    account = ann.account(ahead=(3, 3))
    first, again = [await ann.publish_as(account, 1, 1, 1, 1) for _ in range(2)]
    assert (first.code, first.stored, again.code, again.stored) == ("OK", 2, "DUPLICATE", 2)
    assert (await place.look()).pending.messages == 2


async def test_a_clock_that_is_set_back_does_not_lock_the_rate(place: Place) -> None:
    """Mutant: what is owed is kept by the old clock."""
    await place.create(limit="unlimited", send_rate="1.0", send_burst="1")
    ann = place.producer("ann")
    await ann.ask(need=10)
    await offer(ann, 1)
    await place.wait(-3_600_000)
    assert (await offer(ann, 1)).again_ms <= 1000
    await place.wait(1000)
    assert (await offer(ann, 1)).stored == 1


async def test_a_changed_rate_keeps_what_is_left_and_the_same_rate_changes_nothing(place: Place) -> None:
    """Mutant: a changed rate begins with a whole burst."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="5")
    ann = place.producer("ann")
    await ann.ask(need=100)
    await offer(ann, *[1] * 5)
    await place.change(send_rate="10.0", send_burst="5")
    credit = await offer(ann, 1)
    assert (credit.stored, credit.again_ms) == (0, 100)
    await place.change(send_rate="2.0", send_burst="100")
    assert (await offer(ann, 1)).again_ms == 500

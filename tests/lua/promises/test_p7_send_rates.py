"""P7 for rates of senders: those who wait share one by weight, in turn, and nobody who is gone holds them up."""

import heapq
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from headgate.redis.replies import Credit
from tests.lua.place import Place, Producer
from tests.lua.promises.test_p7_fairness import jain
from tests.lua.promises.test_p8_rates import most_beyond
from tests.lua.promises.test_p8_send_rates import offer

pytestmark = pytest.mark.one_server


@dataclass(order=True)
class Sender:
    """A sender comes when it is to, a little late, with ``batch`` messages, and ``thinks`` between two batches."""

    at: int
    producer: Producer = field(compare=False)
    weight: int = field(compare=False, default=1)
    sizes: Sequence[int] = field(compare=False, default=(1,))
    batch: int = field(compare=False, default=1)
    thinks: int = field(compare=False, default=0)
    late: int = field(compare=False, default=2)
    got: int = field(compare=False, default=0)
    calls: int = field(compare=False, default=0)
    left: list[int] = field(compare=False, default_factory=list)
    waits: list[int] = field(compare=False, default_factory=list)
    since: int = field(compare=False, default=0)

    async def come(self, now: int, chance: random.Random) -> Credit:
        self.since = self.since or now
        while len(self.left) < self.batch:
            self.left.append(chance.choice(self.sizes))
        credit = await offer(self.producer, *self.left)
        assert credit.code == "OK", credit
        self.calls += 1
        self.got += sum(self.left[: credit.stored])
        del self.left[: credit.stored]
        if credit.stored:
            self.waits.append(now - self.since)
            self.since = 0 if not self.left else now
        pause = min(credit.again_ms, 1000) if self.left else self.thinks
        self.at = now + max(1, pause) + chance.randint(0, self.late)
        return credit


async def enrol(place: Place, *weights: int, **manners: int | Sequence[int]) -> list[Sender]:
    """Let in senders of these weights, each with all the credit that it will need."""
    senders = []
    for number, weight in enumerate(weights):
        producer = place.producer(f"p{len(place.sessions)}")
        producer.hear(await producer.call(replace(producer.account(1, 1 << 24, weight), want_m=1 << 20)))
        senders.append(Sender(place.now + number, producer, weight, **manners))  # type: ignore[arg-type]
    return senders


async def run(place: Place, senders: Sequence[Sender], seconds: float, seed: int = 1) -> list[tuple[int, int]]:
    """Let them come and go for so long, after what it takes to spend the burst; returns when how much was stored."""
    chance, stored, begin = random.Random(seed), [], place.now + 2000
    end = begin + int(seconds * 1000)
    heap = list(senders)
    heapq.heapify(heap)
    while heap[0].at < end:
        sender = heapq.heappop(heap)
        await place.wait(max(0, sender.at - place.now))
        if place.now >= begin > 0:
            begin = 0
            for one in senders:
                one.got, one.calls, one.waits = 0, 0, []
        before = sender.got
        await sender.come(place.now, chance)
        stored.append((place.now * 1000, sender.got - before))
        heapq.heappush(heap, sender)
    return stored


async def line(place: Place) -> list[str]:
    """Return who is in line, as the field has it."""
    address = place.address
    text = await place.server.command(address.keys("-")[0], "HGET", address.keys("-")[0], "send_line")
    return re.findall(r" @(\S+) \d+ \d+ \d+", (text or b"").decode())


def parts(senders: Sequence[Sender]) -> list[float]:
    """Return what each got, in parts of what its weight says."""
    total, weights = sum(sender.got for sender in senders), sum(sender.weight for sender in senders)
    return [sender.got * weights / total / sender.weight for sender in senders]


@pytest.mark.parametrize(("rate", "burst", "batch"), [(100, 1, 8), (100, 100, 8), (2000, 200, 100), (100, 20, 1)])
async def test_shares_of_a_rate_follow_weights(place: Place, rate: int, burst: int, batch: int) -> None:
    """Of a burst of one, coming late loses some. Mutants: nobody stands in line; a turn costs all alike."""
    await place.create(limit="unlimited", send_rate=f"{rate}.0", send_burst=str(burst))
    senders = await enrol(place, 1, 1, 1, 2, 2, batch=batch)
    stored = await run(place, senders, 4)
    assert most_beyond(stored, rate, burst) <= 0
    assert sum(sender.got for sender in senders) >= (0.8 if burst == 1 else 0.97) * rate * 4
    assert all(0.94 <= part <= 1.06 for part in parts(senders)), [sender.got for sender in senders]


async def test_shares_of_a_rate_in_bytes_are_shares_of_bytes(place: Place) -> None:
    """One sends large messages. Mutant: each message counts alike."""
    await place.create(limit="unlimited", send_byte_rate="10000.0", send_byte_burst="2000")
    senders = await enrol(place, 1, 1, 3, batch=5)
    senders[0].sizes, senders[1].sizes, senders[2].sizes = (1000,), (10, 30), (10, 100, 1000)
    await run(place, senders, 5)
    assert sum(sender.got for sender in senders) >= 0.97 * 10_000 * 5
    assert all(0.93 <= part <= 1.07 for part in parts(senders)), [sender.got for sender in senders]


async def test_of_two_rates_the_one_that_takes_longer_counts(place: Place) -> None:
    """Mutant: bytes count for nothing where messages have a rate too."""
    await place.create(
        limit="unlimited", send_rate="200.0", send_burst="20", send_byte_rate="10000.0", send_byte_burst="2000"
    )
    senders = await enrol(place, 1, 1, batch=5)
    senders[0].sizes, senders[1].sizes = (400,), (100,)
    await run(place, senders, 5)
    assert 0.9 <= senders[0].got / senders[1].got <= 1.1, [sender.got for sender in senders]


async def test_senders_that_wait_for_each_receipt_get_alike_and_wait_alike(place: Place) -> None:
    """Each comes anew a moment after it was served. Mutant: whoever was served is before others."""
    await place.create(limit="unlimited", send_rate="100.0", send_burst="10")
    senders = await enrol(place, *[1] * 20, thinks=1)
    await run(place, senders, 5)
    assert jain([float(sender.got) for sender in senders]) >= 0.98, [sender.got for sender in senders]
    assert max(max(sender.waits) for sender in senders) <= 300, "a round takes 200 ms"
    assert sum(sender.calls for sender in senders) <= 3 * sum(sender.got for sender in senders)


async def test_who_waits_for_the_rate_goes_before_who_comes_later(place: Place) -> None:
    """Mutants: nothing is kept for those before; the caller is told of its own need alone."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="2")
    ann, bob, cid = await enrol(place, 1, 1, 1)
    assert [(await offer(one.producer, 1)).stored for one in (ann, ann)] == [1, 1]
    assert [(await offer(one.producer, 1)).again_ms for one in (ann, bob, cid)] == [100, 200, 300]
    await place.wait(99)
    dan = (await enrol(place, 1))[0]
    assert (await offer(dan.producer, 1)).stored == 0
    await place.wait(1)
    assert [(await offer(one.producer, 1)).stored for one in (cid, bob, ann)] == [0, 0, 1]
    await place.wait(100)
    assert [(await offer(one.producer, 1)).stored for one in (cid, bob)] == [0, 1]


async def test_one_that_does_not_come_holds_nobody_up(place: Place) -> None:
    """Mutant: what it needs is kept for as long as its turn is known."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="5")
    ann, bob = await enrol(place, 1, 1)
    for _ in range(5):
        await offer(ann.producer, 1)
    assert [(await offer(one.producer, 1)).again_ms for one in (ann, bob)] == [100, 200]
    await place.wait(140)
    assert (await offer(bob.producer, 1)).stored == 0, "the first may be a little late"
    await place.wait(20)
    assert (await offer(bob.producer, 1)).stored == 1
    await place.wait(100)
    assert (await offer(ann.producer, 1)).stored == 1, "and has its turn when it comes"


async def test_none_of_the_rate_is_lost_for_one_that_does_not_come(place: Place) -> None:
    """Mutant: what it needs is kept although the bucket is whole."""
    await place.create(limit="unlimited", send_rate="100.0", send_burst="1")
    ann, bob = await enrol(place, 1, 1)
    await offer(ann.producer, 1)
    assert [(await offer(one.producer, 1)).again_ms for one in (ann, bob)] == [10, 20]
    await place.wait(12)
    assert (await offer(bob.producer, 1)).stored == 0
    await place.wait(1)
    assert (await offer(bob.producer, 1)).stored == 1


async def test_whoever_leaves_or_is_reclaimed_is_out_of_the_line(place: Place) -> None:
    """Mutant: a session that ends stays in it."""
    await place.create(limit="unlimited", send_rate="0.01", send_burst="2")
    ann, bob, cid, dan = await enrol(place, 1, 1, 1, 1)
    for one in (ann, ann, ann, bob, cid, dan):
        await offer(one.producer, 1)
    assert await line(place) == ["p0", "p1", "p2", "p3"]
    await bob.producer.leave()
    assert await line(place) == ["p0", "p2", "p3"]
    for _ in range(8):
        await place.wait(2000)
        for one in (ann, dan):
            await offer(one.producer, 1)
    assert await line(place) == ["p0", "p3"], "the lease of p2 is over"
    await ann.producer.leave()
    await dan.producer.leave()
    assert await line(place) == []


async def test_the_line_ends_with_the_last_who_waits(place: Place) -> None:
    """Mutant: whoever has sent all stays in it."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="2")
    (ann,) = await enrol(place, 1)
    await offer(ann.producer, 1)
    assert await line(place) == []
    await offer(ann.producer, 1, 1)
    assert await line(place) == ["p0"]
    await place.wait(100)
    await offer(ann.producer, 1)
    assert await line(place) == []


async def test_the_line_ends_where_nobody_has_waited_for_a_while(place: Place) -> None:
    """Mutant: senders that come again and again, and wait for nothing, keep one another's turns."""
    await place.create(limit="unlimited", send_rate="200.0", send_burst="20")
    senders = await enrol(place, 1, 1)
    for _ in range(21):
        await offer(senders[0].producer, 1)
    await offer(senders[1].producer, 1)
    assert await line(place) == ["p0", "p1"]
    for turn in range(20):
        await place.wait(10)
        await offer(senders[turn % 2].producer, 1)
    assert await line(place) == []


async def test_the_line_goes_with_the_rate(place: Place) -> None:
    """Mutant: it stays where nobody comes to it any more."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="1")
    (ann,) = await enrol(place, 1)
    await offer(ann.producer, 1, 1)
    assert await line(place) == ["p0"]
    await place.change(send_rate="", send_burst="")
    assert await line(place) == []


async def test_after_a_clock_was_set_back_nobody_waits_longer_than_a_refill(place: Place) -> None:
    """Mutant: whoever was told to come by the old clock is waited for by the new one."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="2")
    ann, bob = await enrol(place, 1, 1)
    for _ in range(3):
        await offer(ann.producer, 1)
    await place.wait(-3_600_000)
    assert (await offer(bob.producer, 1)).again_ms <= 100
    await place.wait(100)
    assert (await offer(bob.producer, 1)).stored == 1


async def test_newcomers_do_not_starve_whoever_was_served(place: Place) -> None:
    """Somebody new waits at each moment. Mutant: the clock of turns stands still while newcomers are served."""
    await place.create(limit="unlimited", send_rate="10.0", send_burst="1")
    ann, new = await enrol(place, 1, 1)
    await offer(new.producer, 1)
    await offer(ann.producer, 1)
    waiting = await enrol(place, 1)
    await offer(waiting[0].producer, 1)
    await place.wait(100)
    assert (await offer(ann.producer, 1, 1)).stored == 1, "its second message waits, after the other"
    for turn in range(40):
        waiting += await enrol(place, 1)
        await offer(waiting[-1].producer, 1)
        await place.wait(100)
        if (await offer(ann.producer, 1)).stored:
            return
        first = waiting.pop(0)
        assert (await offer(first.producer, 1)).stored == 1, turn
        await first.producer.leave()
    raise AssertionError("it waits for ever")


async def test_of_many_that_wait_as_many_are_in_line_as_a_call_may_look_at(place: Place) -> None:
    """The others are served all the same. Mutant: all are in it."""
    await place.create(limit="unlimited", send_rate="1000.0", send_burst="50")
    senders = await enrol(place, *[1] * 200, batch=2)
    await run(place, senders, 1.5)
    assert 100 <= len(await line(place)) <= 128
    assert min(sender.got for sender in senders) >= 2, sorted(sender.got for sender in senders)
    assert sum(sender.got for sender in senders) >= 0.97 * 1500

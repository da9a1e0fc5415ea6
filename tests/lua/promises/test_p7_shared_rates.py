"""P7 for rates of senders over slices: the senders of all slices stand in one line, and share a rate by weight."""

import heapq
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from headgate.core.names import slice_name
from headgate.namespace.registry import Registry
from headgate.namespace.shared_rates import SharedRates
from headgate.redis.keys import Address
from headgate.redis.stores.rates import RateStore, Sender
from tests.lua.place import Place, Producer
from tests.lua.promises.test_p7_fairness import jain
from tests.lua.promises.test_p8_rates import most_beyond
from tests.lua.promises.test_p8_send_rates import offer

pytestmark = pytest.mark.one_server
SLICES = 4


class Known:
    """What a registry knows of all slices."""

    def __init__(self, **settings: str) -> None:
        self._settings = {**settings, "slices_pool": "orders%.0"}

    def fields(self, _address: Address) -> Mapping[str, str]:
        return self._settings


@dataclass(order=True)
class Waiter:
    """A sender at one slice comes when it is to, a little late, with a batch, and ``thinks`` before the next."""

    at: int
    producer: Producer = field(compare=False)
    sender: Sender = field(compare=False)
    sizes: Sequence[int] = field(compare=False, default=(1,))
    batch: int = field(compare=False, default=1)
    thinks: int = field(compare=False, default=0)
    late: int = field(compare=False, default=2)
    got: int = field(compare=False, default=0)
    left: list[int] = field(compare=False, default_factory=list)
    draws: bool = field(compare=False, default=False)

    async def come(self, now: int, chance: random.Random, rates: SharedRates) -> int:
        """Fetch the rate, or send; returns how much was stored."""
        while len(self.left) < self.batch:
            self.left.append(chance.choice(self.sizes))
        stored, pause = 0, 0
        if not self.draws:
            credit = await offer(self.producer, *self.left)
            assert credit.code == "OK", credit
            stored = sum(self.left[: credit.stored])
            del self.left[: credit.stored]
            self.got, self.draws, pause = self.got + stored, bool(self.left), 0 if self.left else self.thinks
        else:
            fetch = rates.draw(self.producer.place.address, self.left, self.sender)
            assert fetch is not None
            pause = min(await fetch, 1000)
            self.draws = pause > 0
        self.at = now + max(1, pause) + chance.randint(0, self.late)
        return stored


@dataclass
class Slices:
    """A queue of slices at one server, under one clock."""

    places: list[Place]
    rates: SharedRates = field(init=False)
    waiters: list[Waiter] = field(default_factory=list)

    async def open(self, **settings: Any) -> None:
        for number, place in enumerate(self.places):
            kinds: dict[str, Any] = {"of_slices": str(SLICES)} if number else {"slices": str(SLICES)}
            await place.create(limit="unlimited", enforce="off", **kinds, **settings)
        registry = cast("Registry", Known(**settings))
        self.rates = SharedRates(registry, RateStore(self.places[0].server))

    @property
    def now(self) -> int:
        return self.places[0].now

    async def wait(self, ms: int) -> None:
        for place in self.places:
            await place.wait(ms)

    async def enrol(self, number: int, weight: int = 1, **manners: Any) -> Waiter:
        """Let in one sender at a slice, with all the credit that it will need."""
        place, sid = self.places[number], f"p{len(self.waiters)}"
        producer = place.producer(sid)
        producer.hear(await producer.call(replace(producer.account(1, 1 << 24, weight), want_m=1 << 20)))
        self.waiters.append(Waiter(self.now + len(self.waiters), producer, Sender(sid, weight), **manners))
        return self.waiters[-1]

    async def fetch(self, waiter: Waiter, *sizes: int) -> int:
        """Fetch the rate for one; returns in how many ms it may go."""
        fetch = self.rates.draw(waiter.producer.place.address, sizes or (1,), waiter.sender)
        assert fetch is not None
        return await fetch

    async def send(self, waiter: Waiter) -> int:
        stored = (await offer(waiter.producer, 1)).stored
        waiter.got += stored
        return stored

    async def run(self, seconds: float, seed: int = 1, *, warm: int = 1000) -> list[tuple[int, int]]:
        """Let all come and go for so long, after what it takes to spend the burst; returns when how much was stored."""
        chance, stored, begin, heap = random.Random(seed), list[tuple[int, int]](), self.now + warm, list(self.waiters)
        heapq.heapify(heap)
        end, warms = begin + int(seconds * 1000), True
        while heap[0].at < end:
            waiter = heapq.heappop(heap)
            await self.wait(max(0, waiter.at - self.now))
            if warms and self.now >= begin:
                warms = False
                for one in self.waiters:
                    one.got = 0
            amount = await waiter.come(self.now, chance, self.rates)
            stored.append((self.now * 1000, amount))
            heapq.heappush(heap, waiter)
        return stored

    @property
    def parts(self) -> list[float]:
        """What each got, in parts of what its weight says."""
        total, weights = sum(one.got for one in self.waiters), sum(one.sender.weight for one in self.waiters)
        return [one.got * weights / total / one.sender.weight for one in self.waiters]


@pytest.fixture
async def slices(place: Place) -> AsyncIterator[Slices]:
    namespace = place.address.namespace
    parts = [Address.of(namespace, slice_name("orders", number)) for number in range(SLICES)]
    world = Slices([Place(place.server, part) for part in parts])
    yield world
    for one in world.places:
        await one.server.forget(one.address, *one.sessions)


@pytest.mark.parametrize(("rate", "burst", "batch"), [(100, 10, 1), (1000, 100, 50)])
async def test_shares_follow_weights_at_whichever_slices(slices: Slices, rate: int, burst: int, batch: int) -> None:
    """Three are at one slice, one at another. Mutants: slices take turns; what is in hand at its own is lent twice."""
    await slices.open(send_rate=f"{rate}.0", send_burst=str(burst))
    for number, weight in ((0, 1), (1, 1), (1, 2), (1, 1), (2, 2)):
        await slices.enrol(number, weight, batch=batch, thinks=1)
    stored = await slices.run(3)
    assert most_beyond(stored, rate, burst) <= 0
    assert sum(one.got for one in slices.waiters) >= 0.95 * rate * 3
    assert all(0.93 <= part <= 1.07 for part in slices.parts), [one.got for one in slices.waiters]


async def test_shares_of_a_rate_in_bytes_are_shares_of_bytes(slices: Slices) -> None:
    """One sends large messages, beside a rate in messages that none of them needs all of."""
    await slices.open(send_rate="1000.0", send_burst="100", send_byte_rate="10000.0", send_byte_burst="2000")
    for number, weight, sizes in ((0, 1, (500,)), (1, 1, (10, 30)), (1, 2, (10, 100, 300))):
        await slices.enrol(number, weight, batch=20, sizes=sizes)
    await slices.run(4)
    assert sum(one.got for one in slices.waiters) >= 0.9 * 10_000 * 4
    assert all(0.85 <= part <= 1.15 for part in slices.parts), [one.got for one in slices.waiters]


async def test_who_waits_goes_before_who_comes_later_to_another_slice(slices: Slices) -> None:
    """Mutant: nothing is kept for those before."""
    await slices.open(send_rate="10.0", send_burst="2")
    ann, bob, cid = [await slices.enrol(number) for number in (0, 1, 1)]
    for _ in range(2):
        assert await slices.fetch(ann) == 0
        assert await slices.send(ann) == 1
    assert [await slices.fetch(one) for one in (ann, bob, cid)] == [100, 200, 300]
    await slices.wait(100)
    assert [await slices.fetch(one) == 0 for one in (cid, bob, ann)] == [False, False, True]
    assert await slices.send(ann) == 1
    await slices.wait(100)
    assert [await slices.fetch(one) == 0 for one in (cid, bob)] == [False, True]


async def test_what_was_lent_for_one_is_not_sent_by_another_for_a_while(slices: Slices) -> None:
    """Mutants: whichever call comes sends it; it is for the one for ever."""
    await slices.open(send_rate="1.0", send_burst="2")
    ann, bob = [await slices.enrol(1) for _ in range(2)]
    assert await slices.fetch(ann) == 0
    assert await slices.send(bob) == 0
    assert await slices.send(ann) == 1
    assert await slices.fetch(ann) == 0
    await slices.wait(100)
    assert await slices.send(bob) == 1, "the one for whom it was may be gone"


async def test_what_was_sent_is_kept_no_longer(slices: Slices) -> None:
    """Mutant: what one sent is kept for it still, of what others have."""
    await slices.open(send_rate="1.0", send_burst="4")
    ann, bob = [await slices.enrol(1) for _ in range(2)]
    assert await slices.fetch(ann) == 0
    assert await slices.send(ann) == 1
    assert await slices.fetch(bob) == 0
    assert await slices.send(bob) == 1


async def test_it_is_kept_for_so_many_senders_at_the_most(slices: Slices) -> None:
    """Mutant: for all that ever came in a moment."""
    await slices.open(send_rate="1.0", send_burst="1000")
    (waiter,) = [await slices.enrol(1)]
    assert await slices.fetch(waiter) == 0
    place, rates = slices.places[1], RateStore(slices.places[0].server)
    hand = await rates.take(place.address, "send")
    for number in range(150):
        await rates.take(
            place.address, "send", home=hand.home, epoch=hand.epoch, granted=1, sender=Sender(f"q{number}"), lent=1
        )
    text = await place.server.command(place.address.shared[0], "HGET", place.address.shared[0], "send_kept")
    assert text.count(b"@") == 128


async def test_one_that_does_not_ask_again_is_waited_for_no_longer_than_a_second(slices: Slices) -> None:
    """Mutant: what it needs is kept until it would be there."""
    await slices.open(send_rate="0.5", send_burst="2")
    ann, bob = await slices.enrol(0), await slices.enrol(1)
    for _ in range(2):
        await slices.fetch(ann)
        await slices.send(ann)
    assert [await slices.fetch(one) for one in (ann, bob)] == [2000, 4000]
    await slices.wait(1000)
    assert await slices.fetch(bob) == 3000, "the first may be a little late"
    await slices.wait(100)
    assert await slices.fetch(bob) == 900


async def test_what_was_lent_and_did_not_come_is_fetched_by_the_next(slices: Slices) -> None:
    """The one for whom it was died. Mutant: the whole burst is on its way for ever."""
    await slices.open(send_rate="1.0", send_burst="1")
    ann, bob = [await slices.enrol(1) for _ in range(2)]
    assert await slices.fetch(ann) == 0
    assert await slices.send(ann) == 1
    await slices.fetch(ann)
    await slices.wait(1000)
    address, rates = slices.places[1].address, RateStore(slices.places[0].server)
    loan = await rates.lend(address.whole, "send", 1, await rates.take(address, "send"), 1, 1, sender=ann.sender)
    assert loan.lent == 1
    await slices.wait(100)
    assert await slices.fetch(bob) == 0
    assert await slices.send(bob) == 1


async def test_whoever_names_no_sender_is_not_passed_by_the_line(slices: Slices) -> None:
    """An older client waits at a slice. Mutant: what it needs is lent to whoever stands in line."""
    await slices.open(send_rate="10.0", send_burst="2")
    ann, bob = await slices.enrol(0), await slices.enrol(1)
    for _ in range(2):
        await slices.fetch(ann)
        await slices.send(ann)
    assert (await slices.rates.lend(bob.producer.place.address, "send", 1, 1)).again_ms == 100
    assert await slices.fetch(ann) == 200
    await slices.wait(100)
    assert await slices.fetch(ann) == 100
    assert (await slices.rates.lend(bob.producer.place.address, "send", 1, 1)).again_ms == 0


async def test_newcomers_at_other_slices_do_not_starve_whoever_was_served(slices: Slices) -> None:
    """Somebody new waits at each moment, nobody at the first slice. Mutant: weights there alone drive the clock."""
    await slices.open(send_rate="10.0", send_burst="1")
    await slices.enrol(0, 1000)
    ann = await slices.enrol(1, 8)
    await slices.fetch(await slices.enrol(2))
    await slices.fetch(ann)
    for turn in range(40):
        new = await slices.enrol(2 + turn % 2)
        await slices.fetch(new)
        await slices.wait(100)
        if await slices.fetch(ann) == 0:
            await slices.send(ann)
        elif await slices.fetch(new) == 0:
            await slices.send(new)
    assert ann.got >= 10


async def test_a_newcomer_has_its_share_at_once(slices: Slices) -> None:
    """All have large weights. Mutant: the clock at which newcomers begin runs past those who are served."""
    await slices.open(send_rate="100.0", send_burst="20")
    for number in (1, 2, 3):
        await slices.enrol(number, 40, thinks=1)
    await slices.run(1)
    new = await slices.enrol(3, 40, thinks=1)
    await slices.run(1, warm=100)
    assert new.got >= 18, [one.got for one in slices.waiters]


async def test_senders_that_wait_for_each_receipt_get_alike(slices: Slices) -> None:
    """Ten are at one slice, and two alone at theirs."""
    await slices.open(send_rate="100.0", send_burst="20")
    for number in (*[0] * 10, 1, 2):
        await slices.enrol(number, thinks=1)
    await slices.run(2)
    assert jain([float(one.got) for one in slices.waiters]) >= 0.97, [one.got for one in slices.waiters]


async def test_consumers_share_a_rate_of_deliveries_by_how_many_wait(slices: Slices) -> None:
    """One client has three at two slices, another one at each of four. Mutants: all of a client have one turn; none."""
    await slices.open(delivery_rate="100.0", delivery_burst="4")
    rates, part = RateStore(slices.places[0].server), slices.places[0].address
    hands = [await rates.take(place.address, "delivery") for place in slices.places]
    home = (await rates.lend(part, "delivery", 0, hands[0])).home
    hands = [replace(hand, home=home, epoch=1) for hand in hands]
    for number, hand in enumerate(hands):
        await rates.lend(part, "delivery", number, hand)
    waiting = {(Sender("a", 3), 0): 0, (Sender("a", 3), 1): 0, **{(Sender("b"), number): 0 for number in range(4)}}
    due = dict.fromkeys(waiting, slices.now)
    end = slices.now + 3000
    while slices.now < end:
        (sender, number), at = min(due.items(), key=lambda one: one[1])
        await slices.wait(max(0, at - slices.now))
        loan = await rates.lend(part, "delivery", number, hands[number], 1, 9, sender=sender, part=2)
        assert loan.code in {"OK", "SHORT"}
        if loan.code == "OK":
            hands[number] = replace(hands[number], granted=loan.granted, spent=loan.granted)
            waiting[sender, number] += loan.lent
        due[sender, number] = slices.now + max(1, loan.again_ms)
    got = {key: count / key[0].weight for key, count in waiting.items()}
    assert sum(waiting.values()) >= 0.95 * 300
    assert all(0.8 <= part * 10 / sum(waiting.values()) <= 1.2 for part in got.values()), waiting

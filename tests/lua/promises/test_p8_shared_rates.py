"""P8 over slices: what all slices of a queue send in any window T is at most rate*T + burst, whatever is lost."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.rates import Hand, Kind, Loan, RateStore
from tests.lua.place import Place, Producer
from tests.lua.promises.test_p8_rates import most_beyond
from tests.lua.promises.test_p8_send_rates import offer
from tests.support.extent import WHOLE

SLICES = 3
RATE, BURST = 20, 6
KINDS: tuple[Kind, ...] = ("send", "send_byte", "delivery")


@dataclass
class Letter:
    """What the first slice lent another, on its way there."""

    to: int
    home: int
    epoch: int
    granted: int


@dataclass
class RateWorld:
    """A queue of three slices, each at a server of its own that loses what was written last when it fails over."""

    places: list[Place]
    kind: Kind = "send"
    now: int = 0
    sent: list[tuple[int, int]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    runs: list[int] = field(default_factory=lambda: [1] * SLICES)
    copies: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)

    @property
    def rates(self) -> RateStore:
        return RateStore(self.places[0].server)

    def at(self, number: int) -> Place:
        place = self.places[number]
        place.server.run = f"run{number}x{self.runs[number]}".encode()
        return place

    async def open(self, **settings: Any) -> None:
        for number in range(SLICES):
            kinds: dict[str, Any] = {"slices": str(SLICES)} if number == 0 else {"of_slices": str(SLICES)}
            await self.at(number).create(limit="unlimited", enforce="off", **kinds, **settings)
        self.now = self.places[0].now

    async def wait(self, ms: int) -> None:
        self.now += ms
        for place in self.places:
            await place.wait(ms)

    async def take(self, number: int, *, home: int = 0, epoch: int = 0, granted: int = 0, back: bool = False) -> Hand:
        address = self.at(number).address
        return await self.rates.take(address, self.kind, home=home, epoch=epoch, granted=granted, back=back)

    async def lend(self, number: int, hand: Hand, need: int = 0, want: int = 0) -> Loan:
        return await self.rates.lend(self.at(0).address, self.kind, number, hand, need, want)

    async def tell(self, number: int, home: int, *, back: bool = False) -> None:
        await self.lend(number, await self.take(number, home=home, back=back))

    async def draw(self, number: int, need: int = 1, want: int = 4, *, loses: float = 0, chance: random.Random) -> Loan:
        """Fetch the rate for one slice as a client does, that may die between any two steps."""
        hand = await self.take(number)
        for _ in range(6):
            if chance.random() < loses:
                break
            loan = await self.lend(number, hand, need, want)
            if loan.code == "OK":
                letter = Letter(number, loan.home, hand.epoch, loan.granted)
                self.letters.append(letter)
                if chance.random() >= loses:
                    await self.deliver(letter)
                return loan
            if loan.code == "OLD":
                hand = await self.take(number, home=loan.home)
            elif loan.slices:
                for other in loan.slices:
                    if chance.random() >= loses:
                        await self.tell(other, loan.home, back=loan.code == "SHORT")
            else:
                return loan
        return Loan("LOST")

    async def deliver(self, letter: Letter) -> None:
        await self.take(letter.to, home=letter.home, epoch=letter.epoch, granted=letter.granted)

    async def offer(self, number: int, *sizes: int) -> int:
        """Send as much as the slice lets go now, as a session that has all the credit it wants; or deliver as much."""
        place = self.at(number)
        producer = Producer(place, f"p{number}{len(self.sent)}")
        place.sessions.add(producer.session)
        await producer.ask(need=sum(sizes), window=sum(sizes))
        credit = await offer(producer, *sizes)
        assert credit.code == "OK", credit
        if self.kind == "delivery":
            return await self.fetch(number, len(sizes))
        self.sent.append((self.now * 1000, sum(sizes[: credit.stored]) if self.kind == "send_byte" else credit.stored))
        return credit.stored

    async def fetch(self, number: int, most: int) -> int:
        """Deliver as much as the slice lets go now, to a consumer that comes for it."""
        consumer = await self.at(number).consumer(f"c{number}{len(self.sent)}")
        ids = await consumer.fetch(most)
        await consumer.accept(*ids)
        await consumer.detach()
        self.sent.append((self.now * 1000, len(ids)))
        return len(ids)

    async def copy(self, number: int) -> None:
        """Let the replica have what there is now."""
        place = self.places[number]
        self.copies[number] = {key: await place.server.command(key, "DUMP", key) for key in place.address.shared}

    async def fail_over(self, number: int) -> None:
        """Let the replica take over: what was written since its copy is lost. Holders of credit have claimed it."""
        place = self.places[number]
        for key, copied in self.copies.get(number, {}).items():
            await place.server.command(key, "DEL", key)
            if copied is not None:
                await place.server.command(key, "RESTORE", key, 0, copied)
        self.runs[number] += 1
        await self.at(number).reap()
        await place.server.command(place.address.shared[0], "HSET", place.address.shared[0], "learning_until", 0)


def parts_of(namespace: str) -> list[Address]:
    return [Address.of(namespace, slice_name("orders", number)) for number in range(SLICES)]


@pytest.fixture
async def world(place: Place) -> AsyncIterator[RateWorld]:
    places = [Place(place.server, part) for part in parts_of(place.address.namespace)]
    yield RateWorld(places)
    place.server.run = None
    for one in places:
        await one.server.forget(one.address, *one.sessions)


async def tell_all(world: RateWorld) -> int:
    """Have all slices tell what they have; returns the number of what the first one knows."""
    loan = await world.lend(0, await world.take(0))
    for number in range(SLICES):
        await world.tell(number, loan.home)
    return loan.home


@pytest.mark.parametrize("seed", range(6) if WHOLE else (0, 4))  # with nothing lost, and with lost answers
async def test_no_window_of_all_slices_holds_more_than_rate_and_burst(world: RateWorld, seed: int) -> None:
    """Mutant: what is in hand somewhere is lent once more, after a failover too."""
    chance = random.Random(seed)
    world.kind = KINDS[seed % 3]
    await world.open(**{f"{world.kind}_rate": f"{RATE}.0", f"{world.kind}_burst": str(BURST)})
    loses = (0.0, 0.3)[seed // 3]
    for _ in range(100):
        number, what = chance.randrange(SLICES), chance.random()
        if what < 0.4:
            await world.draw(number, want=chance.randint(1, 8), loses=loses, chance=chance)
            await world.offer(number, *[1] * chance.randint(1, 8))
        elif what < 0.6:
            await world.offer(number, *[1] * chance.randint(1, 8))
        elif what < 0.75:
            await world.wait(chance.choice((1, 20, 50, 50, 200, 400)))
        elif what < 0.85 and world.letters:
            await world.deliver(chance.choice(world.letters[-6:]))
        elif what < 0.95:
            await world.copy(number)
        else:
            await world.fail_over(number)
    assert most_beyond(world.sent, RATE, BURST) <= 1e-6
    before, sent = world.now, sum(count for _, count in world.sent)
    for _ in range(12):  # and nothing of it is lost for ever
        for number in range(SLICES):
            await world.draw(number, want=8, chance=chance)
            await world.offer(number, *[1] * 8)
        await world.wait(50)
    assert sum(count for _, count in world.sent) - sent >= 0.8 * RATE * (world.now - before) / 1000 - BURST
    assert most_beyond(world.sent, RATE, BURST) <= 1e-6


NEVER = random.Random(0)


async def bring(world: RateWorld, number: int, need: int = 1, want: int = 0) -> Loan:
    """Fetch the rate for one slice, with nothing lost."""
    return await world.draw(number, need, want or need, chance=NEVER)


async def test_nothing_is_lent_before_each_slice_has_told_what_it_has(world: RateWorld) -> None:
    """Mutant: a slice that did not tell counts for nothing."""
    await world.open(send_rate="10.0", send_burst="4")
    loan = await world.lend(0, await world.take(0), 1, 1)
    assert (loan.code, loan.slices) == ("OLD", ())
    loan = await world.lend(0, await world.take(0, home=loan.home), 1, 1)
    assert (loan.code, loan.slices) == ("ASK", (1, 2))
    assert await world.offer(0, 1) == 0
    await world.tell(1, loan.home)
    assert (await world.lend(0, await world.take(0), 1, 1)).slices == (2,)
    await world.tell(2, loan.home)
    assert (await bring(world, 0)).code == "OK"
    assert await world.offer(0, 1, 1) == 1


async def test_what_one_slice_has_in_hand_is_not_to_be_had_by_another(world: RateWorld) -> None:
    """Mutants: it is lent twice; what is spent is not paid."""
    await world.open(send_rate="10.0", send_burst="4")
    assert (await bring(world, 1, want=3)).granted == 3
    assert (await bring(world, 2, want=3)).granted == 1
    loan = await bring(world, 0)
    assert (loan.code, loan.again_ms) == ("SHORT", 100), "then it may have come back"
    assert await world.offer(1, 1, 1, 1) == 3
    loan = await bring(world, 1)
    assert (loan.code, loan.again_ms) == ("SHORT", 200), "behind the one that waits and had none"
    await world.wait(100)
    assert (await bring(world, 0)).granted == 1


async def test_what_is_idle_in_hand_comes_back_and_what_was_just_lent_stays(world: RateWorld) -> None:
    """Mutants: a burst is stuck where nobody sends; what was lent is taken away before it could be used."""
    await world.open(send_rate="1.0", send_burst="4")
    await bring(world, 1, want=4)
    assert (await bring(world, 2)).code == "SHORT"
    assert await world.offer(1, 1) == 1
    await world.wait(100)
    loan = await bring(world, 2, want=4)
    assert (loan.code, loan.granted) == ("OK", 3)
    assert await world.offer(1, 1) == 0
    assert await world.offer(2, 1, 1, 1, 1) == 3


async def test_slices_are_asked_for_what_is_in_hand_only_now_and_then(world: RateWorld) -> None:
    """Mutant: whoever lacks one has all slices asked, each time."""
    await world.open(send_rate="1.0", send_burst="2")
    home = await tell_all(world)
    loan = await world.lend(1, await world.take(1), 2, 2)
    await world.take(1, home=home, epoch=(await world.take(1)).epoch, granted=loan.granted)
    assert (await world.lend(2, await world.take(2), 1, 1)).slices == (1,)
    assert (await world.lend(0, await world.take(0), 1, 1)).slices == ()
    await world.wait(100)
    assert (await world.lend(2, await world.take(2), 1, 1)).slices == (1,)


async def test_a_message_above_the_burst_goes_alone_and_is_owed_by_all(world: RateWorld) -> None:
    """Mutants: it waits for ever; others send beside it."""
    world.kind = "send_byte"
    await world.open(send_byte_rate="100.0", send_byte_burst="50")
    await bring(world, 2, 10)
    await bring(world, 1, 200)
    assert await world.offer(1, 200) == 0
    await world.wait(100)
    assert (await bring(world, 1, 200)).granted == 200
    assert await world.offer(1, 200) == 1
    loan = await bring(world, 2, 10)
    assert (loan.code, loan.again_ms) == ("SHORT", 1600)


async def test_what_a_slice_had_before_it_lost_state_counts_as_spent(world: RateWorld) -> None:
    """Mutants: it sends it once more, or others have it."""
    await world.open(send_rate="10.0", send_burst="4")
    await bring(world, 1, want=4)
    await world.copy(1)
    assert await world.offer(1, 1, 1, 1, 1) == 4
    await world.fail_over(1)
    assert await world.offer(1, 1) == 0
    loan = await bring(world, 1)
    assert (loan.code, loan.again_ms) == ("SHORT", 100)
    await world.deliver(world.letters[-1])
    assert await world.offer(1, 1) == 0, "that was for an earlier epoch"


async def test_a_first_slice_that_lost_state_owes_the_burst_and_what_it_lent_is_void(world: RateWorld) -> None:
    """Mutants: it begins with a whole burst; what it lent before is used beside."""
    await world.open(send_rate="10.0", send_burst="4")
    await tell_all(world)
    await world.copy(0)
    await bring(world, 1, want=2)
    await world.fail_over(0)
    loan = await bring(world, 2)
    assert (loan.code, loan.again_ms) == ("SHORT", 100)
    assert await world.offer(1, 1) == 0
    await world.deliver(world.letters[-1])
    assert await world.offer(1, 1) == 0
    await world.wait(100)
    assert (await bring(world, 2)).code == "OK"
    assert await world.offer(2, 1, 1) == 1


async def test_one_that_lost_all_it_knew_of_its_slices_owes_the_burst_too(world: RateWorld) -> None:
    """Mutant: what it lent since the copy of its replica is lent once more."""
    await world.open(send_rate="10.0", send_burst="4")
    await world.copy(0)
    await bring(world, 1, want=4)
    assert await world.offer(1, 1, 1, 1, 1) == 4
    for key, copied in world.copies[0].items():
        await world.places[0].server.command(key, "DEL", key)
        if copied is not None:
            await world.places[0].server.command(key, "RESTORE", key, 0, copied)
    world.runs[0] += 1
    await world.wait(1)  # else what it begins anew has the number that it had
    loan = await bring(world, 2)
    assert (loan.code, loan.again_ms) == ("SHORT", 100)


async def test_slices_for_which_nobody_is_named_stand_in_line_themselves(world: RateWorld) -> None:
    """Mutants: whichever asks has all of it; all of them have one turn."""
    await world.open(send_rate="10.0", send_burst="8")
    await bring(world, 0, want=8)
    await world.offer(0, *[1] * 8)
    assert [(await bring(world, number)).again_ms for number in (0, 1)] == [100, 200]
    await world.wait(100)
    assert (await bring(world, 1)).again_ms == 100, "the other one is next"
    assert (await bring(world, 0)).code == "OK"
    await world.offer(0, 1)
    assert (await bring(world, 0)).again_ms == 200
    await world.wait(100)
    assert (await bring(world, 1)).code == "OK"


async def test_a_rate_that_comes_again_asks_all_slices_anew(world: RateWorld) -> None:
    """Mutant: what slices sent meanwhile, and have in hand, is as before."""
    await world.open(send_rate="10.0", send_burst="4")
    await bring(world, 1, want=2)
    for settings in ({"send_rate": "", "send_burst": ""}, {"send_rate": "10.0", "send_burst": "4"}):
        await world.wait(1)
        await world.at(0).change(**settings)
    loan = await world.lend(0, await world.take(0), 1, 1)
    assert loan.code == "OLD"
    await tell_all(world)
    assert await world.offer(1, 1) == 0
    await world.at(1).change(send_rate="", send_burst="")
    assert (await world.take(1)).code == "UNBOUND"
    await world.at(0).change(send_rate="", send_burst="")
    assert (await world.lend(1, Hand("OK"), 1, 1)).code == "UNBOUND"


async def test_a_clock_that_is_set_back_does_not_lock_it(world: RateWorld) -> None:
    """Mutant: what is owed is kept by the old clock."""
    await world.open(send_rate="1.0", send_burst="1")
    await bring(world, 1)
    await world.offer(1, 1)
    await bring(world, 1)
    await world.wait(-3_600_000)
    assert (await bring(world, 2)).again_ms <= 1000
    await world.wait(1000)
    assert (await bring(world, 2)).code == "OK"


async def test_a_report_of_more_than_was_lent_begins_anew(world: RateWorld) -> None:
    """Mutant: what a failover nobody heard of took back is lent once more."""
    await world.open(send_rate="10.0", send_burst="4")
    home = await tell_all(world)
    hand = await world.take(1)
    loan = await world.lend(1, Hand("OK", home, hand.epoch, 3, 3, 0))
    assert loan.code == "OLD"
    assert loan.home > home
    loan = await world.lend(1, Hand("OK", loan.home + 5, hand.epoch, 0, 0, 0))
    assert loan.home > home + 5
    await tell_all(world)
    assert (await bring(world, 1)).code == "SHORT"

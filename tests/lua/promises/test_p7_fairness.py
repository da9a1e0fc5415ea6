"""P7: in the long run producers that wait share what is freed as weighted max-min; nobody starves."""

import random
from dataclasses import dataclass, replace

import pytest

from tests.lua.place import Consumer, Place, Producer
from tests.lua.promises.hearing import Ear
from tests.support.extent import WHOLE

pytestmark = pytest.mark.one_server


def water_fill(capacity: float, demands: list[float], weights: list[int]) -> list[float]:
    """Return the weighted max-min shares, by the definition: raise all in proportion, whoever has enough stops."""
    shares = [0.0] * len(demands)
    thirsty = set(range(len(demands)))
    left = capacity
    while thirsty and left > 1e-9:
        level = left / sum(weights[i] for i in thirsty)
        done = {i for i in thirsty if demands[i] - shares[i] <= level * weights[i] + 1e-12}
        for i in done or thirsty:
            more = demands[i] - shares[i] if done else level * weights[i]
            shares[i] += more
            left -= more
        if not done:
            break
        thirsty -= done
    return shares


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@dataclass
class Sender:
    """Keeps messages of one size coming at its own pace, and sends whatever credit allows."""

    producer: Producer
    weight: int
    pace: float
    size: int = 10
    backlog: float = 0.0
    sent: int = 0

    async def tick(self) -> None:
        self.backlog += self.pace
        if self.backlog < self.size:
            return
        ready = int(self.backlog // self.size)
        producer = self.producer
        account = producer.account(self.size, min(ready * self.size, 400), self.weight)
        producer.hear(await producer.call(replace(account, want_m=account.want_m + ready)))
        in_hand = min(producer.held // self.size, producer.granted_m - producer.used_m - producer.returned_m)
        count = min(in_hand, ready)
        if count:
            left = min((ready - count) * self.size, 400)
            account = producer.account(self.size if left else 0, left, self.weight, ahead=(count * self.size, count))
            account = replace(account, want_m=account.want_m + ready)
            credit = await producer.publish_as(account, producer.seq, *[self.size] * count)
            assert credit.stored == count
            producer.hear(credit)
            producer.used, producer.used_m = producer.used + count * self.size, producer.used_m + count
            producer.seq += count
            self.sent += self.size * count
            self.backlog -= self.size * count


async def run(place: Place, reader: Consumer, senders: list[Sender], *, drained: int, ticks: int) -> None:
    """Let all send for so many rounds, in an order that changes, while a consumer settles ``drained`` bytes in each."""
    chance = random.Random(11)
    owed = 0.0
    for _ in range(ticks):
        for sender in chance.sample(senders, len(senders)):
            await sender.tick()
        await place.wait(10)
        owed += drained
        count = int(owed // senders[0].size)
        ids = await reader.fetch(messages=count) if count else []
        owed -= len(ids) * senders[0].size
        if ids:
            await reader.accept(*ids)


@pytest.mark.parametrize("seed", range(4 if WHOLE else 1))
async def test_shares_are_those_of_the_oracle(place: Place, seed: int) -> None:
    """Mutant: a turn does not move the next turn back."""
    chance = random.Random(seed)
    weights = [chance.choice((1, 1, 2, 4)) for _ in range(5)]
    paces = [chance.choice((3.0, 8.0, 1000.0, 1000.0)) for _ in range(5)]
    paces[0] = paces[1] = 1000.0  # two that always want more
    await place.create(limit=400)
    reader = await place.consumer("zoe")
    senders = [Sender(place.producer(f"p{n}"), weights[n], paces[n]) for n in range(5)]
    await run(place, reader, senders, drained=100, ticks=20)  # fills the queue, and forgets the beginning
    before = [sender.sent for sender in senders]
    await run(place, reader, senders, drained=100, ticks=120)
    got = [sender.sent - was for sender, was in zip(senders, before, strict=True)]
    total = sum(got)
    shares = water_fill(total, [pace * 120 for pace in paces], weights)
    for share, amount in zip(shares, got, strict=True):
        assert abs(amount - share) <= 0.04 * total, (weights, paces, got, shares)


async def test_equals_get_equal_shares(place: Place) -> None:
    """Jain >= 0.98. Mutant: the line is in the order of names."""
    await place.create(limit=300)
    reader = await place.consumer("zoe")
    senders = [Sender(place.producer(f"p{n}"), 1, 1000.0) for n in range(8)]
    await run(place, reader, senders, drained=70, ticks=120)
    assert jain([float(sender.sent) for sender in senders]) >= 0.98


async def test_equals_get_equal_shares_of_a_limit_in_messages(place: Place) -> None:
    """Mutant: who waits is granted more bytes than its messages take, and does not come to its turn again."""
    await place.create(limit="unlimited", messages=4)
    reader = await place.consumer("zoe")
    senders = [Sender(place.producer(f"p{n}"), 1, 1000.0) for n in range(3)]
    await run(place, reader, senders, drained=10, ticks=90)
    assert jain([float(sender.sent) for sender in senders]) >= 0.98, [sender.sent for sender in senders]


async def test_weights_are_kept_within_three_percent(place: Place) -> None:
    """Mutant: a turn costs everybody the same."""
    await place.create(limit=600)
    reader = await place.consumer("zoe")
    senders = [Sender(place.producer(f"p{n}"), weight, 1000.0) for n, weight in enumerate((1, 2, 3, 4))]
    await run(place, reader, senders, drained=200, ticks=150)
    total = sum(sender.sent for sender in senders)
    for sender in senders:
        assert abs(sender.sent / total - sender.weight / 10) <= 0.03, [s.sent for s in senders]


async def test_newcomers_do_not_starve_who_was_served_before(place: Place) -> None:
    """Mutant: the clock of turns stands still while others are served."""
    await place.create(limit=100)
    reader, ann, hog = await place.consumer("zoe"), place.producer("ann"), place.producer("hog")
    await hog.send(100)
    await ann.ask(need=50)
    await reader.accept(*await reader.fetch())
    await ann.ask(need=50)
    await ann.publish(50)
    await place.producer("n").send(50)
    assert (await ann.ask(need=50)).place == 1
    for number in range(40):
        newcomer = place.producer(f"n{number}")
        await newcomer.ask(need=50)
        if (await ann.ask(need=50)).place == 0:
            break
        ids = await reader.fetch(messages=1)
        await reader.accept(*ids)
        if (await newcomer.ask(need=50)).place == 0:
            await newcomer.publish(50)
    else:
        raise AssertionError("ann waits for ever")


async def test_a_newcomer_is_not_made_up_for_what_others_got_before(place: Place) -> None:
    """Mutant: those who have a weight and take nothing slow the clock at which newcomers begin."""
    await place.create("gate", limit=100)
    await place.producer("idle").ask(weight=8)
    ann, bob, new = place.producer("ann"), place.producer("bob"), place.producer("new")
    inside, waits = ann, bob
    await ann.ask(need=60)
    for _ in range(20):
        assert (await waits.ask(need=60)).place == 1
        await inside.give_back(60)
        await waits.renew()
        assert waits.held == 60
        inside, waits = waits, inside
    before = (await waits.ask(need=60)).granted
    await new.ask(need=60)
    await inside.give_back(60)
    served = 0
    while not (await waits.ask(need=60)).granted > before:
        await new.renew()
        new.returned, served = new.returned + new.held, served + 1  # it takes the next in the call that gives it back
        await new.ask(need=60)
    assert served <= 2, "as many in a row as ann and bob had before it came"


async def test_holders_of_permits_leave_room_for_a_waiter_that_needs_more_than_its_share(place: Place) -> None:
    """Mutants: they keep their shares; only the first, or the caller, is seen; or one that holds something too."""
    await place.create("gate", limit=100)
    for name in ("ann", "bob", "cid"):
        await place.producer(name).ask(need=25)
    big, dan = place.producer("big"), place.producer("dan")

    async with Ear.at(place) as ear:

        async def kept() -> list[str]:
            await place.wait(200)
            return [words.split()[1] for _, words in await ear.heard() if words.startswith("recall")]

        assert (await dan.ask(need=30)).place == 1
        assert await kept() == [str((100 - 30) // 3)]
        assert (await big.ask(need=60)).place == 2
        assert await kept() == [str((100 - 60) // 4)]
        await dan.ask(need=30)
        assert await kept() == [str((100 - 60) // 4)], "one that is behind it"
        await big.ask()
        assert await kept() == [str((100 - 30) // 4)], "and goes"
        ann = place.producer("ann", granted=25, granted_m=8, epoch=big.epoch)
        assert (await ann.ask(need=90)).place == 2
        assert await kept() == [str((100 - 30) // 4)], "one that has something may wait until that is back"


async def test_waiters_at_a_gate_that_came_after_a_recall_have_another(place: Place) -> None:
    """Holders of permits were told what each may keep before they came. Mutant: only the first asks in time."""
    await place.create("gate", limit=100)
    await place.producer("ann").ask(need=100)
    assert (await place.producer("bob").ask(need=10)).again_ms == 1000
    await place.wait(50)
    cid = place.producer("cid")
    assert (await cid.ask(need=10)).again_ms == 150
    await place.wait(150)
    async with Ear.at(place) as ear:
        assert (await cid.ask(need=10)).again_ms == 1000
        assert [words for _, words in await ear.heard()] == [f"recall {100 // 3} {1 << 52} {cid.epoch}"]
    await place.wait(50)
    assert (await cid.ask(need=10)).again_ms == 1000, "they know of it"


async def test_who_waits_alone_at_a_gate_with_permits_hears_that_another_came(place: Place) -> None:
    """Mutants: it is not told, or each time; one that holds nothing is told; where it holds calls alone, nobody is."""
    await place.create("gate", limit=100)
    ann, bob, cid, dan = (place.producer(name) for name in ("ann", "bob", "cid", "dan"))
    async with Ear.at(place) as ear:

        async def told() -> list[str]:
            return [session.rpartition(":")[2] for session, words in await ear.heard() if words == "again"]

        await ann.ask(need=60)
        await bob.ask(need=40)
        assert (await ann.ask(need=70)).place == 1
        assert not await told()
        assert (await cid.ask(need=30)).place == 2
        assert await told() == ["ann"]
        await cid.ask(need=30)
        await dan.ask(need=10)
        assert not await told(), "it knows"
        await ann.ask()
        await dan.ask()
        assert (await cid.ask(need=30)).blocked == 1
        assert (await dan.ask(need=10)).blocked == 2
        assert not await told(), "it holds nothing"


async def test_it_hears_so_where_its_permits_have_no_bytes(place: Place) -> None:
    """Mutant: bytes alone are looked at."""
    await place.create("gate", limit=100, messages=2)
    ann, bob, cid = (place.producer(name) for name in ("ann", "bob", "cid"))

    async def asks(producer: Producer, calls: int) -> int:
        account = replace(producer.account(), need_m=calls, want_m=calls)
        return producer.hear(await producer.call(account)).place

    async with Ear.at(place) as ear:
        assert (await asks(ann, 1), await asks(bob, 1), await asks(ann, 2), await asks(cid, 1)) == (0, 0, 1, 2)
        assert ("ann", "again") in await ear.heard()


async def test_waiters_at_a_queue_ask_no_sooner_for_that(place: Place) -> None:
    """What producers have in hand is used up. Mutant: all who come after a recall ask again in time."""
    await place.full(100)
    await place.producer("bob").ask(need=10)
    assert (await place.producer("cid").ask(need=10)).again_ms == 1000

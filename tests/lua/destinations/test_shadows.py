"""Shadow limits of queues, topics, gates and buckets count what would have waited, and nobody waits."""

import math
import random
from collections import Counter, deque
from collections.abc import Mapping

import pytest

from headgate.errors import InvalidValue
from tests.lua.place import Place
from tests.lua.promises.hearing import Ear


async def noted(place: Place) -> list[str]:
    """Return what the ledger has of shadow limits."""
    key = f"{place.address.key}:ledger"
    entries = await place.server.command(key.encode(), "XRANGE", key, "-", "+")
    details = [fields[1].decode().split(",")[7] for _, fields in entries]
    return [event for detail in details for event in detail.split(";") if event.startswith("would-block")]


async def fields(place: Place) -> Mapping[str, str]:
    snapshot = await place.store.snapshot(place.address)
    assert snapshot is not None
    return snapshot.fields


async def counted(place: Place) -> tuple[str, set[str]]:
    """Return of how many it was counted in all, and of each limit."""
    seen = await fields(place)
    return seen.get("would_wait", ""), set(filter(None, seen.get("shadowed", "").split(";")))


async def take(place: Place, seq: int, *tokens: int) -> list[str]:
    place.sessions.add("ann")
    code, answers = await place.store.take(place.address, "ann", seq=seq, line=[(one, 9000) for one in tokens])
    assert code == "OK"
    return answers


async def test_messages_above_what_may_be_pending_are_counted_and_stored(place: Place) -> None:
    """Mutants: the shadow binds; each call counts once; what was pending before is forgotten."""
    await place.create(limit="unlimited", shadow="bytes at_once 100;messages at_once 4")
    ann = place.producer("ann")
    await ann.send(40, 40)
    assert await noted(place) == []
    await ann.send(30, 30, 1)
    assert await noted(place) == ["would-block:bytes:3:41", "would-block:messages:1:1"]
    assert await counted(place) == ("3", {"bytes:all:3:41", "messages:all:1:1"})
    reader = await place.consumer("zoe")
    await reader.accept(*await reader.fetch())
    await ann.send(90)
    assert await counted(place) == ("3", {"bytes:all:3:41", "messages:all:1:1"}), "there is room again"
    await ann.send(20, 5)
    assert await counted(place) == ("5", {"bytes:all:5:41", "messages:all:1:1"}), "the most above it is kept"
    assert await place.usage() == 115


async def test_what_the_real_limit_keeps_waiting_is_not_counted(place: Place) -> None:
    """Mutant: a message that waits for the real limit is counted before it is stored."""
    await place.create(limit=100, shadow="bytes at_once 50")
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.send(50, 50)
    assert (await bob.ask(need=10)).place == 1
    assert await counted(place) == ("1", {"bytes:all:1:50"})


async def test_rates_of_senders_are_judged_with_a_burst(place: Place) -> None:
    """Mutants: a level is not charged; its burst does not come back; a clock set back has it owe for that."""
    await place.create(limit="unlimited", shadow="rate rate 10.0 3;byte_rate rate 100.0 50")
    ann = place.producer("ann")
    await ann.send(10, 10, 10, 10, 10)
    assert await noted(place) == ["would-block:rate:2:2"]
    await place.wait(200)
    await ann.send(30)
    assert (await noted(place))[1:] == ["would-block:rate:1:1", "would-block:byte_rate:1:10"]
    await place.wait(1000)
    await ann.send(10)
    assert len(await noted(place)) == 3
    await place.wait(-3_600_000)
    await ann.send(10, 10)
    assert len(await noted(place)) == 3
    assert await counted(place) == ("3", {"rate:all:3:2", "byte_rate:all:1:10"})


async def test_a_topic_that_nobody_subscribes_is_judged_by_rates_alone(place: Place) -> None:
    """Mutant: what is not stored counts as pending."""
    await place.create("topic", limit="unlimited", shadow="messages at_once 1;rate rate 1.0 1")
    ann = place.producer("ann")
    await ann.send(1, 1)
    assert await noted(place) == ["would-block:rate:1:1"]


async def test_a_bucket_counts_each_who_would_have_come_too_early(place: Place) -> None:
    """Mutants: those who were refused are charged; a repeated call is counted twice."""
    await place.create("bucket", rate="1000", burst="20", shadow="tokens rate 10.0 5")
    assert await take(place, 1, 3, 2, 4, 40) == ["0", "0", "0", "never:20"]
    assert await take(place, 1, 3, 2, 4, 40) == ["0", "0", "0", "never:20"]
    assert await noted(place) == ["would-block:tokens:1:4"]
    await place.wait(1000)
    assert await take(place, 2, 5) == ["0"]
    assert await counted(place) == ("1", {"tokens:all:1:4"})


async def test_a_gate_counts_the_credit_that_its_first_in_line_needs(place: Place) -> None:
    """Mutants: it is not counted; a session gets more in hand than the shadow would leave to it."""
    await place.create("gate", limit="unlimited", shadow="bytes at_once 100")
    ann, bob = place.producer("ann"), place.producer("bob")
    assert (await ann.ask(need=60, window=1000)).granted == 100, "no more in hand than a limit of 100 would leave"
    assert await noted(place) == []
    assert (await bob.ask(need=30, window=1000)).granted == 50, "its share is a half"
    assert await noted(place) == ["would-block:bytes:1:30"]
    assert await counted(place) == ("1", {"bytes:all:1:30"})


async def test_what_is_in_hand_at_a_gate_is_asked_for_when_a_shadow_comes(place: Place) -> None:
    """Mutants: nobody is asked; each may keep a share of the real limit."""
    await place.create("gate", limit=1000)
    for name in ("ann", "bob"):
        await place.producer(name).ask(10, window=500)
    async with Ear.at(place) as ear:
        await place.change(shadow="bytes at_once 100")
        epoch = (await place.look()).number("epoch")
        assert ("", f"recall 50 {1 << 52} {epoch}") in await ear.heard()


async def test_a_gate_counts_nobody_who_waited_for_its_real_limit(place: Place) -> None:
    """Mutant: who was served from the line is counted."""
    await place.create("gate", limit=100, shadow="bytes at_once 50")
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=90)
    assert await counted(place) == ("1", {"bytes:all:1:40"})
    assert (await bob.ask(need=20)).place == 1
    await ann.give_back(90)
    assert (await bob.ask(need=20)).granted == 20
    assert await counted(place) == ("1", {"bytes:all:1:40"})


async def test_other_shadow_limits_are_counted_anew_and_none_costs_nothing(place: Place) -> None:
    """Mutants: counts stay when the limits change; a limit that went is judged still."""
    await place.create(limit="unlimited", shadow="bytes at_once 10;rate rate 1.0 1")
    ann = place.producer("ann")
    await ann.send(20, 20)
    assert (await counted(place))[0] == "2"
    await place.change(shadow="bytes at_once 50")
    assert await counted(place) == ("", set())
    await ann.send(20)
    assert await counted(place) == ("1", {"bytes:all:1:10"})
    await place.change(limit_bytes="1000")
    assert (await counted(place))[0] == "1", "another setting changes nothing of it"
    await place.change(shadow="")
    await ann.send(20)
    seen = await fields(place)
    assert seen["rules"] == ""
    assert not {"would_wait", "shadowed", "levels", "shadow"} & set(seen)


@pytest.mark.parametrize("bad", ["bytes", "rate rate 0 5", "bytes at_once 0", "bytes at_once 9 1 aimd"])
async def test_what_is_no_shadow_limit_is_refused(place: Place, bad: str) -> None:
    """Mutant: the text is not read before it is written."""
    await place.create()
    with pytest.raises(InvalidValue, match="ARGUMENT apply"):
        await place.change(shadow=bad)


async def test_counts_are_those_of_plain_arithmetic_over_a_long_course(place: Place) -> None:
    """Mutant: what is settled goes on counting; a burst comes back too soon."""
    chance, sizes = random.Random(3), deque[int]()
    times, most, tokens = Counter[str](), Counter[str](), 20.0
    await place.create(limit="unlimited", shadow="bytes at_once 300;messages at_once 6;rate rate 10.0 20")
    ann, zoe = place.producer("ann"), await place.consumer("zoe")
    for _ in range(150):
        step = chance.choice((0, 0, 50, 400))
        await place.wait(step)
        tokens = min(20.0, tokens + step / 100)
        batch = [chance.randint(1, 90) for _ in range(chance.randint(1, 4))]
        await ann.send(*batch)
        for size in batch:
            sizes.append(size)
            tokens -= 1
            over = {"bytes": sum(sizes) - 300, "messages": len(sizes) - 6, "rate": math.ceil(-tokens - 1e-9)}
            for limit, above in over.items():
                if above > 0:
                    times[limit] += 1
                    most[limit] = max(most[limit], above)
        if chance.random() < 0.6:
            taken = await zoe.fetch(chance.randint(1, 5))
            await zoe.accept(*taken)
            for _ in taken:
                sizes.popleft()
    assert (await counted(place))[1] == {f"{limit}:all:{times[limit]}:{most[limit]}" for limit in times}
    assert min(times.values()) > 10

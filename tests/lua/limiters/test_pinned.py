"""Keys of a limiter with slices: each is admitted at one slice alone, and what is known of it goes with it."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.core.limiting.pins import PinnedSlice, Pins, due_change, slice_of_key
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall
from headgate.redis.stores.pinned_keys import KeyRecord, PinnedKeyStore
from tests.lua.limiters.trial import Limiter
from tests.support.rewriting import RewritingServer, virtual_clock

LIMITS = f"slots at_once {1 << 52};tokens rate 1e15 {1 << 52};spend quota {1 << 52} day 0"
KEY_LIMITS = "slots at_once 3;tokens rate 1 10;spend quota 20 day 0"
TWO, ONE = Pins(2, 2, 1), Pins(4, 1, 2)
HERE, THERE = (next(key for key in map("k{}".format, range(9)) if slice_of_key(key, 2) == at) for at in (0, 1))


class Sliced:
    """A limiter of two slices under one clock."""

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        self.parts = [Limiter(server, Address.of(namespace, name)) for name in ("llm", "llm#1")]
        self.first, self.second = self.parts
        self.keys = PinnedKeyStore(server)

    async def create(self, limits: str = LIMITS, key_limits: str = KEY_LIMITS, **settings: Any) -> None:
        for part in self.parts:
            await part.create(limits, key_limits, **settings)

    async def pin(self, pins: Pins, *parts: Limiter, sure: bool = True) -> None:
        for part in parts or self.parts:
            known = await self.keys.pin(part.address)
            assert known is not None
            await self.keys.pin(part.address, pins, known.epoch if sure else 0)

    async def wait(self, ms: int) -> None:
        for part in self.parts:
            await part.wait(ms)

    async def bring(self, source: Limiter, to: Limiter, pins: Pins) -> list[KeyRecord]:
        parted = await self.keys.parted(source.address, pins.slices)
        assert parted.cursor == 0
        number = self.parts.index(source)
        assert await self.keys.join(to.address, pins.version, number, parted.records)
        assert await self.keys.join(source.address, pins.version, number, parted.records)
        return list(parted.records)


@pytest.fixture
async def sliced(redis_url: str, namespace: str) -> AsyncIterator[Sliced]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    sliced = Sliced(server, namespace)
    yield sliced
    for part in sliced.parts:
        await server.forget(part.address, *part.sequence)
    await server.close()


async def test_a_key_is_admitted_at_its_slice_and_at_no_other(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=1", key=THERE) == "held", "there were no slices yet"
    await sliced.pin(TWO)
    for key, at, other in ((HERE, sliced.first, sliced.second), (THERE, sliced.second, sliced.first)):
        assert await at.admit("s.2", "slots=1", key=key) == "held"
        assert await other.admit("s.3", "slots=1", key=key) == "moved"
    assert await sliced.first.admit("s.4", "slots=1") == "held", "what has no key is at the first"
    assert await sliced.second.admit("s.4", "slots=1") == "moved"
    assert await sliced.first.admit("s.1", "slots=1", key=THERE) == "held", "what is held stays where it is"
    assert await sliced.first.release("s.1") == "ok"


async def test_many_of_one_call_are_told_each(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.pin(TWO)
    calls = [HoldCall("admit", f"s.{n}", key, "slots=1", 5000) for n, key in enumerate((HERE, THERE, HERE), 1)]
    answers = await sliced.first.call("s", *calls)
    assert answers.answers == ("held", "moved", "held")


async def test_a_slice_that_never_heard_of_keys_admits_for_none(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.second.admit("s.1", "slots=1", key=THERE) == "moved"
    assert await sliced.second.admit("s.2", "slots=1") == "moved"


async def test_while_keys_are_on_their_way_only_those_that_stay_are_admitted(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.pin(TWO._replace(version=1))
    assert await sliced.first.admit("s.1", "slots=1", key=HERE) == "held"
    assert await sliced.first.admit("s.2", "slots=1", key=THERE) == "moved"
    assert await sliced.second.admit("s.3", "slots=1", key=THERE) == "moved"
    await sliced.pin(TWO, sliced.second)
    assert await sliced.second.admit("s.3", "slots=1", key=THERE) == "held"


async def test_a_slice_in_another_epoch_admits_nothing_until_it_has_all_there_is(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.pin(TWO)
    server = sliced.first.server
    server.run = b"another run"
    assert await sliced.second.admit("s.1", "tokens=1", key=THERE) == "moved"
    await sliced.pin(TWO, sliced.second, sure=False)
    assert await sliced.second.admit("s.1", "tokens=1", key=THERE) == "moved"
    await sliced.pin(TWO, sliced.second)
    assert await sliced.second.admit("s.1", "tokens=1", key=THERE) != "moved"


async def test_an_older_version_changes_nothing(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.pin(TWO)
    await sliced.pin(Pins(1, 7, 1))
    known = await sliced.keys.pin(sliced.first.address)
    assert known is not None
    assert known.pins == TWO
    assert known.is_sure


async def test_who_waits_for_a_key_that_moves_is_told_so_and_never_let_in(sliced: Sliced) -> None:
    await sliced.create()
    for number in range(3):
        assert await sliced.first.admit(f"s.{number + 1}", "slots=1", key=THERE) == "held"
    assert (await sliced.first.admit("w.1", "slots=1", key=THERE, wait_ms=9000)).startswith("wait ")
    await sliced.pin(TWO)
    assert await sliced.first.release("s.1") == "ok"
    assert (await sliced.first.look()).admitted == 3, "it has room, and goes elsewhere"
    assert await sliced.first.admit("w.1", "slots=1", key=THERE, wait_ms=9000) == "moved"
    assert (await sliced.first.look()).waiting == 0


async def test_what_a_key_holds_and_owes_goes_with_it(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=2,tokens=8,spend=15", key=THERE) == "held"
    assert await sliced.first.admit("s.2", "slots=1", key=HERE) == "held"
    await sliced.pin(TWO)
    records = await sliced.bring(sliced.first, sliced.second, TWO)
    assert [record.key for record in records] == [THERE]
    for name, taken in (("slots", 2), ("tokens", 8), ("spend", 15)):
        assert await sliced.second.taken(name, THERE) == taken
        assert await sliced.first.taken(name, THERE) == (2 if name == "slots" else 0), "only what is held stays"
    assert (await sliced.second.admit("t.1", "slots=2", key=THERE)).startswith("late - slots key")
    assert (await sliced.second.admit("t.1", "tokens=3", key=THERE)).startswith("late ")
    assert (await sliced.second.admit("t.1", "spend=6", key=THERE)).startswith("late ")
    assert await sliced.second.admit("t.1", "slots=1,tokens=2,spend=5", key=THERE) == "held"
    await sliced.wait(4000)
    assert await sliced.second.taken("tokens", THERE) == 6


async def test_what_is_held_elsewhere_counts_until_it_is_said_to_be_less(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=2", key=THERE) == "held"
    assert await sliced.first.admit("s.2", "slots=1", key=THERE) == "held"
    await sliced.pin(TWO)
    await sliced.bring(sliced.first, sliced.second, TWO)
    assert (await sliced.second.admit("t.1", "slots=1", key=THERE, wait_ms=9000)).startswith("wait ")
    await sliced.first.release("s.1")
    assert (await sliced.second.admit("t.2", "slots=1", key=THERE)).startswith("late ")
    (own,) = (await sliced.keys.parted(sliced.second.address, 2, key=THERE)).records
    assert own.text == "A0_slots:3"
    (there,) = (await sliced.keys.parted(sliced.first.address, 2, key=THERE)).records
    assert await sliced.keys.join(sliced.second.address, TWO.version, 0, [there])
    assert await sliced.second.admit("t.1", "slots=1", key=THERE, wait_ms=9000) == "held", "it was let in by that"
    assert await sliced.second.admit("t.2", "slots=1", key=THERE) == "held"
    assert (await sliced.second.admit("t.3", "slots=1", key=THERE)).startswith("late ")
    await sliced.first.release("s.2")
    assert await sliced.keys.join(sliced.second.address, TWO.version, 0, [KeyRecord(THERE, "")])
    assert await sliced.second.taken("slots", THERE) == 2


async def test_what_is_settled_late_is_owed_where_the_key_is(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "tokens=2,spend=2", key=THERE) == "held"
    await sliced.pin(TWO._replace(version=1))
    await sliced.bring(sliced.first, sliced.second, TWO._replace(version=1))
    await sliced.pin(TWO)
    assert await sliced.second.admit("t.1", "tokens=3,spend=3", key=THERE) == "held"
    assert await sliced.first.one("settle", "s.1", "tokens=6,spend=6") == "ok"
    await sliced.bring(sliced.first, sliced.second, TWO)
    assert await sliced.second.taken("tokens", THERE) == 9
    assert await sliced.second.taken("spend", THERE) == 9
    await sliced.bring(sliced.first, sliced.second, TWO)
    assert await sliced.second.taken("tokens", THERE) == 9, "it was brought, and is not there any more"


async def test_what_is_settled_while_a_key_moves_is_not_lost(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "tokens=2,spend=2", key=THERE) == "held"
    moving = TWO._replace(version=1)
    await sliced.pin(moving)
    records = (await sliced.keys.parted(sliced.first.address, 2)).records
    assert await sliced.keys.join(sliced.second.address, 1, 0, records)
    assert await sliced.first.one("settle", "s.1", "tokens=6,spend=6") == "ok"
    assert await sliced.keys.join(sliced.first.address, 1, 0, records)
    await sliced.pin(TWO)
    await sliced.bring(sliced.first, sliced.second, TWO)
    assert await sliced.second.taken("tokens", THERE) == 6
    assert await sliced.second.taken("spend", THERE) == 6


async def test_what_is_brought_again_or_late_changes_nothing(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=1,tokens=5,spend=5", key=THERE) == "held"
    await sliced.pin(TWO._replace(version=1))
    records = await sliced.bring(sliced.first, sliced.second, TWO._replace(version=1))
    (record,) = records
    older = KeyRecord(THERE, re.sub(r"(tokens|spend)=\d+", r"\1=1", record.text))
    for some in (record, older):
        assert await sliced.keys.join(sliced.second.address, 1, 0, [some])
    for name, taken in (("slots", 1), ("tokens", 5), ("spend", 5)):
        assert await sliced.second.taken(name, THERE) == taken
    await sliced.pin(TWO)
    assert not await sliced.keys.join(sliced.second.address, 1, 0, records), "they are where they belong"
    assert await sliced.second.admit("t.1", "tokens=3,spend=7,slots=1", key=THERE) == "held"
    for name, taken in (("slots", 2), ("tokens", 8), ("spend", 12)):
        assert await sliced.second.taken(name, THERE) == taken
    await sliced.pin(ONE)
    await sliced.bring(sliced.second, sliced.first, ONE)
    assert not await sliced.keys.join(sliced.second.address, TWO.version, 0, records), "other pins are in force"
    assert await sliced.first.taken("slots", THERE) == 2, "its own, and what is held there"
    assert await sliced.first.taken("spend", THERE) == 12


async def test_nobody_brings_a_slice_keys_of_others_nor_takes_its_own_away(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.pin(TWO)
    assert await sliced.first.admit("s.1", "tokens=5", key=HERE) == "held"
    assert await sliced.keys.join(sliced.second.address, TWO.version, 0, [KeyRecord(HERE, "slots:9;tokens=9000000")])
    assert await sliced.second.taken("slots", HERE) == 0
    assert await sliced.keys.join(sliced.first.address, TWO.version, 0, [KeyRecord(HERE, "tokens=5000000")])
    assert await sliced.first.taken("tokens", HERE) == 5


async def test_a_hold_off_of_a_key_goes_with_it(sliced: Sliced) -> None:
    await sliced.create()
    await sliced.first.store.hold_off(sliced.first.address, "s", key=THERE, ms=5000, reason="")
    await sliced.pin(TWO)
    await sliced.bring(sliced.first, sliced.second, TWO)
    assert (await sliced.second.admit("t.1", "slots=1", key=THERE)).startswith("late 5000000 hold_off key")


async def test_a_slice_that_may_have_lost_holds_says_nothing_of_them_before_they_are_claimed(sliced: Sliced) -> None:
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=2", key=THERE) == "held"
    sliced.first.server.run = b"another run"
    await sliced.pin(TWO)
    parted = await sliced.keys.parted(sliced.first.address, 2)
    assert parted.learning_ms > 0
    assert not parted.records
    await sliced.wait(parted.learning_ms)
    assert [record.key for record in (await sliced.keys.parted(sliced.first.address, 2)).records] == [THERE]


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
async def test_a_slice_learns_once_although_nothing_but_looks_comes_to_it(sliced: Sliced, back_ms: int) -> None:
    """Redis' clock may be set back meanwhile."""
    await sliced.create()
    assert await sliced.first.admit("s.1", "slots=2", key=THERE) == "held"
    await sliced.pin(TWO)
    sliced.first.server.run = b"another run"
    parted = await sliced.keys.parted(sliced.first.address, 2)
    learns_ms = parted.learning_ms
    assert learns_ms > 0
    await sliced.wait(-back_ms)
    parted = await sliced.keys.parted(sliced.first.address, 2)
    assert 0 < parted.learning_ms <= learns_ms
    await sliced.wait(parted.learning_ms)
    assert [record.key for record in (await sliced.keys.parted(sliced.first.address, 2)).records] == [THERE]


async def test_many_keys_are_looked_at_a_few_at_a_time(sliced: Sliced) -> None:
    await sliced.create()
    for first in range(0, 1500, 100):
        calls = [HoldCall("admit", f"s.{n + 1}", f"t{n}", "slots=1", 5000) for n in range(first, first + 100)]
        await sliced.first.call("s", *calls)
    cursor, found, looks = -1, set[str](), 0
    while cursor:
        parted = await sliced.keys.parted(sliced.first.address, 2, max(0, cursor))
        cursor, looks = parted.cursor, looks + 1
        found.update(record.key for record in parted.records)
    assert found == {f"t{n}" for n in range(1500) if slice_of_key(f"t{n}", 2) == 1}
    assert looks > 2


async def test_lua_and_python_pin_a_key_to_the_same_slice(sliced: Sliced) -> None:
    await sliced.create()
    keys = [f"{word}{n}" for n in range(40) for word in ("t-", "a%20b~", "x" * 255)]
    await sliced.pin(Pins(2, 48, 1))
    calls = [HoldCall("admit", f"s.{n + 1}", key, "slots=1", 5000) for n, key in enumerate(keys)]
    for part, number in zip(sliced.parts, (0, 1), strict=True):
        answers = await part.call("s", *calls)
        assert [text == "held" for text in answers.answers] == [slice_of_key(key, 48) == number for key in keys]


def test_a_change_is_due_where_slices_do_not_know_the_same() -> None:
    def look(pins: Pins, *, sure: bool = True) -> PinnedSlice:
        return PinnedSlice(7, pins, 7 if sure else 0)

    nothing = PinnedSlice(7, Pins(), 0)
    assert due_change([nothing], 1) is None
    assert due_change([look(TWO), look(TWO)], 2) is None
    new = due_change([nothing, nothing], 2)
    assert new is not None
    assert new.moving == Pins(1, 2, 1)
    assert new.settled == TWO
    assert new.doubted == {1}
    more = due_change([look(TWO), look(TWO)], 5)
    assert more is not None
    assert more.moving == Pins(3, 5, 2)
    assert more.moves_all
    on = due_change([look(TWO._replace(version=1)), nothing], 9)
    assert on is not None
    assert on.settled == TWO, "what began is brought to its end"
    lost = due_change([look(TWO), look(TWO, sure=False)], 2)
    assert lost is not None
    assert lost.settled == TWO
    assert lost.doubted == {1}
    assert not lost.moves_all
    late = due_change([look(TWO), nothing], 2)
    assert late is not None
    assert late.doubted == {1}


OF_ALL = "slots at_once 4;tokens rate 1 6;spend quota 8 day 0"


async def test_another_slice_than_the_first_admits_only_for_whoever_has_a_part_of_limits_of_all(sliced: Sliced) -> None:
    await sliced.create(OF_ALL)
    await sliced.pin(TWO)
    first, second = sliced.parts
    for amounts in ("slots=1", "tokens=1", "spend=1"):
        assert await second.admit("s.1", amounts, key=THERE) == "parts"
    many = [HoldCall("admit", f"s.{n}", THERE, "slots=1", 5000) for n in (2, 3)]
    assert (await second.call("s", *many)).answers == ("parts", "parts")
    assert await second.admit("s.4", "slots=2,tokens=2&", key=THERE) == "held"
    assert await second.admit("s.5", "slots=9&", key=THERE) == "never 3 slots key"
    assert (await second.taken("slots"), (await second.look()).admitted) == (2, 0)
    assert await first.admit("s.6", "slots=1", key=HERE) == "held", "the first slice has all that bounds its keys"


async def test_a_renewal_says_whether_a_hold_has_a_part(sliced: Sliced) -> None:
    await sliced.create(OF_ALL.replace("spend quota 8", f"spend quota {1 << 52}"))
    await sliced.pin(TWO)
    first, second = sliced.parts
    assert await second.admit("s.1", "spend=1", key=THERE) == "held"
    assert await second.admit("s.2", "spend=1,slots=1&", key=THERE) == "held"
    assert await first.admit("s.3", "slots=1", key=HERE) == "held"
    assert await second.one("renew", "s.1") == "ok"
    assert await second.one("renew", "s.2") == "parts"
    assert await first.one("renew", "s.3") == "ok"


async def test_shadow_limits_of_all_keys_are_the_first_slices_and_those_of_each_key_its_own(sliced: Sliced) -> None:
    shadow = "slots at_once 2;tokens rate 1 2;spend quota 2 day 0"
    await sliced.create(LIMITS, shadow_limits=shadow, shadow_key_limits="slots at_once 1")
    await sliced.pin(TWO)
    first, second = sliced.parts
    for amounts in ("slots=1", "tokens=1", "spend=1"):
        assert await second.admit("s.1", amounts, key=THERE) == "parts"
    for number in (2, 3, 4):
        assert await second.admit(f"s.{number}", "slots=1,tokens=1,spend=1&", key=THERE) == "held"
        assert await first.admit(f"s.9{number}", "slots=1,tokens=1,spend=1", key=f"%.{THERE}") == "held"
    assert await second.one("renew", "s.2") == "ok", "a shadow limit ends no hold"
    found = await second.look()
    assert (found.shadows, found.would_wait, found.shadowed) == ((), 2, ("slots:key:2:2",))
    found = await first.look()
    assert (found.would_wait, sorted(found.shadowed)) == (1, ["slots:all:1:1", "spend:all:1:1", "tokens:all:1:1"])
    assert await first.one("settle", "s.94", "tokens=0,spend=0") == "ok"
    assert await second.one("settle", "s.4", "tokens=0,spend=0") == "ok"
    shadows = {row.split(" ")[0]: int(row.split(" ")[5]) for row in (await first.look()).shadows}
    assert shadows == {"slots": 3, "S_tokens": 2, "S_spend": 2}
    keys = [f"{part.address.key}:ledger" for part in sliced.parts]
    ledgers = [str(await first.server.command(key.encode(), "XRANGE", key, "-", "+")) for key in keys]
    assert ["S_slots at_once 2" in text for text in ledgers] == [True, False]
    assert ["S_slots at_once 1" in text for text in ledgers] == [True, True]


async def test_parts_of_keys_are_bounded_together_and_by_no_limit_of_a_key(sliced: Sliced) -> None:
    await sliced.create(OF_ALL)
    await sliced.pin(TWO)
    first, second = sliced.parts
    assert await second.admit("s.1", "slots=1", key=f"%.{HERE}") == "moved", "parts are at the first slice alone"
    assert await first.admit("s.1", "slots=3", key=f"%.{THERE}") == "held"
    assert await first.admit("s.2", "slots=1", key=f"%.{THERE}") == "held", "limits of each key are its slice's"
    assert (await first.admit("s.3", "slots=1", key=HERE)).startswith("late - slots all")
    assert (await first.admit("s.4", "slots=1")).startswith("late - slots all")
    levels = await first.look()
    assert (levels.keys, levels.admitted, levels.limits[0]) == (0, 2, "slots at_once 4 0 0 4 0")
    assert await first.release("s.1") == "ok"
    assert await first.admit("s.5", "slots=3", key=HERE) == "held"
    assert (await first.look()).keys == 1


async def test_parts_wait_in_turn_by_the_weight_and_the_band_of_their_key(sliced: Sliced) -> None:
    await sliced.create(OF_ALL, "", key_weights=f"{THERE}=3;late-*=1", unknown_keys="refuse", bands="late-*=6")
    await sliced.pin(TWO)
    first = sliced.first
    assert await first.admit("s.1", "slots=4", key=f"%.{THERE}") == "held", "its name is among those that are allowed"
    assert await first.admit("s.2", "slots=1", key="%.nobody") == "key"
    assert (await first.admit("s.3", "slots=1", key="%.late-1", wait_ms=9000)).startswith("wait ")
    assert (await first.admit("s.4", "slots=4", key=f"%.{THERE}", wait_ms=9000)).startswith("wait ")
    assert await first.release("s.1") == "ok"
    assert await first.admit("s.4", "slots=4", key=f"%.{THERE}") == "held", "its band goes first"
    assert (await first.admit("s.3", "slots=1", key="%.late-1")).startswith("wait ")


async def test_parts_stay_where_they_are_when_keys_move(sliced: Sliced) -> None:
    await sliced.create(OF_ALL)
    await sliced.pin(TWO)
    for number in range(4):
        assert await sliced.first.admit(f"s.9{number}", "tokens=1", key=f"%.k{number}") == "held"
    assert await sliced.first.admit("s.1", "slots=2", key=f"%.{THERE}") == "held"
    assert await sliced.bring(sliced.first, sliced.second, TWO) == []
    await sliced.pin(Pins(3, 1, 2))
    assert await sliced.first.admit("s.2", "slots=1", key=f"%.{THERE}") == "held", "also while keys are on their way"
    assert await sliced.bring(sliced.first, sliced.second, Pins(3, 1, 2)) == []
    await sliced.pin(ONE)
    assert await sliced.first.admit("s.3", "slots=1", key=THERE) == "held", "a whole one counts beside parts"
    assert await sliced.first.taken("slots") == 4
    assert await sliced.first.taken("slots", THERE) == 1

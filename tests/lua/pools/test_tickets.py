"""Over all slices, too, a ticket lets one message go above the limit, and what it took is paid back first."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.names import encode_name
from headgate.redis.stores.pools import Share
from headgate_coordinator.deadlock.tickets import give_ticket
from tests.lua.place import Producer
from tests.lua.pool_world import Counted, MessagesWorld, PoolWorld, Runner, SlicedWorld
from tests.lua.pool_world import held as holding
from tests.lua.pools.pool_actions import ACTIONS, LOSSES, QUIET, act, live
from tests.support.extent import examples
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server

FIRST, SECOND, THIRD = "orders", "orders%.1", "orders%.2"
LARGEST = 90
"""Of the messages here: what may be above the limit."""


class TicketWorld(SlicedWorld):
    """A queue over three slots, with a limit of 100 bytes, in which deadlocks are found."""

    async def fill(self, name: str, size: int) -> Producer:
        """Have so much pending at a slice, and nothing else in hand there."""
        producer = self.places[name].producer("filler")
        await producer.ask(need=size)
        await self.run(name)
        await producer.renew()
        await producer.publish(size)
        await self.pools.give_back(self.places[name].address, encode_name(self.pool.name))
        return producer

    async def wait_at(self, name: str, size: int, session: str = "s") -> int:
        """Have a session wait with such a message; returns since when."""
        await self.places[name].producer(session).ask(need=size)
        return int((await self.places[name].look()).sessions[session]["since"])

    async def ticket(self, name: str, since: int, session: str = "s") -> str:
        return await give_ticket(self.pools, self.places[name].address, session, since=since)

    async def eat(self, name: str, most: int = 256) -> None:
        """Settle the oldest messages of a slice."""
        consumer = await self.places[name].consumer("zoe")
        await consumer.accept(*await consumer.fetch(messages=most))
        await consumer.detach()

    async def steps(self, name: str) -> None:
        """Take the steps that the client of who waits there takes within a second."""
        asked = set[str]()
        for _ in range(3):
            await self.pools.step(self.places[name].address, encode_name(self.pool.name), lambda *_: None, asked)

    async def levels(self) -> list[int]:
        """Return what is pending and leased at each slice."""
        return [await self.used(place) for place in self.places.values()]

    async def overdrawn(self, name: str) -> int:
        return (await self.look(name)).overdrawn

    async def check(self) -> None:
        """One message is above the limit at the most, and nothing is lent while it is."""
        held = await self.slices()
        assert sum(held.values()) <= 100 + LARGEST, held
        fields = await self.store.fields(self.pool)
        if fields:
            members = await self.store.members(self.pool)
            assert int(fields["granted_bytes"]) == sum(share.held for share in members) <= 100 + LARGEST


@pytest.fixture
async def sliced(redis_url: str, namespace: str) -> AsyncIterator[TicketWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = TicketWorld(server, namespace)
    await world.open()
    yield world
    await world.close()
    await server.close()


async def full(world: TicketWorld) -> None:
    """Have all slices full, each with messages of its own."""
    for name, size in ((FIRST, 40), (SECOND, 40), (THIRD, 20)):
        await world.fill(name, size)
    assert await world.levels() == [40, 40, 20]


async def test_of_all_slices_one_message_goes_above_the_limit(sliced: TicketWorld) -> None:
    """Mutants: a pool lends whatever is above its limit; it lends nothing above it."""
    await full(sliced)
    since = {name: await sliced.wait_at(name, 30) for name in sliced.places}
    assert await sliced.ticket(SECOND, since[SECOND]) == "OK"
    assert await sliced.levels() == [40, 70, 20]
    assert await sliced.ticket(FIRST, since[FIRST]) == "ABOVE"
    assert await sliced.ticket(THIRD, since[THIRD]) == "ABOVE"
    assert await sliced.ticket(SECOND, since[SECOND]) == "GONE"
    assert await sliced.levels() == [40, 70, 20]


async def test_it_is_credit_and_the_message_goes(sliced: TicketWorld) -> None:
    """Mutant: what it is lent counts as credit of before a limit was lowered, and covers nothing beside others."""
    await sliced.fill(FIRST, 100)
    since, producer = await sliced.wait_at(FIRST, 30), sliced.producers[FIRST]
    assert await sliced.ticket(FIRST, since) == "OK"
    assert (await producer.ask(need=30)).granted == 30
    await producer.publish(30)
    assert await sliced.levels() == [130, 0, 0]


@pytest.mark.parametrize("waits_at", [FIRST, THIRD])
async def test_what_it_took_is_paid_back_before_anybody_goes_on(sliced: TicketWorld, waits_at: str) -> None:
    """Mutants: who waits at its slice goes on with it; what was lent above the limit is not noted with the ticket."""
    await full(sliced)
    since = await sliced.wait_at(FIRST, 30)
    assert await sliced.ticket(FIRST, since) == "OK"
    await sliced.producers[FIRST].ask(need=30)
    await sliced.producers[FIRST].publish(30)
    await sliced.wait_at(waits_at, 20, "next")
    await sliced.steps(waits_at)
    assert sum(await sliced.levels()) == 130
    await sliced.clock(4000)  # what others ask for is owed no longer, and this is
    await sliced.wait_at(waits_at, 20, "next")
    await sliced.eat(FIRST, 1)  # 40 bytes: 30 of them are owed
    assert sum(await sliced.levels()) == 90
    for _ in range(2):
        await sliced.steps(waits_at)
    assert sum(await sliced.levels()) == 90
    await sliced.eat(SECOND)
    for _ in range(3):
        await sliced.clock(300)
        await sliced.wait_at(waits_at, 20, "next")
        await sliced.steps(waits_at)
    assert sum(await sliced.levels()) == 70
    assert await sliced.overdrawn(FIRST) == 0
    await sliced.check()


async def test_another_slice_may_pay_it_back(sliced: TicketWorld) -> None:
    """Mutant: the slice with the ticket owes it although the pool is within its limit again."""
    await full(sliced)
    assert await sliced.ticket(FIRST, await sliced.wait_at(FIRST, 30)) == "OK"
    before = await sliced.look(FIRST)
    assert before.overdrawn == before.returned + 30
    await sliced.eat(SECOND)
    await sliced.wait_at(FIRST, 10, "next")
    for _ in range(2):
        await sliced.steps(FIRST)
    assert await sliced.levels() == [80, 0, 20]
    now = await sliced.look(FIRST)
    assert (now.overdrawn, now.returned) == (0, before.returned)
    fields = await sliced.server.command(
        sliced.places[FIRST].address.shared[0], "HMGET", sliced.places[FIRST].address.key, "rules", "overdrawn_bytes"
    )
    assert fields == [b"=orders%.0 3", None], "it is as cheap as before"


async def test_the_next_ticket_goes_once_it_is_paid_back(sliced: TicketWorld) -> None:
    """Mutant: nobody asks what came free since."""
    await full(sliced)
    assert await sliced.ticket(FIRST, await sliced.wait_at(FIRST, 30)) == "OK"
    since = await sliced.wait_at(THIRD, 60)
    assert await sliced.ticket(THIRD, since) == "ABOVE"
    await sliced.eat(FIRST, 1)
    assert await sliced.ticket(THIRD, since) == "OK"
    assert await sliced.levels() == [30, 40, 80]
    await sliced.check()


async def test_what_was_lent_for_a_message_that_went_another_way_goes_back(sliced: TicketWorld) -> None:
    """Whoever gave it may die before that. Mutants: it stays where it was lent; who waits there goes on with it."""
    await full(sliced)
    await sliced.wait_at(FIRST, 30)
    held = await sliced.look(FIRST)
    drawn = await sliced.store.draw(sliced.pool, FIRST, replace(held, need=held.granted + 30), with_ticket=True)
    assert drawn.overdrawn == drawn.returned + 30
    await sliced.steps(FIRST)  # of who waits there, who hears of it first
    assert await sliced.levels() == [40, 40, 20]
    assert sum((await sliced.slices()).values()) == 100
    assert int((await sliced.store.fields(sliced.pool))["granted_bytes"]) == 100
    assert await sliced.ticket(THIRD, await sliced.wait_at(THIRD, 30)) == "OK"


async def test_who_asks_for_it_elsewhere_has_it_back_too(sliced: TicketWorld) -> None:
    """Mutant: the pool's record of a member does not say what is above the limit."""
    await full(sliced)
    await sliced.wait_at(FIRST, 30)
    held = await sliced.look(FIRST)
    await sliced.store.draw(sliced.pool, FIRST, replace(held, need=held.granted + 30), with_ticket=True)
    await sliced.wait_at(THIRD, 30)
    await sliced.steps(THIRD)
    assert await sliced.levels() == [40, 40, 20]
    assert int((await sliced.store.fields(sliced.pool))["granted_bytes"]) == 100


async def test_a_reply_that_was_lost_lends_it_once(sliced: TicketWorld) -> None:
    await full(sliced)
    since = await sliced.wait_at(FIRST, 30)
    held = await sliced.look(FIRST)
    need = replace(held, need=held.granted + 30)
    assert [(await sliced.store.draw(sliced.pool, FIRST, need, with_ticket=True)).granted for _ in range(2)] == [
        need.need
    ] * 2
    assert await sliced.ticket(FIRST, since) == "OK"
    assert await sliced.levels() == [70, 40, 20]


async def test_a_late_answer_does_not_say_that_nothing_is_above(sliced: TicketWorld) -> None:
    """Mutant: what a slice is told of before the ticket counts."""
    await full(sliced)
    held = await sliced.look(FIRST)
    before = await sliced.store.draw(sliced.pool, FIRST, held)
    assert await sliced.ticket(FIRST, await sliced.wait_at(FIRST, 30)) == "OK"
    owed = await sliced.overdrawn(FIRST)
    late = Share(FIRST, held.epoch, before.granted, before.returned, overdrawn=before.overdrawn)
    now = await sliced.store.slice(sliced.places[FIRST].address, "orders%.0", share=late, pool_epoch=before.pool_epoch)
    assert now.overdrawn == owed > 0


async def test_no_pool_that_destinations_share_lends_above_its_limit(world: PoolWorld) -> None:
    """Mutant: any pool lends with a ticket."""
    await world.open()
    await holding(world, b=80)
    held = await world.look("a")
    drawn = await world.store.draw(world.pool, "a", replace(held, need=held.granted + 60), with_ticket=True)
    assert (drawn.code, drawn.granted) == ("OK", held.granted)


async def test_a_pool_that_forgot_it_gives_no_other(sliced: TicketWorld) -> None:
    """Mutant: a slice is told that nothing is above the limit by a pool that does not know."""
    await full(sliced)
    assert await sliced.ticket(FIRST, await sliced.wait_at(FIRST, 30)) == "OK"
    await act(sliced, ("lose pool",))
    since = await sliced.wait_at(THIRD, 30)
    assert await sliced.ticket(THIRD, since) != "OK", "nothing is lent before all were asked"
    await sliced.clock(1000)
    await sliced.rebuild()
    assert await sliced.ticket(THIRD, since) == "ABOVE"
    await sliced.wait_at(FIRST, 30, "next")
    await sliced.steps(FIRST)
    await sliced.eat(FIRST, 1)
    for _ in range(2):
        await sliced.steps(FIRST)
    assert await sliced.levels() == [30, 40, 20], "of the 40 that came free it pays back 30"


async def test_a_limit_that_is_lowered_is_not_what_it_owes(sliced: TicketWorld) -> None:
    """Mutant: it owes all by which the pool is above its limit."""
    await full(sliced)
    assert await sliced.ticket(FIRST, await sliced.wait_at(FIRST, 30)) == "OK"
    owed = await sliced.overdrawn(FIRST)
    await sliced.store.set(sliced.pool, {"limit_bytes": "50"})
    for place in sliced.places.values():
        await place.change(limit_bytes="50")
    await sliced.wait_at(FIRST, 10, "next")
    await sliced.steps(FIRST)
    assert await sliced.overdrawn(FIRST) == owed
    assert await sliced.ticket(THIRD, await sliced.wait_at(THIRD, 30)) == "ABOVE"


@pytest.fixture
async def counted(redis_url: str, namespace: str) -> AsyncIterator[MessagesWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = MessagesWorld(server, namespace)
    await world.open(limit=3)
    yield world
    await world.close()
    await server.close()


async def test_messages_are_limited_like_bytes(counted: MessagesWorld) -> None:
    """Mutant: only bytes are lent with a ticket."""
    since = {}
    for name, place in counted.places.items():
        await place.change(limit_messages="3")
        await counted.producers[name].ask(need=1)
        await counted.run(name)
        await counted.pools.give_back(place.address, "orders%.m")
    assert [await counted.used(place) for place in counted.places.values()] == [1, 1, 1]
    for name, place in counted.places.items():
        place.sessions.add("next")
        await Counted(place, "next").ask(need=1)
        since[name] = int((await place.look()).sessions["next"]["since"])
    codes = [
        await give_ticket(counted.pools, place.address, "next", since=since[name])
        for name, place in counted.places.items()
    ]
    assert codes == ["OK", "ABOVE", "ABOVE"]
    assert [await counted.used(place) for place in counted.places.values()] == [2, 1, 1]
    place = counted.places[FIRST]
    await counted.clock(4000)
    place.sessions.add("last")
    await Counted(place, "last").ask(need=1)
    await counted.producers[FIRST].give_back(1)  # it is paid back with what comes free
    assert await counted.used(place) == 1


MORE = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc"), st.integers(1, LARGEST)),
    st.tuples(st.just("ticket"), st.sampled_from("abc")),
    st.tuples(st.just("ticket"), st.sampled_from("abc")),
    st.tuples(st.just("lend"), st.sampled_from("abc"), st.integers(1, LARGEST)),
    st.tuples(st.just("steps"), st.sampled_from("abc")),
    st.tuples(st.just("send"), st.sampled_from("abc")),
    st.tuples(st.just("eat"), st.sampled_from("abc")),
)


async def do(world: TicketWorld, action: tuple[Any, ...]) -> None:
    what, *rest = action
    name = list(world.places)["abc".index(rest[0])] if what in ("ticket", "lend", "steps", "send", "eat") else ""
    if what == "ticket":
        record = (await world.places[name].look()).sessions.get("s")
        if record and int(record["since"]):
            await world.ticket(name, int(record["since"]))
    elif what == "lend":  # by one that dies then
        held = await world.look(name)
        await world.store.draw(world.pool, name, replace(held, need=held.granted + rest[1]), with_ticket=True)
    elif what == "steps":
        await world.clock(300)
        await world.steps(name)
    elif what == "send":
        producer = world.producers[name]
        await producer.renew()
        await producer.send_held()
    elif what == "eat":
        await world.eat(name, 1)
    else:
        await act(world, action)


@settings(QUIET, max_examples=examples(25))
@given(actions=st.lists(st.one_of(MORE, MORE, ACTIONS), min_size=15, max_size=50))
def test_no_order_of_steps_has_two_above_the_limit(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(TicketWorld(runner.server, runner.another()[1]), actions, do))


@settings(QUIET, max_examples=examples(15))
@given(actions=st.lists(st.one_of(MORE, LOSSES), min_size=15, max_size=40))
def test_nor_does_any_loss_of_state(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(TicketWorld(runner.server, runner.another()[1]), actions, do))

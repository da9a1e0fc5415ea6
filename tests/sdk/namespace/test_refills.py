"""A refill looks again as slices announce that it is worth while, and hardly without."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.namespace.pool_refills import ALL, Refills
from headgate.redis.backend import AGAIN, Listener, Words
from headgate.redis.keys import Address
from tests.simulation.loop import VirtualLoop
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

POOL, MEMBER = "orders%.0", "orders%.1"
CHANNEL = f"hg:{{shop/{POOL}}}:wake"


class Announcing:
    """What slices announce, without any."""

    def __init__(self) -> None:
        self.listeners: dict[str, Listener] = {}

    async def subscribe(self, channels: tuple[str, ...], listener: Listener, words: Words = None) -> None:
        del words
        self.listeners |= dict.fromkeys(channels, listener)

    async def unsubscribe(self, channels: tuple[str, ...], listener: Listener) -> None:
        del listener
        for channel in channels:
            del self.listeners[channel]

    def sure(self, channels: tuple[str, ...]) -> bool:
        return bool(channels)

    def tell(self, channel: str, words: list[str]) -> None:
        self.listeners[channel](words)

    async def close(self) -> None:
        self.listeners.clear()


@dataclass
class Waiter:
    """A destination that lacks something of its pool, at some place in the line."""

    announcing: Announcing = field(default_factory=Announcing)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    steps: int = 0
    lacks: bool = True
    all_asked: bool = True

    async def step(self, address: Address, name: str, tell: object, asked: set[str]) -> bool:
        del address, name, tell
        self.steps += 1
        if self.all_asked:
            asked.add(ALL)
        await asyncio.sleep(0)
        return not self.lacks

    async def looks_again(self) -> bool:
        """Return whether it does, some rounds of all that there is to do later."""
        before = self.steps
        await asyncio.sleep(0.15)
        return self.steps > before


@pytest.fixture
async def waiter(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Waiter, Refills]]:
    for name in ("_FIRST_LOOKS", "_OTHERS_LOOK", "PATIENCE"):
        monkeypatch.setattr(f"headgate.namespace.pool_refills.{name}", 60.0)
    one = Waiter()
    refills = Refills("shop", one.announcing, one.step, one.places)
    yield one, refills
    await refills.close()


async def begins(one: Waiter, refills: Refills, place: int, name: str = POOL) -> None:
    one.places[MEMBER, name] = place
    assert refills.begin(Address.of("shop", "orders#1"), name, lambda *_: None, None)
    await wait_until(lambda: one.steps >= 2, description="a step after the first one")


async def test_the_first_in_line_looks_as_something_is_free(waiter: tuple[Waiter, Refills]) -> None:
    """Mutants: it looks all the time; never; or as another is first."""
    one, refills = waiter
    await begins(one, refills, 1)
    assert not await one.looks_again()
    one.announcing.tell(CHANNEL, ["first", MEMBER])
    assert await one.looks_again()
    for words in (["free"], [AGAIN]):
        one.announcing.tell(CHANNEL, words)
        assert await one.looks_again(), words
        assert not await one.looks_again()
    one.lacks = False
    assert not refills.begin(Address.of("shop", "orders#1"), POOL, lambda *_: None, None)
    assert await one.looks_again(), "its account asked"


async def test_who_is_behind_looks_as_it_is_first(waiter: tuple[Waiter, Refills]) -> None:
    """Mutants: it looks as something is free, which is not for it; not as it is first."""
    one, refills = waiter
    await begins(one, refills, 2)
    one.announcing.tell(CHANNEL, ["free"])
    assert not await one.looks_again()
    one.announcing.tell(CHANNEL, ["first", MEMBER])
    assert await one.looks_again()
    one.announcing.tell(CHANNEL, ["free"])
    assert await one.looks_again()


async def test_other_pools_are_looked_at_often(waiter: tuple[Waiter, Refills]) -> None:
    """Mutant: what nobody announces is waited for."""
    one, refills = waiter
    await begins(one, refills, 1, "memory")
    await wait_until(lambda: one.steps >= 4, description="more looks")
    assert not one.announcing.listeners


async def test_it_listens_as_long_as_it_has_something_of_the_pool(waiter: tuple[Waiter, Refills]) -> None:
    one, refills = waiter
    await begins(one, refills, 1)
    await refills.hear_only({POOL})
    assert list(one.announcing.listeners) == [CHANNEL]
    await refills.hear_only(set())
    assert not one.announcing.listeners


async def test_who_is_served_at_its_slice_asks_no_other(waiter: tuple[Waiter, Refills]) -> None:
    """Mutants: it asks at once while slices stand in line; though it was served meanwhile; or for those behind it."""
    one, refills = waiter
    await begins(one, refills, 1)
    before, waits = one.steps, ["first"]
    other = Address.of("shop", "orders#2")

    def begin() -> bool:
        return refills.begin(other, POOL, lambda *_: None, None, lambda: waits[-1])  # type: ignore[arg-type, return-value]

    assert begin()
    await asyncio.sleep(0)
    assert one.steps == before, "as a rule what is settled there is enough"
    waits.append("others")
    assert not await one.looks_again()
    assert not begin(), "it goes on, though not first"
    assert not await one.looks_again()
    one.places["orders%.2", POOL] = 2
    one.announcing.tell(CHANNEL, ["first", "orders%.2"])
    assert not await one.looks_again(), "whoever is first there does"
    waits.append("first")
    assert not begin()
    assert await one.looks_again()
    waits.append("others")
    assert not begin()
    assert not await one.looks_again()


async def test_it_leaves_the_line_once_nobody_waits(waiter: tuple[Waiter, Refills]) -> None:
    """Mutants: it stays there; it looks where it is not; or it goes on after that."""
    one, refills = waiter
    await begins(one, refills, 1)
    other, key = Address.of("shop", "orders#2"), ("orders%.2", POOL)
    assert refills.begin(other, POOL, lambda *_: None, None, lambda: "nobody")
    assert not await one.looks_again(), "it is in no line"
    one.places[key], one.lacks = 1, False
    assert refills.begin(other, POOL, lambda *_: None, None, lambda: "nobody"), "the one before is over"
    assert await one.looks_again()
    assert refills.begin(other, POOL, lambda *_: None, None, lambda: "nobody"), "this one too"


async def test_those_that_do_not_wait_hear_soon(waiter: tuple[Waiter, Refills]) -> None:
    """Mutant: they are left to whoever is first."""
    one, refills = waiter
    await begins(one, refills, 1)
    other, asked = Address.of("shop", "orders#2"), asyncio.Event()
    assert refills.begin(other, POOL, lambda *_: None, None, lambda: "others")
    assert not refills.begin(other, POOL, lambda *_: None, asked.set, lambda: "others")
    async with asyncio.timeout(10):
        await asked.wait()


async def test_those_behind_look_now_and_then(waiter: tuple[Waiter, Refills], monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: only hints have them look; or they look all the time."""
    one, refills = waiter
    await begins(one, refills, 1)
    one.all_asked = False
    other = Address.of("shop", "orders#2")
    one.places["orders%.2", POOL] = 1
    monkeypatch.setattr("headgate.namespace.pool_refills._OTHERS_LOOK", 0.05)
    assert refills.begin(other, POOL, lambda *_: None, None, lambda: "others")
    await wait_until(lambda: one.steps >= 3, description="a look of its own")
    assert not await one.looks_again(), "the next is one of the first in the pool's line"


async def test_another_is_first_where_one_was(waiter: tuple[Waiter, Refills]) -> None:
    """Mutant: what is free is for both."""
    one, refills = waiter
    await begins(one, refills, 1)
    one.announcing.tell(CHANNEL, ["first", "orders%.7"])
    one.announcing.tell(CHANNEL, ["free"])
    assert not await one.looks_again()
    one.announcing.tell(CHANNEL, ["first", MEMBER])
    one.announcing.tell(CHANNEL, ["free"])
    assert await one.looks_again()


def steps_at(
    one: Waiter, name: str, place: int, *, hints: Sequence[float] = (), asks: Sequence[float] = ()
) -> list[float]:
    """Return when a refill takes its steps, in seconds of virtual time from its first on, 0.6 s of them.

    Args:
        one: the waiter; ``announcing`` is heard where it stands in the line of a pool of slices.
        name: the pool.
        place: in its line.
        hints: when it is announced that it is first.
        asks: when somebody there asks who does not wait.
    """
    loop, address, at = VirtualLoop(), Address.of("shop", "orders#1"), list[float]()

    async def step(*to: Any) -> bool:
        at.append(round(loop.time() - began, 3))
        return await one.step(*to)

    async def run() -> None:
        refills = Refills("shop", one.announcing, step, one.places)
        one.places[MEMBER, name] = place
        refills.begin(address, name, lambda *_: None, None)
        for when in hints:
            loop.call_later(when, one.announcing.tell, CHANNEL, ["first", MEMBER])
        for when in asks:
            loop.call_later(when, refills.begin, address, name, lambda *_: None, lambda: None)
        await asyncio.sleep(0.6)
        await refills.close()

    began = loop.time()
    try:
        loop.run_until_complete(run())
    finally:
        loop.bury()
    return at


def test_it_pauses_longer_and_longer_until_slices_say_what_is_worth_a_step() -> None:
    """Mutants: no pause; one that does not grow, or grows for ever; that of slices for others, or the other way."""
    assert steps_at(Waiter(), "memory", 1) == [0.0, 0.02, 0.06, 0.14, 0.3, 0.5]
    assert steps_at(Waiter(all_asked=False), POOL, 0) == [0.0, 0.02, 0.06, 0.14, 0.3, 0.5], "in no line"
    first = steps_at(Waiter(all_asked=False), POOL, 1)
    assert first == pytest.approx([0.0, *(0.02 + 0.04 * number for number in range(15))]), "not all were asked yet"


def test_one_step_is_for_all_that_slices_say_in_a_moment() -> None:
    """Mutants: each is worth a step; the moment begins anew with each; those that do not wait wait for it too."""
    first = steps_at(Waiter(), POOL, 2)
    heard = steps_at(Waiter(), POOL, 2, hints=[0.2, 0.21, 0.23])
    assert heard == [*first, 0.24]
    assert steps_at(Waiter(), POOL, 2, asks=[0.2]) == [*first, 0.2]

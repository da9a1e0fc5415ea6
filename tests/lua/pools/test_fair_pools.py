"""A pool serves who waits by weighted max-min: what each holds is what water poured into the demands would give."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

from headgate.core.names import encode_name
from headgate.redis.stores.pools import Slice
from tests.lua.place import Producer
from tests.lua.pool_world import PoolWorld, SlicedWorld
from tests.support.extent import WHOLE

pytestmark = pytest.mark.one_server

MESSAGE: Final = 10
"""Bytes of each message here."""


def water_fill(limit: float, demands: Mapping[str, float], weights: Mapping[str, int]) -> dict[str, float]:
    """Return weighted max-min shares of ``limit``: the oracle, by filling and freezing whoever has enough."""
    shares: dict[str, float] = {}
    left = {name: demand for name, demand in demands.items() if demand}
    while left:
        level = (limit - sum(shares.values())) / sum(weights[name] for name in left)
        full = {name: demand for name, demand in left.items() if demand <= level * weights[name]}
        shares |= full or {name: level * weights[name] for name in left}
        left = {name: demand for name, demand in left.items() if full and name not in full}
    return {name: shares.get(name, 0) for name in demands}


def test_the_oracle_fills_who_wants_little_and_shares_the_rest() -> None:
    weights = {"a": 1, "b": 1, "c": 2}
    assert water_fill(100, {"a": 10, "b": 90, "c": 90}, weights) == {"a": 10, "b": 30, "c": 60}
    assert water_fill(100, {"a": 10, "b": 20, "c": 0}, weights) == {"a": 10, "b": 20, "c": 0}


@dataclass
class Crowd:
    """Senders at the destinations of a pool: each waits for one message, has it for some rounds, and waits again."""

    world: PoolWorld
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    senders: dict[str, list[Producer]] = field(default_factory=dict)
    asked: dict[str, set[str]] = field(default_factory=dict)

    async def want(self, **demands: int) -> None:
        """Have so many senders at each destination from now on."""
        for name, count in demands.items():
            own = self.senders.setdefault(name, [])
            own += [self.world.places[name].producer(f"s{n}") for n in range(len(own), count)]
            while len(own) > count:
                await own.pop().leave()

    async def round(self) -> dict[str, int]:
        """Let some messages be consumed, all others wait or ask; returns the bytes that each destination holds."""
        await self.world.clock(50)
        for own in self.senders.values():
            for sender in own:
                if sender.held and self.dice.random() < 0.3:
                    await sender.give_back(sender.held)
                elif not sender.held:
                    await sender.ask(need=MESSAGE)
        for name in self.dice.sample(sorted(self.senders), len(self.senders)):
            lacking = self.asked.setdefault(name, set())
            if await self.world.pools.step(
                self.world.places[name].address, encode_name(self.world.pool.name), lambda *_: None, lacking
            ):
                lacking.clear()
        return await self.world.slices()

    async def shares(self, rounds: int = 25) -> dict[str, float]:
        """Return what each holds on the average, once what was before is forgotten."""
        for _ in range(20):
            await self.round()
        seen = [await self.round() for _ in range(rounds)]
        await self.world.check()
        return {name: sum(held[name] for held in seen) / rounds for name in seen[0]}


async def expect(crowd: Crowd, limit: int, weights: Mapping[str, int], **demands: int) -> None:
    await crowd.want(**demands)
    shares = await crowd.shares()
    ideal = water_fill(limit, {name: MESSAGE * count for name, count in demands.items()}, weights)
    for name, share in ideal.items():
        assert share - 1.5 * MESSAGE <= shares[name] <= share + 1.5 * MESSAGE, (name, shares, ideal)


@pytest.mark.whole  # fifty against four, as twenty against two below
async def test_fifty_who_wait_get_no_more_than_four_at_another_destination(world: PoolWorld) -> None:
    await world.open(60)
    crowd = Crowd(world)
    await expect(crowd, 60, {"a": 1, "b": 1}, a=50, b=4)


@pytest.mark.longest
async def test_shares_follow_weights_and_demands_as_these_change(world: PoolWorld) -> None:
    """Mutant: the line does not look at weights."""
    await world.open(200)
    crowd, weights = Crowd(world), {"a": 1, "b": 1, "c": 1}
    await expect(crowd, 200, weights, a=20, b=2, c=20)
    if WHOLE:
        await expect(crowd, 200, weights, a=20, b=20, c=1)
    await world.places["c"].change(pool_weight="2")
    await expect(crowd, 200, weights | {"c": 2}, a=20, b=20, c=20)


async def rounds(world: PoolWorld, early: str, late: str, limit: int) -> int:
    """Return after how many rounds one place has a quarter of what another had, where senders wait for all there is."""
    size, asked = limit // 50, {early: set[str](), late: set[str]()}
    senders, other = [world.places[early].producer(f"s{number}") for number in range(50)], world.producers[late]

    async def step(name: str) -> bool:
        encoded = encode_name(world.pool.name)
        return await world.pools.step(world.places[name].address, encoded, lambda *_: None, asked[name])

    for sender in senders:
        await sender.ask(need=size)
        await world.run(early)
    assert (await world.slices())[early] == limit
    for number in range(1, 100):
        await world.clock(50)
        for sender in senders[number % 10 :: 10]:
            await sender.give_back(sender.held)
            await sender.ask(need=size)
        await step(early)
        goes_on = True
        while goes_on:
            await other.ask(need=other.held + MESSAGE, window=limit, weight=len(senders))
            goes_on = await step(late)
        await world.check()
        if (await world.slices())[late] >= limit // 4:
            return number
    raise AssertionError(await world.slices())


async def test_whoever_comes_late_to_a_full_pool_soon_has_its_share(world: PoolWorld) -> None:
    """Mutant: others owe the first in line a message at a time."""
    await world.open(10_000)
    assert await rounds(world, "a", "b", 10_000) <= 12


@asynccontextmanager
async def slices(world: PoolWorld, limit: int) -> AsyncIterator[SlicedWorld]:
    """A queue with slices beside a world."""
    sliced = SlicedWorld(world.server, f"{world.pool.namespace}-sliced", limit)
    try:
        await sliced.open(limit)
        yield sliced
    finally:
        await sliced.close()


async def test_a_slice_that_comes_late_soon_has_its_share(world: PoolWorld) -> None:
    """Mutant: others owe a message at a time."""
    async with slices(world, 10_000) as sliced:
        assert await rounds(sliced, "orders", "orders%.1", 10_000) <= 12


async def test_a_slice_has_a_part_for_each_session_that_sends_there(world: PoolWorld) -> None:
    """Mutant: slices have equal parts, however many send to each."""
    senders = {"orders": 20, "orders%.1": 10}
    async with slices(world, 120) as sliced:
        await expect(Crowd(sliced), 120, senders, **senders)


async def draw(
    world: PoolWorld, name: str, lacks: int, *, held: int | None = None, weight: int = 1, reserved: bool = False
) -> int:
    """Ask a pool, as a destination would, for more than it holds; returns its place."""
    share = next((share for share in await world.store.members(world.pool) if share.member == name), None)
    granted, returned = (share.granted, share.returned) if share else (0, 0)
    if held is not None:
        returned = granted - held
    drawn = await world.store.draw(
        world.pool, name, Slice("OK", 1, 0, granted, returned, granted + lacks, 0, reserved, 0, weight)
    )
    return drawn.place


async def hold(world: PoolWorld, **sizes: int) -> None:
    for name, size in sizes.items():
        assert await draw(world, name, size) == 0
        await draw(world, name, 0, held=size)


@pytest.mark.parametrize(("size", "place"), [(40, 1), (41, 2)])
async def test_a_slice_goes_before_all_others_for_a_message_above_the_limit_alone(
    world: PoolWorld, size: int, place: int
) -> None:
    """Mutant: a slice that would have all with one message more is first."""
    async with slices(world, 100) as sliced:
        await hold(sliced, **{"orders": 60, "orders%.1": 40})
        assert await draw(sliced, "orders", size) == 1
        assert await draw(sliced, "orders%.1", 20) == place


async def test_the_one_that_holds_least_is_first_whoever_came_before(world: PoolWorld) -> None:
    """Mutant: whoever came first is first in line."""
    await world.open(100)
    await hold(world, a=60, b=30, c=10)
    assert await draw(world, "b", 20) == 1
    assert await draw(world, "c", 20) == 1
    assert await draw(world, "a", 20) == 3, "it holds most"
    await draw(world, "a", 0, held=40)
    assert {share.member: share.held for share in await world.store.members(world.pool)} == {"a": 40, "b": 30, "c": 30}


async def test_a_large_message_beyond_its_share_keeps_nobody_waiting_that_has_a_claim(world: PoolWorld) -> None:
    """Mutant: the first in line keeps its place although it could only be served at the expense of who holds less."""
    await world.open(100)
    await hold(world, a=30, b=60)
    assert await draw(world, "a", 50) == 1
    assert await draw(world, "b", 10) == 0, "what is free serves the small one"
    await draw(world, "b", 0, held=10)
    assert await draw(world, "a", 50) == 0, "and later the large one"


async def test_a_large_message_of_who_has_nothing_waits_for_all_that_others_hold(world: PoolWorld) -> None:
    await world.open(100)
    await hold(world, a=50, b=45)
    assert await draw(world, "c", 60) == 1
    assert await draw(world, "b", 5) == 2, "although there is room for it"


async def test_reserved_destinations_are_first_whatever_they_hold(world: PoolWorld) -> None:
    """Mutant: the reserved stand among the others."""
    await world.open(100, 10)
    await hold(world, a=50, b=40)
    assert await draw(world, "b", 5) == 1
    assert await draw(world, "a", 20, reserved=True) == 1
    assert await draw(world, "b", 5) == 2

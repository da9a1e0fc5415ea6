"""Keys of a limiter over slots beside plain numbers, while the number of slots changes, and changes break off."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headgate
from tests.sdk.observing import GUARD
from tests.support.extent import WHOLE
from tests.support.leaks import delete_namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SLOTS, TOKENS = 4, 9
KEYS = ("a", "b", "c", "d", "e")
FREE = {"slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}}
OF_KEY = {"slots": {"at_once": SLOTS}, "tokens": {"rate": "1/week", "burst": TOKENS}}
ALL_SLOTS, ALL_TOKENS = 7, 20
OF_ALL = {"slots": {"at_once": ALL_SLOTS}, "tokens": {"rate": "1/week", "burst": ALL_TOKENS}}
ACTIONS = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 1), st.sampled_from(KEYS), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("take"), st.integers(0, 1), st.sampled_from(KEYS), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 2)),
    st.tuples(st.just("hand over"), st.integers(0, 9), st.integers(0, 1)),
    st.tuples(st.just("slices"), st.sampled_from([1, 2, 3, 7, 12])),
    st.tuples(st.just("break off"), st.sampled_from([1, 2, 3, 7, 12]), st.integers(0, 12)),
)


BACK_AND_FORTH: list[tuple[Any, ...]] = [
    *[("slices", 7), ("take", 1, "e", 2, 1), ("take", 1, "e", 1, 1), ("slices", 1), ("take", 1, "a", 1, 0)],
    *[("slices", 3), ("take", 1, "e", 1, 2), ("slices", 2), ("hand over", 3, 1), ("slices", 1)],
    *[("take", 1, "d", 3, 1), ("break off", 1, 2), ("take", 1, "b", 1, 2), ("break off", 3, 10), ("hand over", 8, 1)],
    *[("end", 7, 2), ("hand over", 0, 0), ("take", 0, "a", 2, 0), ("end", 3, 1), ("end", 2, 0), ("end", 8, 1)],
    *[("take", 1, "b", 2, 0), ("hand over", 8, 0), ("end", 8, 1), ("hand over", 8, 0), ("break off", 12, 12)],
    ("take", 0, "e", 3, 0),
]
"""The first session asks for the first time once its key is where it was, and is held by nobody elsewhere any more."""
STAYS_AT_LAST: list[tuple[Any, ...]] = [
    *[("slices", 7), ("take", 0, "a", 2, 0), ("slices", 2), ("slices", 12), ("end", 0, 0), ("take", 0, "a", 3, 0)],
    *[("slices", 7), ("take", 1, "a", 1, 1), ("slices", 3), ("end", 1, 0), ("take", 1, "a", 1, 8)],
]
"""What is held, and given back, is where the key was two changes ago; the last one left it where it was."""
HEARS_OF_NO_CHANGE: list[tuple[Any, ...]] = [
    *[("take", 1, "c", 3, 0), ("take", 0, "a", 1, 0), ("slices", 7), ("take", 0, "e", 2, 0), ("take", 0, "e", 2, 0)],
    *[("end", 0, 0), ("take", 1, "a", 1, 1), ("slices", 2), ("hand over", 9, 0), ("hand over", 3, 0), ("end", 7, 2)],
    *[("slices", 2), ("end", 9, 1), ("take", 1, "c", 2, 2)],
]
"""A session tells a slice by pins of before what its key holds elsewhere, which changes nothing there."""


class Model:
    """What each key holds, and has used; with limits of all keys together or without."""

    def __init__(self, *, of_all: bool) -> None:
        self.of_all = of_all
        self.held = dict.fromkeys(KEYS, 0)
        self.used = dict.fromkeys(KEYS, 0)

    def has_room(self, key: str, slots: int, tokens: int) -> bool:
        all_held, all_used = sum(self.held.values()) + slots, sum(self.used.values()) + tokens
        if self.of_all and (all_held > ALL_SLOTS or (tokens and all_used > ALL_TOKENS)):
            return False
        return self.held[key] + slots <= SLOTS and (not tokens or self.used[key] + tokens <= TOKENS)


class Run:
    def __init__(self, client: headgate.Client, limiters: list[headgate.Limiter], *, of_all: bool) -> None:
        self.client, self.limiters = client, limiters
        self.model = Model(of_all=of_all)
        self.holds: list[tuple[headgate.Hold, str, int, int]] = []

    async def take(self, who: int, key: str, slots: int, tokens: int) -> None:
        amounts = {"slots": slots, **({"tokens": tokens} if tokens else {})}
        found: list[headgate.Hold] = []

        async def attempt() -> bool:
            decision = await self.limiters[who].attempt(key=key, **amounts)
            if isinstance(decision, headgate.Hold):
                found.append(decision)
            return bool(decision)

        if not self.model.has_room(key, slots, tokens):
            assert not await attempt(), (key, amounts)
            return
        await wait_until(attempt, timeout=GUARD, description="it has room, once what was given back is there")
        self.model.held[key] += slots
        self.model.used[key] += tokens
        self.holds.append((found[0], key, slots, tokens))

    async def end(self, index: int, tokens: int) -> None:
        if not self.holds:
            return
        hold, key, slots, reserved = self.holds.pop(index % len(self.holds))
        if reserved and hold.key is not None:  # what comes back, comes back with the next call
            hold.settle(tokens=min(tokens, reserved))
            self.model.used[key] -= reserved - min(tokens, reserved)
        hold.release()
        self.model.held[key] -= slots

    async def hand_over(self, index: int, who: int) -> None:
        if self.holds:
            hold, key, slots, tokens = self.holds.pop(index % len(self.holds))
            taken_up = await self.limiters[who].hold(await hold.hand_over())
            self.holds.append((taken_up, key, slots, tokens))

    async def slices(self, number: int) -> None:
        await self.client.apply("llm", slices=number)

    async def break_off(self, number: int, turns: int) -> None:
        """Die on the way: nothing is put in order by whoever began."""
        task = asyncio.ensure_future(self.client.apply("llm", slices=number))
        for _ in range(20 * turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


async def play(redis_url: str, namespace: str, actions: list[tuple[Any, ...]], *, of_all: bool) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(headgate.connect(redis_url, namespace=namespace))
        await client.apply("llm", kind="limiter", limits=OF_ALL if of_all else FREE, key_limits=OF_KEY)
        limiters = []
        for name in ("ann", "bob"):
            session = await stack.enter_async_context(client.session(name))
            limiters.append(await session.limiter("llm", in_hand=False))
        run = Run(client, limiters, of_all=of_all)
        for action, *arguments in actions:
            await getattr(run, action.replace(" ", "_"))(*arguments)
        await run.slices(2)  # which nothing breaks off: a state is exact once no key is on its way
        for key in KEYS:
            state = await limiters[0].state(key=key)
            assert state.key_limits["slots"].taken >= run.model.held[key]
            assert state.limits["slots"].taken >= sum(run.model.held.values())


@settings(max_examples=80 if WHOLE else 5, suppress_health_check=list(HealthCheck), deadline=None)
@given(actions=st.lists(ACTIONS, min_size=8, max_size=40))
@example(actions=BACK_AND_FORTH)
@example(actions=STAYS_AT_LAST)
@example(actions=HEARS_OF_NO_CHANGE)
def test_no_key_ever_has_more_than_its_limit_nor_less(
    redis_url: str, cleanup_namespace: str, actions: list[tuple[Any, ...]]
) -> None:
    asyncio.run(play(redis_url, cleanup_namespace, actions, of_all=False))
    delete_namespace(redis_url, cleanup_namespace)


@settings(max_examples=80 if WHOLE else 5, suppress_health_check=list(HealthCheck), deadline=None)
@given(actions=st.lists(ACTIONS, min_size=8, max_size=40))
@example(actions=BACK_AND_FORTH)
@example(actions=STAYS_AT_LAST)
@example(actions=HEARS_OF_NO_CHANGE)
def test_all_keys_together_never_have_more_than_their_limit_nor_less(
    redis_url: str, cleanup_namespace: str, actions: list[tuple[Any, ...]]
) -> None:
    asyncio.run(play(redis_url, cleanup_namespace, actions, of_all=True))
    delete_namespace(redis_url, cleanup_namespace)

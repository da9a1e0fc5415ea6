"""Shadow limits of all keys together count the keys of all slices, each admission once, and hold nobody up."""

from functools import partial
from typing import Any

import pytest

import headgate
from headgate import Hold
from headgate.core.limiting.pins import slice_of_key
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

KEYS = [f"tenant-{number}" for number in range(8)]
HERE, THERE = (next(key for key in KEYS if slice_of_key(key, 4) == at) for at in (0, 1))
FREE: dict[str, Any] = {
    "slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}, "spend": {"quota": "unlimited/month"},
}  # fmt: skip
BOUND: dict[str, Any] = {
    "slots": {"at_once": 50}, "tokens": {"rate": "1/week", "burst": 90}, "spend": {"quota": "90/month"},
}  # fmt: skip
TRIED: dict[str, Any] = {
    "slots": {"at_once": 5}, "tokens": {"rate": "1/week", "burst": 5}, "spend": {"quota": "5/month"},
}  # fmt: skip


async def counted(limiter: headgate.Limiter, key: str | None = None) -> dict[tuple[str, str], tuple[int, int, int]]:
    shadows = (await limiter.state(key=key)).shadows
    return {(one.level.name, one.rule): (one.would_wait, one.most_above, one.level.taken) for one in shadows}


async def taken_is(limiter: headgate.Limiter, name: str, number: int) -> bool:
    return (await limiter.state()).limits[name].taken == number


@pytest.mark.parametrize("limits", [FREE, BOUND], ids=["alone", "beside a real one"])
async def test_each_form_counts_the_keys_of_all_slices_and_keeps_nobody(
    client: headgate.Client, limits: dict[str, Any]
) -> None:
    await client.apply("llm", kind="limiter", limits=limits, shadow_limits=TRIED, slices=4)
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        holds = []
        for tenant in KEYS:
            hold = await llm.attempt(key=tenant, slots=1, tokens=1, spend=1)
            assert isinstance(hold, Hold)
            holds.append(hold)
        for key in (None, HERE, THERE):
            found = await counted(llm, key)
            assert {of: one[:2] for of, one in found.items()} == {(name, "all"): (3, 3) for name in TRIED}
            assert (found["slots", "all"][2], found["spend", "all"][2]) == (8, 8), "all that is taken, once"
            state = await llm.state(key=key)
            assert (state.would_wait, state.limits["slots"].taken, state.limits["spend"].taken) == (3, 8, 8)
        explanation = await client.explain("llm")
        assert explanation.limiter is not None
        assert (explanation.limiter.would_wait, explanation.limiter.keys) == (3, 8)
        assert sum(one.amounts["slots"] for one in explanation.limiter.holders) == 8
        for hold in holds:
            hold.settle(tokens=0, spend=0)
            hold.release()
        await wait_until(partial(taken_is, llm, "slots", 0), timeout=GUARD)
        assert (await counted(llm))["spend", "all"] == (3, 3, 0)
        assert (await counted(llm))["tokens", "all"] == (3, 3, 0)


async def test_what_is_held_as_a_shadow_comes_is_held_on_and_counts_once_it_binds(client: headgate.Client) -> None:
    """Mutant: a hold without a part is over, also where only a shadow limit would have it."""
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": "unlimited"}}, slices=4)
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        before = await (await llm.admit(slots=1, key=THERE)).hand_over()
        await client.apply("llm", shadow_limits={"slots": {"at_once": 2}})
        taken_up = await llm.hold(before)
        await taken_up.renew()
        holds = [await llm.admit(slots=1, key=key) for key in KEYS[:3]]
        assert (await counted(llm))["slots", "all"] == (1, 1, 3)
        await client.apply("llm", slices=2)
        holds.append(await llm.admit(slots=1, key=THERE, timeout=GUARD))
        assert (await counted(llm))["slots", "all"] == (2, 2, 4)
        await client.apply("llm", limits={"slots": {"at_once": 4}}, shadow_limits={})
        refused = await llm.attempt(slots=1, key=KEYS[4])
        assert (refused.limit, refused.rule) == ("slots", "all")  # type: ignore[union-attr]
        for hold in (taken_up, *holds):
            hold.release()
        await wait_until(partial(taken_is, llm, "slots", 0), timeout=GUARD)


async def test_limits_of_keys_have_shadows_beside_those_of_all(client: headgate.Client) -> None:
    slots = {"slots": {"at_once": 6}}
    await client.apply(
        "llm", kind="limiter", limits=slots, shadow_limits={"slots": {"at_once": 3}},
        shadow_key_limits={"slots": {"at_once": 1}}, slices=4,
    )  # fmt: skip
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        holds = [await llm.admit(slots=1, key=key) for key in (HERE, THERE, THERE)]
        found = await counted(llm, THERE)
        assert {of: one[0] for of, one in found.items()} == {("slots", "all"): 0, ("slots", "key"): 1}
        holds.append(await llm.admit(slots=1, key=HERE))
        found = await counted(llm, HERE)
        assert {of: one[0] for of, one in found.items()} == {("slots", "all"): 1, ("slots", "key"): 2}
        for hold in holds:
            hold.release()


async def test_a_session_takes_no_more_in_hand_than_a_shadow_of_all_keys_would_allow(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits=FREE, shadow_limits={"slots": {"at_once": 40}}, slices=3)
    async with client.session() as session:
        llm = await session.limiter("llm")
        most: list[int] = []

        async def is_in_hand() -> bool:
            hold = llm.try_admit(slots=1, key=THERE)
            if not isinstance(hold, Hold):
                return False
            most.append((await llm.state()).limits["slots"].taken)
            hold.release()
            return most[-1] > 1

        await wait_until(is_in_hand, timeout=GUARD)
        assert max(most) <= 2 * (40 // 4), "no more than a quarter, and the one before it that ends"
        assert (await llm.state()).would_wait == 0
    async with client.session() as session:
        await wait_until(partial(taken_is, await session.limiter("llm"), "slots", 0), timeout=GUARD)

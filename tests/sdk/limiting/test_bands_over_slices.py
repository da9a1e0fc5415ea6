"""What is kept for better bands, and from which fill on others are shed, goes by the keys of all slices together."""

import asyncio
from functools import partial
from typing import Any

import pytest

import headgate
from headgate import Hold, Refused
from headgate.core.limiting.pins import slice_of_key
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

BANDS = {"batch-*": 6, "vip-*": 1}
KEYS = {band: [f"{band}-{number}" for number in range(8)] for band in ("batch", "usual", "vip")}
FORMS: dict[str, Any] = {
    "slots": {"at_once": 8}, "tokens": {"rate": "1/week", "burst": 8}, "spend": {"quota": "8/month"},
}  # fmt: skip


def at(slice_: int, band: str) -> str:
    return next(key for key in KEYS[band] if slice_of_key(key, 4) == slice_)


async def taken_is(limiter: headgate.Limiter, name: str, number: int) -> bool:
    return (await limiter.state()).limits[name].taken == number


async def waiting_is(limiter: headgate.Limiter, number: int) -> bool:
    return (await limiter.state()).waiting == number


@pytest.mark.parametrize("name", FORMS)
async def test_a_reserve_is_kept_for_better_bands_of_all_slices(client: headgate.Client, name: str) -> None:
    await client.apply("llm", kind="limiter", limits=FORMS, bands=BANDS, reserve={"1": 0.25, "3": 0.25}, slices=4)
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        holds: list[Hold] = []
        for band, keys, most in (("batch", KEYS["batch"], 6), ("usual", KEYS["usual"], 6), ("vip", KEYS["vip"], 8)):
            for key in keys:
                decision = await llm.attempt(key=key, **{name: 1})
                assert isinstance(decision, Hold) == (len(holds) < most), (band, key, decision)
                if isinstance(decision, Hold):
                    holds.append(decision)
                else:
                    assert (decision.limit, decision.rule) == (name, "all")
        assert len(holds) == 8
        assert not await llm.attempt(key=at(2, "vip"), **{name: 1})
        for hold in holds[:3]:
            hold.settle(**{name: 0})
            hold.release()
        await wait_until(partial(taken_is, llm, name, 5), timeout=GUARD)
        await client.apply("llm", slices=3)
        await llm.admit(key=at(1, "usual"), timeout=GUARD, **{name: 1})
        assert not await llm.attempt(key=at(2, "usual"), **{name: 1}), "what is kept stays so while keys move"
        await client.apply("llm", reserve={})
        await llm.admit(key=at(2, "usual"), timeout=GUARD, **{name: 1})


async def test_whoever_waits_for_what_is_kept_is_explained_and_passed_by_better_bands(client: headgate.Client) -> None:
    await client.apply(
        "llm", kind="limiter", limits={"slots": {"at_once": 4}}, bands=BANDS, reserve={"1": 0.5}, slices=4
    )
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        held = [await llm.admit(slots=1, key=at(number, "usual")) for number in (0, 1)]
        waiting = asyncio.create_task(llm.wait_for(at(2, "usual"), {"slots": 1}, GUARD))
        await wait_until(partial(waiting_is, llm, 1), timeout=GUARD)
        explanation = await client.explain("llm")
        assert (explanation.state, explanation.cause) == ("blocked", "limit-at-once")
        async with llm.admit(slots=1, key=at(1, "vip"), timeout=GUARD), llm.admit(slots=1, key=at(3, "vip")):
            assert not waiting.done()
        held[0].release()
        async with asyncio.timeout(GUARD):
            (await waiting).release()
        bands = {one.band: one for one in (await client.explain("llm")).limiter.bands}  # type: ignore[union-attr]
        assert {band: (one.waiting, one.admitted) for band, one in bands.items()} == {1: (0, 2), 3: (0, 3)}


@pytest.mark.parametrize("name", FORMS)
async def test_the_last_bands_are_shed_by_how_full_all_keys_have_it(client: headgate.Client, name: str) -> None:
    of_key = {name: _limit(name, 3)}
    await client.apply("llm", kind="limiter", limits=FORMS, key_limits=of_key, bands=BANDS, shed={"6": 0.45}, slices=4)
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        for number in range(4):
            assert isinstance(await llm.attempt(key=at(number, "usual"), **{name: 1}), Hold)
        for number in range(4):
            with pytest.raises(headgate.Shed) as shed:
                await llm.admit(key=at(number, "batch"), timeout=GUARD, **{name: 1})
            assert (shed.value.band, shed.value.limit, shed.value.rule) == (6, name, "all")
            assert 0.45 <= shed.value.fill <= 0.5
            await wait_until(partial(_key_has, llm, at(number, "batch"), name, 0), timeout=GUARD)
            assert (await llm.state()).limits[name].taken == 4
        assert isinstance(await llm.attempt(key=at(1, "vip"), **{name: 1}), Hold)
        bands = {one.band: one for one in (await client.explain("llm")).limiter.bands}  # type: ignore[union-attr]
        assert bands[6].shed == 4
        await client.apply("llm", shed={"6": 0.9})
        decision = await llm.attempt(key=at(1, "batch"), **{name: 2})
        assert isinstance(decision, Hold)
        await client.apply("llm", shed={"6": 0.6}, limits={**FORMS, name: _limit(name, 400)})
        with pytest.raises(headgate.Shed) as shed:
            await llm.admit(key=at(1, "batch"), timeout=GUARD, **{name: 1})
        assert (shed.value.limit, shed.value.rule) == (name, "key"), "its own limit counts at its slice"


def _limit(name: str, most: int) -> dict[str, Any]:
    forms: dict[str, dict[str, Any]] = {
        "slots": {"at_once": most}, "tokens": {"rate": "1/week", "burst": most}, "spend": {"quota": f"{most}/month"},
    }  # fmt: skip
    return forms[name]


async def _key_has(limiter: headgate.Limiter, key: str, name: str, number: int) -> bool:
    return (await limiter.state(key=key)).key_limits[name].taken == number


async def test_what_is_in_hand_for_others_goes_to_no_band_from_which_it_is_kept(client: headgate.Client) -> None:
    """Mutant: parts of all bands are taken of what is in hand for calls without one."""
    await client.apply(
        "llm", kind="limiter", limits={"slots": {"at_once": 800}}, bands=BANDS, reserve={"3": 0.5}, slices=4
    )
    async with client.session("ann") as ann, client.session("bob") as bob:
        llm, other = await ann.limiter("llm"), await bob.limiter("llm", in_hand=False)
        held = await other.admit(slots=400, key=at(0, "usual"))
        key, batch = at(1, "usual"), at(1, "batch")
        refused: list[bool] = []

        async def is_in_hand() -> bool:
            hold = llm.try_admit(slots=1, key=key)
            if isinstance(hold, Hold):
                refused.append(isinstance(await llm.attempt(slots=1, key=batch), Refused))
                refused.append(not isinstance(llm.try_admit(slots=1, key=batch), Hold))
                hold.release()
            return len(refused) >= 10

        await wait_until(is_in_hand, timeout=GUARD)
        assert all(refused)
        held.release()

        async def has_its_own() -> bool:
            return isinstance(llm.try_admit(slots=1, key=batch), Hold)

        await wait_until(has_its_own, timeout=GUARD, description="parts of one band are in hand together")


async def test_parts_of_a_band_that_no_call_without_a_key_may_have_are_asked_for_each(client: headgate.Client) -> None:
    """Mutant: such a part is in hand in the band of calls without a key, and is refused what is kept for its own."""
    bands = {**BANDS, "*": 3}
    await client.apply(
        "llm", kind="limiter", limits={"slots": {"at_once": 8}}, bands=bands, reserve={"1": 0.5}, slices=4
    )
    async with client.session() as session:
        llm = await session.limiter("llm")
        held = [await llm.admit(slots=1, key=at(0, "usual")) for _ in range(4)]
        for _ in range(30):
            assert not isinstance(llm.try_admit(slots=1, key=at(1, "vip")), Refused)
            decision = await llm.attempt(slots=1, key=at(1, "vip"))
            assert isinstance(decision, Hold)
            assert decision.part is not None
            assert decision.part.is_known
            decision.release()
        for hold in held:
            hold.release()

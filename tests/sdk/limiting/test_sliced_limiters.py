"""A limiter over several slots: each key is limited exactly, wherever it lies, and however many slots there are."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

import headgate
from headgate import CreditTimeout, Hold, Refused, SessionExpired
from headgate.core.limiting.pins import slice_of_key
from headgate.core.names import slice_name
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate.redis.stores.pinned_keys import KeyRecord, PinnedKeyStore
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

FREE = {"slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}, "spend": {"quota": "unlimited/day"}}
OF_KEY = {"slots": {"at_once": 2}, "tokens": {"rate": "1/h", "burst": 5}, "spend": {"quota": "6/day"}}
KEYS = [f"tenant {number}" for number in range(8)]


async def make(client: headgate.Client, slices: int = 4) -> None:
    await client.apply("llm", kind="limiter", limits=FREE, key_limits=OF_KEY, slices=slices)


async def opened(client: headgate.Client, stack: AsyncExitStack, *, in_hand: bool = False) -> headgate.Limiter:
    session = await stack.enter_async_context(client.session("s"))
    return await session.limiter("llm", in_hand=in_hand)


async def refused_by(limiter: headgate.Limiter, key: str, **amounts: int) -> str:
    decision = await limiter.attempt(key=key, **amounts)
    assert isinstance(decision, Refused)
    assert decision.rule == "key"
    return decision.limit


async def test_keys_lie_in_all_slices_and_each_has_its_limits(client: headgate.Client) -> None:
    await make(client)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        holds = [await one.admit(slots=1, tokens=2, spend=3, key=key) for key in KEYS for one in (ann, bob)]
        for key in KEYS:
            for amounts in ({"slots": 1}, {"tokens": 2}, {"spend": 1}):
                assert await refused_by(ann, key, **amounts) == next(iter(amounts))
        store = LimiterStore(client.store.server)
        for number in range(4):
            levels = await store.levels(Address.of(client.namespace, slice_name("llm", number)))
            assert levels is not None
            assert levels.all_holds == 2 * sum(slice_of_key(key.replace(" ", "%20"), 4) == number for key in KEYS) > 0
        state = await ann.state(key=KEYS[0])
        assert (state["slots"].taken, state.key_limits["tokens"].remaining, state.keys) == (2, 1, 8)
        assert state.limits["slots"].taken == 16
        for hold in holds:
            hold.release()
        await wait_until(lambda: _held_is(ann, 0), timeout=GUARD, description="all is back")


async def _held_is(limiter: headgate.Limiter, number: int) -> bool:
    return (await limiter.state())["slots"].taken == number


async def test_more_and_fewer_slices_keep_what_each_key_has(client: headgate.Client) -> None:
    await make(client, 1)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        holds = {key: await ann.admit(slots=1, tokens=3, spend=4, key=key) for key in KEYS}
        for slices in (4, 12, 3, 1, 6):
            await client.apply("llm", slices=slices)
            for key in KEYS:
                second = await bob.attempt(slots=1, key=key)
                assert isinstance(second, Hold)
                assert await refused_by(ann, key, slots=1) == "slots"
                assert await refused_by(ann, key, tokens=3) == "tokens"
                assert await refused_by(bob, key, spend=3) == "spend"
                second.release()
                await wait_until(partial(_taken_is, bob, key, 1), timeout=GUARD)
        for key in KEYS[:4]:  # what was held before there were slices is released where it is, and counts no more
            holds[key].settle(tokens=0)
            holds[key].release()
            both = [await one.admit(slots=1, key=key, timeout=GUARD) for one in (ann, bob)]
            assert await refused_by(ann, key, slots=1) == "slots"
            for hold in both:
                hold.release()


async def _taken_is(limiter: headgate.Limiter, key: str, number: int) -> bool:
    return (await limiter.state(key=key)).key_limits["slots"].taken == number


async def test_who_waits_while_its_key_moves_is_let_in_where_it_is_then(client: headgate.Client) -> None:
    await make(client, 2)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        held = {key: [await ann.admit(slots=2, key=key)] for key in KEYS}
        waiting = {key: asyncio.ensure_future(_admitted(bob, key)) for key in KEYS}
        await wait_until(lambda: _waiting_is(ann, len(KEYS)), timeout=GUARD, description="all wait")
        await client.apply("llm", slices=7)
        await wait_until(lambda: _waiting_is(ann, len(KEYS)), timeout=GUARD, description="all wait where they belong")
        assert not any(task.done() for task in waiting.values())
        for key in KEYS:
            held[key][0].release()
        for key, task in waiting.items():
            async with asyncio.timeout(GUARD):
                hold = await task
            assert await refused_by(ann, key, slots=2) == "slots"
            hold.release()


async def _admitted(limiter: headgate.Limiter, key: str) -> Hold:
    return await limiter.admit(slots=1, key=key, timeout=GUARD)


async def _waiting_is(limiter: headgate.Limiter, number: int) -> bool:
    return (await limiter.state()).waiting == number


async def test_whoever_did_not_see_its_key_go_and_come_back_hears_what_was_given_back(client: headgate.Client) -> None:
    """Mutant: a session whose key is where it was does not look where keys are."""
    await make(client, 1)
    key = next(key for key in KEYS if slice_of_key(key.replace(" ", "%20"), 2))
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        await client.apply("llm", slices=2)
        hold = await bob.admit(slots=2, key=key)
        await client.apply("llm", slices=1)
        assert await refused_by(ann, key, slots=1) == "slots"
        hold.release()

        async def is_admitted() -> bool:
            return bool(await ann.attempt(slots=2, key=key))

        await wait_until(is_admitted, timeout=GUARD, description="what the hold had is there again")


async def test_what_a_dead_holder_of_a_key_had_where_nobody_calls_any_more_comes_back(client: headgate.Client) -> None:
    await make(client, 4)
    key = next(key for key in KEYS if slice_of_key(key.replace(" ", "%20"), 4))
    encoded = key.replace(" ", "%20")
    there = Address.of(client.namespace, slice_name("llm", slice_of_key(encoded, 4)))
    async with AsyncExitStack() as stack:
        ann = await opened(client, stack)
        call = HoldCall("admit", "dead.1", encoded, "slots=2", 1000, 0)
        answer = await LimiterStore(client.store.server).admit(there, "dead", seq=1, epoch=0, calls=[call])
        assert answer.answers == ("held",)
        await client.apply("llm", slices=1)
        (await ann.admit(key=key, slots=2, timeout=GUARD)).release()


async def test_what_a_process_that_stood_still_says_late_keeps_no_slot_of_a_key(client: headgate.Client) -> None:
    """Fails where whoever knows that a key holds nothing elsewhere never looks again."""
    await make(client)
    async with AsyncExitStack() as stack:
        limiter = await opened(client, stack)
        moved = next(key for key in map(str, range(99)) if slice_of_key(key, 4) != slice_of_key(key, 2))
        hold = await limiter.admit(slots=1, key=moved)
        await client.apply("llm", slices=2)
        hold.release()
        hold = await limiter.admit(slots=2, key=moved, timeout=GUARD)
        assert await refused_by(limiter, moved, slots=1) == "slots"  # so it is known to hold nothing elsewhere
        hold.release()
        store = PinnedKeyStore(client.store.server)
        own = Address.of(client.namespace, slice_name("llm", slice_of_key(moved, 2)))
        pinned = await store.pin(own)
        assert pinned is not None
        late = KeyRecord(moved, "slots:1")
        assert await store.join(own, pinned.pins.version, slice_of_key(moved, 4), [late])
        (await limiter.admit(slots=2, key=moved, timeout=GUARD)).release()


async def test_a_hold_is_taken_up_by_its_id_whatever_slice_it_is_at(client: headgate.Client) -> None:
    await make(client, 1)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        before = {key: await (await ann.admit(slots=1, key=key)).hand_over() for key in KEYS}
        await client.apply("llm", slices=5)
        after = {key: await (await ann.admit(slots=1, key=key)).hand_over() for key in KEYS}
        assert len({*before.values(), *after.values()}) == 2 * len(KEYS), "no two slices give the same id"
        for key in KEYS:
            for hold in (await bob.hold(before[key]), await bob.hold(after[key])):
                assert await refused_by(ann, key, slots=2) == "slots"
                hold.release()
                await wait_until(partial(_is_gone, bob, hold.id), timeout=GUARD)
            assert isinstance(await ann.attempt(slots=2, key=key), Hold), "nobody waited, and it is known all the same"


async def _is_gone(limiter: headgate.Limiter, hold: str) -> bool:
    try:
        (await limiter.hold(hold)).leave()
    except SessionExpired:
        return True
    return False


async def test_an_admission_under_an_id_is_taken_once_also_where_its_key_moved(client: headgate.Client) -> None:
    await make(client, 1)
    async with AsyncExitStack() as stack:
        ann = await opened(client, stack)
        for number, key in enumerate(KEYS, 1):
            await ann.admit_under(f"job.{number}", {"slots": 1}, key=key)
        for slices in (5, 7, 2, 12):  # the last one leaves some where they were, but not where they hold something
            await client.apply("llm", slices=slices)
            for number, key in enumerate(KEYS, 1):
                await ann.admit_under(f"job.{number}", {"slots": 1}, key=key)
                assert (await ann.state(key=key)).key_limits["slots"].taken == 1


async def test_a_hold_off_is_of_all_slices_or_of_one_key(client: headgate.Client) -> None:
    await make(client)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        assert await ann.hold_off(GUARD, key=KEYS[0]) == pytest.approx(GUARD, abs=1)
        assert await refused_by(bob, KEYS[0], slots=1) == "hold_off"
        for key in KEYS[1:]:
            assert isinstance(await bob.attempt(tokens=1, key=key), Hold)
        assert await ann.hold_off(GUARD, reason="429") == pytest.approx(GUARD, abs=1)
        decisions = [await bob.attempt(tokens=1, key=key) for key in KEYS]
        assert not any(decisions)
        assert (await bob.state()).held_off > 0
        await ann.hold_off(0)
        assert isinstance(await bob.attempt(slots=1, key=KEYS[1]), Hold), "a rate begins without a burst"


async def test_amounts_in_hand_are_of_the_slice_of_their_key(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": "unlimited"}},
                       key_limits={"slots": {"at_once": 4000}}, slices=3)  # fmt: skip
    async with AsyncExitStack() as stack:
        ann = await opened(client, stack, in_hand=True)
        for key in KEYS[:4]:
            for _ in range(30):
                async with ann.admit(slots=1, key=key):
                    pass
            await wait_until(partial(_is_in_hand, ann, key), timeout=GUARD)
        await client.apply("llm", slices=5)
        holds = [await ann.admit(slots=1, key=key, timeout=GUARD) for key in KEYS for _ in range(30)]
        assert all(not hold.lost for hold in holds)


async def _is_in_hand(limiter: headgate.Limiter, key: str) -> bool:
    return bool(limiter.try_admit(slots=1, key=key))


async def test_explanations_show_one_limiter(client: headgate.Client) -> None:
    await make(client)
    async with AsyncExitStack() as stack:
        ann, bob = await opened(client, stack), await opened(client, stack)
        mine = [await ann.admit(slots=2, key=key) for key in KEYS]
        waiting = [asyncio.ensure_future(_admitted(bob, key)) for key in KEYS[2:4]]
        await wait_until(lambda: _waiting_is(ann, 2), timeout=GUARD)
        explanation = await client.explain("llm", key=KEYS[3])
        assert (explanation.state, explanation.blocked) == ("blocked", 2)
        assert explanation.cause == "limit-at-once"
        assert "needs 1 of slots of 'tenant 3'" in explanation.reason or "tenant 3" in explanation.reason
        assert sorted(await client.destinations()) == ["llm"]
        with pytest.raises(CreditTimeout, match="slots"):
            await ann.admit(slots=1, key=KEYS[0], timeout=0.05)
        for task in waiting:
            task.cancel()
        for hold in mine:
            hold.release()


def test_a_policy_spreads_the_keys_of_limiters_beside_limits_of_all_of_them() -> None:
    text = (
        '[[limiter]]\nmatch = "api"\nslices = 6\n[[limiter.limit]]\nname = "calls"\n{}\n[limiter.per_key]\ncalls = 5\n'
    )
    for given, stored in (('"unlimited"', f"1000000000000000.0 {1 << 52}"), ('"500/s"', "500.0 500")):
        rule = loads(text.format(f"rate = {given}"), "limits.toml").rules[0]
        assert (rule.fields["slices"], rule.fields["limits"]) == ("6", f"calls rate {stored}")
    rule = loads(text.format('at_once = { min = 1, max = 9, adapt = "aimd" }'), "limits.toml").rules[0]
    assert rule.fields["slices"] == "6"
    assert rule.fields["limits"].startswith("calls at_once 9 ")


async def test_a_policy_changes_their_number_while_they_are_used(client: headgate.Client) -> None:
    text = (
        '[[limiter]]\nmatch = "llm"\nslices = {}\n[[limiter.limit]]\nname = "slots"\nat_once = "unlimited"\n'
        "[limiter.per_key]\nslots = 2\n"
    )
    async with AsyncExitStack() as stack:
        await client.apply_policy(loads(text.format(2), "limits.toml"))
        ann = await opened(client, stack)
        holds = [await ann.admit(slots=1, key=key) for key in KEYS]
        await client.apply_policy(loads(text.format(6), "limits.toml"))
        more = [await ann.admit(slots=1, key=key, timeout=GUARD) for key in KEYS]
        for key in KEYS:
            assert await refused_by(ann, key, slots=1) == "slots"
        assert {ann.slice_of(key) for key in KEYS} == {slice_of_key(key.replace(" ", "%20"), 6) for key in KEYS}
        for hold in holds + more:
            hold.release()

"""Limits of all keys together beside slices hold over all of them, and nobody keeps what somebody else could use."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic, sleep
from typing import Any

import pytest

import headgate
import headgate.sync
from headgate import CreditTimeout, Hold, InvalidValue, MessageTooLarge, Refused, SessionExpired
from headgate.core.limiting.pins import part_of_hold, slice_of_key
from headgate.core.names import slice_name
from headgate.limiting.limiter_slice import LimiterSlice
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

OF_ALL: dict[str, Any] = {
    "slots": {"at_once": 5}, "tokens": {"rate": "1/week", "burst": 12}, "spend": {"quota": "12/month"},
}  # fmt: skip
OF_KEY = {"slots": {"at_once": 3}, "tokens": {"rate": "1/week", "burst": 8}, "spend": {"quota": "8/month"}}
KEYS = [f"tenant-{number}" for number in range(8)]
HERE, THERE, ALSO = (next(key for key in KEYS if slice_of_key(key, 4) == at) for at in (0, 1, 2))
Opened = tuple[headgate.Limiter, headgate.Limiter]


@pytest.fixture
async def two(client: headgate.Client) -> AsyncIterator[Opened]:
    await client.apply("llm", kind="limiter", limits=OF_ALL, key_limits=OF_KEY, slices=4)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(client.session(name)) for name in ("ann", "bob")]
        ann, bob = [await session.limiter("llm", in_hand=False) for session in sessions]
        yield ann, bob


async def refused_by(limiter: headgate.Limiter, key: str | None, **amounts: int) -> tuple[str, str]:
    decision = await limiter.attempt(key=key, **amounts)
    assert isinstance(decision, Refused), decision
    return decision.limit, decision.rule


async def taken(limiter: headgate.Limiter, name: str) -> int:
    return (await limiter.state()).limits[name].taken


async def taken_is(limiter: headgate.Limiter, name: str, number: int, key: str | None = None) -> bool:
    state = await limiter.state(key=key)
    return (state.limits if key is None else state.key_limits)[name].taken == number


async def waiting_is(limiter: headgate.Limiter, number: int) -> bool:
    return (await limiter.state()).waiting == number


@pytest.mark.parametrize(("name", "most"), [("slots", 5), ("tokens", 12), ("spend", 12)])
async def test_each_form_binds_the_keys_of_all_slices_together(two: Opened, name: str, most: int) -> None:
    ann, bob = two
    holds = []
    for number in range(most):
        decision = await (ann, bob)[number % 2].attempt(key=KEYS[number % 8], **{name: 1})
        assert isinstance(decision, Hold), (number, decision)
        holds.append(decision)
    for limiter in two:
        for key in (HERE, THERE, None):
            assert await refused_by(limiter, key, **{name: 1}) == (name, "all")
    state = await ann.state(key=THERE)
    assert (state.limits[name].taken, state.limits[name].remaining) == (most, 0)
    assert state.keys == min(most, 8), "each key counts once"
    assert not await ann.attempt(key=THERE, **{name: 1})
    for hold in holds:
        hold.settle(**{name: 0})
        hold.release()
    await wait_until(partial(taken_is, bob, name, 0), timeout=GUARD, description="all is back")
    assert isinstance(await bob.attempt(key=THERE, **{name: 8 if most > 5 else 3}), Hold)
    assert await refused_by(bob, THERE, **{name: 1}) == (name, "key")


async def test_whoever_is_refused_at_one_of_both_has_taken_nothing_at_the_other(two: Opened) -> None:
    ann, bob = two
    held = [await ann.admit(slots=3, key=key) for key in (HERE,)] + [await bob.admit(slots=2, key=THERE)]
    for _ in range(3):
        assert await refused_by(ann, ALSO, slots=1, tokens=3, spend=3) == ("slots", "all")
        with pytest.raises(CreditTimeout, match="slots"):
            await ann.admit(slots=1, tokens=3, spend=3, key=ALSO, timeout=0.2)
    with pytest.raises(MessageTooLarge):
        await ann.attempt(slots=4, key=ALSO)
    for name in ("tokens", "spend"):
        await wait_until(partial(taken_is, ann, name, 0), timeout=GUARD)
        await wait_until(partial(taken_is, ann, name, 0, ALSO), timeout=GUARD)
    await wait_until(partial(taken_is, ann, "slots", 0, ALSO), timeout=GUARD)
    assert await taken(ann, "slots") == 5
    for hold in held:
        hold.release()


async def test_who_waits_for_all_keys_goes_in_turn_by_keys_of_all_slices(client: headgate.Client, two: Opened) -> None:
    ann, bob = two
    held = [await ann.admit(slots=3, key=HERE), await ann.admit(slots=2, key=HERE.replace("tenant", "x"))]
    order: list[str] = []

    async def ask(limiter: headgate.Limiter, key: str) -> None:
        async with limiter.admit(slots=1, key=key, timeout=GUARD):
            order.append(key)
            await wait_until(lambda: len(order) == 4, timeout=GUARD)

    tasks = []
    for number, key in enumerate((THERE, THERE, ALSO, HERE), 1):
        tasks.append(asyncio.create_task(ask(bob if number % 2 else ann, key)))
        await wait_until(partial(waiting_is, ann, number), timeout=GUARD)
    explanation = await client.explain("llm", key=THERE)
    assert (explanation.state, explanation.cause, explanation.blocked) == ("blocked", "limit-at-once", 4)
    assert f"of key {THERE} needs 1 of slots: 5 of 5" in explanation.reason
    explanation = await client.explain("llm")
    assert explanation.limiter is not None
    assert {one.key for one in explanation.limiter.line} == {THERE, ALSO, HERE}
    assert sum(one.amounts["slots"] for one in explanation.limiter.holders) == 5, "nobody's slots count twice"
    for hold in held:
        hold.release()
    async with asyncio.timeout(GUARD):
        await asyncio.gather(*tasks)
    assert sorted(order[:3]) == sorted((THERE, ALSO, HERE)), "the second of a key comes after the first of others"


async def test_rates_of_a_key_and_slots_of_all_keys_are_kept_from_nobody_meanwhile(two: Opened) -> None:
    """Mutants: a half that has to wait keeps the other."""
    ann, bob = two
    held = [await ann.admit(slots=3, key=HERE), await bob.admit(slots=2, key=ALSO)]
    waiting = asyncio.create_task(ann.wait_for(THERE, {"slots": 1, "tokens": 5}, GUARD))
    await wait_until(partial(waiting_is, ann, 1), timeout=GUARD, description="it waits for slots of all keys")
    await wait_until(
        partial(taken_is, ann, "tokens", 0, THERE), timeout=GUARD, description="tokens are not its own yet"
    )
    other = await bob.admit(tokens=6, key=THERE, timeout=GUARD)
    held[0].release()
    await wait_until(partial(taken_is, ann, "slots", 2), timeout=GUARD, description="it waits for tokens of its key")
    assert not waiting.done()
    assert isinstance(await bob.attempt(slots=3, key=HERE), Hold), "slots that nobody can use go to others"
    other.settle(tokens=0)
    other.release()
    await asyncio.sleep(0)
    held[1].release()
    async with asyncio.timeout(GUARD):
        hold = await waiting
    assert (await taken(ann, "slots"), await taken(ann, "tokens")) == (4, 5)
    hold.release()


async def test_whoever_gives_up_leaves_nothing_of_both(two: Opened) -> None:
    ann, bob = two
    held = await ann.admit(slots=3, key=HERE), await ann.admit(slots=2, key=ALSO)
    for amounts in ({"slots": 1}, {"slots": 1, "tokens": 1}):
        waiting = asyncio.create_task(bob.wait_for(THERE, amounts, GUARD))
        await wait_until(partial(waiting_is, ann, 1), timeout=GUARD)
        waiting.cancel()
        await wait_until(partial(waiting_is, ann, 0), timeout=GUARD)
        await wait_until(partial(taken_is, ann, "slots", 0, THERE), timeout=GUARD)
        await wait_until(partial(taken_is, ann, "tokens", 0), timeout=GUARD)
    for hold in held:
        hold.release()


async def test_what_is_held_stays_bounded_while_the_number_of_slices_changes(
    client: headgate.Client, two: Opened
) -> None:
    ann, bob = two
    await client.apply("llm", slices=1)
    holds = [await ann.admit(slots=1, tokens=1, key=key) for key in KEYS[:2]]
    for slices in (4, 7, 1, 3):
        await client.apply("llm", slices=slices)
        more = [await bob.admit(slots=1, key=key, timeout=GUARD) for key in (HERE, THERE, ALSO)]
        for key in (*KEYS[:3], None):
            assert await refused_by(ann, key, slots=1) == ("slots", "all")
        assert await taken(bob, "slots") == 5
        more.pop().release()
        holds.append(await ann.admit(slots=1, key=KEYS[5], timeout=GUARD))
        for hold in (*more, holds.pop()):
            hold.release()
        await wait_until(partial(taken_is, ann, "slots", 2), timeout=GUARD)
    assert await taken(ann, "tokens") == 2


async def test_limits_of_many_keys_are_taken_in_hand_together(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4000}}, slices=3)
    async with client.session() as session:
        llm = await session.limiter("llm")
        found: list[Hold] = []

        async def admit(key: str) -> None:
            async with llm.admit(slots=1, key=key) as hold:
                found.append(hold)

        async def is_in_hand() -> bool:
            """Many come at a time, however slow the machine is."""
            await asyncio.gather(*(admit(f"one of many {number}") for number in range(30)))
            return any(hold.part is not None and not hold.part.is_known for hold in found)

        await wait_until(is_in_hand, timeout=GUARD)
        hold = next(hold for hold in found if hold.part is not None and not hold.part.is_known)
        assert (hold.part is not None and hold.part.amounts, hold.amounts) == ({"slots": 1}, {"slots": 1})

        async def both_are_in_hand() -> bool:
            await asyncio.gather(*(admit("tenant-1") for _ in range(30)))
            if isinstance(hold := llm.try_admit(slots=1, key="tenant-1"), Hold):
                with pytest.raises(InvalidValue, match="in_hand=False"):
                    hold.id  # noqa: B018
                return True
            return False

        await wait_until(both_are_in_hand, timeout=GUARD)
    async with client.session() as session:
        llm = await session.limiter("llm")
        await wait_until(partial(taken_is, llm, "slots", 0), timeout=GUARD)


async def test_a_hold_is_taken_up_with_its_part_and_is_over_without(client: headgate.Client, two: Opened) -> None:
    ann, bob = two
    for key in (HERE, THERE):
        taken_up = await bob.hold(await (await ann.admit(slots=2, tokens=3, key=key)).hand_over())
        await taken_up.renew()
        taken_up.settle(tokens=1, slots=1)
        await wait_until(partial(taken_is, ann, "slots", 1), timeout=GUARD)
        await wait_until(partial(taken_is, ann, "tokens", 1, key), timeout=GUARD)
        taken_up.release()
        await wait_until(partial(taken_is, ann, "slots", 0), timeout=GUARD)
    assert await taken(ann, "tokens") == 2
    hold = await ann.admit(slots=1, key=THERE)
    assert 0 < hold.expires_in < 15
    store, call = LimiterStore(client.store.server), HoldCall("release", part_of_hold(hold.id))
    await store.admit(Address.of(client.namespace, "llm"), "somebody", seq=1, epoch=0, calls=[call])
    await wait_until(lambda: hold.lost, timeout=GUARD, description="it is not held without its part")
    with pytest.raises(SessionExpired):
        await bob.hold(hold.id)
    hold.release()
    await wait_until(partial(taken_is, ann, "slots", 0, THERE), timeout=GUARD)


async def test_a_hold_of_nothing_that_binds_all_keys_is_taken_up_without_a_part(client: headgate.Client) -> None:
    limits = {"requests": {"rate": "unlimited"}, "slots": {"at_once": 5}}
    await client.apply("llm", kind="limiter", limits=limits, slices=4)
    async with client.session() as session:
        llm = await session.limiter("llm", in_hand=False)
        hold = await llm.hold(await (await llm.admit(requests=1, key=THERE)).hand_over())
        await hold.renew()
        hold.release()


async def test_an_admission_under_an_id_is_taken_once_with_its_part(client: headgate.Client, two: Opened) -> None:
    ann, bob = two
    for slices in (1, 4):
        for limiter in (ann, bob, ann):
            (await limiter.admit_under("job.7", {"slots": 2, "tokens": 1}, key=THERE)).leave()
            assert (await taken(ann, "slots"), await taken(ann, "tokens")) == (2, 1)
        await client.apply("llm", slices=slices)


async def test_so_it_is_where_it_is_learned_meanwhile_that_its_key_moved(
    client: headgate.Client, two: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the slice is looked up after what the key held before, by other pins."""
    ann, _ = two
    (await ann.admit_under("job.7", {"slots": 2, "tokens": 1}, key=THERE)).leave()
    await client.apply("llm", slices=1)
    slices, look = ann._slices, ann._slices.before

    async def before(key: str) -> list[LimiterSlice]:
        found = await look(key)
        assert await slices.follow(monotonic() + GUARD)
        return found

    monkeypatch.setattr(slices, "before", before)
    (await ann.admit_under("job.7", {"slots": 2, "tokens": 1}, key=THERE)).leave()
    assert (await taken(ann, "slots"), await taken(ann, "tokens")) == (2, 1)


async def test_who_does_not_know_of_a_limit_yet_is_told_by_the_slice(client: headgate.Client, two: Opened) -> None:
    ann, bob = two
    free = {
        "limits": "slots at_once 4503599627370496;tokens rate 1e15 4503599627370496",
        "key_limits": "",
        "sliced": "4",
    }
    held = await bob.admit(slots=3, key=HERE), await bob.admit(slots=2, key=ALSO)
    ann.adopt(free)
    assert await refused_by(ann, THERE, slots=1) == ("slots", "all")
    held[0].release()
    async with ann.admit(slots=1, key=THERE, timeout=GUARD) as hold:
        assert hold.part is not None


def test_threads_share_limits_of_all_keys_too(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session() as session:
        client.apply("llm", kind="limiter", limits=OF_ALL, slices=4)
        llm = session.limiter("llm")
        most: list[int] = []

        def work(number: int) -> None:
            for turn in range(12):
                key = KEYS[(number + turn) % 8]
                with llm.admit(slots=1, tokens=1, key=key, timeout=GUARD) as hold:
                    held.append(number)
                    most.append(len(held))
                    hold.settle(tokens=0)
                    held.pop()

        held: list[int] = []
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, number) for number in range(8)]:
                done.result(GUARD)
        assert max(most) <= 5
        holds = [llm.attempt(slots=1, key=key) for key in KEYS]
        assert sum(map(bool, holds)) == 5


def test_threads_have_parts_in_hand_too(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a thread takes nothing of two hands, which change together on the loop's thread."""
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session() as session:
        client.apply("llm", kind="limiter", limits={"slots": {"at_once": 400}}, slices=4)
        llm = session.limiter("llm")
        until = monotonic() + GUARD
        while not isinstance(hold := llm.try_admit(slots=1, key=THERE), headgate.sync.Hold):
            assert monotonic() < until, hold
            sleep(0.01)
        hold.release()


async def test_whoever_waited_hears_for_what_where_the_last_answer_comes_too_late(
    two: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it hears that Redis did not answer, for it was asked again just before the time was over."""
    ann, bob = two
    holds = [await bob.attempt(key=key, slots=1) for key in (HERE, HERE, ALSO, ALSO, None)]
    assert all(holds)
    there, answers, decide = slice_name("llm", slice_of_key(THERE, 4)), asyncio.Event(), LimiterStore.decide

    async def answers_late(store: LimiterStore, address: Address, session: str, **call: Any) -> Any:
        if address.name == there:
            await answers.wait()
        return await decide(store, address, session, **call)

    asked = asyncio.ensure_future(ann.admit(key=THERE, timeout=2, slots=1, tokens=1))
    await wait_until(partial(waiting_is, bob, 1), timeout=GUARD)
    await wait_until(partial(taken_is, bob, "tokens", 0, THERE), timeout=GUARD)
    monkeypatch.setattr(LimiterStore, "decide", answers_late)
    for hold in holds:
        assert isinstance(hold, Hold)
        hold.release()
    with pytest.raises(CreditTimeout, match="slots") as caught:
        await asked
    assert (caught.value.limit, caught.value.rule) == ("slots", "all")
    answers.set()
    for name in ("slots", "tokens"):
        await wait_until(partial(taken_is, bob, name, 0), timeout=GUARD)

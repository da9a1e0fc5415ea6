"""Limiters through the SDK: all limits or none, waits that are explained, costs known later, holds that are carried."""

import asyncio
import gc
import math
from collections.abc import Callable
from functools import partial

import pytest

import headgate
from headgate import (
    Closed,
    CreditTimeout,
    Hold,
    InvalidName,
    InvalidValue,
    MessageTooLarge,
    PolicyError,
    Refused,
    SessionExpired,
    Settings,
)
from headgate.core.limiting.calls import Refusal
from headgate.explain.limiter_view import Wait
from headgate.limiting.refusals import error_of
from tests.sdk.observing import GUARD
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

TTL = 2.0
BACK = TTL + 1 + 5  # the promise is TTL + 1 s; the rest is for a busy machine
LLM = Settings(
    kind="limiter",
    limits={
        "requests": {"rate": "1000000/s"},
        "tokens": {"rate": "100/h", "burst": 10_000},
        "in_flight": {"at_once": 4},
    },
    key_limits={"in_flight": {"at_once": 2}},
)


async def remaining(limiter: headgate.Limiter, limit: str, key: str | None = None) -> int:
    return (await limiter.state(key=key))[limit].remaining


def remains(limiter: headgate.Limiter, limit: str, number: int) -> Callable[[], object]:
    """Return what says whether so much of a limit remains."""

    async def look() -> bool:
        return await remaining(limiter, limit) == number

    return look


def is_free(limiter: headgate.Limiter, most: int = 4) -> Callable[[], object]:
    """Return what says whether nothing is held any more."""
    return remains(limiter, "in_flight", most)


async def test_what_was_settled_for_nothing_may_be_settled_again_and_counts_no_more(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        async with llm.admit(tokens=100, in_flight=1) as hold:
            for tokens in (0, 50):
                hold.settle(tokens=tokens, in_flight=0)
            assert hold.amounts == {"tokens": 0, "in_flight": 0}
            with pytest.raises(InvalidValue, match="nothing of it was reserved"):
                hold.settle(requests=1)
        await wait_until(remains(llm, "tokens", 10_000), timeout=GUARD, description="all tokens are back")


async def test_a_key_that_owes_nothing_any_more_has_nothing_of_that_limit(client: headgate.Client) -> None:
    limits = {"tokens": {"rate": "1M/s"}, "slots": {"at_once": 4}}
    await client.apply("llm", kind="limiter", limits=limits, key_limits={"tokens": {"rate": "1M/s"}})
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        async with llm.admit(tokens=1, slots=1, key="t"):
            view = (await client.explain("llm")).limiter
            assert view is not None
            assert [(use.key, use.held, use.taken) for use in view.top] == [("t", {"slots": 1}, {})]


async def test_admissions_that_are_over_leave_nothing_to_the_collector_of_cycles(client: headgate.Client) -> None:
    """A cycle for each would be a thousand objects and more; whatever else goes on in this process leaves some too."""
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)

        async def come_and_go() -> None:
            for _ in range(500):
                async with llm.admit(in_flight=1):
                    pass

        await come_and_go()
        gc.freeze()
        gc.disable()
        try:
            await come_and_go()
            assert gc.collect() < 500
        finally:
            gc.enable()


async def test_all_limits_are_taken_together_and_given_back(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        async with llm.admit(requests=1, tokens=4000, in_flight=1, key="tenant-7", timeout=GUARD) as hold:
            state = await llm.state(key="tenant-7")
            assert (state["tokens"].remaining, state.limits["in_flight"].remaining) == (6000, 3)
            assert (state.key_limits["in_flight"].remaining, state["in_flight"].taken) == (1, 1)
            hold.settle(tokens=1500)
        await wait_until(is_free(llm), timeout=GUARD, description="the slot is back")
        assert await remaining(llm, "tokens") == 8500
        async with llm.admit(tokens=1, timeout=GUARD) as hold:
            hold.settle(tokens=2000)  # it took more than it reserved
        await wait_until(remains(llm, "tokens", 6500), timeout=GUARD, description="what it took more is owed")


async def test_what_does_not_fit_takes_nothing_and_the_error_has_the_numbers(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        with pytest.raises(MessageTooLarge) as large:
            await llm.admit(in_flight=3, tokens=1, key="a")
        assert (large.value.limit, large.value.name, large.value.rule, large.value.size) == (2, "in_flight", "key", 3)
        with pytest.raises(MessageTooLarge) as larger:
            await llm.admit(tokens=10_001)
        assert (larger.value.limit, larger.value.name, larger.value.rule) == (10_000, "tokens", "all")
        first, second = await llm.admit(in_flight=1, key="a"), await llm.admit(in_flight=1, key="a")
        with pytest.raises(CreditTimeout) as late:
            await llm.admit(in_flight=1, tokens=5000, key="a", timeout=0.2)
        error = late.value
        assert (error.limit, error.rule, error.key, error.retry_after) == ("in_flight", "key", "a", None)
        assert (error.amounts, error.destination) == ({"in_flight": 1, "tokens": 5000}, "llm")
        assert "'in_flight' of key 'a'" in str(error)
        await llm.admit(tokens=9000)
        with pytest.raises(CreditTimeout) as slow:
            await llm.admit(tokens=2000, timeout=0)
        assert (slow.value.limit, slow.value.rule) == ("tokens", "all")
        assert slow.value.retry_after == pytest.approx(36_000, rel=0.05)
        assert await remaining(llm, "tokens") == 1000
        first.release()
        second.release()


async def test_nonsense_is_refused_before_anything_is_asked(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        before = client.store.server.calls
        for value in (-1, 1.5, math.nan, True, None, 2**53, "x"):
            with pytest.raises(InvalidValue, match="tokens"):
                await llm.admit(tokens=value)  # type: ignore[arg-type]
            with pytest.raises(InvalidValue, match="tokens"):
                llm.try_admit(tokens=value)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=r"no such limit; did you mean 'tokens'\? There are .*tokens"):
            await llm.admit(token=1)
        with pytest.raises(InvalidValue, match=r"no such limit; there are .*tokens"):
            await llm.admit(gallons=1)
        with pytest.raises(InvalidValue, match="amounts"):
            await llm.admit()
        with pytest.raises(InvalidValue, match="at least 1"):
            await llm.admit(tokens=0)
        for key in ("", "ü" * 128, 7):
            with pytest.raises(InvalidName, match="key"):
                await llm.admit(tokens=1, key=key)  # type: ignore[arg-type]
        for ttl in (0, 4000, "x"):
            with pytest.raises(InvalidValue, match="ttl"):
                await llm.admit(tokens=1, ttl=ttl)
        for name in ("", "x", "x.", "x.1x", "*.1", 7):
            with pytest.raises(InvalidValue, match="hold"):
                await llm.hold(name)  # type: ignore[arg-type]
        assert client.store.server.calls == before


async def test_a_limiter_that_nothing_says_the_limits_of_is_refused(client: headgate.Client) -> None:
    await client.apply("queue", kind="queue")
    async with client.session("s") as session:
        with pytest.raises(PolicyError, match="'queue' is a queue"):
            await session.limiter("queue")
        with pytest.raises(PolicyError, match="'nowhere'"):
            await session.limiter("nowhere")
        await client.apply("llm", LLM)
        llm = await session.limiter("llm")
        assert await session.limiter("llm") is llm
        with pytest.raises(InvalidValue, match="in_hand"):
            await session.limiter("llm", in_hand=False)


async def test_a_wait_ends_with_a_release_elsewhere(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("a") as one, other.session("b") as two:
        mine, theirs = await one.limiter("llm"), await two.limiter("llm")
        held = [await mine.admit(in_flight=1) for _ in range(4)]
        waiting = asyncio.create_task(theirs.admit(in_flight=2, timeout=GUARD).__aenter__())
        await wait_until(lambda: _waits(mine, 1), timeout=GUARD, description="it stands in line")
        held[0].release()
        held[1].release()
        async with asyncio.timeout(GUARD):
            (await waiting).release()


async def _waits(limiter: headgate.Limiter, count: int) -> bool:
    return (await limiter.state()).waiting == count


async def test_a_wait_that_is_cancelled_leaves_the_line_at_once(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        hold = await llm.admit(in_flight=4)
        waiting = asyncio.create_task(llm.admit(in_flight=1, timeout="unlimited").__aenter__())
        await wait_until(lambda: _waits(llm, 1), timeout=GUARD, description="it stands in line")
        waiting.cancel()
        await wait_until(lambda: _waits(llm, 0), timeout=2.0 + GUARD / 2, description="it has left the line")
        hold.release()
        await wait_until(is_free(llm), timeout=GUARD, description="nothing is held")


async def test_whoever_waits_has_a_place_and_an_estimate(client: headgate.Client) -> None:
    await client.apply("api", kind="limiter", limits={"calls": {"rate": "1/min", "burst": 1}})
    async with client.session("s") as session:
        api = await session.limiter("api", in_hand=False)
        (await api.admit(calls=1)).release()
        waiting = []
        for number in (1, 2, 3):
            waiting.append(asyncio.create_task(api.admit(calls=1, key="t", timeout="unlimited").__aenter__()))
            await wait_until(partial(_waits, api, number), timeout=GUARD, description="it stands in line")
        one, head = await client.explain("api", producer=session.id), await client.explain("api")
        assert one.limiter is not None
        assert (one.place, head.place) == (1, 0)
        waits = [wait for wait in one.limiter.own if isinstance(wait, Wait)]
        assert [wait.place for wait in waits] == [1, 2, 3]
        turns = [wait.turn_in or 0 for wait in waits]
        assert [round(turn / 60) for turn in turns] == [1, 2, 3]
        assert one.unblocks_in == pytest.approx(turns[0], abs=1)
        assert "place 1, its turn in about " in str(head)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_attempt_never_waits_and_is_told_what_binds(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        assert llm.try_admit(in_flight=1) is None
        hold = await llm.attempt(in_flight=4, tokens=10_000)
        assert isinstance(hold, Hold)
        refused = await llm.attempt(in_flight=1)
        assert isinstance(refused, Refused)
        assert not refused
        assert (refused.limit, refused.rule, refused.retry_after) == ("in_flight", "all", None)
        refused = await llm.attempt(tokens=1, key="a")
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.key, refused.amounts) == ("tokens", "a", {"tokens": 1})
        assert refused.retry_after == pytest.approx(36, rel=0.1)
        hold.release()


async def test_a_try_takes_what_is_in_hand_and_knows_a_refusal(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session, client.session("t") as second:
        llm, other = await session.limiter("llm"), await second.limiter("llm", in_hand=False)
        assert llm.try_admit(in_flight=1) is None
        decision: Hold | Refused | None = None

        def decided() -> bool:
            nonlocal decision
            decision = llm.try_admit(in_flight=1)
            return decision is not None

        await wait_until(decided, timeout=GUARD, description="one is in hand")
        assert isinstance(decision, Hold)
        with pytest.raises(InvalidValue, match="in_hand=False"):
            _ = decision.id
        assert decision.expires_in > 0
        decision.release()
        decision.release()
        await wait_until(is_free(other), timeout=GUARD, description="what is not used went back")
        taken = await other.admit(in_flight=4, timeout=GUARD)
        await wait_until(decided, timeout=GUARD, description="a refusal is known")
        assert isinstance(decision, Refused)
        assert (decision.limit, decision.rule) == ("in_flight", "all")
        taken.release()


async def test_many_admissions_take_few_calls_and_what_was_used_is_counted_to_the_unit(
    client: headgate.Client,
) -> None:
    fast = Settings(kind="limiter", limits={"calls": {"quota": "1000000/month"}, "slots": {"at_once": 100}})
    await client.apply("fast", fast)
    async with client.session("s") as session:
        limiter = await session.limiter("fast")
        before, count = client.store.server.calls, 20_000

        async def use(times: int) -> None:
            for number in range(times):
                async with limiter.admit(calls=2, slots=1, timeout=GUARD) as hold:
                    if number % 2:
                        hold.settle(calls=1)
                if number % 50 == 0:
                    await asyncio.sleep(0)

        async with asyncio.timeout(3 * GUARD):
            await asyncio.gather(*(use(count // 20) for _ in range(20)))
        assert client.store.server.calls - before < count / 10

        async def settled() -> bool:
            state = await limiter.state()
            return (state["slots"].taken, state["calls"].taken) == (0, count * 3 // 2)

        await wait_until(settled, timeout=GUARD, description="all came back but what was used")


async def test_what_is_in_hand_goes_back_when_others_wait(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("fast", Settings(kind="limiter", limits={"slots": {"at_once": 100}}))
    async with client.session("a") as one, other.session("b") as two:
        mine, theirs = await one.limiter("fast"), await two.limiter("fast", in_hand=False)
        stopped = False

        async def use() -> None:
            while not stopped:
                async with mine.admit(slots=1, timeout=GUARD):
                    await asyncio.sleep(0)
                await asyncio.sleep(0)

        users = [asyncio.create_task(use()) for _ in range(20)]
        async with asyncio.timeout(GUARD):
            for _ in range(5):
                async with theirs.admit(slots=90, timeout=GUARD):
                    assert await remaining(mine, "slots") >= 0
                await asyncio.sleep(0.05)
        stopped = True
        await asyncio.gather(*users)


async def test_a_hold_is_carried_by_its_id_and_outlives_its_session(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("a") as one, client.session("b") as two:
        mine, theirs = await one.limiter("llm", in_hand=False), await two.limiter("llm")
        hold = await mine.admit(in_flight=3, tokens=100)
        name = await hold.hand_over(ttl=60)
        assert name == hold.id
        await one.close()
        assert await remaining(theirs, "in_flight") == 1
        taken = await theirs.hold(name)
        assert taken.id == name
        await taken.renew(30)
        taken.settle(tokens=40)
        taken.release()
        await wait_until(is_free(theirs), timeout=GUARD, description="it was released elsewhere")
        assert await remaining(theirs, "tokens") == 9960
        with pytest.raises(SessionExpired, match=r"is over: it was released"):
            await theirs.hold(name)


async def test_only_what_was_reserved_can_be_settled_and_only_once(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        async with llm.admit(tokens=100) as hold:
            with pytest.raises(InvalidValue, match="requests"):
                hold.settle(requests=1)
            hold.settle(tokens=10)
            hold.settle(tokens=90)
            assert hold.amounts == {"tokens": 10}
        hold.settle(tokens=50)
        hold.release()
        await wait_until(remains(llm, "tokens", 9990), timeout=GUARD, description="the first settlement counts")


async def test_a_hold_off_holds_on_all_hosts_and_ends(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("a") as one, other.session("b") as two:
        mine, theirs = await one.limiter("llm"), await two.limiter("llm")
        assert await mine.hold_off(60, reason="429 from the provider") == pytest.approx(60, abs=1)
        state = await theirs.state()
        assert (state.reason, state.held_off > 30) == ("429 from the provider", True)
        with pytest.raises(CreditTimeout) as late:
            await theirs.admit(requests=1, timeout=0.1)
        assert late.value.limit == "hold_off"
        waiting = asyncio.create_task(theirs.admit(requests=1, timeout=GUARD).__aenter__())
        await wait_until(lambda: _waits(mine, 1), timeout=GUARD, description="it stands in line")
        assert await mine.hold_off(0) == 0
        async with asyncio.timeout(GUARD):
            (await waiting).release()
        assert await mine.hold_off(0.05, key="a") > 0
        async with theirs.admit(requests=1, key="a", timeout=GUARD):
            pass


async def test_a_limiter_stopped_by_hand_admits_nothing_until_that_is_taken_away(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        async with llm.admit(requests=1):
            await client.block("llm", "the provider is being replaced")
            refused = await llm.attempt(requests=1)
            assert isinstance(refused, headgate.Refused)
            assert (refused.limit, refused.retry_after) == ("stopped", None)
        explained = await client.explain("llm")
        assert (explained.state, "being replaced" in str(explained)) == ("stopped", True)
        waiting = asyncio.create_task(llm.admit(requests=1, timeout=GUARD).__aenter__())
        await wait_until(lambda: _waits(llm, 1), timeout=GUARD, description="it stands in line")
        await client.unblock("llm")
        async with asyncio.timeout(GUARD):
            (await waiting).release()


async def test_limits_that_change_hold_for_those_who_wait(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    async with client.session("s") as session:
        llm = await session.limiter("llm")
        first = await llm.admit(in_flight=4)
        waiting = asyncio.create_task(llm.admit(in_flight=1, timeout=GUARD).__aenter__())
        await wait_until(lambda: _waits(llm, 1), timeout=GUARD, description="it stands in line")
        await client.apply("llm", Settings(limits={"in_flight": {"at_once": 5}}, key_limits={}))
        async with asyncio.timeout(GUARD):
            second = await waiting
        with pytest.raises(InvalidValue, match="tokens"):
            await llm.admit(tokens=1)
        first.release()
        second.release()


async def test_what_a_session_holds_is_free_once_it_closes(client: headgate.Client) -> None:
    await client.apply("llm", LLM)
    session, second = client.session("a"), client.session("b")
    async with second:
        llm = await session.limiter("llm")
        hold = await llm.admit(in_flight=3)
        waiting = asyncio.create_task(llm.admit(in_flight=4, timeout=GUARD).__aenter__())
        await wait_until(lambda: _waits(llm, 1), timeout=GUARD, description="it stands in line")
        await session.close()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await llm.admit(in_flight=1)
        hold.release()
        assert await remaining(await second.limiter("llm"), "in_flight") == 4


@pytest.mark.one_server
async def test_slots_of_a_killed_process_are_back_within_its_ttl(client: headgate.Client, redis_url: str) -> None:
    await client.apply("db", Settings(kind="limiter", limits={"in_flight": {"at_once": 8}}))
    async with client.session("s") as session:
        db = await session.limiter("db", in_hand=False)
        with Worker("holds", redis_url, client.namespace, "db", TTL, 4) as worker:
            ids = await asyncio.to_thread(worker.ready)
            assert await remaining(db, "in_flight") <= 4
            carried = await db.hold(ids[0], ttl=30)  # this one is carried on here
            worker.kill9()
            async with asyncio.timeout(BACK), db.admit(in_flight=7, timeout=BACK):
                assert not carried.lost
                assert await remaining(db, "in_flight") == 0
        carried.release()
        await wait_until(is_free(db, 8), timeout=GUARD, description="all slots are free")


@pytest.mark.one_server
async def test_a_process_that_was_frozen_for_too_long_learns_that_its_hold_is_lost(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.apply("db", Settings(kind="limiter", limits={"in_flight": {"at_once": 1}}))
    async with client.session("frozen", ttl=1) as frozen, client.session("s") as session:
        theirs, mine = await frozen.limiter("db", in_hand=False), await session.limiter("db", in_hand=False)
        hold = await theirs.admit(in_flight=1)
        asked = asyncio.Event()

        async def hang(*_: object, **__: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(theirs._store, "decide", hang)
            await asked.wait()
            async with asyncio.timeout(BACK):
                other = await mine.admit(in_flight=1, timeout=BACK)
            assert hold.expires_in == 0
        calls = theirs._first.calls
        calls._task.cancel()  # type: ignore[union-attr]
        await calls.start()
        await wait_until(lambda: hold.lost, timeout=GUARD, description="the holder hears of it")
        assert not other.lost
        hold.release()
        other.release()


def test_an_error_that_many_hear_of_shows_each_the_way_to_itself_only() -> None:
    """Mutant: each raise lengthens the traceback of all."""
    refusal = Refusal("failed", error=headgate.Closed("the limiter was closed"))
    for _ in range(3):
        with pytest.raises(headgate.Closed) as raised:
            raise error_of("llm", refusal, 0.0, 0.0, {}, None, None)
        assert len(raised.traceback) == 1

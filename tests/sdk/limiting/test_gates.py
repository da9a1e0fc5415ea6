"""Gates: permits are credit in hand, shared exactly between sessions, given back when others wait."""

import asyncio
import random

import pytest

import headgate
import headgate.sync
from headgate import Closed, CreditTimeout, InvalidValue, PolicyError
from tests.sdk.observing import GUARD, counts, field, waiting
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


def taken(gate: headgate.Gate, size: int) -> headgate.Permit:
    permit = gate.try_admit(size)
    assert permit is not None
    return permit


async def test_a_permit_is_held_inside_its_block_and_put_back_after(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=1000)
        async with gate.admit("600B") as permit:
            assert (permit.size, gate.in_use) == (600, 600)
            assert gate.try_admit(401) is None
            with taken(gate, 400):
                assert gate.in_use == 1000
        assert gate.in_use == 0
        with pytest.raises(RuntimeError, match="inside"):
            async with gate.admit(1000):
                raise RuntimeError("inside")
        assert gate.in_use == 0
        assert gate.try_admit(1000) is not None
    assert await counts(client, "gate") == (0, 0)


async def test_what_was_lent_for_one_call_is_for_none_that_does_not_wait(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=1000, oversize="allow-one")
    async with client.session("s") as session:
        gate = await session.gate("gate", window=1000)
        taken(gate, 1).release()
        gate._credit.lent = True
        assert gate.try_admit(1) is None
        async with gate.admit(1, timeout=GUARD):  # by the line, where it is looked at
            pass


async def test_releasing_twice_frees_once(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        one, two = gate.try_admit(50), gate.try_admit(50)
        assert one is not None
        assert two is not None
        one.release()
        one.release()
        assert gate.in_use == 50
        assert gate.try_admit(51) is None


async def test_as_many_permits_of_one_byte_as_the_limit_has_bytes(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        permits = [gate.try_admit() for _ in range(101)]
        assert sum(permit is not None for permit in permits) == 100


async def test_admission_with_credit_in_hand_makes_no_call(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit="1MiB")
    async with client.session("s") as session:
        gate = await session.gate("gate")
        before = client.store.server.calls
        for _ in range(1000):
            async with gate.admit(100):
                pass
            taken(gate, 100).release()
        assert client.store.server.calls - before <= 1, "a renewal, if anything"


async def test_two_sessions_share_a_limit_exactly(client: headgate.Client, other: headgate.Client) -> None:
    limit = 1000
    await client.apply("gate", kind="gate", limit=limit)
    inside = most = entered = 0
    rng = random.Random(7)

    async def work(gate: headgate.Gate) -> None:
        nonlocal inside, most, entered
        for _ in range(60):
            size = rng.choice((1, 50, 300, limit))
            async with asyncio.timeout(60), gate.admit(size, timeout=60):
                entered += 1
                inside += size
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= size

    async with client.session("one") as one, other.session("two") as two:
        gates = [await one.gate("gate", window=limit), await two.gate("gate", window=limit)]
        await asyncio.gather(*(work(gate) for gate in gates for _ in range(5)))
    assert (entered, inside) == (600, 0)
    assert most <= limit
    assert await counts(client, "gate") == (0, 0)
    assert await field(client, "gate", "peak_bytes") <= limit


async def test_an_idle_holder_gives_back_when_another_waits(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    async with client.session("idle") as idle, other.session("busy") as busy:
        holder = await idle.gate("gate", window=1000)
        permit = holder.try_admit(300)
        assert permit is not None
        gate = await busy.gate("gate", window=1000)
        async with asyncio.timeout(GUARD):
            async with gate.admit(700, timeout=GUARD):
                assert holder.try_admit(1) is None
                blocked = asyncio.ensure_future(gate.admit(300, timeout=GUARD).__aenter__())
                await wait_until(lambda: waiting(client, "gate"))
                assert not blocked.done(), "a permit in use is not recalled"
                permit.release()
                await blocked
        assert await field(client, "gate", "peak_bytes") <= 1000


async def test_nobody_overtakes_those_who_wait(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        permit = gate.try_admit(60)
        assert permit is not None
        entered: list[int] = []

        async def enter(size: int) -> None:
            async with gate.admit(size, timeout=GUARD):
                entered.append(size)

        entering = [asyncio.ensure_future(enter(size)) for size in (90, 10, 20)]
        await wait_until(lambda: waiting(client, "gate"))
        assert gate.try_admit(1) is None
        assert not entered
        permit.release()
        await asyncio.gather(*entering)
        assert entered == [90, 10, 20]


async def test_a_timeout_leaves_nothing_behind(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        permit = gate.try_admit(100)
        assert permit is not None
        with pytest.raises(CreditTimeout):
            async with asyncio.timeout(GUARD), gate.admit(50, timeout=0.05):
                pass
        permit.release()
        assert gate.try_admit(100) is not None


async def test_a_cancelled_admission_leaves_nothing_behind(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        for cancel_first in (True, False):
            permit = gate.try_admit(100)
            assert permit is not None
            waits = asyncio.ensure_future(gate.admit(50, timeout=GUARD).__aenter__())
            await wait_until(lambda: waiting(client, "gate"))
            for act in (waits.cancel, permit.release) if cancel_first else (permit.release, waits.cancel):
                act()
            with pytest.raises(asyncio.CancelledError):
                await waits
            whole = await wait_until(lambda: gate.try_admit(100), description="all of it is free")
            assert whole is not None
            whole.release()
            assert gate.in_use == 0


async def test_closed_gates_admit_nothing(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=100)
        waits = asyncio.ensure_future(gate.admit(1000 // 20, timeout=GUARD).__aenter__())
        held = await waits
        waits = asyncio.ensure_future(gate.admit(100, timeout=GUARD).__aenter__())
        await wait_until(lambda: waiting(client, "gate"))
        await gate.close()
        with pytest.raises(Closed):
            await waits
        held.release()
        assert gate.try_admit(1) is None
        with pytest.raises(Closed):
            async with gate.admit(1):
                pass
    assert await counts(client, "gate") == (0, 0)


async def test_bad_sizes_are_refused_before_anything_happens(client: headgate.Client) -> None:
    async with client.session("s") as session:
        gate = await session.gate("gate")
        with pytest.raises(InvalidValue):
            gate.try_admit(-1)
        for size in (-1, "10 XB", 1.5, True):
            with pytest.raises(InvalidValue):
                async with gate.admit(size):  # type: ignore[arg-type]
                    pass
        with pytest.raises(InvalidValue):
            async with gate.admit(1 << 40, timeout=-1):
                pass


async def test_a_queue_is_no_gate_and_a_gate_is_no_queue(client: headgate.Client) -> None:
    await client.apply("queue", kind="queue")
    await client.apply("gate", kind="gate")
    async with client.session("s") as session:
        with pytest.raises(PolicyError, match="'queue' is a queue"):
            await session.gate("queue")
        with pytest.raises(PolicyError, match="'gate' is a gate"):
            await session.producer("gate")
        with pytest.raises(PolicyError, match="'gate' is a gate"):
            await session.consumer("gate")


async def test_no_permit_is_given_while_the_credit_goes_back(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    async with FaultProxy(redis_url) as proxy, headgate.connect(proxy.url, namespace=cleanup_namespace) as slow:
        gate = await slow.session("s", ttl=60).gate("gate", window=1000)  # no renewal comes before it is idle
        before = slow.store.server.calls
        proxy.hold()
        await wait_until(lambda: slow.store.server.calls > before, description="it is idle, and says so right now")
        permit = gate.try_admit(1)
        proxy.pass_through()
        await wait_until(lambda: not gate._account.state.open)
        assert permit is None, "of credit that was on its way back"


async def test_an_idle_gate_keeps_no_lease(client: headgate.Client) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=1000)
        await wait_until(lambda: gate._account.state.open is False, description="idle for two seconds")
        assert await field(client, "gate", "leased_bytes") == 0
        assert gate.try_admit(1) is None
        await wait_until(lambda: gate.try_admit(1), description="the window is fetched again")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_permit_is_of_the_account_that_paid_for_it(client: headgate.Client, cancelled: bool) -> None:
    """The destination is removed in the turn between the payment and the waking up of who waited for it."""
    await client.apply("gate", kind="gate", limit=10)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=10)
        first = gate.try_admit(10)
        assert first is not None
        waiting = asyncio.ensure_future(gate.admit(5, timeout=GUARD).__aenter__())
        await wait_until(lambda: gate._account.wants)
        first.release()
        assert not gate._account.wants, "it is paid, and has not been told yet"
        gate._account.state._start_anew()
        if cancelled:
            waiting.cancel()
        ended = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if isinstance(ended, headgate.Permit):
            ended.release()
        assert gate._credit.spent >= 0
        assert gate.in_use == 0
        assert gate._credit.in_hand <= gate._credit.granted


async def test_what_a_busy_session_has_in_hand_goes_down_to_a_shadow_limit_that_comes_later(
    client: headgate.Client,
) -> None:
    """Else the shadow, which sees what is asked of Redis, counts nothing. Mutant: only a lower limit is told of."""
    await client.apply("gate", kind="gate", limit=1000)
    async with client.session("s") as session:
        gate = await session.gate("gate", window=500)

        async def work() -> None:
            while True:
                async with gate.admit(1):
                    await asyncio.sleep(0.02)

        async def leased() -> int:
            return int(await field(client, "gate", "leased_bytes"))

        async def has_much() -> bool:
            return await leased() >= 500

        async def has_little() -> bool:
            return await leased() <= 10

        async def counted() -> bool:
            return any(shadow.would_wait > 0 for shadow in (await client.explain("gate")).shadows)

        working = asyncio.create_task(work())
        try:
            await wait_until(has_much, timeout=GUARD, description="it has much in hand")
            await client.apply("gate", shadow={"bytes": 10})
            await wait_until(has_little, timeout=GUARD, description="it has little in hand")
            permits = [await gate.attempt(1) for _ in range(30)]
            assert all(permits)
            await wait_until(counted, timeout=GUARD, description="what went beyond it is counted")
        finally:
            working.cancel()


async def test_a_process_that_was_frozen_admits_nobody_with_what_others_have_by_now(
    client: headgate.Client, redis_url: str
) -> None:
    """Mutant: who waits there gets the permit that is put back, although its lease was over."""
    await client.apply("gate", kind="gate", limit=1)
    async with client.session("frozen", ttl=1) as session:
        gate = await session.gate("gate")
        permit = await gate.wait(1, GUARD)
        waits = asyncio.create_task(gate.wait(1, GUARD))
        await wait_until(lambda: waiting(client, "gate"), timeout=GUARD)
        with headgate.sync.connect(redis_url, namespace=client.namespace) as threads, threads.session() as other:
            with other.gate("gate").admit(timeout=GUARD):  # while nothing goes on here
                permit.release()
                for _ in range(20):
                    await asyncio.sleep(0.01)
                    assert not waits.done()
            (await waits).release()

"""A gate over several slots: one limit to the byte, credit goes where it is asked for, and everybody sees one gate."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, InvalidName, PolicyError, policy
from headgate.core.names import slice_name
from headgate.redis.keys import Address, PoolAddress, parse_key
from headgate.redis.stores.pools import PoolStore
from headgate.redis.stores.sliced_reads import every_slice
from tests.sdk.observing import GUARD, look
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


def slice_of(gate: headgate.Gate) -> str:
    parsed = parse_key(gate._account.address.key)
    assert parsed is not None
    return parsed[1]


async def peak(client: headgate.Client, name: str = "calls") -> int:
    """Return the most that all slices together ever had of the limit."""
    fields = await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, f"{name}#0"))
    return int(fields["peak_bytes"])


async def test_sessions_of_all_slices_share_the_limit_to_the_byte(
    client: headgate.Client, other: headgate.Client
) -> None:
    """N goes from 4 to 48, to 1 and back while they come and go."""
    limit = 1000
    await client.apply("calls", kind="gate", limit=limit, slices=4)
    inside = most = entered = 0
    dice = random.Random(7)

    async def work(gate: headgate.Gate) -> None:
        nonlocal inside, most, entered
        for _ in range(12):
            size = dice.choice((1, 50, 300, limit))
            async with gate.admit(size, timeout=GUARD):
                entered += 1
                inside += size
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= size

    async def spread() -> None:
        for slices in (48, 1, 48):
            await client.apply("calls", slices=slices)
            async with client.session() as late:
                await work(await late.gate("calls", window=300))

    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context((client, other)[number % 2].session(f"s{number}")) for number in range(8)
        ]
        gates = [await session.gate("calls", window=300) for session in sessions]
        assert Counter(map(slice_of, gates)) == {"calls": 2, "calls#1": 2, "calls#2": 2, "calls#3": 2}, "each in turn"
        assert {repr(gate).split(",")[0] for gate in gates} == {"Gate('calls'"}
        await asyncio.gather(*(work(gate) for gate in gates), spread())
    assert (entered, inside) == (11 * 12, 0)
    assert most <= limit
    assert await peak(client) <= limit
    assert (await look(client, "calls")).fields["leased_bytes"] == "0"
    assert (await client.recount("calls")).equal
    assert await client.destinations() == ["calls"]
    await client.remove("calls")
    assert await every_slice(client.store.server, client.namespace) == []


async def test_who_waits_is_told_of_the_gate_and_of_who_holds_it(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("calls", kind="gate", limit=1000, slices=3)
    async with client.session("holder") as holder, other.session("waiter") as waiter:
        first, second = await holder.gate("calls", window=10), await waiter.gate("calls", window=10)
        assert slice_of(first) != slice_of(second)
        async with first.admit(900):
            found = await second.state()
            assert found.limits["bytes"].limit == 1000
            assert 900 <= found.limits["bytes"].taken <= 1000
            with pytest.raises(CreditTimeout, match="admitted or kept ready") as caught:
                await second.admit(200, timeout=1).__aenter__()
            assert "calls" in str(caught.value)
            assert "#" not in str(caught.value)
            assert "pool" not in str(caught.value)
            refused = await second.attempt(200)
            assert isinstance(refused, headgate.Refused)
            assert refused.destination == "calls"
            waiting = asyncio.ensure_future(second.admit(500, timeout=GUARD).__aenter__())
            told = await client.explain("calls")
            assert [limit.limit for limit in told.limits if limit.unit == "bytes"] == [1000]
            assert "holder" in {leaser.session.partition("~")[0] for leaser in told.leasers}
        (await waiting).release()


async def test_a_hold_off_is_of_all_slices_also_of_those_that_come_later(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("calls", kind="gate", limit=1000, slices=3)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(client.session(f"s{number}")) for number in range(2)]
        gates = [await session.gate("calls", window=10) for session in sessions]
        for gate in gates:
            (await gate.wait(10, GUARD)).release()
        assert await gates[1].hold_off(GUARD, reason="429") == pytest.approx(GUARD)
        late = await (await stack.enter_async_context(other.session("late"))).gate("calls", window=10)
        assert slice_of(late) == "calls#2", "where nobody was before"
        for gate in (*gates, late):
            assert isinstance(await gate.attempt(20), headgate.Refused)
            assert (await gate.state()).reason == "429"
        assert await late.hold_off(0) == 0
        for gate in (*gates, late):
            (await gate.wait(20, GUARD)).release()


async def test_keys_take_turns_and_keep_their_limits_over_all_slices(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("calls", kind="gate", limit=1000, slices=3, key_limits="bytes at_once 300")
    async with client.session("a") as a, other.session("b") as b:
        first, second = await a.gate("calls", window=10), await b.gate("calls", window=10)
        async with first.admit(300, key="acme"):
            with pytest.raises(CreditTimeout):
                await second.admit(1, key="acme", timeout=0.2).__aenter__()
            async with second.admit(300, key="other", timeout=GUARD):
                assert (await second.state(key="acme")).key_limits["bytes"].taken == 300
        async with second.admit(300, key="acme", timeout=GUARD):
            pass


async def test_what_each_slice_would_keep_alone_is_refused(client: headgate.Client) -> None:
    for beside in (
        {"enforce": "with-consumers"},
        {"shadow": {"bytes": 10}},
    ):
        with pytest.raises(PolicyError, match="beside slices"):
            await client.apply("calls", kind="gate", limit=1000, slices=3, **beside)
    with pytest.raises(InvalidName, match="stands for a slice"):
        await client.apply("calls#2", kind="gate", limit=1000)
    async with client.session() as session:
        with pytest.raises(InvalidName, match="stands for a slice"):
            await session.gate("calls#2")
    document = '[[destination]]\nmatch = "calls"\nkind = "gate"\nlimit = "1kB"\nslices = 5\n'
    await client.apply_policy(policy.loads(document, "gates.toml"))
    async with client.session() as session:
        await session.gate("calls")
        assert (await look(client, "calls")).fields["sliced"] == "5"


async def test_no_kill_of_who_holds_permits_overdraws_the_limit_nor_keeps_anything(
    client: headgate.Client, redis_url: str
) -> None:
    await client.apply("calls", kind="gate", limit=1000, slices=4)
    with ExitStack() as stack:
        begin = partial(Worker, "admits", redis_url, client.namespace, "calls", 1)
        workers = [stack.enter_context(begin(number)) for number in range(3)]
        for worker in workers:
            await asyncio.to_thread(worker.ready)

        async def used() -> int:
            """Return what all slices have lent at least, whatever moves meanwhile; each is within what it was lent."""
            store = PoolStore(client.store.server)
            parts = [Address.of(client.namespace, slice_name("calls", number)) for number in range(4)]
            found = [await store.slice(part, "calls%.0") for part in parts]
            assert all(one.used <= one.held for one in found)
            return sum(one.used for one in found)

        await wait_until(used, timeout=GUARD)
        for worker in workers:
            worker.kill9()
        assert await peak(client) <= 1000
    async with client.session("last") as last, (await last.gate("calls", window=10)).admit(1000, timeout=GUARD):
        assert await peak(client) <= 1000


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("settings", "sizes"),
    [({"limit_messages": 4}, (1,) * 6), ({"limit": 120}, (25,) * 6), ({"limit": 100}, (25, 25, 25, 60))],
)
async def test_sessions_that_take_their_permits_again_at_once_keep_nobody_waiting(
    client: headgate.Client, settings: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """Mutants: each keeps its share of the whole limit, not of what its slice has; a slice keeps what is too little."""
    await client.apply("calls", kind="gate", slices=4, **settings)
    admitted = Counter[int]()

    async def work(number: int) -> None:
        gate = await client.session().gate("calls")
        while True:
            async with gate.admit(sizes[number], timeout=60):
                admitted[number] += 1
                await asyncio.sleep(0.01)

    workers = [asyncio.create_task(work(number)) for number in range(len(sizes))]
    for least in (8, 40):  # in the first, credit goes to all slices
        admitted.clear()
        await wait_until(lambda: min(admitted[number] for number in range(len(sizes))) >= least, timeout=GUARD)  # noqa: B023 - called before the next
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    if len(set(sizes)) == 1:  # two slices have two sessions each, and as many permits as those with one
        assert max(admitted.values()) < 8 * min(admitted.values()), admitted

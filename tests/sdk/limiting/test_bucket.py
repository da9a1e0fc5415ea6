"""P8: in any window T at most rate * T + burst tokens, over all hosts; first come, first served."""

import asyncio
import random
import time
from typing import Any

import pytest

import headgate
from headgate import Closed, CreditTimeout, InvalidValue, MessageTooLarge, PolicyError
from headgate.limiting.bucket import AHEAD
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until


def most_in_any_window(times: list[float], rate: float, burst: int) -> float:
    """Return by how many tokens the worst window exceeds what it may have; below zero when none does."""
    times = sorted(times)
    worst = -float("inf")
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            worst = max(worst, last - first + 1 - (rate * (times[last] - begin) + burst))
    return worst


async def slots(client: headgate.Client, name: str, session: str) -> tuple[list[float], float]:
    """Take one token at a time, ten calls of eight.

    Returns the moments of Redis' clock that were given, and by how much any of them may be too late.
    """
    address = Address.of(client.namespace, name)

    async def now() -> float:
        seen = await client.store.snapshot(address)
        assert seen is not None
        return seen.now_ms / 1000

    given, most = [], 0.0
    for seq in range(1, 11):
        before = await now()
        _, answers = await client.store.take(address, session, seq=seq, line=[(1, 60_000)] * 8)
        after = await now()
        given += [after + int(answer) / 1e6 for answer in answers]
        most = max(most, after - before)
    return given, most


async def test_no_window_has_more_than_rate_times_its_length_and_the_burst(
    client: headgate.Client, other: headgate.Client
) -> None:
    rate, burst = 400.0, 20
    await client.apply("mails", rate=rate, burst=burst)
    used: list[float] = []

    async def take(bucket: headgate.Bucket, count: int) -> None:
        for _ in range(count):
            await bucket.take(timeout=GUARD)
            used.append(asyncio.get_running_loop().time())

    async with client.session("one") as one, other.session("two") as two:
        buckets = [await one.bucket("mails"), await two.bucket("mails")]
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(take(bucket, 10) for bucket in buckets for _ in range(12)))
    assert len(used) == 240
    # A slot is never used early, and no slot is earlier than the first call: however late the uses, nothing may show.
    assert len(used) <= rate * (max(used) - began) + burst
    assert (await client.explain("mails")).fields["taken"] == "240"


@pytest.mark.one_server
async def test_the_slots_that_redis_gives_two_clients_keep_the_rate_in_every_window(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("mails", rate=1000, burst=10)
    one, two = await asyncio.gather(slots(client, "mails", "one"), slots(other, "mails", "two"))
    late = max(one[1], two[1]) + 0.001  # and now_ms is in whole milliseconds
    assert most_in_any_window(one[0] + two[0], 1000, 10) <= 1000 * late


async def test_a_burst_is_there_at_once_and_the_rest_comes_in_order(client: headgate.Client) -> None:
    await client.apply("mails", rate=50, burst=5)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        order: list[int] = []

        async def take(number: int) -> None:
            await bucket.take(timeout=GUARD)
            order.append(number)

        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(take(number) for number in range(15)))
        await bucket.take(5, timeout=GUARD)
        assert order == list(range(15))
        assert asyncio.get_running_loop().time() - began >= (20 - 5) / 50 * 0.99


async def test_a_refusal_takes_nothing(client: headgate.Client) -> None:
    await client.apply("mails", rate=1, burst=3)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        await bucket.take(2)
        with pytest.raises(CreditTimeout, match="the rate allows it in") as caught:
            await bucket.take(3, timeout=0.1)
        assert (caught.value.destination, caught.value.size) == ("mails", 3)
        with pytest.raises(MessageTooLarge) as large:
            await bucket.take(4, timeout=GUARD)
        assert (large.value.size, large.value.limit) == (4, 3)
        async with asyncio.timeout(GUARD):
            await bucket.take(1, timeout=0)
        assert (await client.explain("mails")).fields["taken"] == "3"


async def test_a_late_one_does_not_hold_up_those_behind_it(client: headgate.Client) -> None:
    await client.apply("mails", rate=1, burst=3)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        results = await asyncio.gather(
            bucket.take(2, timeout=0),
            bucket.take(3, timeout=0.1),
            bucket.take(1, timeout=0),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), CreditTimeout, type(None)]


async def test_what_was_cancelled_holds_nobody_up_for_longer_than_slots_are_given_ahead(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Breaks where slots are given further ahead; a limiter's line reserves nothing, so there nothing is lost."""
    await client.apply("mails", rate="1/s", burst=1)
    await client.apply("calls", kind="limiter", limits={"calls": {"rate": "1/h", "burst": 1}})
    async with client.session("gives up") as one, other.session("comes after") as two:
        bucket, limiter = await one.bucket("mails"), await one.limiter("calls", in_hand=False)
        (await limiter.admit(calls=1)).release()
        takes = [asyncio.create_task(bucket.take(timeout="unlimited")) for _ in range(300)]
        takes += [asyncio.create_task(_wait(limiter.admit(calls=1, timeout="unlimited"))) for _ in range(10)]
        own, later = await two.bucket("mails"), await two.limiter("calls", in_hand=False)

        async def all_wait() -> bool:
            refused = await own.try_take()
            return not refused and (refused.retry_after or 0) > AHEAD - 5 and (await later.state()).waiting > 0

        await wait_until(all_wait)
        for take in takes:
            take.cancel()
        await asyncio.gather(*takes, return_exceptions=True)
        refused = await own.try_take()
        assert not refused
        assert refused.retry_after is not None
        assert refused.retry_after <= AHEAD + 2, "a slot more, and the time of this call"

        async def nobody_waits() -> bool:
            return (await later.state()).waiting == 0

        await wait_until(nobody_waits)
        left = await later.attempt(calls=1)
        assert isinstance(left, headgate.Refused)
        assert left.retry_after is not None
        assert left.retry_after <= 3600


async def _wait(admission: Any) -> None:
    await admission


async def test_all_takes_of_one_turn_are_one_call(client: headgate.Client) -> None:
    await client.apply("mails", rate=100_000, burst=1000)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        before = client.store.server.calls
        await asyncio.gather(*(bucket.take() for _ in range(100)))
        assert client.store.server.calls - before == 1


async def test_a_try_never_waits_and_says_when_to_try_again(client: headgate.Client) -> None:
    await client.apply("mails", rate=0.1, burst=5)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        assert await bucket.try_take(4) is True
        refused = await bucket.try_take(2)
        assert not refused
        assert isinstance(refused, headgate.Refused)
        assert refused.retry_after is not None
        assert refused.retry_after == pytest.approx(10, abs=GUARD / 10)
        state = await bucket.state()
        assert state is not None
        assert (state.limit, state.remaining + state.taken) == (5, 5)
        assert 1 <= state.remaining < 5
        with pytest.raises(CreditTimeout) as late:
            await bucket.take(5, timeout=1)
        assert late.value.retry_after is not None
        assert late.value.retry_after > refused.retry_after
        assert await (await session.bucket("free")).state() is None


async def test_a_rate_raised_is_in_force_for_the_next_take(client: headgate.Client) -> None:
    await client.apply("mails", rate=1, burst=1)
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        await bucket.take()
        with pytest.raises(CreditTimeout):
            await bucket.take(timeout=0.1)
        await client.apply("mails", rate=1000, burst=10)
        async with asyncio.timeout(GUARD):
            await bucket.take(5, timeout=GUARD)


async def test_one_that_nobody_set_has_no_limit(client: headgate.Client) -> None:
    async with client.session("s") as session:
        bucket = await session.bucket("free")
        async with asyncio.timeout(GUARD):
            await bucket.take(1_000_000, timeout=0.5)
        assert await session.bucket("free") is bucket


async def test_what_cannot_be_taken_is_refused(client: headgate.Client) -> None:
    await client.apply("queue", kind="queue")
    session = client.session("s")
    with pytest.raises(PolicyError, match="'queue' is a queue"):
        await session.bucket("queue")
    bucket = await session.bucket("free")
    for tokens in (0, -1, 1.5, True, "2"):
        with pytest.raises(InvalidValue, match="tokens"):
            await bucket.take(tokens)  # type: ignore[arg-type]
    await session.close()
    with pytest.raises(Closed):
        await bucket.take()


async def test_wrong_clocks_of_hosts_admit_nobody_more(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wall clocks that jump half a minute back and forth: the bucket fills by Redis' clock alone."""
    jumps, real = random.Random(22), time.time
    await client.apply("emails", kind="bucket", rate="1/h", burst=20)

    async def admitted() -> int:
        async with client.session("a") as a, other.session("b") as b:
            buckets = [await a.bucket("emails"), await b.bucket("emails")]
            takes = [bucket.take(timeout=0.1) for bucket in buckets * 20]
            return sum(one is None for one in await asyncio.gather(*takes, return_exceptions=True))

    monkeypatch.setattr("time.time", lambda: real() + jumps.choice((-30, 30)))
    assert await admitted() == 20
    assert await admitted() == 0

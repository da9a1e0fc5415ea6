"""What a topic of a channel may send of the channel's rate: taken ahead a little, and lost when it is not used."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.core.links.channel import USE_WITHIN, Channel
from headgate.errors import CoordinatorUnavailable
from headgate_coordinator.links.rates import ChannelRate


class Bucket:
    """Stands in for the store: gives what is asked for, and counts it."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.seqs: list[int] = []
        self.waits: list[str] = []
        self.trouble: list[Any] = []
        self.made = 0

    async def apply(self, *_: object, **__: object) -> None:
        self.made += 1

    async def take(
        self, address: object, session: str, *, seq: int, line: Sequence[tuple[int, int]]
    ) -> tuple[str, list[str]]:
        del address, session
        self.seqs.append(seq)
        if self.trouble:
            told = self.trouble.pop(0)
            if callable(told):
                told()
                raise CoordinatorUnavailable("no answer")
            return str(told), []
        self.taken.append(line[0][0])
        return "OK", [self.waits.pop(0) if self.waits else "0"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def allowance(bucket: Bucket, clock: Clock) -> ChannelRate:
    channel = Channel("quotes", ("prices",), "239.1.2.3", 7000, maxrate=100_000)
    made = ChannelRate(bucket, "shop", channel, lambda _: None)  # type: ignore[arg-type]  # what it asks of a store
    made._loop = clock  # type: ignore[assignment]
    return made


async def test_no_more_is_taken_than_is_at_hand_and_no_more_than_a_slice(
    allowance: ChannelRate, bucket: Bucket
) -> None:
    await allowance.pay(100, 100)
    assert bucket.taken == [100]
    ahead = 12_000
    for _ in range(12):
        await allowance.pay(1000, ahead)
        ahead -= 1000
    assert bucket.taken == [100, 5000, 5000, 2000]


async def test_what_is_not_used_in_time_is_lost(allowance: ChannelRate, bucket: Bucket, clock: Clock) -> None:
    """Breaks when what was taken is good for ever: a node that stood still would send two slices at once."""
    await allowance.pay(1000, 4000)
    clock.now += USE_WITHIN * 0.9
    await allowance.pay(1000, 3000)
    assert bucket.taken == [4000]
    clock.now += USE_WITHIN * 0.2
    await allowance.pay(1000, 2000)
    assert bucket.taken == [4000, 2000]


async def test_what_was_taken_by_a_call_without_an_answer_is_as_old_as_that_call(
    allowance: ChannelRate, bucket: Bucket, clock: Clock
) -> None:
    """Breaks when the time is counted from the call that was answered: the slot was given before."""

    def outage() -> None:
        clock.now += 2 * USE_WITHIN

    bucket.trouble.append(outage)
    await allowance.pay(1000, 1000)
    assert bucket.taken == [1000, 1000], "the first is too old"
    assert bucket.seqs == [1, 1, 2], "asked again, it is the same call"


async def test_a_slot_to_come_is_waited_for_and_counts_from_then(
    allowance: ChannelRate, bucket: Bucket, clock: Clock
) -> None:
    bucket.waits.append("30000")
    began = asyncio.get_running_loop().time()
    await allowance.pay(1000, 4000)
    assert asyncio.get_running_loop().time() - began >= 0.03
    clock.now += USE_WITHIN + 0.02
    await allowance.pay(1000, 3000)
    assert bucket.taken == [4000]


async def test_a_bucket_that_is_gone_is_made_again(allowance: ChannelRate, bucket: Bucket) -> None:
    bucket.trouble.append("UNKNOWN")
    await allowance.pay(1000, 1000)
    assert (bucket.made, bucket.taken) == (1, [1000])
    assert bucket.seqs == [1, 2]

"""The model under all that a policy can set: each rule binds where it should, and says so."""

from collections.abc import Mapping
from math import inf

import numpy as np
import pytest

from headgate_pipeline.simulate import bucket_model as takes
from headgate_pipeline.simulate.flow import replay, replay_all
from headgate_pipeline.simulate.model import Outcome, Period
from headgate_pipeline.simulate.rules import Bucket, Rules


def period(sends: list[list[float]], settled: float, bins: int = 100, message: float = 10) -> Period:
    """Senders send messages of one size at the begin; consumers, always busy, take the same in every bin of 10 ms."""
    cells = np.zeros((len(sends), bins))
    for cell, sent in zip(cells, sends, strict=True):
        cell[: len(sent)] = sent
    busy = np.ones(bins)
    return Period(
        10, cells, cells.sum(0), busy * settled, busy, busy, idle=0, waited=0, began_with=0, messages=cells / message,
        consumers=2,
    )  # fmt: skip


def under(
    rules: Rules, *sends: list[float], settled: float = 1000, pools: Mapping[str, float] | None = None
) -> Outcome:
    return replay_all([period(list(sends), settled)], [rules], pools)[0]


def test_messages_bind_where_they_are_fewer_than_bytes_allow() -> None:
    """100 messages at once, 2 leave in a bin: under 40, 60 wait for 30 bins. Mutant: the limit in messages not used."""
    told = under(Rules(limit=10_000, limit_m=40), [1000], settled=20)
    assert told.waited == pytest.approx(300, abs=30)
    assert told.peak == pytest.approx(400)
    assert set(told.causes) == {"messages"}


@pytest.mark.parametrize(
    ("rules", "cause", "ms"),
    [
        (Rules(sends=Bucket(200, 10)), "rate", 450),  # 100 messages, 10 at once: 90 at 200 a second
        (Rules(send_bytes=Bucket(2000, 100)), "rate", 450),
        (Rules(each_sends=Bucket(200, 1)), "own rate", 495),
        (Rules(each_bytes=Bucket(2000, 1)), "own rate", 499),
    ],
)
def test_a_rate_makes_senders_wait_and_never_counts_as_full(rules: Rules, cause: str, ms: float) -> None:
    """Mutants: the burst granted in each bin; a rate refused as if there was no room."""
    told = under(rules, [1000])
    assert told.waited == pytest.approx(ms, abs=15)
    assert (set(told.causes), told.refused) == ({cause}, 0)
    assert under(Rules(sends=Bucket(200, 10), patience=0), [1000]).refused == 0


def test_a_rate_saves_no_more_than_its_burst_while_nobody_sends() -> None:
    """Mutant: tokens not capped at the burst."""
    told = under(Rules(sends=Bucket(200, 10)), [0.0] * 50 + [1000])
    assert told.waited == pytest.approx(450, abs=15)


def test_deliveries_are_no_faster_than_their_rate() -> None:
    """Mutant: the consumers' capacity alone."""
    assert under(Rules(deliveries=Bucket(200, 10)), [1000]).took == pytest.approx(450, abs=20)
    assert under(Rules(each_takes=Bucket(100, 1)), [1000]).took == pytest.approx(500, abs=20)  # there are two


def test_what_is_full_stays_shut_until_it_may_resume() -> None:
    """Mutant: `shut` never set."""
    told = under(Rules(limit=500, resume=100), [1000], settled=10)
    assert told.causes["resume"] == pytest.approx(2 * 400, abs=30)  # twice
    assert told.levels[10] < told.levels[0]


def test_when_full_refuses_at_once_or_after_a_while() -> None:
    """Mutants: patience ignored; what is refused still let in later."""
    told = under(Rules(limit=400, patience=0), [1000], settled=10)
    assert (told.refused, told.waited) == (600, 10)
    told = under(Rules(limit=400, patience=95), [1000, 0, 50], settled=1)
    assert told.refused > 0
    assert told.unsent == 0
    assert under(Rules(limit=400, patience=10_000), [1000], settled=10).refused == 0


def test_a_pool_is_one_limit_for_all_of_it() -> None:
    """Mutants: each member measured against the pool alone; members that are no members counted too."""
    three = [period([[1000]], 10), period([[500]], 10), period([[1000]], 10)]
    rules = [Rules(pools=("p",)), Rules(pools=("p",)), Rules()]
    told = replay_all(three, rules, {"p": 600})
    assert told[0].levels[0] + told[1].levels[0] + 20 == pytest.approx(600)
    assert told[0].levels[20] + told[1].levels[20] + 20 == pytest.approx(600)  # full, as long as there is more
    assert [set(one.causes) for one in told] == [{"pool p"}, {"pool p"}, set()]
    assert replay_all(three, rules, {"p": inf})[0].waited == 0


def test_windows_that_are_wider_take_more_room() -> None:
    """Mutant: the credit held unused as it was."""
    seen = period([[1000]], 10)
    wide = Period(10, seen.sends, seen.published, seen.settled, seen.pending, seen.least, 100, 0, 0, seen.messages)
    peaks = [replay_all([wide], [Rules(limit=500, idle=idle)])[0].peak for idle in (1.0, 2.0, 9.0)]
    assert peaks == [400, 300, 250]  # never more than half of the limit


def test_without_any_limit_it_is_as_with_one_that_never_binds() -> None:
    """Mutant: levels of the sums let below nothing."""
    seen = period([[100, 0, 0, 900], [0, 50]], 60)
    sums, steps = replay(seen, inf), replay(seen, 1e9)
    assert sums.levels == pytest.approx(steps.levels, abs=1e-6)  # and no more: quiet time would count as evidence
    assert (sums.peak, sums.took, sums.waited) == (steps.peak, steps.took, 0)
    assert sums.delay == pytest.approx(steps.delay, abs=1)


def test_consumers_that_are_faster_than_what_comes_stay_so() -> None:
    """A message every 5th bin, settled two bins later. Mutants: their mean is over bins in which none is settled; only
    the mean where the last one left.
    """
    comes, goes = np.zeros(100), np.zeros(100)
    comes[::5], goes[2::5] = 10, 10
    pending = np.cumsum(comes - goes)
    least = np.minimum(pending, np.concatenate(([0.0], pending[:-1])))
    seen = Period(10, comes[None, :], comes, goes, pending, least, idle=0, waited=0, began_with=0)
    assert seen.rate == pytest.approx(10 / 3)
    assert seen.capacity[:4] == pytest.approx([10 / 3, 0, 10, 10 / 3])
    assert replay(seen, 100).waited == 0
    assert replay(seen, 100).took <= 1000


def test_takers_of_a_bucket_wait_for_their_slot() -> None:
    """10 tokens at once and 10 a second. Mutants: the burst not given; tokens that were refused not asked for."""
    ms, taken, refused, tat = takes.arrays([0, 100], [20, 10], [0, 5], [2_000_000, 3_000_000])
    bucket = Bucket(10, 10)
    told = takes.recorded(ms, taken, refused, tat, bucket)
    assert (told.waited, told.refused) == (1000 + 1900, 5)
    assert takes.replay(ms, taken + refused, bucket).waited == pytest.approx(1000 + 2400)
    assert takes.replay(ms, taken + refused, Bucket(1000, 35)).waited == 0
    assert takes.replay(ms, taken, None).delay_p99 == 0

"""P8: in any window T at most rate*T + burst are admitted, whoever asks; Redis' clock is the only one."""

import random

import pytest

from headgate.errors import InvalidValue
from headgate.redis.scripts import lua_root
from tests.lua.place import TTL_MS, Place

SECOND_US = 1_000_000


async def take(place: Place, session: str, seq: int, *line: tuple[int, int]) -> list[str]:
    place.sessions.add(session)
    code, answers = await place.store.take(place.address, session, seq=seq, line=line)
    assert code == "OK"
    return answers


def most_beyond(admitted: list[tuple[int, int]], rate: int, burst: int) -> float:
    """Return by how much the fullest window exceeds its bound; ``admitted`` holds (microsecond, tokens)."""
    admitted = sorted(admitted)
    worst = -float("inf")
    for first in range(len(admitted)):
        total = 0
        for at, tokens in admitted[first:]:
            total += tokens
            worst = max(worst, total - (rate * (at - admitted[first][0]) / SECOND_US + burst))
    return worst


@pytest.mark.parametrize(("rate", "burst"), [(10, 5), (1000, 1), (3, 20)])
async def test_no_window_admits_more_than_its_rate_and_burst(place: Place, rate: int, burst: int) -> None:
    """Mutant: the tolerance is doubled."""
    await place.create("bucket", rate=str(rate), burst=str(burst))
    chance = random.Random(7)
    admitted: list[tuple[int, int]] = []
    for seq in range(1, 120):
        line = [(chance.randint(1, burst), chance.choice((0, 100, 2000))) for _ in range(chance.randint(1, 4))]
        answers = await take(place, f"s{seq % 3}", seq, *line)
        for (tokens, patience), answer in zip(line, answers, strict=True):
            if answer.isdecimal():
                assert int(answer) <= patience * 1000
                admitted.append((place.now * 1000 + int(answer), tokens))
        await place.wait(chance.choice((0, 0, 1, 10, 200, 1000 * burst // rate)))
    assert len(admitted) > 20
    assert most_beyond(admitted, rate, burst) <= 0


async def test_an_idle_bucket_admits_its_burst_at_once_and_no_more(place: Place) -> None:
    """Mutant: the tolerance is doubled."""
    await place.create("bucket", rate="10", burst="5")
    assert await take(place, "ann", 1, *[(1, 0)] * 6) == ["0"] * 5 + ["late:100000"]
    await place.wait(10_000)
    assert await take(place, "ann", 2, *[(1, 0)] * 6) == ["0"] * 5 + ["late:100000"]


async def test_all_sessions_share_one_rate(place: Place) -> None:
    """Mutant: `take` does not keep when the next slot is."""
    await place.create("bucket", rate="10", burst="1")
    waits = [await take(place, session, 1, (1, 5000)) for session in ("ann", "bob", "cid")]
    assert waits == [["0"], ["100000"], ["200000"]]


async def test_a_refusal_costs_nothing(place: Place) -> None:
    """Mutant: who is late pays all the same."""
    await place.create("bucket", rate="10", burst="2")
    answers = await take(place, "ann", 1, (2, 0), (2, 100), (9, 100), (1, 100))
    assert answers == ["0", "late:200000", "never:2", "100000"]


async def test_a_bucket_without_a_rate_admits_everything(place: Place) -> None:
    """Mutant: 'unlimited' is no rate to reckon with."""
    await place.create("bucket")
    assert await take(place, "ann", 1, (10**6, 0), (10**6, 0)) == ["0", "0"]


async def test_tokens_left_or_owed_survive_a_change_of_rate(place: Place) -> None:
    """P12. Mutant: `apply` forgets what is owed."""
    await place.create("bucket", rate="1", burst="10")
    await take(place, "ann", 1, (10, 0), (5, 60_000))
    await place.change(rate="100", burst="10")
    assert await take(place, "ann", 2, (1, 60_000)) == ["60000"], "five owed and one, at a hundred a second"


async def test_only_buckets_are_taken_from(place: Place) -> None:
    """Mutant: `take` without KIND."""
    await place.create("queue")
    assert (await place.store.take(place.address, "-", seq=1, line=[(1, 0)]))[0] == "KIND"
    assert (await place.store.apply(place.address, {"kind": "bucket"}, mode="ensure", ttl_ms=TTL_MS))[0] == "KIND"


async def test_a_clock_that_was_set_back_leaves_the_bucket_as_it_was(place: Place) -> None:
    """Mutant: `take` does not move `tat` back with the clock."""
    await place.create("bucket", rate="10", burst="5")
    assert await take(place, "ann", 1, *[(1, 0)] * 6) == ["0"] * 5 + ["late:100000"]
    await place.wait(-3_600_000)
    assert await take(place, "ann", 2, (1, 0)) == ["late:100000"]
    await place.wait(100)
    assert await take(place, "ann", 3, (1, 0)) == ["0"]


@pytest.mark.parametrize("microseconds", [0, 45, 5123, 999_999])
async def test_microseconds_are_a_number_and_not_digits(place: Place, microseconds: int) -> None:
    """Redis tells seconds and microseconds as two texts; glued together, 45 would mean 450,000."""
    clock = (lua_root() / "lib" / "clock.lua").read_text(encoding="utf-8")
    told = f"local redis = {{ call = function() return {{ '1700000000', '{microseconds}' }} end }}\n"
    both = "return { string.format('%d', now_us), string.format('%d', now_ms) }"
    answer = await place.server.command(b"", "EVAL", told + clock + both, 0)
    us = 1_700_000_000_000_000 + microseconds
    assert [int(number) for number in answer] == [us, us // 1000]


async def test_no_slot_is_more_than_a_minute_ahead(place: Place) -> None:
    """Mutant: a slot is as far ahead as its caller would wait; who asks for many keeps all others out for days."""
    await place.create("bucket", rate="1", burst="1")
    answers = await take(place, "greedy", 1, *[(1, 10**12)] * 128)
    given = [int(answer) for answer in answers if answer.isdecimal()]
    assert given == [number * SECOND_US for number in range(61)]
    assert answers[61:] == ["late:61000000"] * 67
    await place.wait(10_000)
    assert await take(place, "ann", 1, (1, 60_000)) == ["51000000"]


async def test_a_burst_that_takes_longer_than_ten_years_is_refused_or_kept_to(place: Place) -> None:
    """Mutant: `owe` has no end; the sums were beyond what is exact, and burst after burst passed."""
    with pytest.raises(InvalidValue):
        await place.create("bucket", rate="0.0001", burst=str(10**10))
    await place.create("bucket", rate="1", burst="1")
    key = place.address.shared[0]  # as an earlier version took it
    await place.server.command(key, "HSET", key, "rate", "0.0001", "burst", 10**10)
    answers = await take(place, "ann", 1, *[(10**10, 0)] * 5)
    assert answers[0] == "0"
    assert all(answer.startswith("late:") for answer in answers[1:])


async def test_what_was_taken_in_all_stops_where_numbers_end(place: Place) -> None:
    """Mutant: it is added up without end, and fails in the middle of a call."""
    await place.create("bucket", rate="100", burst="100")
    key = place.address.shared[0]
    await place.server.command(key, "HSET", key, "taken", 2**53 - 20)
    assert await take(place, "ann", 1, (50, 0)) == ["0"]
    assert await place.server.command(key, "HGET", key, "taken") == str(2**53 - 1).encode()

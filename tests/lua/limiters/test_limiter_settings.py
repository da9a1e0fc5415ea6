"""Settings of a limiter: what `apply` refuses of them, and what becomes of what rates are owed when they change."""

import random
from fractions import Fraction

import pytest

from headgate.errors import InvalidValue
from tests.lua.place import BEGIN_MS, TTL_MS, Place

NOW_US = BEGIN_MS * 1000
LIMITS = "requests rate 10 5;in_flight at_once 50;spend quota 1000 day 60"


async def refused(place: Place, **settings: str) -> bool:
    """Return whether the script itself refuses settings, and keep that nothing of them was written."""
    key = place.address.keys("-")[0]
    before = await place.server.command(b"", "HGETALL", key)
    try:
        await place.store.apply(place.address, settings, mode="change", ttl_ms=TTL_MS)
    except InvalidValue:
        assert await place.server.command(b"", "HGETALL", key) == before
        return True
    return False


async def field(place: Place, name: str) -> str | None:
    value = await place.server.command(b"", "HGET", place.address.keys("-")[0], name)
    return value.decode() if value is not None else None


async def put(place: Place, **fields: object) -> None:
    pairs = [part for pair in fields.items() for part in pair]
    await place.server.command(b"", "HSET", place.address.keys("-")[0], *pairs)


BAD_LIMITS = (
        "requests", "requests rate", "requests rate 1", "requests rate 0 1", "requests rate 1e16 1",
        "requests rate 1e-10 1",
        "requests rate 1 0", "requests rate -1 1", "requests rate nan 1", "requests rate 0x10 1", "requests rate 1 1 1",
        "requests rate 1 4503599627370497", "requests rate 0.001 1000000000", "requests rate 1 1;",
        ";requests rate 1 1",
        "requests rate 1 1;requests at_once 1", "Requests rate 1 1", "1st rate 1 1", f"{'n' * 33} rate 1 1",
        "a-b rate 1 1",
        "in_flight at_once 0", "in_flight at_once 1.5", "in_flight at_once 1 1", "in_flight at_once 4503599627370497",
        "spend quota 1 year 0", "spend quota 1 day", "spend quota 0 day 0", "spend quota 1 day 1440",
        "spend quota 1 hour 60",
        "spend quota 1 month 40320", "spend quota 1 week 10080", "spend count 1", "requests  rate 1 1",
        ";".join(f"n{number} at_once 1" for number in range(17)),
)  # fmt: skip


@pytest.mark.one_server
async def test_limits_that_mean_nothing_or_would_not_stay_exact_are_refused(place: Place) -> None:
    """Mutant: `apply` takes any text."""
    await place.create("limiter", limits=LIMITS)
    for limits in BAD_LIMITS:
        assert await refused(place, limits=limits), limits


@pytest.mark.one_server
async def test_what_is_in_bounds_is_taken(place: Place) -> None:
    """Mutant: `apply` refuses the ends of the ranges."""
    sixteen = ";".join(f"n{number} at_once 4503599627370496" for number in range(16))
    await place.create("limiter", limits=sixteen)
    for limits in (
        sixteen,
        f"{'n' * 32} rate 1e+15 4503599627370496;b rate 1e-08 1",
        "a quota 1 hour 59;b quota 1 day 1439;c quota 1 week 10079;d quota 1 month 40319",
        "",
    ):
        assert not await refused(place, limits=limits), limits
    assert not await refused(
        place, limits=LIMITS, key_limits="in_flight at_once 5", key_weights="gold-*=4;%C3%A9=1000;*=1"
    )
    assert not await refused(place, key_weights=";".join(f"k{number}=1" for number in range(256)))
    assert not await refused(place, zone="0 3600 1774746000 7200 1792890000 -18000")


BAD_SETTINGS = (
        {"key_limits": "requests at_once 1"}, {"key_limits": "spend quota 1 day 0"},
        {"key_limits": "spend quota 1 week 60"}, {"key_limits": "requests rate 1"},
        {"key_weights": "gold=0"}, {"key_weights": "gold=1001"}, {"key_weights": "gold"}, {"key_weights": "a*b=1"},
        {"key_weights": "gold=1;"}, {"key_weights": "a b=1"}, {"key_weights": ";".join(f"k{n}=1" for n in range(257))},
        {"zone": "0"}, {"zone": "0 90000"}, {"zone": "5 0 5 0"}, {"zone": "9 0 5 0"}, {"zone": "0 0 x"},
        {"zone": "0  0"},
        {"zone": "0 0 "}, {"zone": " ".join(f"{n} 0" for n in range(129))}, {"zone": "999999999999 0"},
        {"unknown_keys": "allow"}, {"max_keys": "0"}, {"max_keys": "10000001"}, {"hold_off_ms": "86400001"},
        {"lease_ahead_ms": "60001"}, {"ledger_keys": "all"},
)  # fmt: skip


@pytest.mark.one_server
async def test_other_settings_that_mean_nothing_are_refused(place: Place) -> None:
    """Mutant: limits of keys that all together do not have; weights and zones of any form."""
    await place.create("limiter", limits=LIMITS, key_limits="spend quota 10 day 60")
    for settings in BAD_SETTINGS:
        assert await refused(place, **settings), settings


async def test_what_a_rate_is_owed_stays_owed_and_is_paid_at_the_new_rate(place: Place) -> None:
    """Mutants: what is owed is forgotten; it is kept as time, and not as tokens."""
    await place.create("limiter", limits=LIMITS)
    await put(place, levels=f"requests={NOW_US + 300_000};in_flight:7;spend=12@{BEGIN_MS};OFF=5@6;TAG=9")
    await place.change(limits=LIMITS.replace("10 5", "2 20"))  # three tokens are owed
    assert (
        await field(place, "levels") == f"requests={NOW_US + 1_500_000};in_flight:7;spend=12@{BEGIN_MS};OFF=5@6;TAG=9"
    )
    await place.change(limits=LIMITS.replace("10 5", "100 2"))  # and two of them, the whole burst
    assert (await field(place, "levels") or "").startswith(f"requests={NOW_US + 20_000};in_flight:7")
    await place.change(limits=LIMITS.replace("rate 10 5", "at_once 3"))
    assert await field(place, "levels") == f"in_flight:7;spend=12@{BEGIN_MS};OFF=5@6;TAG=9"


@pytest.mark.one_server
async def test_carried_over_is_never_less_than_what_is_owed_and_at_most_a_microsecond_more(place: Place) -> None:
    """Against exact fractions. Mutant: it is rounded down."""
    chance = random.Random(5)
    await place.create("limiter", limits="a rate 1 1")
    for _ in range(60):
        rates = [chance.choice((0.01, 1 / 3, 8.333333333333334, 1000.0, 2.5e6)) for _ in range(2)]
        bursts = [chance.randint(1, 10**6) for _ in range(2)]
        ahead = chance.choice((0, 1, 999, 10**6, 10**9))
        await place.change(limits=f"a rate {rates[0]!r} {bursts[0]}")
        await put(place, levels=f"a={NOW_US + ahead}")
        await place.change(limits=f"a rate {rates[1]!r} {bursts[1]}")
        tat = int((await field(place, "levels") or "").removeprefix("a="))
        if (rates[0], bursts[0]) == (rates[1], bursts[1]):
            assert tat == NOW_US + ahead
            continue
        owed = min(Fraction(ahead) * Fraction(rates[0]) / 10**6, Fraction(bursts[1]))
        exact = NOW_US + owed * 10**6 / Fraction(rates[1])
        assert exact - Fraction(1, 1000) <= tat <= exact + 2, (rates, bursts, ahead)


async def test_limits_of_keys_that_change_are_noted_for_the_records_of_keys(place: Place) -> None:
    """Mutants: what was before is not kept; every change counts as one."""
    await place.create("limiter", limits=LIMITS, key_limits="requests rate 1 1")
    assert [await field(place, name) for name in ("before", "generation", "changed_us")] == [None] * 3
    await place.wait(5)
    await place.change(key_limits="requests rate 2 1")
    noted = ["requests rate 1 1", "1", str(NOW_US + 5000)]
    assert [await field(place, name) for name in ("before", "generation", "changed_us")] == noted
    await place.wait(5)
    await place.change(limits=LIMITS, key_limits="requests rate 2 1", max_keys="5")
    assert [await field(place, name) for name in ("before", "generation", "changed_us")] == noted
    await put(place, called_us=NOW_US + 70_000, skew_us=20_000)  # the limiter's clock was ahead already
    await place.change(key_limits="")
    assert [await field(place, name) for name in ("before", "generation", "changed_us")] == [
        "requests rate 2 1", "2", str(NOW_US + 70_000),
    ]  # fmt: skip


async def test_leases_and_waiters_of_a_limiter_are_left_alone(place: Place) -> None:
    """They are of holds, and not of sessions. Mutant: `apply` reaps here too."""
    await place.create("limiter", limits=LIMITS)
    keys = place.address.keys("-")
    await place.server.command(b"", "ZADD", keys[2], 1, "ann.1")
    await place.server.command(b"", "ZADD", keys[3], 0, "gold 0000000000000001 ann.2")
    await put(place, blocked=1)
    await place.change(limits="requests rate 5 5")
    assert await place.server.command(b"", "ZCARD", keys[2]) == 1
    assert await place.server.command(b"", "ZCARD", keys[3]) == 1

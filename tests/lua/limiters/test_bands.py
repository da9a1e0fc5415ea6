"""Bands: the better one goes first, and nobody is passed for ever."""

import pytest

from headgate.errors import InvalidValue
from headgate.redis.stores.limiters import HoldCall
from tests.lua.limiters.trial import Limiter

pytestmark = pytest.mark.one_server


async def test_the_better_band_goes_first_and_within_a_band_in_turn(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    for number, band in enumerate(("~7", "", "~0", "~7", "~0"), 1):
        assert (await limiter.admit(f"bob.{number}", f"slots=1{band}", wait_ms=99_000)).startswith("wait ")
    order, before = [], "ann.1"
    for _ in range(5):
        await limiter.release(before)
        before = next(e.split(":")[1] for _, e in reversed(await limiter.events()) if e.startswith("held:"))
        order.append(before)
    assert order == ["bob.3", "bob.5", "bob.2", "bob.1", "bob.4"]


async def test_a_band_is_passed_as_far_as_may_be_and_then_has_its_turn(limiter: Limiter) -> None:
    """Of a rate of 10 a second band 2 is passed for 2 s; what it takes costs it 32 times that, at most 2 s."""
    await limiter.create("calls rate 10 1")
    assert await limiter.admit("ann.99", "calls=1") == "held"
    for number in range(1, 4):
        assert (await limiter.admit(f"low.{number}", "calls=1~2", wait_ms=99_000)).startswith("wait ")
    assert (await limiter.admit("ann.1", "calls=1~0", wait_ms=99_000)).startswith("wait ")
    order = []
    for number in range(2, 50):
        await limiter.wait(100)
        await limiter.admit(f"ann.{number}", "calls=1~0", wait_ms=99_000)
        for waiter in (1, 2, 3):
            await limiter.one("renew", f"low.{waiter}")
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
    places = [order.index(f"low.{waiter}") for waiter in (1, 2)]
    assert 20 <= places[0] <= 22
    assert 20 <= places[1] - places[0] <= 22


async def test_of_those_that_were_passed_far_enough_the_one_that_was_so_first_goes(limiter: Limiter) -> None:
    await limiter.create("calls rate 10 30")
    assert await limiter.admit("ann.1", "calls=30~0") == "held"
    assert (await limiter.admit("ann.2", "calls=25~0", wait_ms=99_000)).startswith("wait ")
    for band in (2, 1):
        assert (await limiter.admit(f"low.{band}", f"calls=5~{band}", wait_ms=99_000)).startswith("wait ")
    for _ in range(7):
        await limiter.wait(500)
        await limiter.admit("ann.3", "calls=5~0", wait_ms=99_000)
        await limiter.one("renew", "low.1")
        await limiter.one("renew", "low.2")
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
    assert order == ["ann.1", "ann.2", "low.1", "low.2"]


async def test_who_waits_alone_in_its_band_is_served_at_once_and_owes_nothing_for_it(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1~0") == "held"
    for number in range(1, 9):
        assert (await limiter.admit(f"low.{number}", "slots=1~1", wait_ms=99_000)).startswith("wait ")
    await limiter.release("ann.1")
    for number in range(1, 6):
        await limiter.release(f"low.{number}")
    assert (await limiter.admit("ann.2", "slots=1~0", wait_ms=99_000)).startswith("wait ")
    await limiter.release("low.6")
    assert (await limiter.admit("ann.3", "slots=1~0", wait_ms=99_000)).startswith("wait ")
    await limiter.release("ann.2")
    assert await limiter.admit("low.7", "slots=1~1", wait_ms=99_000) == "held", "a whole limit passed it"


async def test_a_key_has_the_band_that_the_policy_says_and_a_caller_may_name_a_later_one(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1", bands="batch-7=1;batch-*=6;*=2")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    asked = (("batch-1", ""), ("*", ""), ("batch-7", ""), ("batch-2", "~0"), ("*", "~0"), ("batch-7", "~5"))
    for number, (key, band) in enumerate(asked, 1):
        assert (await limiter.admit(f"bob.{number}", f"slots=1{band}", key=key, wait_ms=99_000)).startswith("wait ")
    order, before = [], "ann.1"
    for _ in asked:
        await limiter.release(before)
        before = next(e.split(":")[1] for _, e in reversed(await limiter.events()) if e.startswith("held:"))
        order.append(before)
    assert order == ["bob.3", "bob.2", "bob.5", "bob.6", "bob.1", "bob.4"]


async def test_a_better_band_that_comes_passes_one_that_needs_more_but_not_for_ever(limiter: Limiter) -> None:
    await limiter.create("slots at_once 4")
    for number in range(1, 5):
        assert await limiter.admit(f"ann.{number}", "slots=1~0") == "held"
    assert (await limiter.admit("low.1", "slots=4~1", wait_ms=99_000)).startswith("wait ")
    answers = []
    for number in range(5, 12):
        await limiter.release(f"ann.{number - 4}")
        answers.append((await limiter.admit(f"ann.{number}", "slots=1~0")).split()[0])
        assert (await limiter.admit(f"mid.{number}", "slots=1")).startswith("late")
    assert answers == ["held"] * 4 + ["late"] * 3, "as much as the limit passed it"


async def test_of_a_limit_of_one_key_a_band_is_passed_for_its_seconds(limiter: Limiter) -> None:
    await limiter.create("slots at_once 9", "slots at_once 1", aging="2")
    assert await limiter.admit("ann.1", "slots=1", key="t") == "held"
    assert (await limiter.admit("low.1", "slots=1~1", key="t", wait_ms=99_000)).endswith(" slots key")
    await limiter.wait(1900)
    assert (await limiter.admit("top.1", "slots=1~0", key="t", wait_ms=99_000)).endswith(" slots key")
    await limiter.release("ann.1")
    assert await limiter.admit("top.1", "slots=1~0", key="t", wait_ms=99_000) == "held"
    await limiter.one("renew", "low.1")
    await limiter.wait(200)
    assert (await limiter.admit("top.2", "slots=1~0", key="t", wait_ms=99_000)).endswith(" slots key")
    await limiter.release("top.1")
    assert await limiter.admit("low.1", "slots=1~1", key="t", wait_ms=99_000) == "held"


async def test_nothing_of_bands_is_kept_once_nobody_waits(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1~0") == "held"
    assert await limiter.field("banded") is None
    assert (await limiter.admit("low.1", "slots=1~6", wait_ms=99_000)).startswith("wait ")
    assert await limiter.field("banded") is not None
    await limiter.release("low.1")
    assert await limiter.field("banded") is None


async def test_what_passes_whoever_waits_in_no_band_is_counted_from_the_first_on(limiter: Limiter) -> None:
    """Band 3 may be passed by three times what may be held at once."""
    await limiter.create("slots at_once 2", aging="0.5")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    assert (await limiter.admit("bob.1", "slots=2", wait_ms=99_000)).startswith("wait ")
    answers = []
    for number in range(2, 8):
        answers.append(await limiter.admit(f"ann.{number}", "slots=1~0"))
        await limiter.release(f"ann.{number}")
        await limiter.one("renew", "bob.1")
    assert [answer.split()[0] for answer in answers] == ["held"] * 3 + ["late"] * 3


async def test_bands_of_a_rate_go_in_order(limiter: Limiter) -> None:
    await limiter.create("calls rate 1 1")
    assert await limiter.admit("ann.1", "calls=1") == "held"
    for number, band in enumerate((7, 4, 3, 2, 0), 1):
        assert (await limiter.admit(f"bob.{number}", f"calls=1~{band}", wait_ms=99_000)).startswith("wait ")
    for _ in range(5):
        await limiter.wait(1000)
        for number in range(1, 6):
            await limiter.one("renew", f"bob.{number}")
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:bob")]
    assert order == ["bob.5", "bob.4", "bob.3", "bob.2", "bob.1"]


async def test_each_band_is_counted(limiter: Limiter) -> None:
    """Of band 3 only what was shed is kept; the rest is what the others leave of all."""
    await limiter.create("slots at_once 4", shed="3=750;6=500")
    calls = [HoldCall("admit", f"ann.{number}", amounts="slots=1~5", ttl_ms=5000) for number in (1, 2)]
    await limiter.call("ann", *calls)
    assert await limiter.field("by_band") == b"5 0 2 0"
    assert (await limiter.admit("bob.1", "slots=1~6", wait_ms=9000)).startswith("shed 6 ")
    assert await limiter.admit("bob.2", "slots=1") == "held"
    assert (await limiter.admit("bob.3", "slots=1", wait_ms=9000)).startswith("shed 3 ")
    for number in (4, 5, 6):
        assert (await limiter.admit(f"bob.{number}", "slots=2~1", wait_ms=9000)).startswith("wait ")
    await limiter.release("bob.5")
    await limiter.release("ann.1")
    assert [row.split() for row in sorted((await limiter.look()).by_band)] == [
        ["1", "1", "1", "0"], ["3", "0", "0", "1"], ["5", "0", "2", "0"], ["6", "0", "0", "1"],
    ]  # fmt: skip
    await limiter.sweep(5000)
    assert [row.split()[1] for row in (await limiter.look()).by_band] == ["0"] * 4, "it left the line with its lease"


async def test_who_is_let_in_as_a_hold_off_ends_is_counted(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    await limiter.store.hold_off(limiter.address, "ann", key="*", ms=9000, reason="")
    assert (await limiter.admit("ann.1", "slots=1~0", wait_ms=9000)).startswith("wait ")
    await limiter.store.hold_off(limiter.address, "ann", key="*", ms=0, reason="")
    assert (await limiter.look()).by_band == ("0 0 1 0",)


async def test_bands_that_are_none_are_refused(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    for bands in ("batch=8", "batch=-1", "a b=1", "x"):
        with pytest.raises(InvalidValue):
            await limiter.change(bands=bands)

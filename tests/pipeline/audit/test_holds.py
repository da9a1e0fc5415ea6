"""Ledgers of limiters: what holds is not found, and each promise that was broken is."""

from typing import Any

import pytest

from headgate.core.limits.adapting import RULES
from headgate_pipeline.audit.findings import Finding
from headgate_pipeline.audit.replay import Replay

LIMITS = "limiter:tokens rate 10 5|slots at_once 2:slots at_once 1"


def judge(*entries: tuple[int, str], apply: str = f"limits:inf:inf;{LIMITS}") -> list[Finding]:
    """Replay entries of (ms after the first, detail); the first is made here."""
    replay = Replay()
    for seq, (ms, detail) in enumerate([(0, apply), *entries], 1):
        op = "apply" if seq == 1 else "admit"
        row: tuple[Any, ...] = (seq, 1000 + ms, op, "-", 0, 0, 0, detail, 0, 0, 0, 0, 1000, 1, None)
        replay.step(row)
    return [found for found in replay.finish() if found.finding == "violated"]


def test_what_holds_is_not_found() -> None:
    assert judge(
        (0, "held:ann.1:t1:tokens=5 slots:1;levels:tokens=1500000 slots:1"),
        (500, "used:ann.1:tokens=1;levels:slots:1"),
        (500, "held:bob.1:t2:tokens=5 slots:1;levels:tokens=2000000 slots:2"),
        (600, "freed:ann.1;lapsed:bob.1;levels:"),
    ) == []  # fmt: skip


@pytest.mark.parametrize(
    ("promise", "entries"),
    [
        ("P1", ["held:a.1:t1:slots:1", "held:a.2:t2:slots:1", "held:a.3:t3:slots:1"]),
        ("P1", ["held:a.1:t1:slots:1", "held:a.2:t1:slots:1"]),
        ("P2", ["held:a.1:t1:slots:1;levels:slots:2"]),
        ("P5", ["held:a.1:t1:slots:1", "held:a.1:t2:slots:1"]),
        ("P5", ["freed:a.1"]),
        ("P5", ["held:a.1:t1:slots:1", "freed:a.1", "lapsed:a.1"]),
        ("P8", ["held:a.1:t1:tokens=5", "held:a.2:t1:tokens=1"]),
        ("P8", ["held:a.1:t1:tokens=5", "used:a.1:tokens=4", "held:a.2:t1:tokens=2"]),
        ("P8", ["held:a.1:t1:tokens=5", "used:a.1:tokens=4", "used:a.1:tokens=0", "held:a.2:t1:tokens=2"]),
    ],
)
def test_what_was_broken_is_found(promise: str, entries: list[str]) -> None:
    assert promise in {found.promise for found in judge(*((0, entry) for entry in entries))}


WAIT = "waits:low.1:*:tokens:all:tokens=1;band:low.1:2"


def passed(times: int, band: str = "") -> list[tuple[int, str]]:
    """Return a call of band 0 every tenth of a second, which joins the line and is let in."""
    return [
        (100 * n, f"waits:a.{n}:*:tokens:all:tokens=1{band.replace('@', f'a.{n}')};held:a.{n}:*:tokens=1")
        for n in range(1, times + 1)
    ]  # fmt: skip


def test_a_band_that_is_passed_for_longer_than_its_aging_is_found() -> None:
    """Of a rate of 10 a second band 2 is passed by 20 and one of each band: nobody but a hand makes such a ledger."""
    first, top = (0, f"held:b.1:*:tokens=1;{WAIT}"), ";band:@:0"
    assert judge(first, *passed(28, top)) == []
    found = judge(first, *passed(29, top))
    assert [(one.promise, one.what) for one in found] == [("P7", "band 2 waits for tokens and was passed for too long")]
    assert found[0].expected == "at most 2 and one of each band"
    assert judge(first, *passed(20, top), (2050, "held:low.1:*:tokens=1"), *passed(29, top)[20:]) == []
    assert judge(first, *passed(20, top), (2050, "quit:low.1"), *passed(29, top)[20:]) == []
    halved = f"limits:inf:inf;{LIMITS};aging:0.5"
    assert judge(first, *passed(18, top), apply=halved) == []
    assert [one.promise for one in judge(first, *passed(19, top), apply=halved)] == ["P7"]
    kept = f"limits:inf:inf;{LIMITS};reserve:1=100+6=200"
    assert judge(first, *passed(48, top), apply=kept) == [], "by those who have what is kept from it"
    assert [one.promise for one in judge(first, *passed(49, top), apply=kept)] == ["P7"]
    for others in (kept.replace("1=100+6=200", "2=100"), f"{kept};reserve:-"):
        assert [one.promise for one in judge(first, *passed(29, top), apply=others)] == ["P7"]


ADAPTING = "limits:inf:inf;limiter:slots at_once 9 2 aimd:"
GREW = f"adapted:slots:aimd.{RULES}:2:9:2000:start:9 900 0 0 0 900 1:3000 0 1 0 0 0 0 0 0 0 0"


def test_a_limit_that_adapts_is_judged_by_what_it_was_and_each_step_by_what_was_heard() -> None:
    three = ";".join(f"held:a.{n}:*:slots:1" for n in (1, 2, 3))
    assert judge((1000, f"{GREW};{three}"), (2000, "freed:a.1"), apply=ADAPTING) == []
    assert {one.promise for one in judge((0, three), apply=ADAPTING)} == {"P1"}
    for wrong in (GREW.replace("900 1:", "900 0:"), GREW.replace(":3000 ", ":9000 "), GREW.replace("start", "grow")):
        assert {one.promise for one in judge((1000, wrong), apply=ADAPTING)} == {"P1"}, wrong
    for other in ("aimd:", "aimd.2:", "aimd.99:"):  # scripts of before, and of after
        assert judge((1000, GREW.replace(f"aimd.{RULES}:", other).replace(":3000 ", ":9000 ")), apply=ADAPTING) == []
        found = judge((1000, GREW.replace(f"aimd.{RULES}:", other).replace(":3000 ", ":10000 ")), apply=ADAPTING)
        assert {one.promise for one in found} == {"P1"}, "above its ceiling, whoever decided"


def test_rates_are_judged_by_the_clock_of_the_limiter_which_never_goes_back() -> None:
    """Redis' clock was set back, and forth again, between two entries."""
    first, second = (0, "held:a.1:t1:tokens=5"), (0, "clock:1500;held:a.2:t1:tokens=5")
    assert judge(first, second, (100, "held:a.3:t1:tokens=1")) == []
    back = (-800, "clock:1500;held:a.2:t1:tokens=5")
    assert judge(first, back) == []
    for entry in (second, back):
        found = judge(first, entry, (entry[0], "clock:1500;held:a.3:t1:tokens=1"))
        assert {one.promise for one in found} == {"P8"}


def test_limits_are_read_in_whatever_order_they_stand() -> None:
    """Mutant: what is held at once is read up to the next blank, beyond its own limit."""
    replay = Replay()
    details = ("limits:inf:inf;limiter:slots at_once 1|tokens rate 10 5|day quota 9 day 0:", "held:a.1:*:slots:2")
    for seq, detail in enumerate(details, 1):
        op = "apply" if seq == 1 else "admit"
        replay.step((seq, 1000, op, "-", 0, 0, 0, detail, 0, 0, 0, 0, 1000, 1, None))
    assert [found.promise for found in replay.finish() if found.finding == "violated"] == ["P1"]


def test_a_claim_after_a_loss_may_be_above_a_limit_that_was_lowered() -> None:
    assert judge((0, "claimed:a.1:t1:slots:9;levels:slots:9")) == []

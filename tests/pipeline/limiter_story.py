"""A ledger of a limiter, written by hand: two keys, four slots' worth of work for two slots, one that gives up."""

from typing import Any

from tests.pipeline.rows import entry

LIMITS = "limiter:slots at_once 2|tokens rate 10 20:slots at_once 1|tokens rate 5 10"
DETAILS = (
    (0, "apply", LIMITS),
    (1000, "admit", "held:a.1:t1:tokens=10 slots:1;levels:tokens=1767225602000000 slots:1"),
    (2000, "admit", "waits:a.2:t1:slots:key:tokens=5 slots:1;levels:slots:1"),
    (3000, "admit", "held:b.1:t2:slots:1;refused:slots:all:3;levels:slots:2"),
    (4000, "admit", "waits:c.1:*:slots:all:slots:1;levels:slots:2"),
    (5000, "admit", "used:a.1:tokens=4;freed:a.1;held:a.2:t1:tokens=5 slots:1;levels:tokens=1767225605500000 slots:2"),
    (6000, "admit", "quit:c.1;levels:slots:2"),
    (7000, "admit", "used:a.2:tokens=9;lapsed:a.2;levels:tokens=1767225607400000 slots:1"),
    (9000, "hold_off", "off:*:3000"),
    (11000, "admit", "freed:b.1;levels:"),
)


def rows(destination: str = "llm") -> list[dict[str, Any]]:
    """Return its entries."""
    return [entry(seq, ms, op, destination, detail=detail) for seq, (ms, op, detail) in enumerate(DETAILS, 1)]


def course_rows() -> list[tuple[int, int, str]]:
    """Return them as a course is followed: (epoch, ms, detail)."""
    return [(1, 1767225600000 + ms, detail) for ms, _, detail in DETAILS]

"""The course of a limiter, as its ledger tells it."""

from headgate_pipeline.ledger.limiter_course import course
from tests.pipeline.limiter_story import course_rows


def test_who_asked_waited_held_and_settled() -> None:
    told = course(course_rows())
    found = {one.hold: (one.key, one.limit, one.whose, one.waited, one.lasted, one.end) for one in told.admissions}
    assert found == {
        "a.1": ("t1", "", "all", None, 4000, "freed"),
        "a.2": ("t1", "slots", "key", 3000, 2000, "lapsed"),
        "b.1": ("t2", "", "all", None, 8000, "freed"),
        "c.1": ("*", "slots", "all", 2000, None, "quit"),
    }
    assert told.admissions[0].used == {"tokens": 4}
    assert {name: limit.most for name, limit in told.limits.items()} == {"slots": 2, "tokens": 20}
    assert told.refusals == [(1767225603000, "slots", "all", 3)]
    assert told.hold_offs == [(1767225609000, "*", 1767225612000)]


def test_holds_are_lost_with_the_state_until_they_are_claimed() -> None:
    """Mutant: a claim begins another hold."""
    rows = [
        (1, 100, "held:a.1:*:slots:1;held:a.2:*:slots:1"),
        (2, 200, "claimed:a.1:*:slots:1;claimed:b.1:*:slots:1"),
        (2, 300, "freed:a.1;freed:b.1;off:*:500"),
        (2, 400, "off:*:0"),
    ]
    told = course(rows)
    assert [(one.hold, one.ended, one.end, one.lasted) for one in told.admissions] == [
        ("a.1", 300, "freed", 200), ("a.2", 200, "lost", 100), ("b.1", 300, "freed", None),
    ]  # fmt: skip
    assert told.hold_offs == [(300, "*", 400)]


def test_limits_that_change_are_counted_and_what_cannot_be_read_limits_nothing() -> None:
    told = course([(1, 1, "limiter:slots at_once 2:"), (1, 2, "limiter:slots at_once 3:"), (1, 3, "limiter:x y:z")])
    assert (told.changes, dict(told.limits)) == (2, {})

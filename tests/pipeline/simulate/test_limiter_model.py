"""A limiter replayed under other limits: small cases whose outcome is plain."""

from headgate.core.limits.limit import Limit
from headgate_pipeline.ledger.limiter_course import LimiterHistory, course
from headgate_pipeline.simulate.limiter_model import recorded, replay
from tests.pipeline.limiter_story import course_rows


def slots(most: int) -> dict[str, Limit]:
    return {"slots": Limit.of("slots", {"at_once": most})}


def busy() -> LimiterHistory:
    """Ten that come at once to two slots, and hold one for a second each."""
    held = [";".join(f"held:a.{n}:t{n % 2}:slots:1" for n in range(at, at + 2)) for at in range(0, 10, 2)]
    waits = ";".join(f"waits:a.{n}:t{n % 2}:slots:all:slots:1" for n in range(2, 10))
    freed = [";".join(f"freed:a.{n}" for n in range(at, at + 2)) for at in range(0, 10, 2)]
    rows = [(1, 1000, f"limiter:slots at_once 2:;{held[0]};{waits}")]
    rows += [(1, 1000 + 1000 * n, f"{freed[n - 1]};{held[n]}") for n in range(1, 5)]
    return course([*rows, (1, 6000, freed[4])])


def test_the_same_limits_give_what_was_recorded() -> None:
    told = busy()
    was, same = recorded(told), replay(told, told.limits, {})
    assert (was.waited, was.peak, was.took, was.causes) == (20_000, 8, 4000, {"slots": 20_000})
    assert (same.waited, same.peak, same.took, same.causes) == (20_000, 8, 4000, {"slots": 20_000})


def test_more_at_once_is_waited_for_less_and_less_at_once_for_longer() -> None:
    told = busy()
    assert replay(told, slots(10), {}).waited == 0
    assert replay(told, slots(5), {}).waited == 5000
    assert replay(told, slots(1), {}).waited == sum(range(10)) * 1000


def test_a_limit_of_each_key_keeps_only_that_key_waiting() -> None:
    """Mutant: whoever waits for its key's limit keeps all behind it waiting."""
    rows = [(1, 0, "limiter:slots at_once 9:;held:a.1:t1:slots:1;held:a.2:t1:slots:1;held:b.1:t2:slots:1")]
    told = course([*rows, (1, 1000, "freed:a.1;freed:a.2;freed:b.1")])
    found = replay(told, told.limits, slots(1))
    assert (found.waited, found.causes) == (1000, {"slots of a key": 1000})


def test_a_rate_lets_its_burst_through_and_then_its_rate() -> None:
    rows = [(1, 0, ";".join(f"held:a.{n}:*:tokens=10" for n in range(4)))]
    told = course([*rows, (1, 0, ";".join(f"freed:a.{n}" for n in range(4)))])
    limits = {"tokens": Limit.of("tokens", {"rate": 10, "burst": 20})}
    assert replay(told, limits, {}).waited == 1000 + 2000


def test_what_was_settled_for_less_comes_back() -> None:
    rows = [(1, 0, "held:a.1:*:tokens=20"), (1, 500, "used:a.1:tokens=2;freed:a.1"), (1, 600, "held:a.2:*:tokens=10")]
    limits = {"tokens": Limit.of("tokens", {"rate": 10, "burst": 20})}
    assert replay(course(rows), limits, {}).waited == 0
    assert replay(course([rows[0], rows[2]]), limits, {}).waited == 400


def test_whoever_gave_up_gives_up_again_unless_it_is_served_before() -> None:
    """Mutant: it waits for ever."""
    told = course(course_rows())
    assert recorded(told).refused == 1 + 3
    assert replay(told, told.limits, told.key_limits).refused == 1
    assert replay(told, {**told.limits, **slots(3)}, told.key_limits).refused == 0


def test_whoever_waits_behind_others_waits_for_what_they_wait_for() -> None:
    """Mutant: a wait that ends before it is the first of its key has no cause."""
    waits = ";".join(f"waits:{hold}:slots:all:slots:1" for hold in ("a.2:t1", "a.3:t1", "b.1:t2"))
    rows = [(1, 0, f"limiter:slots at_once 1:;held:a.1:t1:slots:1;{waits}"), (1, 500, "quit:a.3;quit:b.1")]
    told = course([*rows, (1, 2000, "freed:a.1;held:a.2:t1:slots:1"), (1, 3000, "freed:a.2")])
    assert recorded(told).causes == {"slots": 3000}
    assert replay(told, told.limits, {}).causes == {"slots": 3000}


def test_what_is_above_a_limit_never_fits_and_nobody_waits_behind_it() -> None:
    rows = [(1, 0, "held:a.1:*:slots:5"), (1, 0, "held:a.2:*:slots:1"), (1, 9, "freed:a.1;freed:a.2")]
    found = replay(course(rows), slots(2), {})
    assert (found.waited, found.refused) == (0, 1)


HOUR = 3_600_000


def asked(*rows: tuple[int, str]) -> LimiterHistory:
    """Admissions of one token each, for keys, held for a ms."""
    held = [(ms, f"held:a.{number}:{key}:tokens=1", f"freed:a.{number}") for number, (ms, key) in enumerate(rows, 1)]
    return course([row for ms, begins, ends in held for row in ((1, ms, begins), (1, ms, ends))])


def test_a_quota_is_spent_until_its_window_ends_and_keeps_only_those_waiting_who_need_it() -> None:
    """Mutants: windows of another zone; whoever waits for a quota keeps all waiting."""
    told = asked((HOUR, "*"), (HOUR, "*"), (HOUR, "*"))
    quota = {"tokens": Limit.of("tokens", {"quota": "2/day", "resets": "06:00 UTC"})}
    assert replay(told, quota, {}).waited == 5 * HOUR
    assert replay(told, quota, {}, zone="0 7200").waited == 3 * HOUR
    rows = [(1, HOUR, "held:a.1:*:tokens=3;held:a.2:*:tokens=1;held:a.3:*:slots:1"), (1, HOUR, "freed:a.3")]
    both = {**quota, **slots(1), "tokens": Limit.of("tokens", {"quota": "3/day", "resets": "06:00 UTC"})}
    found = replay(course(rows), both, {})
    assert (found.waited, found.causes) == (5 * HOUR, {"tokens": 5 * HOUR})


def test_what_was_settled_for_less_comes_back_to_its_quota() -> None:
    rows = [
        (1, HOUR, "held:a.1:*:tokens=9"),
        (1, HOUR + 5, "used:a.1:tokens=2;freed:a.1"),
        (1, HOUR + 9, "held:a.2:*:tokens=8"),
    ]
    quota = {"tokens": Limit.of("tokens", {"quota": "10/hour"})}
    assert replay(course(rows), quota, {}).waited == 0
    assert replay(course([rows[0], rows[2]]), quota, {}).waited == HOUR - 9


def test_keys_that_wait_share_by_weight() -> None:
    """Two of one key give up after 0.25 s, in which three are served. Mutants: weights are 1; keys take no turns."""
    keys = ["tin"] * 30 + ["gold"] * 2
    waits = ";".join(f"waits:a.{number}:{key}:tokens:all:tokens=1" for number, key in enumerate(keys, 1))
    told = course([(1, 0, waits), (1, 250, "quit:a.31;quit:a.32")])
    limits = {"tokens": Limit.of("tokens", {"rate": 10, "burst": 1})}
    assert sum(one.end == "quit" for one in told.admissions) == 2
    assert [replay(told, limits, {}, weights).refused for weights in ("", "gold=4")] == [1, 0]


def test_holds_off_are_as_they_were() -> None:
    told = asked((100, "a"), (200, "b"))
    told.hold_offs = [(50, "*", 1000), (150, "*", 400), (150, "a", 900)]
    limits = {"tokens": Limit.of("tokens", {"rate": 1000})}
    assert replay(told, limits, {}).waited == (900 - 100) + (400 - 200)

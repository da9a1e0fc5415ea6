"""A limit that adapts, over seeds, at a service in virtual time: it finds the capacity, stays there, and follows it."""

import random
from statistics import mean

import pytest

from headgate.core.limits.adapting import UNIT, Adapt, Course
from tests.model.service import Service, follow

SEEDS = range(12)


def parts(service: Service, seconds: int, adapt: Adapt, course: Course) -> tuple[list[float], Course]:
    """Return the limit as a part of the capacity, second by second, and where it ends."""
    courses = list(follow(service, seconds, 5, 400, adapt, course))
    return [one.limit / UNIT / service.slots for one in courses], courses[-1]


def found_after(course: list[float]) -> int:
    return next(at for at, part in enumerate(course, 1) if 0.85 <= part <= 1.15)


@pytest.mark.parametrize("adapt", ["aimd", "gradient"])
def test_it_finds_the_capacity_stays_there_and_follows_it(adapt: Adapt) -> None:
    near = []
    for seed in SEEDS:
        chance = random.Random(seed)
        slots = chance.randrange(30, 180)
        service = Service(
            slots, queue=0 if adapt == "aimd" else 1000, seconds=chance.choice((0.05, 0.1, 0.2)),
            spread=chance.choice((0.1, 0.3, 0.6)), seed=seed,
        )  # fmt: skip
        course = Course(5 * UNIT)
        for change, within in ((1, 20), (0.5, 10), (1, 10)):
            service.slots = round(slots * change)
            limits, course = parts(service, 60, adapt, course)
            assert found_after(limits) <= within, (seed, change, limits)
            settled = limits[20:]
            middle = mean(settled)
            assert 0.85 <= middle <= 1.15, (seed, change, settled)
            near.append(mean(abs(one - middle) <= 0.1 * middle for one in settled))
    assert mean(near) >= 0.9, near
    assert adapt == "gradient" or min(near) >= 0.95, near


def test_a_service_that_became_slower_without_a_queue_is_not_taken_for_a_full_one() -> None:
    for seed in SEEDS:
        service = Service(100, queue=1000, seed=seed)
        _, course = parts(service, 60, "gradient", Course(5 * UNIT))
        service.seconds = 0.15
        limits, _ = parts(service, 60, "gradient", course)
        assert 0.8 <= mean(limits[30:]) <= 1.2, (seed, limits)

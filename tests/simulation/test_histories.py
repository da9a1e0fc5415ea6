"""Histories drawn from seeds, in which everything fails that may: the promises hold at every moment of each."""

import os
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence

import pytest

from headgate.options import SessionOptions
from tests.simulation.drawing import SCENES
from tests.simulation.history import History
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.server import Backing
from tests.simulation.telling import line_of, story_of, told
from tests.simulation.world import World, of_this_world
from tests.support import forked
from tests.support.extent import WHOLE, for_long

SEEDS = {
    "alone": 168,
    "nodes": 40 if WHOLE else 5,
    "sentinels": 40 if WHOLE else 7,
    "cluster": 25 if WHOLE else 4,
    "nodes of a cluster": 20 if WHOLE else 1,
    "sites": 40 if WHOLE else 5,
    **dict.fromkeys((f"{what} of a cluster" for what in ("limiters", "rates", "stores")), 40 if WHOLE else 2),
    **dict.fromkeys(
        (f"{what} of a cluster" for what in ("large ones", "levels", "tickets", "turns")), 40 if WHOLE else 1
    ),
}
"""Histories of each kind that `make test` tells, 200 together."""
FOUND = [
    *[("nodes", range(46, 47)), ("sentinels", range(300, 301)), ("sites", range(193, 194))],
    *(("limiters of a cluster", range(seed, seed + 1)) for seed in (145, 174, 441, 549, 887)),
]
"""Seeds that found a defect of the product, beside these."""
IN_A_SOAK = {
    "alone": 12_000, "nodes": 2_000, "sentinels": 2_000, "cluster": 2_000, "nodes of a cluster": 500, "sites": 1_500,
    "limiters of a cluster": 1_000, "rates of a cluster": 1_000, "large ones of a cluster": 500,
    "levels of a cluster": 500, "tickets of a cluster": 1_000, "turns of a cluster": 500, "stores of a cluster": 1_000,
}  # fmt: skip
"""Likewise a whole soak: a half tells 10,000, and 250 or 500 each of limiters and of rules."""
AT_ONCE, AT_ONCE_IN_A_SOAK = 10, 250
"""Seeds that one test tries."""
NAMED = os.environ.get("HEADGATE_SEEDS", "")
"""``<first>-<last>``: the seeds to try in the place of these."""
TRIED, SOON = 60, 3
"""Histories in which a broken rule is to show itself, and those after which `make test` asks for a better seed."""


def seeds(counts: dict[str, int], at_once: int) -> list[tuple[str, range]]:
    """Return scenes with the seeds of each that one test tries."""
    parts: list[tuple[str, range]] = []
    for scene, count in counts.items():
        first, last = map(int, NAMED.split("-")) if NAMED else (0, count - 1)
        some = at_once if scene == "alone" else max(1, at_once // 4)
        parts += [(scene, range(begin, min(begin + some, last + 1))) for begin in range(first, last + 1, some)]
    return parts


def judge(backing: Backing, scene: str, some: Sequence[int]) -> None:
    for seed in some:
        if broken := told(backing, scene, seed).oracle.broken:
            pytest.fail(story_of(backing, scene, seed, broken[0]), pytrace=False)


def name_of(part: object) -> str:
    return f"{part.start}-{part.stop - 1}" if isinstance(part, range) else str(part)


@pytest.mark.parametrize(("scene", "some"), [*seeds(SEEDS, AT_ONCE), *FOUND], ids=name_of)
def test_promises_hold_whatever_fails(backing: Backing, scene: str, some: range) -> None:
    judge(backing, scene, some)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("scene", "some"),
    seeds({scene: for_long(count) for scene, count in IN_A_SOAK.items()}, AT_ONCE_IN_A_SOAK),
    ids=name_of,
)
def test_promises_hold_in_many_histories(backing: Backing, scene: str, some: range) -> None:
    judge(backing, scene, some)


def judge_with_the_default_lease(counts: dict[str, int]) -> None:
    """In a process of its own, for the lease is the same in all of its histories."""
    wanted = [f"{scene}:0-{count - 1}" for scene, count in counts.items()]
    lease = os.environ | {"HEADGATE_HISTORY_TTL": str(SessionOptions().ttl)}
    other = forked.run("tests.simulation.telling", *wanted, environment=lease, timeout=3600)
    assert other.returncode == 0, other.stdout + other.stderr
    assert other.stdout.count(" 0 red") == len(wanted)


def test_promises_hold_with_the_default_lease() -> None:
    judge_with_the_default_lease(dict.fromkeys(SEEDS, 4) if WHOLE else {"alone": 2})


@pytest.mark.soak
@pytest.mark.parametrize("scene", IN_A_SOAK)
def test_promises_hold_in_many_histories_with_the_default_lease(scene: str) -> None:
    judge_with_the_default_lease({scene: max(20, for_long(IN_A_SOAK[scene]) // 20)})


@pytest.mark.longest
def test_a_seed_is_one_history_in_each_process(backing: Backing) -> None:
    """Breaks when what goes over the network of a world is not the same, byte by byte and at the same times.

    The other process has another order of sets, another server, and has told other histories before.
    """
    scenes = SCENES if WHOLE else ("cluster", "sites")
    wanted = [(scene, seed) for scene in scenes for seed in ((0, 3, 17) if WHOLE else (3,))]
    other = subprocess.run(
        [sys.executable, "-m", "tests.simulation.telling", *(f"{scene}:{seed}" for scene, seed in reversed(wanted))],
        env=os.environ | {"PYTHONHASHSEED": "1"}, stdout=subprocess.PIPE, text=True, check=True, timeout=600,
    )  # fmt: skip
    here = [line_of(told(backing, scene, seed), scene) for scene, seed in wanted]
    assert here == other.stdout.splitlines()[::-1]


def test_a_module_with_a_clock_of_its_own_is_refused(backing: Backing, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("headgate.clocked")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__dict__["now"] = time.perf_counter
    world = World(backing, 0, servers="alone")
    with pytest.raises(AssertionError, match=r"headgate\.clocked\.now"), of_this_world(world):
        pass
    world.loop.close()


def found(backing: Backing, mutant: Mutant) -> History:
    """Return the first history in which a broken rule shows itself."""
    told_so_far = (told(backing, mutant.scene, seed, mutant) for seed in range(mutant.seed, mutant.seed + TRIED))
    history = next((one for one in told_so_far if one.oracle.broken), None)
    assert history, f"{TRIED} histories do not show it"
    return history


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_found(
    backing: Backing, mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    with mutant.client():
        history = found(backing, mutant)
    broken = history.oracle.broken
    assert broken[0].startswith(f"{mutant.promise}:"), broken
    if history.seed >= mutant.seed + SOON:
        record_property("note", f"mutants.py: {mutant.rule!r} shows at seed {history.seed}, not at {mutant.seed}")


def test_what_breaks_a_promise_is_shown_as_a_short_history(backing: Backing) -> None:
    mutant = MUTANTS[0]
    history = found(backing, mutant)
    story = story_of(backing, mutant.scene, history.seed, history.oracle.broken[0], mutant)
    shown = story.partition("\nand ends with")[0].splitlines()
    assert shown[0].startswith(f"{mutant.scene}:{history.seed} breaks {mutant.promise}:")
    assert 0 < len(shown[1:]) < len(history.events) / 2, story

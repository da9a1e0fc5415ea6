"""The four ways of a message in docs/architecture.md, followed through the code as it runs."""

import asyncio
import re
from pathlib import Path

import pytest

from bench.walks import TARGETS, Walk, commit, sends, transfer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
WAYS = {
    "A send that waits": "blocked send",
    "A settlement that wakes a sender": "settle that wakes",
    "An AMQP transfer": "transfer in",
    "A link's commit": "commit",
}


def steps_of(title: str) -> list[tuple[str, str]]:
    """Return file and function of each step of a way."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {title}\n")[1].split("\n#")[0]
    lines = re.findall(r"^\d+\. .*", section, re.MULTILINE)
    steps = re.findall(r"^\d+\. `([\w/.]+)` `([\w.]+)` ", section, re.MULTILINE)
    assert len(steps) == len(lines) > 5
    return steps


async def follow() -> dict[str, Walk]:
    return await sends() | await transfer() | await commit()


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    return asyncio.run(follow())


@pytest.mark.parametrize("title", WAYS)
def test_each_step_of_a_way_is_taken_and_in_that_order(title: str, walks: dict[str, Walk]) -> None:
    taken = iter(walks[WAYS[title]].steps)
    for step in steps_of(title):
        assert step in taken, f"{step} does not come after the steps before it"


def over(walks: dict[str, Walk]) -> dict[str, tuple[int, int]]:
    """Return the ways that go through more files, or change file more often, than they may."""
    taken = {way: (len({file for file, _ in walk.stays}), len(walk.stays)) for way, walk in walks.items()}
    return {
        way: (files, changes)
        for way, (files, changes) in taken.items()
        if way in TARGETS and (files > TARGETS[way][0] or changes > TARGETS[way][1])
    }


def test_the_ways_are_as_short_as_they_are_to_be(walks: dict[str, Walk]) -> None:
    """On a busy machine other work may cross a way, which then is walked again."""
    assert len(walks.keys() & TARGETS.keys()) == 4
    longer = over(walks)
    for _ in range(4):
        if longer:
            again = over(asyncio.run(follow()))
            longer = {way: again[way] for way in longer.keys() & again.keys()}
    assert longer == {}, "steps: HEADGATE_WALKS=1 python -m bench walks"


def test_every_place_where_something_is_decided_is_there() -> None:
    rows = re.findall(
        r"^\| .* \| (`.*`) \|$", PAGE.read_text(encoding="utf-8").split("## Where is it decided?")[1], re.MULTILINE
    )
    files = [file for row in rows for file in re.findall(r"`([^`]+)`", row)]
    assert len(rows) >= 40
    assert [file for file in files if not (PAGE.parents[1] / file).is_file()] == []


def rooms() -> set[str]:
    """Return the name of each room: a folder of the SDK, of the nodes or of the pipeline."""
    root = PAGE.parents[1]
    packages = (root / "sdk/headgate", root / "coordinator/headgate_coordinator", root / "pipeline/headgate_pipeline")
    found = {path.parent.name for package in packages for path in package.glob("*/__init__.py")}
    assert len(found) > 30
    return found - {"_util"}


def test_the_table_of_rooms_names_each_room() -> None:
    text = (PAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| folder | what it is")[1].split("\n\n")[0]
    named = {word for row in table.splitlines() for word in re.findall(r"`(?:[\w./]*/)?(\w+)`", row.split("|")[1])}
    assert rooms() | {"_util"} <= named


def test_the_picture_shows_each_room() -> None:
    picture = PAGE.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert rooms() <= set(re.findall(r"\w+", picture))

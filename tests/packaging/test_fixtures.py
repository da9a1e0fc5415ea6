"""Fixtures of folders, which tests take by name."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def fixtures_of(conftest: Path) -> Iterator[str]:
    """Yield the names of the fixtures that a folder has for its tests."""
    parts = ast.parse(conftest.read_text(encoding="utf-8")).body
    for one in [part for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]:
        if any("fixture" in ast.unparse(mark) for mark in one.decorator_list):
            yield one.name


def test_no_folder_gives_a_fixture_of_a_folder_above_another_meaning() -> None:
    """A test that was written for the one would run with the other, and none would tell."""
    named = [(conftest.parent, name) for conftest in TESTS.rglob("conftest.py") for name in fixtures_of(conftest)]
    assert (TESTS, "patient") in named
    twice = [
        (name, str(folder))
        for folder, name in named
        for above, same in named
        if same == name and above in folder.parents
    ]
    assert not twice, "name them otherwise"

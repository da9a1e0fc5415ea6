"""Rules that the repository keeps about itself: commands, sizes, what a file may name."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PYTHON_LINES = 400
LUA_LINES_OF_CODE = 100
# path -> its own limit; say why beside it.
LONGER_BY_EXCEPTION: dict[str, int] = {
    # One machine: its state is changed by callers, hints and answers alike, and no part of it holds without the others.
    "sdk/headgate/core/account/machine.py": 730,
    # One order of events: each is dealt with while the library still has the memory that it speaks of.
    "sdk/headgate/amqp/engine.py": 440,
    # One tree of errors, drawn at its top, each with its facts and its sentence.
    "sdk/headgate/errors.py": 500,
}

TARGETS = {
    "help",
    "setup",
    "redis",
    "demo",
    "test",
    "test-servers",
    "test-docker",
    "check",
    "bench",
    "soak",
    "spec",
    "resolve",
    "pins",
    "build",
    "clean",
}

# Spelt in pieces, so that this file does not break its own rule.
FORBIDDEN = {
    "an absolute path of one machine": re.compile(r"(?<![\w.~$)}/-])/" + r"(?:work|root|Users)/"),
    "the host of a package registry": re.compile(
        "|".join(
            re.escape(f"{host}.{top}") for host, top in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")]
        )
    ),
}

NOT_OURS = {
    ".git",
    ".venv",
    "dist",
    "build",
    "__pycache__",
    "node_modules",
    "spark-warehouse",
    "metastore_db",
}


def files() -> Iterator[Path]:
    """Every file of the repository, caches and environments left out."""
    for folder, folders, found in os.walk(REPOSITORY):
        folders[:] = [
            name
            for name in folders
            if name not in NOT_OURS and not name.endswith((".egg-info", "_cache")) and name != ".hypothesis"
        ]
        yield from (Path(folder) / name for name in found if name not in NOT_OURS)  # of a worktree, .git is a file


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def lines_of_lua(source: str) -> int:
    """Count lines that hold code: no blank ones, no comments."""
    without_blocks = re.sub(r"--\[(=*)\[.*?\]\1\]", "", source, flags=re.DOTALL)
    stripped = (line.strip() for line in without_blocks.splitlines())
    return sum(1 for line in stripped if line and not line.startswith(("--", "#!")))


def too_long(found: dict[str, int], limit: int) -> dict[str, int]:
    return {name: count for name, count in found.items() if count >= LONGER_BY_EXCEPTION.get(name, limit)}


def test_every_make_target_is_documented() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    rules = re.findall(r"^([a-z][a-z-]*):(?!=)(.*)$", makefile, flags=re.MULTILINE)
    assert {name for name, _ in rules} == TARGETS
    assert [name for name, rest in rules if "## " not in rest] == []
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert set(phony.split()) == TARGETS


def test_make_without_a_target_lists_them_all() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make ([\w-]+)", done.stdout, flags=re.MULTILINE)) == TARGETS


def test_ci_runs_what_contributors_run() -> None:
    script = REPOSITORY / ".ci" / "run"
    assert os.access(script, os.X_OK)
    source = script.read_text()
    assert "set -euo pipefail" in source
    assert source.splitlines()[-1] == "make check test"


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    headings = re.findall(r"^## (.*)$", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"


def test_python_files_are_one_thing_each() -> None:
    found = {
        relative(path): len(path.read_text(encoding="utf-8").splitlines())
        for root in ("sdk", "coordinator", "pipeline")
        for path in (REPOSITORY / root).rglob("*.py")
    }
    assert found
    assert too_long(found, PYTHON_LINES) == {}


def test_scripts_are_short() -> None:
    found = {
        relative(path): lines_of_lua(path.read_text(encoding="utf-8")) for path in (REPOSITORY / "lua").rglob("*.lua")
    }
    assert found
    assert too_long(found, LUA_LINES_OF_CODE) == {}


def test_exceptions_to_size_name_files_that_are_there_and_still_need_them() -> None:
    for name, limit in LONGER_BY_EXCEPTION.items():
        path = REPOSITORY / name
        source = path.read_text(encoding="utf-8")
        lua = path.suffix == ".lua"
        usual = LUA_LINES_OF_CODE if lua else PYTHON_LINES
        assert usual <= (lines_of_lua(source) if lua else len(source.splitlines())) < limit


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        found += [f"{relative(path)}: {match.group()}" for match in FORBIDDEN[what].finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ("-- a\n\nlocal x = 1 -- b\n", 1),
        ("--[[ a\n b\n]]\nreturn 1\n", 1),
        ("--[==[ ]] \n]==]\nreturn 1", 1),
        ('#!lua flags=no-writes\n--- @include "lib/x"\nreturn 1', 1),
    ],
)
def test_lines_of_lua_counts_code_only(source: str, count: int) -> None:
    assert lines_of_lua(source) == count


FILES_IN_A_FOLDER = 20
# folder -> its own limit; say why beside it.
FULLER_BY_EXCEPTION: dict[str, int] = {}


def test_no_folder_is_a_corridor() -> None:
    """A folder has at most 20 files of Python beside its `__init__`; above that it hides rooms."""
    folders: dict[str, int] = {}
    for path in files():
        if path.suffix == ".py" and path.name != "__init__.py":
            folder = relative(path.parent)
            folders[folder] = folders.get(folder, 0) + 1
    assert {name: n for name, n in folders.items() if n > FULLER_BY_EXCEPTION.get(name, FILES_IN_A_FOLDER)} == {}

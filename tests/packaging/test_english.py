"""Docstrings are in plain English: the worst habits stay out."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("sdk", "coordinator", "pipeline", "bench", "examples")
RELATIVE = re.compile(r"(?:^|(?<=[.!?] ))(?:Who|What|Whoever|Whatever|Whom|Whose)\b[^.?!]*(?:[.!]|$)")
"""A sentence that begins with a free relative: it has no subject that names the thing."""
WORST = re.compile(r"\b(?:so much of|everybody may everything|of before)\b")


@cache
def docstrings() -> list[tuple[str, str]]:
    """Return each docstring as one line, with its place."""
    return list(_docstrings())


def _docstrings() -> Iterator[tuple[str, str]]:
    listed = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]
    for path in listed:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield f"{path.relative_to(ROOT)}:{value.lineno}", " ".join(value.value.split())


def test_no_sentence_of_a_docstring_begins_with_a_free_relative() -> None:
    assert [(place, found[0]) for place, text in docstrings() if (found := RELATIVE.findall(text))] == []


def test_the_worst_turns_of_phrase_stay_out() -> None:
    assert [(place, found[0]) for place, text in docstrings() if (found := WORST.findall(text))] == []


@pytest.mark.parametrize(
    "text", ["Who waits is served.", "What is there of it.", "A line. Whoever comes is paid.", "What it holds"]
)
def test_the_pattern_finds_what_it_is_for(text: str) -> None:
    assert RELATIVE.findall(text)


@pytest.mark.parametrize("text", ["Those who wait are served.", "A sender. Who are they? Nobody knows.", "The whole."])
def test_the_pattern_leaves_the_rest_alone(text: str) -> None:
    assert not RELATIVE.findall(text)

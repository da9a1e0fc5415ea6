"""A bad document shows all its problems, each with its place."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.errors import PolicyError

MOST_PROBLEMS: Final = 100
"""Problems of one document that are listed, each in so many characters of key and of text:"""
LONGEST_KEY: Final = 300
LONGEST_TEXT: Final = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem is one thing that is wrong; of what is long, which is a value that it repeats, the middle is left out.

    Attributes:
        place: ``<file>:<line>``.
        key: the key it is about, e.g. ``destination[2].limit.bytes``; empty when it is about the whole document.
        text: what is wrong, and the form that is accepted.
    """

    place: str
    key: str
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _cut(self.key, LONGEST_KEY))
        object.__setattr__(self, "text", _cut(self.text, LONGEST_TEXT))

    @property
    def line(self) -> int:
        """The number of its line; 0 where it has none."""
        line = self.place.rpartition(":")[2]
        return int(line) if line.isdigit() else 0

    def __str__(self) -> str:
        return f"{self.place}: {self.key + ': ' if self.key else ''}{self.text}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}[...]{text[-most // 2 :]}"


class BadDocument(PolicyError):
    """A policy document cannot be used; nothing of it was applied.

    Args:
        problems: that were found.
        further: how many more there are.

    Attributes:
        problems: what is wrong with it, in the order of its lines; of very many the first, and how many more there are.
    """

    def __init__(self, problems: Iterable[Problem], further: int = 0) -> None:
        found = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
        further += len(found[MOST_PROBLEMS:])
        if further:
            last = found[:MOST_PROBLEMS][-1].place
            found[MOST_PROBLEMS:] = [Problem(last, "", f"{further} further problems are not listed")]
        self.problems = tuple(found)
        super().__init__("\n".join(map(str, self.problems)))

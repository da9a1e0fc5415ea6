"""All problems of a document, each with its place."""

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        place: ``<file>:<line>``.
        key: the key it is about, e.g. ``destination[2].limit.bytes``; empty when it is about the whole document.
        text: what is wrong, and the form that is accepted.
    """

    place: str
    key: str
    text: str

    @property
    def line(self) -> int:
        """The number of its line; 0 where it has none."""
        line = self.place.rpartition(":")[2]
        return int(line) if line.isdigit() else 0

    def __str__(self) -> str:
        return f"{self.place}: {self.key + ': ' if self.key else ''}{self.text}"


class BadDocument(PolicyError):
    """A policy document that cannot be used; nothing of it was applied.

    Attributes:
        problems: everything that is wrong with it, in the order of its lines.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
        super().__init__("\n".join(map(str, self.problems)))

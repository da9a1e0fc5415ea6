"""A picture is fitted into a terminal's lines: each section has as many rows as fit, and says how many are left out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

LEAST: Final = 5
"""Lines below which a table is left out: a blank, its head of two, a row, and how many more there are."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section is a part of a picture.

    Attributes:
        what: its items are called.
        items: that it shows, each by a row or more.
        draw: returns how some of them look.
        total: how many there are, where not all were read.
    """

    what: str
    items: Sequence[Any]
    draw: Callable[[Sequence[Any]], Iterable[RenderableType]]
    total: int = 0

    def __str__(self) -> str:
        return f"{max(self.total, len(self.items))} {self.what}"

    def drawn(self, most: int | None = None) -> RenderableType:
        """Return its first items, and how many it leaves out."""
        shown = self.items[:most]
        hidden = max(self.total, len(self.items)) - len(shown)
        return Group(Text(), *self.draw(shown), *([_dim(f"and {hidden} more {self.what}")] if hidden else []))


class Fitted:
    """`Fitted` draws sections in so many lines; those that come first are the last ones to be left out."""

    def __init__(self, sections: Sequence[Section], lines: int) -> None:
        self._sections = [section for section in sections if section.items]
        self._room = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines of all of them."""
        free = options.update(height=None)
        line = Segment.line()

        def drawn(section: Section, most: int) -> list[list[Segment]]:
            return console.render_lines(section.drawn(most), free, pad=False)

        whole = [drawn(section, self._room) for section in self._sections]
        given = shares([len(lines) for lines in whole], self._room)
        for section, lines, room in zip(self._sections, whole, given, strict=True):
            most = min(self._room, len(section.items))
            while len(lines) > room and most > 1:
                most = max(1, min(most - 1, most * room // len(lines)))
                lines = drawn(section, most)  # noqa: PLW2901, what is too long is drawn again
            if len(lines) > room:  # one row is too large
                lines = [*lines[: room - 1], [Segment("...")]] if room else []  # noqa: PLW2901
            for segments in lines:
                yield from (*segments, line)
        if left_out := [str(section) for section, room in zip(self._sections, given, strict=True) if not room]:
            yield from console.render(_dim(f"no room for {', '.join(left_out)}"), free)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Return the lines of each section: the first one has at least a half, and the others share the rest alike.

    Of these the last ones get none where all would have too few; a line is left to name them.
    """
    if sum(wanted) <= room:
        return list(wanted)
    first, *others = wanted
    half = min(first, max(room // 2, room - sum(others)))
    given: list[int] = []
    named = 0
    for count in range(len(others), -1, -1):
        named = int(count < len(others))
        given = _alike(others[:count], room - half - named)
        if all(share >= min(want, LEAST) for share, want in zip(given, others, strict=False)):
            break
    none = [0] * (len(others) - len(given))
    return [min(first, room - sum(given) - named), *given, *none]


def _alike(wanted: Sequence[int], room: int) -> list[int]:
    """Return shares of a room that are alike; what one does not want is the others'."""
    given = [0] * len(wanted)
    for left, at in zip(range(len(wanted), 0, -1), sorted(range(len(wanted)), key=wanted.__getitem__), strict=True):
        given[at] = min(wanted[at], (room - sum(given)) // left)
    return given


def _dim(text: str) -> Text:
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")

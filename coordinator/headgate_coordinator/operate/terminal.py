"""The command line prints sizes for people, and tables that are not cut when they go into a file."""

import sys
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

WIDE: Final = 200
"""Columns of output that is not a terminal; a table takes only what it needs."""


class _Console(Console):
    """This console prints nothing of what it is given that a terminal would obey: names are others' words."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the pieces of what is printed, without what others slipped in."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(inert(segment.text), segment.style)


class InertStream:
    """An inert stream writes texts so that a terminal obeys nothing in them but the ends of lines."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text with escapes."""
        self.stream.write(inert(text))
        return len(text)


def inert(text: str) -> str:
    """Return a text with escapes for what a terminal would obey or hide: control characters, changes of direction."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in text)


def console() -> Console:
    """Return where output goes."""
    behind = sys.stdout.stream if isinstance(sys.stdout, InertStream) else None  # colours are ours
    out = _Console(highlight=False, file=behind)
    return out if out.is_terminal else _Console(highlight=False, width=WIDE, file=behind)


def show(what: RenderableType) -> None:
    """Print something; into a file without the blanks that fill a table up."""
    out = console()
    if out.is_terminal:
        out.print(what)
        return
    with out.capture() as captured:
        out.print(what)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("\n".join(lines).strip("\n") + "\n")
    sys.stdout.flush()


def number(count: float) -> str:
    """Return an amount without a unit as people read it: 8, 9500, 12.5 k, 64.0 M."""
    if count < 10_000:
        return f"{count:.0f}"
    for unit in ("k", "M", "G"):
        count /= 1000
        if count < 1000:
            return f"{count:.{0 if count >= 100 else 1}f} {unit}"
    return f"{count / 1000:.1f} T"


def size(count: float) -> str:
    """Return bytes as people read them."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1000:
            return f"{count:.{0 if count >= 100 else 1 if count >= 10 else 2}f} {unit}"
    return f"{count / 1024:.2f} TiB"

"""How the command line prints: sizes for people, and tables that are not cut when they go into a file."""

import sys
from typing import Final

from rich.console import Console, RenderableType

WIDE: Final = 200
"""Columns of output that is not a terminal; a table takes only what it needs."""


def console() -> Console:
    """Return where output goes."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDE)


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

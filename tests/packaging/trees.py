"""What Python files are parsed to, once for all tests of a process that look at it."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def trees(folder: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of the files in a folder."""
    gc.disable()  # none of it is garbage: to look through what is there already takes four times as long as to parse
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()

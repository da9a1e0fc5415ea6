"""The demo's messages have the content of real files, by default of the running Python's standard library."""

import os
import random
import stat
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate import InvalidValue

PIECE: Final = 256 << 10
"""Bytes of a piece, at most, of a file that is too large for one message."""
WHOLE: Final = 4 << 20
"""Bytes of a file that still goes as one message, where the limit is large enough."""
OVERHEAD: Final = 4 << 10
"""Bytes that headers and envelope take at most."""
MIN_LIMIT: Final = 32 << 10
MOST_FILES: Final = 20_000
_SKIPPED: Final = {"__pycache__", "site-packages", "dist-packages", ".git"}
_LONGEST_PATH: Final = 1000  # characters of a path that travel with a message


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece is one message to be: it has a file's content, or a part of it."""

    path: str
    part: int
    body: bytes


def standard_library() -> Path:
    """Return where the running Python keeps its standard library."""
    return Path(sysconfig.get_path("stdlib"))


def find_files(source: Path) -> list[Path]:
    """Return the regular files at ``source``, in an order that is mixed and always the same.

    Raises:
        InvalidValue: there is no such file or directory, or no file in it.
    """
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise InvalidValue(f"input {str(source)!r}: there is no such file or directory")
    found: list[Path] = []
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(set(folders) - _SKIPPED)
        paths = (Path(folder, name) for name in sorted(names))
        found += [path for path in paths if _is_regular(path)]
        if len(found) >= MOST_FILES:
            break
    if not found:
        raise InvalidValue(f"input {str(source)!r}: there is no file in it")
    found = found[:MOST_FILES]
    random.Random(0).shuffle(found)  # noqa: S311 - only so that sizes mix
    return found


def share_of(files: list[Path], index: int, count: int) -> list[Path]:
    """Return what one of ``count`` producers sends: every ``count``-th file, or all when there are too few to share."""
    return files[index::count] or files


def read_pieces(path: Path, name: str, limit: int) -> Iterator[Piece]:
    """Yield a file as messages: whole if half the limit (bytes) holds it, else in pieces; nothing if unreadable."""
    # Half the limit at most: a message of nearly all of it gets through too, but everybody else waits for it, which is
    # right and a dull thing to watch.
    whole = min(WHOLE, limit // 2 - OVERHEAD)
    piece = min(PIECE, whole // 2)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            part = 0
            while (body := file.read(whole if size <= whole else piece)) or part == 0:
                yield Piece(name, part, body)
                part += 1
    except OSError:
        return  # gone, or not ours to read: there are others


def messages(source: Path, index: int, count: int, limit: int) -> Iterator[Piece]:
    """Yield one producer's messages, over and over.

    Raises:
        InvalidValue: nothing can be read.
    """
    files = share_of(find_files(source), index, count)
    base = source if source.is_dir() else source.parent
    while True:
        some = False
        for path in files:
            for piece in read_pieces(path, _name(path, base), limit):
                some = True
                yield piece
        if not some:
            raise InvalidValue(f"input {str(source)!r}: none of its files can be read")


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _name(path: Path, base: Path) -> str:
    # A file's name may be any bytes; a header is text.
    return os.fsencode(path.relative_to(base)).decode(errors="replace")[-_LONGEST_PATH:]

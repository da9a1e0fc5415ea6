"""A walk over a TOML or JSON document finds the line on which each key stands.

The parsers of the standard library keep no lines. This walk goes over a text that they have accepted, so it only has to
find where keys and values begin and end, not whether they are right.
"""

import json
import re
import tomllib
from bisect import bisect_left
from typing import Final

Path = tuple[str | int, ...]
"""To a value: keys and, in lists, positions from 0."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_INLINE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r"""
    "{3} (?: [^\\] | \\. )*? "{3} (?: "{1,2} (?!") )?
    | '{3} .*? '{3} (?: '{1,2} (?!') )?
    | " (?: [^"\\\n] | \\. )* "
    | ' [^'\n]* '
    """,
    re.DOTALL | re.VERBOSE,
)
_SCALAR: Final = re.compile(r"[^,\]}#\n]*")


def toml_lines(text: str) -> dict[Path, int]:
    """Return the line of each key and list item, and of the document itself: ``()``."""
    walk = _Walk(text.replace("\r\n", "\n"), "=")
    walk.document()
    return walk.lines


def json_lines(text: str) -> tuple[dict[Path, int], list[Path]]:
    """Return the same for JSON, and the keys that stand twice in one table."""
    walk = _Walk(text, ":")
    walk.skip()
    walk.value(())
    return walk.lines, walk.twice


class _Walk:
    def __init__(self, text: str, separator: str) -> None:
        self.text = text
        self.separator = separator
        self.at = 0
        self.breaks = [found.start() for found in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {(): 1}
        self.twice: list[Path] = []
        self.counts: dict[Path, int] = {}  # of the tables of a list: [[name]]

    def document(self) -> None:
        table: Path = ()
        self.skip()
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self.header()
            else:
                self.pair(table)
            self.skip()

    def header(self) -> Path:
        listed = self.text.startswith("[[", self.at)
        line = self.line()
        self.at += 2 if listed else 1
        *parents, last = self.key()
        self.at = self.text.index("]", self.at) + (2 if listed else 1)
        path: Path = ()
        for key in parents:
            path = self.inside((*path, key), line)
        path = (*path, last)
        self.lines.setdefault(path, line)
        if listed:
            position = self.counts.get(path, 0)
            self.counts[path] = position + 1
            path = (*path, position)
            self.lines[path] = line
        return path

    def inside(self, path: Path, line: int) -> Path:
        """Return the table that a key stands for in a header: of a list of tables the last."""
        self.lines.setdefault(path, line)
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def pair(self, table: Path) -> None:
        line = self.line()
        path = table
        for key in self.key():
            path = (*path, key)
            if self.separator == ":" and path in self.lines:
                self.twice.append(path)
            self.lines.setdefault(path, line)
        self.at = self.text.index(self.separator, self.at) + 1
        self.skip()
        self.value(path)

    def key(self) -> list[str]:
        keys = []
        while True:
            self.skip(_INLINE)
            if found := _STRING.match(self.text, self.at):
                keys.append(self.string(found[0]))
            elif found := _BARE.match(self.text, self.at):
                keys.append(found[0])
            else:  # not a document that was accepted
                raise AssertionError(self.text[self.at : self.at + 20])
            self.at = found.end()
            self.skip(_INLINE)
            if self.separator == ":" or not self.text.startswith(".", self.at):
                return keys
            self.at += 1

    def string(self, raw: str) -> str:
        return str(json.loads(raw) if self.separator == ":" else tomllib.loads(f"key = {raw}")["key"])

    def value(self, path: Path) -> None:
        opening = self.text[self.at]
        if opening in "{[":
            self.at += 1
            self.skip()
            position = 0
            while self.text[self.at] not in "}]":
                if opening == "{":
                    self.pair(path)
                else:
                    self.lines[(*path, position)] = self.line()
                    self.value((*path, position))
                    position += 1
                self.skip()
                if self.text[self.at] == ",":
                    self.at += 1
                    self.skip()
            self.at += 1
        else:
            found = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            self.at = found.end() if found else self.at

    def skip(self, what: re.Pattern[str] = _BLANK) -> None:
        if found := what.match(self.text, self.at):
            self.at = found.end()

    def line(self) -> int:
        return bisect_left(self.breaks, self.at) + 1

"""Translates regular expressions of policies to our patterns, or to lists of names.

Understood are literal characters, ``.``, ``.*`` and ``.+``, alternatives in parentheses, ``^`` at the begin and ``$``
at the end. No engine of regular expressions runs here, for one that is written to be slow would never end.
"""

import re
from dataclasses import dataclass
from typing import Final

_MOST_ALTERNATIVES: Final = 64
_MOST_LENGTH: Final = 500
_SPECIAL: Final = frozenset("*+?{}[]()|^$\\")
ONE: Final = "\x00"
"""Stands for any one character; no name has it."""
ANY: Final = "\x01"
"""Stands for any number of characters."""
_BEGIN, _END = "\x02", "\x03"
_MARKS: Final = frozenset((ONE, ANY, _BEGIN, _END))
_RUN: Final = re.compile(f"[{ONE}{ANY}]+")
Glob = str
"""Characters of a name, and those two."""


def globs_of(regex: str) -> list[Glob] | None:
    r"""Return what finds the same names as a regular expression; None for one that is not understood.

    >>> [glob.replace(ANY, "*") for glob in globs_of(r"^(a|b)\\.") or ()]
    ['a.*', 'b.*']
    """
    if len(regex) > _MOST_LENGTH or not _MARKS.isdisjoint(regex):
        return None
    reader = _Reader(regex)
    found = reader.alternatives()
    return None if found is None or reader.at < len(regex) else [_closed(glob) for glob in found]


def _closed(glob: str) -> Glob:
    """Return a glob that finds whole names: what has no anchor goes on."""
    begun = glob[1:] if glob.startswith(_BEGIN) else ANY + glob
    ended = begun[:-1] if begun.endswith(_END) else begun + ANY
    return _RUN.sub(lambda run: ONE * run[0].count(ONE) + ANY * (ANY in run[0]), ended)


@dataclass(slots=True)
class _Reader:
    """A reader walks over a regular expression; anchors stay in what it returns."""

    text: str
    at: int = 0
    depth: int = 0

    def alternatives(self) -> list[str] | None:
        found: list[str] = []
        while True:
            ways = self.sequence()
            if ways is None or len(found) + len(ways) > _MOST_ALTERNATIVES:
                return None
            found += ways
            if not self.text.startswith("|", self.at):
                return found
            self.at += 1

    def sequence(self) -> list[str] | None:
        ways = [""]
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            more = self.item()
            if more is None or len(ways) * len(more) > _MOST_ALTERNATIVES:
                return None
            ways = [way + each for way in ways for each in more]
        return ways

    def item(self) -> list[str] | None:
        character = self.text[self.at]
        self.at += 1
        if character == "(":
            return self.group()
        if character == "." and self.text[self.at : self.at + 1] in ("*", "+"):
            self.at += 1
            return [ANY if self.text[self.at - 1] == "*" else ONE + ANY]
        if character == "\\" and self.at < len(self.text) and not self.text[self.at].isalnum():
            character = self.text[self.at]
            self.at += 1
        elif character == ".":
            character = ONE
        elif character in "^$":  # in the middle they find nothing
            begins, ends = character == "^" and self.at == 1, character == "$" and self.at == len(self.text)
            return [_BEGIN] if begins else [_END] if ends else None
        elif character in _SPECIAL:
            return None
        return None if self.text[self.at : self.at + 1] in ("*", "+", "?", "{") else [character]

    def group(self) -> list[str] | None:
        if self.text.startswith("?:", self.at):
            self.at += 2
        self.depth += 1
        found = self.alternatives() if self.depth < 8 else None
        if found is None or not self.text.startswith(")", self.at):
            return None
        self.depth -= 1
        self.at += 1
        return None if self.text[self.at : self.at + 1] in ("*", "+", "?", "{") else found


def pattern_of(glob: Glob) -> str | None:
    """Return the pattern that finds the same names as a glob; None where a wildcard would be part of a word.

    >>> pattern_of(ANY), pattern_of("a.b"), pattern_of("a." + ANY), pattern_of("a" + ANY)
    ('#', 'a.b', 'a.>', None)
    """
    if glob in (ANY, ONE + ANY):
        return "#"
    begin = glob.rstrip(ANY + ONE)
    if ANY in begin or ONE in begin or (begin != glob and not begin.endswith(".")):
        return None
    if begin == glob:
        return glob
    return f"{begin}>" if glob.removeprefix(begin) in (ANY, ONE + ANY) else None


def finds(glob: Glob, name: str) -> bool:
    """Return whether a glob finds a name, in at most as many steps as the lengths of both multiplied."""
    at = in_glob = 0
    back: tuple[int, int] | None = None
    while at < len(name):
        here = glob[in_glob : in_glob + 1]
        if here == ANY:
            back = in_glob + 1, at
            in_glob += 1
        elif here and here in (ONE, name[at]):
            at, in_glob = at + 1, in_glob + 1
        elif back is not None:
            in_glob, at = back[0], back[1] + 1
            back = in_glob, at
        else:
            return False
    return not glob[in_glob:].strip(ANY)

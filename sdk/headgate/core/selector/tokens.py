"""A selector is made of words: names, texts, numbers, operators. Any text is read or refused."""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from headgate.core.selector.logic import MAX_WHOLE
from headgate.errors import InvalidValue

MAX_TEXT: Final = 4096
"""Characters of a selector."""
RESERVED: Final = frozenset({
    "NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"
})  # fmt: skip
_DIGITS: Final = 20
"""Of a whole number."""
_SHOWN: Final = 24
"""Characters of a text that an error shows."""
_TOKEN: Final = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*+')
  | (?P<quoted>"(?:[^"]|"")++")
  | (?P<approximate>
        (?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[dDfF]?
      | [0-9]++(?:[eE][+-]?[0-9]++[dDfF]?|[dDfF]))
  | (?P<exact>0[xX][0-9a-fA-F]++|[0-9]++)[lL]?
  | (?P<name>[^\W\d][\w$]*+|\$[\w$]*+)
  | (?P<operator><>|<=|>=|[=<>+\-*/(),])
    """,
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"\s*")
_GLUED: Final = re.compile(r"[\w$.]")


class Token(NamedTuple):
    """A token is one word of a selector.

    Attributes:
        kind: ``end`` comes last.
        value: of a text, a number or a name; of an operator itself, of a reserved word in capitals.
        at: its first character, counted from 0.
    """

    kind: Literal["text", "number", "name", "word", "operator", "end"]
    value: Any
    at: int


def refusal(text: str, at: int, expected: str) -> InvalidValue:
    """Return the error that says what belongs at a place of a selector, counted from 0, and what is there."""
    there = text[at:]
    found = f"{there[:_SHOWN]!r}{' ...' if len(there) > _SHOWN else ''}" if there else "the end"
    return InvalidValue(f"selector, character {at + 1}: expected {expected}, found {found}")


def read_tokens(text: str) -> Iterator[Token]:
    """Yield the words of a selector, and the end.

    Raises:
        InvalidValue: it is too long, or something in it is no word.
    """
    if len(text) > MAX_TEXT:
        raise InvalidValue(f"a selector of {len(text)} characters; at most {MAX_TEXT} can be used")
    at = _after_space(text, 0)
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise refusal(text, at, _remedy(text[at]))
        yield _token(text, found)
        at = _after_space(text, found.end())
    yield Token("end", None, len(text))


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _remedy(begins: str) -> str:
    if begins == "'":
        return "a text with a ' at its end (and '' for each ' inside)"
    if begins == '"':
        return 'a name with a " at its end (and "" for each " inside)'
    return "<> (for: is not)" if begins == "!" else "a name, a text, a number or an operator"


def _token(text: str, found: re.Match[str]) -> Token:
    at, kind, content = found.start(), found.lastgroup, found[0]
    if kind == "text":
        return Token("text", content[1:-1].replace("''", "'"), at)
    if kind == "quoted":
        return Token("name", content[1:-1].replace('""', '"'), at)
    if kind == "operator":
        return Token("operator", content, at)
    if kind == "name":
        word = content.upper()
        return Token("word", word, at) if word in RESERVED else Token("name", content, at)
    if _GLUED.match(text, found.end()):
        raise refusal(text, at, "a number and then a space or an operator")
    return Token("number", _approximate(text, at, content) if kind == "approximate" else _exact(text, at, content), at)


def _exact(text: str, at: int, content: str) -> int:
    digits = content.rstrip("lL")
    if digits[0] == "0" and digits.isdecimal() and digits != "0":
        raise refusal(text, at, "a number without zeros before it (in Java they make it octal)")
    number = int(digits, 16 if digits[1:2] in ("x", "X") else 10) if len(digits) <= _DIGITS else MAX_WHOLE + 1
    if number > MAX_WHOLE:
        raise refusal(text, at, f"a whole number up to {MAX_WHOLE}")
    return number


def _approximate(text: str, at: int, content: str) -> float:
    number = float(content.rstrip("dDfF"))
    if number == float("inf"):
        raise refusal(text, at, "a number that a double can hold")
    return number

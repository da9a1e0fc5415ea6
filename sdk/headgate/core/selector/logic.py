"""A selector has parts that are conditions on a message, in the three-valued logic of SQL: ``None`` is unknown.

Each function makes a part from smaller ones. A part is called with the headers of a message, and returns what it is for
that message: text, a number, a truth value, ``None``, or a header's value of another type, which equals nothing.
"""

import datetime as dt
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

Headers = Mapping[str, Any]
Part = Callable[[Headers], Any]

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS: Final = dt.timedelta(milliseconds=1)
MAX_WHOLE: Final = (1 << 64) - 1
"""The largest whole number that is computed with; what goes beyond it is unknown."""
NUMBER: Final = "number"
_KINDS: Final[dict[type, str]] = {bool: "boolean", int: NUMBER, float: NUMBER, str: "text"}
_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITY: Final = ("=", "<>")
"""Operators that also compare texts and truth values; all others compare numbers only."""


def always(value: Any) -> Part:
    """Return the part that is the same for every message."""
    return lambda _headers: value


def header(name: str) -> Part:
    """Return the part that is the value of a header; unknown where a message does not have it."""

    def value(headers: Headers) -> Any:
        found = headers.get(name)
        return found if found is None or type(found) in _KINDS else _plain(found)

    return value


def _plain(found: Any) -> Any:
    """Return text, a number or a truth value for what is one of them in another type; a moment is its ms since 1970."""
    if isinstance(found, str):
        return str(found)
    if isinstance(found, int):
        return int(found)
    if isinstance(found, Decimal):
        return None if found.is_snan() else float(found)
    if isinstance(found, dt.datetime) and found.utcoffset() is not None:
        return (found - EPOCH) // MS
    return found


def compared(test: str, left: Part, right: Part) -> Part:
    """Return whether one part is in that relation to another: false where their types cannot be compared."""
    holds, equality = _TESTS[test], test in EQUALITY

    def truth(headers: Headers) -> bool | None:
        one, other = left(headers), right(headers)
        if one is None or other is None:
            return None
        kind = _KINDS.get(type(one))
        if kind is None or kind != _KINDS.get(type(other)) or not (equality or kind is NUMBER):
            return False
        return holds(one, other)

    return truth


def between(value: Part, low: Part, high: Part, *, negated: bool) -> Part:
    """Return whether a number is in a range, its ends included; negated, whether it is below or above."""
    if negated:
        return any_of([compared("<", value, low), compared(">", value, high)])
    return all_of([compared(">=", value, low), compared("<=", value, high)])


def one_of(value: Part, texts: frozenset[str]) -> Part:
    """Return whether a part is one of some texts."""
    return _of_text(value, texts.__contains__)


def like(value: Part, pattern: str, escape: str = "") -> Part:
    """Return whether a text is as a pattern says: ``%`` stands for any characters, ``_`` for one.

    Args:
        value: the text.
        pattern: what it is to be like.
        escape: the character after which the next one stands for itself.

    It costs at most the length of the text times that of the pattern, for no group of the expression gives back what
    it took: the first place after which a piece fits is the one that leaves most to the others.
    """
    pieces, at = [""], 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            pieces[-1] += re.escape(pattern[at])
        elif pattern[at] == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if pattern[at] == "_" else re.escape(pattern[at])
        at += 1
    first, *middle = pieces
    if middle:
        *middle, last = middle
        first += "".join(f"(?>.*?{piece})" for piece in middle if piece) + f".*{last}"
    expression = re.compile(first, re.DOTALL)
    return _of_text(value, lambda text: expression.fullmatch(text) is not None)


def _of_text(value: Part, holds: Callable[[str], bool]) -> Part:
    def truth(headers: Headers) -> bool | None:
        found = value(headers)
        return None if found is None else type(found) is str and holds(found)

    return truth


def is_null(value: Part) -> Part:
    """Return whether a part is unknown, which is always known."""
    return lambda headers: value(headers) is None


def negation(part: Part) -> Part:
    """Return the opposite; of what is no truth value, unknown."""

    def truth(headers: Headers) -> bool | None:
        found = part(headers)
        return not found if type(found) is bool else None

    return truth


def all_of(parts: Sequence[Part]) -> Part:
    """Return false if one of the parts is, else unknown if one of them is, else true."""
    return _until(parts, decided=False)


def any_of(parts: Sequence[Part]) -> Part:
    """Return true if one of the parts is, else unknown if one of them is, else false."""
    return _until(parts, decided=True)


def _until(parts: Sequence[Part], *, decided: bool) -> Part:
    def truth(headers: Headers) -> bool | None:
        known = True
        for part in parts:
            found: object = part(headers)
            if found is decided:
                return decided
            known = known and type(found) is bool
        return not decided if known else None

    return truth


def computed(first: Part, rest: Sequence[tuple[str, Part]]) -> Part:
    """Return what comes of a number and those after it, each with ``+``, ``-``, ``*`` or ``/`` before it."""
    steps = [(_OPERATIONS[sign], part) for sign, part in rest]

    def value(headers: Headers) -> Any:
        found = first(headers)
        for operation, part in steps:
            other = part(headers)
            if _KINDS.get(type(found)) is not NUMBER or _KINDS.get(type(other)) is not NUMBER:
                return None
            found = _calculated(operation, found, other)
        return found

    return value


def _calculated(operation: Callable[[Any, Any], Any], one: float, other: float) -> Any:
    try:
        found = operation(one, other)
    except (ZeroDivisionError, OverflowError):
        return None
    return None if type(found) is int and abs(found) > MAX_WHOLE else found


def _divided(one: float, other: float) -> float:
    if type(one) is float or type(other) is float:
        return one / other
    whole = abs(one) // abs(other)  # of whole numbers a whole one, without what is left, as in SQL and Java
    return whole if (one < 0) == (other < 0) else -whole


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}


def signed(part: Part, *, negative: bool) -> Part:
    """Return a number with a sign before it; of what is no number, unknown."""

    def value(headers: Headers) -> Any:
        found = part(headers)
        if _KINDS.get(type(found)) is not NUMBER:
            return None
        return -found if negative else found

    return value

"""Conditions as trees: drawn at random, printed as a selector, and evaluated plainly.

Truth is a number here: 0 is false, 1 true, 0.5 unknown. So AND is the least, OR the greatest, NOT what is left to 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "$c_1", "d.e", "f-g", "Not")
TEXTS = st.text("ab_%'", max_size=4)
WHOLE = st.integers(0, 2**64 - 1) | st.integers(0, 20)
PART = st.floats(0, 1e300, allow_nan=False) | st.sampled_from([0.5, 2.0, 1e308])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-20, 20), st.integers(-(2**63), 2**64 - 1), PART, TEXTS, st.binary(max_size=2)
)
HEADERS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@dataclass(frozen=True)
class Tree:
    """An operator and what it is about: other trees, and, where ``of`` says so, plain values."""

    word: str
    of: tuple[Any, ...]


def leaf(word: str) -> st.SearchStrategy[Tree]:
    values: dict[str, st.SearchStrategy[Any]] = {
        "name": st.sampled_from(NAMES),
        "text": TEXTS,
        "whole": WHOLE,
        "part": PART,
        "truth": st.booleans(),
    }
    return values[word].map(lambda value: Tree(word, (value,)))


def of(word: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.tuples(*parts).map(lambda drawn: Tree(word, drawn))


NAME = leaf("name")
NUMBERS: st.SearchStrategy[Tree] = st.recursive(
    NAME | leaf("whole") | leaf("part"),
    lambda inner: st.one_of(*(of(sign, inner, inner) for sign in "+-*/"), of("minus", inner), of("plus", inner)),
    max_leaves=5,
)
NEGATED = st.booleans()
SIMPLE = st.one_of(
    NAME,
    leaf("truth"),
    *(of(sign, NUMBERS | leaf("text") | leaf("truth"), NUMBERS | leaf("text") | leaf("truth")) for sign in ("=", "<>")),
    *(of(sign, NUMBERS, NUMBERS) for sign in ("<", "<=", ">", ">=")),
    of("BETWEEN", NUMBERS, NUMBERS, NUMBERS, NEGATED),
    of("IN", NAME, st.lists(TEXTS, min_size=1, max_size=3), NEGATED),
    of("LIKE", NAME, TEXTS, NEGATED),
    of("ESCAPE", NAME, TEXTS, NEGATED),
    of("NULL", NAME, NEGATED),
)
CONDITIONS: st.SearchStrategy[Tree] = st.recursive(
    SIMPLE, lambda inner: st.one_of(of("AND", inner, inner), of("OR", inner, inner), of("NOT", inner)), max_leaves=8
)

_RANKS = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6, "minus": 7, "plus": 7}
_ATOMS = ("name", "text", "whole", "part", "truth")
_COMPARISON, _SUM = 4, 5


def printed(tree: Tree, rank: int = 0) -> str:
    """Return the tree as a selector with no more parentheses than it takes."""
    mine = 9 if tree.word in _ATOMS else _RANKS.get(tree.word, _COMPARISON)
    text = _printed(tree, mine)
    return f"({text})" if mine < rank else text


def _printed(tree: Tree, rank: int) -> str:
    word, parts = tree.word, tree.of
    no = "NOT " if parts[-1] is True else ""
    match word:
        case "name":
            return parts[0] if parts[0] in ("a", "b", "$c_1") else f'"{parts[0]}"'
        case "text":
            return quoted(parts[0])
        case "whole" | "part" | "truth":
            return repr(parts[0]).upper()
        case "NOT":
            return f"not {printed(parts[0], rank)}"
        case "minus" | "plus":
            return f"{'-' if word == 'minus' else '+'}{printed(parts[0], rank)}"
        case "BETWEEN":
            value, low, high = (printed(part, _SUM) for part in parts[:3])
            return f"{value} {no}BETWEEN {low} AND {high}"
        case "IN":
            return f"{printed(parts[0])} {no}IN ({', '.join(map(quoted, parts[1]))})"
        case "LIKE":
            return f"{printed(parts[0])} {no}LIKE {quoted(parts[1])}"
        case "ESCAPE":
            pattern = "".join(f"b{each}" if each in "b_" else each for each in parts[1])
            return f"{printed(parts[0])} {no}LIKE {quoted(pattern)} ESCAPE 'b'"
        case "NULL":
            return f"{printed(parts[0])} IS {no}NULL"
        case "AND" | "OR" | "+" | "-" | "*" | "/":
            return f"{printed(parts[0], rank)} {word} {printed(parts[1], rank + 1)}"
    return f"{printed(parts[0], _SUM)}{word}{printed(parts[1], _SUM)}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def value(tree: Tree, headers: Mapping[str, Any]) -> Any:
    """Return what a tree is for a message; None is unknown."""
    word, parts = tree.word, tree.of
    if word == "name":
        return headers.get(parts[0])
    if word in _ATOMS:
        return parts[0]
    if word in ("minus", "plus"):
        number = value(parts[0], headers)
        return (-number if word == "minus" else number) if is_number(number) else None
    if word in ("+", "-", "*", "/"):
        return calculated(word, value(parts[0], headers), value(parts[1], headers))
    return {0: False, 0.5: None, 1: True}[truth(tree, headers)]


def is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def calculated(word: str, one: Any, other: Any) -> Any:
    if not is_number(one) or not is_number(other) or (word == "/" and other == 0):
        return None
    if isinstance(one, int) and isinstance(other, int):
        exact = int({"+": one + other, "-": one - other, "*": one * other}.get(word, Fraction(one, other or 1)))
        return exact if -(2**64) < exact < 2**64 else None
    one, other = float(one), float(other)
    return {"+": one + other, "-": one - other, "*": one * other, "/": one / (other or 1)}[word]


def truth(tree: Tree, headers: Mapping[str, Any]) -> float:
    """Return 0, 1, or 0.5 for unknown."""
    word, parts = tree.word, tree.of
    if word in ("AND", "OR"):
        return (min if word == "AND" else max)(truth(parts[0], headers), truth(parts[1], headers))
    if word == "NOT":
        return 1 - truth(parts[0], headers)
    if word in _ATOMS:
        found = value(tree, headers)
        return int(found) if isinstance(found, bool) else 0.5
    if word == "BETWEEN":
        low, high = (Tree(sign, (parts[0], end)) for sign, end in ((">=", parts[1]), ("<=", parts[2])))
        if not parts[3]:
            return truth(Tree("AND", (low, high)), headers)
        below, above = (Tree(sign, (parts[0], end)) for sign, end in (("<", parts[1]), (">", parts[2])))
        return truth(Tree("OR", (below, above)), headers)
    if word in ("IN", "LIKE", "ESCAPE", "NULL"):
        found = positive(word, headers.get(parts[0].of[0]), parts[1])
        return 1 - found if parts[-1] is True else found
    return related(word, value(parts[0], headers), value(parts[1], headers))


def positive(word: str, found: Any, argument: Any) -> float:
    if word == "NULL":
        return int(found is None)
    if found is None:
        return 0.5
    if not isinstance(found, str):
        return 0
    if word == "IN":
        return int(found in argument)
    return int(fits(found, argument, literal="b_" if word == "ESCAPE" else ""))


def fits(text: str, pattern: str, literal: str) -> bool:
    """Return whether a text is like a pattern, whose characters in ``literal`` stand for themselves."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(fits(text[skipped:], pattern[1:], literal) for skipped in range(len(text) + 1))
    one = bool(text) and (text[0] == pattern[0] or (pattern[0] == "_" and "_" not in literal))
    return one and fits(text[1:], pattern[1:], literal)


def related(word: str, one: Any, other: Any) -> float:
    if one is None or other is None:
        return 0.5
    if is_number(one) and is_number(other):
        order = {"=": one == other, "<>": one != other, "<": one < other, "<=": one <= other, ">": one > other}
        return int(order.get(word, one >= other))
    if word not in ("=", "<>") or isinstance(one, bytes) or type(one) is not type(other):
        return 0
    return int((one == other) == (word == "="))

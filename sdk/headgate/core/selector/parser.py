"""A message selector is a condition on a message's headers, as JMS has them: a part of the conditions of SQL-92.

>>> urgent = Selector.parse("region IN ('eu', 'us') AND (priority > 4 OR kind LIKE 'alarm.%')")
>>> [urgent.matches(headers) for headers in ({"region": "eu", "priority": 7}, {"region": "eu"}, {"priority": 7})]
[True, False, False]

A header that a message does not have is unknown, and so is every comparison with it. A message matches where
the condition is true, not where it is unknown. Names may be anything in double quotes: ``"amqp.subject"``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headgate.core.selector import logic
from headgate.core.selector.logic import Headers, Part
from headgate.core.selector.tokens import Token, read_tokens, refusal
from headgate.errors import InvalidValue

MAX_DEPTH: Final = 32
"""Levels of parentheses."""
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
Kind = Literal["boolean", "number", "text", "any"]


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector judges the headers of a message by one condition.

    Attributes:
        text: as it was written.
        names: the headers that it looks at.
    """

    text: str
    names: frozenset[str]
    _holds: Part

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Return the selector that a text says.

        Raises:
            InvalidValue: it is none, or too long; the error tells where, and what belongs there.
        """
        reader = _Reader(text, read_tokens(text))
        holds = reader.whole()
        return cls(text, frozenset(reader.names), holds)

    def matches(self, headers: Headers) -> bool:
        """Return whether the condition is true for a message with these headers."""
        return self._holds(headers) is True


@dataclass(frozen=True, slots=True)
class _Term:
    """A term is a condition, or a part of one, that was read.

    Attributes:
        part: as it is evaluated.
        kind: of its value; ``any`` for a header.
        at: where it begins.
        is_header: whether it is a header, and nothing else.
    """

    part: Part
    kind: Kind
    at: int
    is_header: bool = False


class _Reader:
    """A reader takes a condition apart: each method reads one operator, the loosest first, from terms of the next."""

    def __init__(self, text: str, tokens: Iterator[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._here = next(tokens)
        self._depth = 0
        self.names: set[str] = set()

    def whole(self) -> Part:
        term = self._any_of()
        if self._here.kind != "end":
            raise self._expected("an operator or the end")
        return self._truth(term)

    def _any_of(self) -> _Term:
        return self._joined("OR", self._all_of, logic.any_of)

    def _all_of(self) -> _Term:
        return self._joined("AND", self._negation, logic.all_of)

    def _joined(self, word: str, read: Callable[[], _Term], join: Callable[[list[Part]], Part]) -> _Term:
        first = read()
        if self._here[:2] != ("word", word):
            return first
        parts = [self._truth(first)]
        while self._took(word):
            parts.append(self._truth(read()))
        return _Term(join(parts), "boolean", first.at)

    def _negation(self) -> _Term:
        at, count = self._here.at, 0
        while self._took("NOT"):
            count += 1
        term = self._comparison()
        if not count:
            return term
        part = logic.negation(self._truth(term))
        return _Term(part if count % 2 else logic.negation(part), "boolean", at)

    def _comparison(self) -> _Term:
        left = self._sum()
        sign = self._here.value
        if self._here.kind == "operator" and sign in _COMPARISONS:
            self._next()
            right = self._sum()
            for term in () if sign in logic.EQUALITY else (left, right):
                self._number(term)
            return _Term(logic.compared(sign, left.part, right.part), "boolean", left.at)
        if self._took("IS"):
            negated = self._took("NOT")
            self._take("NULL")
            return self._predicate(logic.is_null(self._header(left)), left, negated=negated)
        negated = self._took("NOT")
        if self._took("BETWEEN"):
            return self._between(left, negated=negated)
        if self._took("IN"):
            return self._predicate(logic.one_of(self._header(left), self._texts()), left, negated=negated)
        if self._took("LIKE"):
            return self._predicate(logic.like(self._header(left), *self._pattern()), left, negated=negated)
        if negated:
            raise self._expected("BETWEEN, IN or LIKE")
        return left

    @staticmethod
    def _predicate(part: Part, of: _Term, *, negated: bool) -> _Term:
        return _Term(logic.negation(part) if negated else part, "boolean", of.at)

    def _between(self, value: _Term, *, negated: bool) -> _Term:
        low = self._sum()
        self._take("AND")
        high = self._sum()
        parts = (self._number(term) for term in (value, low, high))
        return _Term(logic.between(*parts, negated=negated), "boolean", value.at)

    def _texts(self) -> frozenset[str]:
        self._take("(")
        texts = [self._one("text")]
        while self._took(","):
            texts.append(self._one("text"))
        self._take(")")
        return frozenset(texts)

    def _pattern(self) -> tuple[str, str]:
        at, pattern = self._here.at, self._one("text")
        if not self._took("ESCAPE"):
            return pattern, ""
        escape_at, escape = self._here.at, self._one("text")
        if len(escape) != 1:
            raise refusal(self._text, escape_at, "a text of one character")
        rest = iter(pattern)
        for character in rest:
            if character == escape and next(rest, None) not in ("%", "_", escape):
                raise refusal(self._text, at, f"a pattern with %, _ or {escape} after each {escape}")
        return pattern, escape

    def _sum(self) -> _Term:
        return self._computed(("+", "-"), self._product)

    def _product(self) -> _Term:
        return self._computed(("*", "/"), self._signed)

    def _computed(self, signs: tuple[str, str], read: Callable[[], _Term]) -> _Term:
        first, rest = read(), []
        while self._here.kind == "operator" and self._here.value in signs:
            self._number(first)
            sign = self._next().value
            rest.append((sign, self._number(read())))
        return _Term(logic.computed(first.part, rest), "number", first.at) if rest else first

    def _signed(self) -> _Term:
        at, signs = self._here.at, []
        while self._here.kind == "operator" and self._here.value in ("+", "-"):
            signs.append(self._next().value)
        term = self._value()
        if not signs:
            return term
        part = logic.signed(self._number(term), negative=signs.count("-") % 2 == 1)
        return _Term(part, "number", at)

    def _value(self) -> _Term:
        kind, value, at = self._here
        if kind == "name":
            self._next()
            self.names.add(value)
            return _Term(logic.header(value), "any", at, is_header=True)
        if kind in ("text", "number"):
            self._next()
            return _Term(logic.always(value), "text" if kind == "text" else "number", at)
        if kind == "word" and value in ("TRUE", "FALSE"):
            self._next()
            return _Term(logic.always(value == "TRUE"), "boolean", at)
        if not self._took("("):
            raise self._expected("a header, a text, a number, TRUE, FALSE or (")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise refusal(self._text, at, f"no more than {MAX_DEPTH} levels of parentheses")
        term = self._any_of()
        self._take(")")
        self._depth -= 1
        return _Term(term.part, term.kind, at)

    # What a term must be.

    def _truth(self, term: _Term) -> Part:
        return self._of("boolean", term, "a condition")

    def _number(self, term: _Term) -> Part:
        return self._of("number", term, "a header or a number")

    def _of(self, kind: Kind, term: _Term, wanted: str) -> Part:
        if term.kind not in (kind, "any"):
            raise refusal(self._text, term.at, wanted)
        return term.part

    def _header(self, term: _Term) -> Part:
        if not term.is_header:
            raise refusal(self._text, term.at, "a header alone")
        return term.part

    # Tokens.

    def _next(self) -> Token:
        token, self._here = self._here, next(self._tokens)
        return token

    def _took(self, value: str) -> bool:
        """Go past a reserved word or an operator if it is here, and return whether it was."""
        if self._here.kind not in ("word", "operator") or self._here.value != value:
            return False
        self._next()
        return True

    def _take(self, value: str) -> None:
        if not self._took(value):
            raise self._expected(value)

    def _one(self, kind: Literal["text"]) -> str:
        if self._here.kind != kind:
            raise self._expected("a text in '...'")
        return str(self._next().value)

    def _expected(self, what: str) -> InvalidValue:
        return refusal(self._text, self._here.at, what)

"""Arguments of scripts have types: named in their headers, checked by generated Lua, and here at gateways.

Between the name of an argument and its meaning is its type: one of these, or several with commas and "or" between them.

    0 to 1000, 1 to 2^40, size...    whole numbers in that range, or in one that has a name, see ``RANGES``
    rate                             a number from 1e-9 to 1e15
    'leave', 'stay'                  these words
    id, name, segment, ...           text of such a form, see ``FORMS``
    run                              a server's run id
    text to 200, bytes to 200        text without control characters, or anything, of that many bytes at the most
    field                            value of a setting: all of them, with their types, follow after ``Fields``

The last argument may stand for any number of values, and says how many: ``up to 128 of text to 200, total``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "total": (0, 2**53 - 1),  # whole numbers stop to be exact in Lua above that
    "size": (0, 2**52),
    "ttl": (0, 3_600_000),
    "ms": (0, 3_155_760_000_000),
}
"""Whole numbers that may be: what is counted up, one step of it, ms of a lease, and ms up to a hundred years."""
RATES: Final = (1e-9, 1e15)
FORMS: Final[Mapping[str, tuple[str, int]]] = {
    "id": ("[%w_~-]+", 90),
    "name": ("[%w._~%%-]+", 800),
    "consumer": ("[%w_~-]+%.[1-9]%d?", 93),
    "subscription": ("![%w._~%%-]+", 801),
    "message": ("%d+%-%d+", 33),
    "window": ("[%w./-]+", 60),
    "segment": ("[%w._~%%/-]+", 900),
    "batch": ("[%w._~%%/-]+ [1-9]%d* [1-9]%d* ?[%d-]*", 964),
    "seen": ("%d+%-%d+", 33),
    "word": ("[^%c ]+", 4000),
    "hold": ("[%w_~-]+%.[1-9]%d*", 110),
    "amounts": ("[%w_=,~!&-]+", 800),
    "rate": ("%d+%.?%d*e?[+-]?%d*", 30),
    "limits": ("[%w_ .+;-]+", 2000),
    "levels": ("[%w_=:;@]*", 4000),
    "weights": ("[%w._~%%=*;-]+", 20000),
    "offsets": ("[%d -]+", 4000),
    "life": ("%w+%+%d+", 40),
    "moments": ("[%d@ -]*", 20000),
    "share": ("%d+%.?%d*%%", 20),
    "unwanted": ("[%w._~%%=, -]*", 24000),
    "selector": ("#?[%w._~%%-]*", 2000),
    "site": ("[a-z0-9-]+", 32),
    "part": ("[a-z0-9-]+/[%w._~%%-]+", 840),
    "sites": ("[a-z0-9=* -]+", 2000),
}
"""Forms of text, as patterns of Lua without captures and with no ']' in a set, and the most bytes."""
REFUSED: Final = "ARGUMENT "
"""The beginning of a script's error about an argument of another type."""
_ATOM: Final = re.compile(r"'[^']*'|(?:text|bytes)(?: to \d+)?|\d+(?:\^\d+)? to \d+(?:\^\d+)?|[a-z]+", re.ASCII)
_SEVERAL: Final = re.compile(r"up to (\d+) of (.+)")
_FIELDS: Final = re.compile(r"^  Fields +(.*\n(?: {11}.*\n)*)", re.MULTILINE)
_CLASSES: Final = {"w": "A-Za-z0-9", "d": "0-9", "c": r"\x00-\x1f\x7f", "C": r"^\x00-\x1f\x7f"}
_ANY_TEXT: Final = "%C*"


class UnknownTypeError(ValueError):
    """A header names a type that there is not."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice is one of the things that a value may be.

    Attributes:
        word: that very text; None for what has a pattern.
        pattern: of Lua, for the whole; None for anything.
        most: bytes; None for any number.
        low: the least number; None for what is none.
        high: the largest.
    """

    word: str | None = None
    pattern: str | None = None
    most: int | None = None
    low: float | None = None
    high: float = 0

    @classmethod
    def of(cls, text: str) -> "Choice":
        """Return what one part of a type says.

        Raises:
            UnknownTypeError: there is none of that name.
        """
        if text.startswith("'"):
            return cls(word=text[1:-1])
        name, _, bound = text.partition(" to ")
        if name == "run":  # the server's own word, compared and kept as it is: to look at each letter costs too much
            return cls(most=200)
        if name in ("text", "bytes"):
            return cls(pattern=_ANY_TEXT if name == "text" else None, most=int(bound) if bound else None)
        if bound or name in RANGES:
            low, high = (_number(name), _number(bound)) if bound else RANGES[name]
            return cls(pattern="[1-9]%d*" if low else "%d+", most=len(str(high)), low=low, high=high)
        if name not in FORMS:
            raise UnknownTypeError(f"{text!r} is not a type of argument")
        pattern, most = FORMS[name]
        return cls(None, pattern, most, *RATES) if name == "rate" else cls(None, pattern, most)

    def accepts(self, value: bytes) -> bool:
        """Return whether it may be that."""
        if self.word is not None:
            return value == self.word.encode()
        if self.most is not None and len(value) > self.most:
            return False
        if self.pattern is not None and not _regex(self.pattern).fullmatch(value):
            return False
        try:
            return self.low is None or self.low <= float(value) <= self.high
        except ValueError:
            return False

    def refuses(self, value: str, *, matched: bool = False) -> str:
        """Return a Lua expression that is true when ``value`` is not that; ``matched``: its pattern was looked at."""
        if self.word is not None:
            return f"{value} ~= '{self.word}'"
        refused = []
        if self.pattern is not None and not matched:
            refused.append(f"not string.find({value}, '^{self.pattern}$')")
        if self.low is None:
            refused += [f"#{value} > {self.most}"] if self.most is not None else []
        elif self.high == RATES[1]:
            refused.append(f"not ((tonumber({value}) or 0) >= {self.low!r} and {value} + 0 <= {self.high!r})")
        else:
            beyond = f"#{value} > {self.most}"
            if self.high != 10 ** (self.most or 0) - 1:  # only where it has as many digits is it worth a comparison
                beyond = f"#{value} >= {self.most} and (#{value} > {self.most} or {value} + 0 > {self.high:.0f})"
            refused += [f"({beyond})", *([f"{value} + 0 < {self.low:.0f}"] if self.low > 1 else [])]
        return " or ".join(refused) or "false"


@dataclass(frozen=True, slots=True)
class Type:
    """A type says what an argument may be.

    Attributes:
        text: as the header has it.
        choices: it must be one of them.
        several: of the last argument that stands for any number of values: how many times all of ``items``.
        items: their types.
    """

    text: str
    choices: tuple[Choice, ...] = ()
    several: int = 0
    items: tuple["Type", ...] = ()

    @classmethod
    def of(cls, text: str) -> "Type":
        """Return the type that a header says.

        Raises:
            UnknownTypeError: it is none.
        """
        if several := _SEVERAL.fullmatch(text):
            return cls(text, several=int(several[1]), items=tuple(cls.of(item) for item in several[2].split("; ")))
        atoms = _ATOM.findall(re.sub(r"\bor\b", "", text))
        if not atoms or re.sub(r"\bor\b|[ ,]", "", text) != "".join(atoms).replace(" ", ""):
            raise UnknownTypeError(f"{text!r} is not a type of argument")
        return cls(text, tuple(map(Choice.of, atoms)) if text != "field" else ())

    @property
    def is_number(self) -> bool:
        """Whether it may come as a number, and not only as text."""
        return any(choice.low is not None for choice in self.choices)

    def accepts(self, value: Any) -> bool:
        """Return whether a value may be that: a whole number, text or bytes."""
        if type(value) is int and self.is_number:
            return any(choice.low is not None and choice.low <= value <= choice.high for choice in self.choices)
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return isinstance(raw, bytes) and any(choice.accepts(raw) for choice in self.choices)

    def pattern(self) -> str | None:
        """Return what it must look like beside others, with a line end between them; None for what may have such."""
        if any(choice.word is None and choice.pattern is None for choice in self.choices):
            return None
        return self.choices[0].pattern if len(self.choices) == 1 and self.choices[0].pattern else _ANY_TEXT

    def refuses(self, value: str, *, matched: bool = False) -> str:
        """Return a Lua expression that is true when ``value`` is not that."""
        if len(self.choices) == 1:
            return self.choices[0].refuses(value, matched=matched)
        words_first = sorted(self.choices, key=lambda choice: choice.word is None)
        return " and ".join(f"({choice.refuses(value)})" for choice in words_first)


@dataclass(frozen=True, slots=True)
class Arguments:
    """`Arguments` describes all that a script is given.

    Attributes:
        script: its name.
        names: of the arguments; the last may stand for any number of values.
        types: of each.
        fields: of settings, where the last are such.
    """

    script: str
    names: tuple[str, ...]
    types: tuple[Type, ...]
    fields: Mapping[str, Type] = field(hash=False)

    @classmethod
    def of(cls, script: str, header: str, names: Sequence[str], types: Sequence[str]) -> "Arguments":
        """Return what a header says of them.

        Raises:
            UnknownTypeError: a type that there is not.
        """
        found = _FIELDS.search(header)
        rows = [re.split(" {2,}", line.strip(), maxsplit=1) for line in (found[1].splitlines() if found else ())]
        return cls(script, tuple(names), tuple(map(Type.of, types)), {name: Type.of(text) for name, text in rows})

    @property
    def fixed(self) -> tuple[tuple[str, Type], ...]:
        """Names and types of those that stand for one value each."""
        pairs = tuple(zip(self.names, self.types, strict=True))
        return pairs[:-1] if self.types and self.types[-1].several else pairs

    @property
    def rest(self) -> Type | None:
        """The type of further arguments, where more may follow."""
        return self.types[-1] if self.types and self.types[-1].several else None

    def wrong(self, argv: Sequence[Any]) -> str | None:
        """Return what is wrong with these values, for people; None when nothing is. None stands for a run id."""
        count, rest = len(self.fixed), self.rest
        more = len(argv) - count
        if more < 0 or (more > 0 and rest is None):
            return f"{self.script} takes {count} arguments{' or more' if rest else ''}, not {len(argv)}"
        for (name, of), value in zip(self.fixed, argv, strict=False):
            if not (value is None and name == "run_id") and not of.accepts(value):
                return f"{self.script}: {name} is {_shown(value)}; use {of.text}"
        if rest is None:
            return None
        width = len(rest.items)
        plain = all(item.choices == (Choice(),) for item in rest.items)  # messages may be many
        if plain and more <= rest.several and all(isinstance(value, bytes | str) for value in argv[count:]):
            return None
        if more % width or more > width * rest.several:
            return f"{self.script}: {more} values are too many, or too few, for {self.names[-1]}; use {rest.text}"
        for at in range(count, len(argv)):
            position = (at - count) % width
            of = rest.items[position]
            if of.text == "field":
                of = self.fields.get(_text(argv[at - 1]), Type("a field that there is"))
                if argv[at] in ("", b"") and of.choices:
                    continue
            if not of.accepts(argv[at]):
                return f"{self.script}: {self.names[-1]} {at - count + 1} is {_shown(argv[at])}; use {of.text}"
        return None

    def as_number(self, call: re.Match[str]) -> str:
        """Return what is the same as ``tonumber`` of an argument and cheaper, for what was checked to be a number."""
        _, of = self.fixed[int(call[1]) - 1]
        whole = len(of.choices) == 1 and of.is_number
        return f"(ARGV[{call[1]}] + 0)" if whole else call[0]

    def in_lua(self) -> str:
        """Return a statement, in one line, that ends a script before it has done anything, when an argument is wrong.

        Texts that are bounded by themselves are looked at all at once, with a line end between them.
        """
        count, rest, refused = len(self.fixed), self.rest, []
        more = f"#ARGV - {count}" if rest else ""
        refused.append(f"#ARGV {'<' if rest else '~='} {count}")
        if rest:
            width = len(rest.items)
            refused.append(f"{more} > {width * rest.several}")
            refused += [f"({more}) % {width} ~= 0"] if width > 1 else []
        run: list[str] = []
        for number, (_, of) in enumerate((*self.fixed, ("", Type("", (Choice(),)))), 1):
            if (pattern := of.pattern()) is not None:
                run.append(pattern)
            elif run:
                first = number - len(run)
                whole = r"\n".join(run)
                refused.append(f"not string.find(table.concat(ARGV, '\\n', {first}, {number - 1}), '^{whole}$')")
                run = []
        for number, (_, of) in enumerate(self.fixed, 1):
            if (text := of.refuses(f"ARGV[{number}]", matched=True)) != "false":
                refused.append(f"({text})" if len(of.choices) > 1 else text)
        end = f"then return redis.error_reply('{REFUSED}{self.script}') end"
        return f"local ARGV = ARGV if {' or '.join(refused)} {end}{self._rest_in_lua(count + 1, end)}"

    def _rest_in_lua(self, first: int, end: str) -> str:
        if self.rest is None:
            return ""
        if self.fields:
            known = ", ".join(f"{name} = function(v) return {of.refuses('v')} end" for name, of in self.fields.items())
            return (
                f" do local known = {{ {known} }} for i = {first}, #ARGV, 2 do local refuses, v = known[ARGV[i]], "
                f"ARGV[i + 1] if not refuses or (v ~= '' and refuses(v)) {end} end end"
            )
        width = len(self.rest.items)
        refused = []
        for position, of in enumerate(self.rest.items):
            value, before = f"ARGV[i + {position}]", f"ARGV[i - {width - position}]"
            if (text := of.refuses(value)) != "false":  # what is as it was in the row before was looked at there
                refused.append(f"({f'(i == {first} or {value} ~= {before}) and ({text})' if width > 1 else text})")
        return f" for i = {first}, #ARGV, {width} do if {' or '.join(refused)} {end} end" if refused else ""


def _number(text: str) -> int:
    base, _, power = text.partition("^")
    value: int = int(base) ** int(power or 1)
    return value


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


@cache
def _regex(pattern: str) -> re.Pattern[bytes]:
    """Return the same pattern as Python reads it."""
    out, inside = "", False
    for mark, sign in re.findall(r"(%?)(.)", pattern):
        if mark:
            known = _CLASSES.get(sign)
            out += re.escape(sign) if known is None else known if inside else f"[{known}]"
        else:
            inside = {"[": True, "]": False}.get(sign, inside)
            out += sign
    return re.compile(out.encode())

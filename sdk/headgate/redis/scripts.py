"""The scripts of ``lua/``: found, put together, and called by the names their headers declare."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from headgate.redis.arguments import Arguments, UnknownTypeError

_INCLUDE: Final = re.compile(r'^--- @include "([\w/]+)"\n', re.MULTILINE)
_ENCLOSE: Final = re.compile(r"^--- @enclose$", re.MULTILINE)
_CONSTANT: Final = re.compile(r"^local ([A-Z_]+) = (KEYS\[\d+\]|\d+|'[^'\n]*')(?= --|\n)(?!\n +\.\.)", re.MULTILINE)
_WORD: Final = re.compile(r"--\[\[.*?\]\]|--[^\n]*|'[^'\n]*'|\b[A-Z_]+\b", re.DOTALL)
"""Comments and strings, so that nothing is found in them, and what may be the name of a constant."""
_LEXEME: Final = re.compile(
    r"""--\[(?P<long>=*)\[.*?\](?P=long)\]|--[^\r\n]*"""  # comments
    r"""|\[(?P<quote>=*)\[.*?\](?P=quote)\]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""  # strings
    r"""|\n[ \t]+""",
    re.DOTALL,
)
"""All in which Lua sees a comment, a quote or a line's beginning: read from left to right, none is found in another."""
_FUNCTION: Final = re.compile(r"^local function (\w+)\([^\n]*\n(?:(?:[ \t][^\n]*)?\n)*end$", re.MULTILINE)
"""A function of a script, from its first column to its ``end`` there."""
_ARGUMENT: Final = re.compile(r"^  ARGV\[(\d+)(\.\.)?\] +([\w, ]+?)(?: {2,}(.*?))?(?: {2,}|$)", re.MULTILINE)
_NUMBER: Final = re.compile(r"tonumber\(ARGV\[(\d+)\]\)")
_CODES: Final = re.compile(r"^  Codes\s+((?:.+\n)+?)\]\]", re.MULTILINE)


class ScriptError(Exception):
    """A script cannot be put together: a defect of the installation, not of its use."""


@dataclass(frozen=True, slots=True)
class Script:
    """One operation.

    Attributes:
        name: the file's name without ``.lua``.
        source: with everything it includes.
        arguments: names of ARGV in order; the last may stand for any number of values.
        variadic: whether it does.
        codes: the first elements of its replies.
        declared: what its arguments may be; none where it was parsed without that.
        sha: what EVALSHA calls it.
        pick: returns the values of all but a variadic one, in order, from values by name.
    """

    name: str
    source: str
    arguments: tuple[str, ...]
    variadic: bool
    codes: tuple[str, ...]
    declared: Arguments
    sha: str = field(default="")
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fixed = self.arguments[:-1] if self.variadic else self.arguments
        several = len(fixed) > 1
        pick = itemgetter(*fixed) if several else lambda values: tuple(map(values.__getitem__, fixed))
        object.__setattr__(self, "pick", pick)

    def argv(self, values: dict[str, Any], rest: Iterable[Any] = ()) -> list[Any]:
        """Return ARGV from values by name, and what follows them.

        Raises:
            TypeError: a value is missing or unknown.
        """
        fixed = self.arguments[:-1] if self.variadic else self.arguments
        if len(values) != len(fixed):
            raise TypeError(f"{self.name} takes {', '.join(fixed)}; got {', '.join(values)}")
        try:
            return [*self.pick(values), *rest]
        except KeyError as error:
            raise TypeError(f"{self.name} takes {error}, which was not given") from None


def lua_root() -> Traversable:
    """Return the folder of scripts: inside the wheel, else in the checkout.

    Raises:
        ScriptError: neither is there.
    """
    packaged = resources.files("headgate.redis") / "lua"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[3] / "lua"
    if checkout.is_dir():
        return checkout
    raise ScriptError("lua/ is neither packaged nor beside this checkout; install headgate again")


def expand(root: Traversable, path: str, *, done: set[str] | None = None, stack: tuple[str, ...] = ()) -> str:
    """Return a script's text with each ``--- @include "lib/x"`` replaced, once, by that file.

    Raises:
        ScriptError: an include is missing or includes itself; the chain of files is named.
    """
    done = set() if done is None else done
    if path in stack:
        raise ScriptError(f"circular include: {' -> '.join((*stack, path))}")
    try:
        text = (root / f"{path}.lua").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScriptError(f"missing include: {' -> '.join((*stack, path))}") from None

    def include(match: re.Match[str]) -> str:
        if match[1] in done:
            return ""
        body = expand(root, match[1], done=done, stack=(*stack, path))
        done.add(match[1])
        return body

    return _INCLUDE.sub(include, text)


def hasten(source: str) -> str:
    """Return a script that begins sooner and does the same: line for line, with its constants put where they are used.

    Redis runs the whole text at each call, and so makes each function anew, with the outer variables that it uses. Lua
    looks for those one after the other among all that are open, but has those of an enclosing function at hand: what
    follows ``--- @enclose`` becomes a function of its own. Functions that nothing uses here, for a part serves other
    scripts too, are left out.
    """
    constants = dict(_CONSTANT.findall(source))
    source = _WORD.sub(lambda word: constants.get(word[0], word[0]), _CONSTANT.sub("", source))
    source, enclosed = _ENCLOSE.subn("return (function()", _used(source))
    return source + "end)()\n" * enclosed


def _used(source: str) -> str:
    """Return a script without the functions that none of its statements leads to, line for line."""
    code = _LEXEME.sub(lambda lexeme: re.sub(r"[^\n]", " ", lexeme[0]), source)  # what follows stays where it is
    functions = list(_FUNCTION.finditer(code))
    leads_to = {function[1]: set[str]() for function in functions}
    for function in functions:
        leads_to[function[1]] |= leads_to.keys() & set(re.findall(r"\w+", function[0])[2:])
    reached, new = set[str](), leads_to.keys() & set(re.findall(r"\w+", _FUNCTION.sub("", code)))
    while new:
        reached |= new
        new = set[str]().union(*(leads_to[name] for name in new)) - reached
    for function in reversed(functions):
        if function[1] not in reached:
            source = source[: function.start()] + "\n" * function[0].count("\n") + source[function.end() :]
    return source


def bare(source: str) -> str:
    """Return a script without its comments and indentation, each statement on the line where it was.

    Redis keeps the text, and reads one of more than 32 KiB in a turn of its own, before the call that comes behind it.
    """

    def kept(lexeme: re.Match[str]) -> str:
        text = lexeme[0]
        if text.startswith("--"):
            return "\n" * text.count("\n") or " " * (lexeme["long"] is not None)
        return "\n" if text.startswith("\n") else text

    return _LEXEME.sub(kept, source)


def parse(name: str, source: str, *, checked: bool = False) -> Script:
    """Return the script with the contract that its header declares.

    Args:
        name: of the script.
        source: its text.
        checked: whether its arguments have types, and are to be checked by the script itself before all else; its
            source is then :func:`bare`.

    Raises:
        ScriptError: the header's arguments are not numbered 1, 2, 3..., or one has no type that there is.
    """
    end = source.index("]]") + 3
    header = source[:end]
    arguments: list[str] = []
    types: list[str] = []
    variadic = False
    for number, dots, names, type_ in _ARGUMENT.findall(header):
        if int(number) != len(arguments) + 1 or variadic:
            raise ScriptError(f"{name}.lua: its header declares ARGV[{number}] out of order")
        arguments.append(names.strip())
        types.append(type_)
        variadic = bool(dots)
    try:
        declared = Arguments.of(name, header, arguments if checked else (), types if checked else ())
    except UnknownTypeError as error:
        raise ScriptError(f"{name}.lua: its header: {error}") from None
    if checked and bool(declared.rest) != variadic:
        raise ScriptError(f"{name}.lua: its header does not say how many {arguments[-1]} there may be")
    if checked:  # on a line that there is, so that an error still names the line of the files together
        source = bare(f"{header}{declared.in_lua()} {_NUMBER.sub(declared.as_number, source[end:])}")
    codes = _CODES.search(header)
    names = tuple(re.findall(r"\b[A-Z_]{2,}\b", re.sub(r"\([^)]*\)", "", codes[1]))) if codes else ()
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, tuple(arguments), variadic, names, declared, sha)


@cache
def script(name: str) -> Script:
    """Return one script by name."""
    return parse(name, hasten(expand(lua_root(), name)), checked=True)


@cache
def script_names() -> tuple[str, ...]:
    """Return the names of all scripts, in alphabetic order."""
    return tuple(sorted(p.name.removesuffix(".lua") for p in lua_root().iterdir() if p.name.endswith(".lua")))

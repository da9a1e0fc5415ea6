"""The scripts of ``lua/`` are found, put together, and called by the names their headers declare."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from headgate.redis.text.arguments import Arguments, UnknownTypeError
from headgate.redis.text.hastening import bare, enclose, lessen
from headgate.redis.text.library import Library, LibraryError, library_body

_INCLUDE: Final = re.compile(r'^--- @include "([\w/]+)"\n', re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^  ARGV\[(\d+)(\.\.)?\] +([\w, ]+?)(?: {2,}(.*?))?(?: {2,}|$)", re.MULTILINE)
_NUMBER: Final = re.compile(r"tonumber\(ARGV\[(\d+)\]\)")
_CODES: Final = re.compile(r"^  Codes\s+((?:.+\n)+?)\]\]", re.MULTILINE)
FUNCTIONS: Final = frozenset({
    "acquire", "publish", "settle", "take", "admit", "link_read", "link_commit", "hold",
})  # fmt: skip
"""The scripts that are called for each message or admission, or for a batch of them: servers that have functions call
these as such, for they need not make them anew each time."""
_made: Final[dict[str, "Script"]] = {}
"""All scripts that were put together in this process, by sha."""


class ScriptError(Exception):
    """A script cannot be put together: a defect of the installation, not of its use."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script is one operation, atomic in Redis.

    Attributes:
        name: the file's name without ``.lua``.
        source: with everything it includes.
        arguments: names of ARGV in order; the last may stand for any number of values.
        variadic: whether it does.
        codes: the first elements of its replies.
        declared: what its arguments may be; none where it was parsed without that.
        sha: what EVALSHA calls it.
        library: the same as a function, for servers that have such; None where it is called too seldom to be worth it.
        pick: returns the values of all but a variadic one, in order, from values by name.
    """

    name: str
    source: str
    arguments: tuple[str, ...]
    variadic: bool
    codes: tuple[str, ...]
    declared: Arguments
    sha: str = field(default="")
    library: Library | None = None
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
    source = lessen(expand(lua_root(), name))
    one = parse(name, enclose(source), checked=True)
    if name in FUNCTIONS:
        one = replace(one, library=library(one, source))
    _made[one.sha] = one
    return one


def library(one: Script, source: str) -> Library:
    """Return a script as a library of one function.

    Args:
        one: the script.
        source: its text with all that it includes, as :func:`lessen` returns it.

    Raises:
        ScriptError: a part of it cannot be one of a library.
    """
    end = source.index("]]") + 3
    own = _INCLUDE.sub("", (lua_root() / f"{one.name}.lua").read_text(encoding="utf-8"))[end:]
    lines = source[end:].splitlines(keepends=True)
    parts, own = (
        _NUMBER.sub(one.declared.as_number, "".join(text))
        for text in (lines[: -own.count("\n")], lines[-own.count("\n") :])
    )
    try:
        return Library.of(one.name, bare(library_body(parts, own, one.declared.in_lua())))
    except LibraryError as error:
        raise ScriptError(f"{one.name}.lua: {error}") from None


@cache
def script_names() -> tuple[str, ...]:
    """Return the names of all scripts, in alphabetic order."""
    return tuple(sorted(p.name.removesuffix(".lua") for p in lua_root().iterdir() if p.name.endswith(".lua")))


def script_of(sha: str) -> Script | None:
    """Return the script that EVALSHA calls so; None when it is none of these.

    Nothing is put together for that: whoever knows a script's sha has it from the script.
    """
    return _made.get(sha)


def function_of(sha: str) -> Script | None:
    """Return the script that EVALSHA calls so, if it may be called as a function too."""
    one = _made.get(sha)
    return one if one is not None and one.library is not None else None

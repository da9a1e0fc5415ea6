"""A script may be a function of a Redis library, which keeps what a script makes anew at each call.

Redis runs the text of a script at each ``EVALSHA``, and so makes its functions and its tables of constants each time.
The text of a library runs once, as it is loaded; ``FCALL`` runs one function of it. The same statements serve both:

    of the parts that a script includes, functions and constants are the library's, made once;
    their variables, whose names begin with a small letter, are the library's too, and set anew as a call begins;
    the script's own statements are the function that is called.

Each statement stays on its line, one further down: the first line of a library names it.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from headgate.redis.text.hastening import bare, blanked

MOST_NAME: Final = 16
"""Digits of the hash of a library's text in its name: another text is another library, and both may be there."""
PREFIX: Final = "headgate_"
"""The beginning of the names of our libraries, and of their functions."""
FIRST_LINE: Final = "local KEYS, ARGV\n"
_STATEMENT: Final = re.compile(r"^(?=\S)(?!end\b|[})])(?:.*\n)(?:(?:[ \t})]|end\b).*\n|\n)*", re.MULTILINE)
"""A statement of a script's first column, with the lines that belong to it."""
_VARIABLES: Final = re.compile(r"local ([a-z]\w*(?:, [a-z]\w*)*)(?: +=\s(.*))?", re.DOTALL)
_NAMES: Final = re.compile(r"\w+")
_MODULE: Final = re.compile(r"^(\w+)\.\w+ = function\b", re.MULTILINE)
_OF_A_CALL: Final = re.compile(r"\b(?:KEYS|ARGV|redis|now_\w+)\b|(?<!^){\s*}")
"""In what is made once: a value of one call, or a table that is empty as yet."""
_FILLED: Final = re.compile(r"(?<![\w.])(\w+)(?:\.\w+|\[[^\]\n]*\])+ *=(?!=)(?! *function\b)")
"""A name of which a field gets a value that is no function."""


class LibraryError(Exception):
    """A part of a script cannot be one of a library."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library has one function, which has its name.

    Attributes:
        name: of both; the hash of the text is in it.
        source: what FUNCTION LOAD takes.
    """

    name: str
    source: str

    @classmethod
    def of(cls, script: str, body: str) -> "Library":
        """Return the library of a script whose function is ``run`` in its text."""
        digest = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()[:MOST_NAME]
        name = f"{PREFIX}{script}_{digest}"
        return cls(name, f"#!lua name={name}\n{body}redis.register_function('{name}', run)\n")

    @property
    def body(self) -> str:
        """Its text without the first line and the last, which name it."""
        return self.source.partition("\n")[2].rpartition("redis.register_function(")[0]


def library_body(parts: str, own: str, check: str) -> str:
    """Return the body of a script's library.

    Args:
        parts: what the script includes, functions and constants, as far as it uses them.
        own: its own statements.
        check: a statement, in one line, that looks at its arguments before all else.

    Raises:
        LibraryError: what is made once depends on the call, or is changed by it; or a part has a statement of its own
            that is no declaration.
    """
    code, modules = blanked(parts), set(_MODULE.findall(parts))
    once = set(modules)
    kept, begin, at = [], [], 0
    for found in _STATEMENT.finditer(code):
        first, statement = found.start(), parts[found.start() : found.end()]
        head = code[first : found.end()].strip()
        variables = _VARIABLES.fullmatch(head)
        kept.append(parts[at:first])
        at = found.end()
        if variables is None or variables[1] in modules:
            if not head.startswith("local function ") and head.partition(".")[0] not in modules:
                value = bare(statement).partition("=")[2].strip()
                if not head.startswith("local ") or _OF_A_CALL.search(value):
                    raise LibraryError(f"{head.splitlines()[0]!r} is made once, and depends on the call")
                once.update(_NAMES.findall(head.partition("=")[0].removeprefix("local ")))
            kept.append(statement)
            continue
        value = " ".join(bare(statement[slice(*variables.span(2))]).split()) if variables[2] else "nil"
        begin.append(f"{variables[1]} = {value}")
        kept.append(f"local {variables[1]}" + "\n" * statement.count("\n"))
    for filled in _FILLED.finditer(blanked(parts + own)):
        if filled[1] in once:
            raise LibraryError(f"{filled[0]!r}: {filled[1]} is made once, and nothing of a call may be put there")
    body = "".join((*kept, parts[at:]))
    head = f"local function run(keys, args) KEYS, ARGV = keys, args {check} {' '.join(begin)} "
    return f"{FIRST_LINE}{body}{head}{own}end\n"

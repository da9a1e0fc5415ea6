"""A script's text on its way to Redis becomes less, and begins sooner; line for line it is the same."""

import re
from typing import Final

_ENCLOSE: Final = re.compile(r"^--- @enclose$", re.MULTILINE)
_CONSTANT: Final = re.compile(r"^local ([A-Z_]+) = (KEYS\[\d+\]|\d+|'[^'\n]*')(?= --|\n)(?!\n +\.\.)", re.MULTILINE)
_WORD: Final = re.compile(r"--\[\[.*?\]\]|--[^\n]*|'[^'\n]*'|\b[A-Z_]+\b", re.DOTALL)
"""Comments and strings, so that nothing is found in them, and what may be the name of a constant."""
_COMMENT_OR_STRING: Final = (
    r"""--\[(?P<long>=*)\[.*?\](?P=long)\]|--[^\r\n]*"""
    r"""|\[(?P<quote>=*)\[.*?\](?P=quote)\]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
)
_UNREAD: Final = re.compile(_COMMENT_OR_STRING, re.DOTALL)
"""All in which Lua sees a comment or a quote: read from left to right, none is found in another."""
_LEXEME: Final = re.compile(rf"{_COMMENT_OR_STRING}|\n[ \t]+", re.DOTALL)
"""The same, and a line's beginning."""
_FUNCTION: Final = re.compile(r"^local function (\w+)\([^\n]*\n(?:(?:[ \t][^\n]*)?\n)*end$", re.MULTILINE)
"""A function of a script, from its first column to its ``end`` there."""


def enclose(source: str) -> str:
    """Return a script that begins sooner and does the same, line for line, from one that :func:`lessen` returned.

    Redis runs the whole text at each call, and so makes each function anew, with the outer variables that it uses. Lua
    looks for those one after the other among all that are open, but has those of an enclosing function at hand: what
    follows ``--- @enclose`` becomes a function of its own.
    """
    source, enclosed = _ENCLOSE.subn("return (function()", source)
    return source + "end)()\n" * enclosed


def lessen(source: str) -> str:
    """Return a script with its constants put where they are used, and without the functions that it does not use.

    A part serves other scripts too. All that is left stands on the line where it was.
    """
    constants = dict(_CONSTANT.findall(source))
    return _used(_WORD.sub(lambda word: constants.get(word[0], word[0]), _CONSTANT.sub("", source)))


def blanked(source: str) -> str:
    """Return a text with blanks for its comments and strings, so that nothing is found in them."""
    return _UNREAD.sub(lambda unread: "\n".join(" " * len(line) for line in unread[0].split("\n")), source)


def _used(source: str) -> str:
    """Return a script without the functions that none of its statements leads to, line for line."""
    code = blanked(source)
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

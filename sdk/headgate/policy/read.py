"""Read a policy document: TOML or JSON, with the line of each key, and everything that is wrong with it at once."""

import errno
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ValidationError

from headgate.core.foreign_words import hint
from headgate.errors import InvalidValue, PolicyError
from headgate.policy.document import Document
from headgate.policy.line_numbers import Path, json_lines, toml_lines
from headgate.policy.problems import MOST_PROBLEMS, BadDocument, Problem

Format = Literal["toml", "json"]
MOST_BYTES: Final = 16 << 20
"""Of a file: a line for each of 100,000 destinations, and more."""
MOST_PARTS: Final = 256
"""Words of a key; a name has no more than 128."""
_HUGE: Final = re.compile(r"[=,\[][ \t\r\n]*+[+-]?0[xob][0-9a-fA-F_]{33}")
_DOTTED: Final = re.compile(r"(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+)++")
Origin = Callable[[Path], str]
"""Tells where a key was written."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source says where a document came from, and where its keys stand.

    Attributes:
        name: of the file, without folders: it becomes part of each origin.
        lines: of each key.
    """

    name: str
    lines: dict[Path, int] = field(default_factory=dict)

    def at(self, path: Path) -> str:
        """Return ``<file>:<line>`` of a key, or of the nearest table around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"

    def problem(self, path: Path, text: str) -> Problem:
        """Return a problem with the key at a path."""
        return Problem(self.at(path), spell(path), text)


def spell(path: Path) -> str:
    """Return a path as people read it: ``destination[2].limit.bytes``, positions from 1."""
    return "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def text_of(file: File) -> str:
    """Return the text of a file; a device, or a pipe that nobody ends, is read no further than the bound either.

    Raises:
        OSError: it cannot be read, or is larger than :data:`MOST_BYTES`.
        ValueError: its name holds a NUL, or it is not UTF-8.
    """
    with file.open("rb") as opened:
        found = opened.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"more than {MOST_BYTES >> 20} MiB")
    return found.decode().replace("\r\n", "\n").replace("\r", "\n")


def read(file: File) -> tuple[Document, Source]:
    """Return the document in a file; ``.json`` is JSON, all else TOML.

    Raises:
        BadDocument: everything that is wrong with it, or that it cannot be read.
    """
    try:
        text = text_of(file)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds a NUL"
        if isinstance(error, UnicodeDecodeError):
            why = f"not UTF-8 at byte {error.start}"
        text = f"cannot be read: {why}; give a TOML or JSON file"
        raise BadDocument([Problem(str(file)[:200], "", text)]) from None
    return parse(text, file.name, "json" if file.suffix.lower() == ".json" else "toml")


def parse(text: str, name: str, form: Format = "toml") -> tuple[Document, Source]:
    """Return the document that a text, ``toml`` or ``json``, says; origins and errors call it ``name``.

    Raises:
        BadDocument: everything that is wrong with it.
    """
    text = text.removeprefix("\ufeff")
    _check_depth(text, name)
    _check_numbers(text, name)
    problems: list[Problem] = []
    if form == "json":
        data, source, problems = _json(text, name)
    else:
        data, source = toml(text, name)
    if not data:  # a file that was cut short must not take all limits away
        raise BadDocument([Problem(f"{name}:1", "", "is empty; to end what policies set, write destination = []")])
    document, further = None, 0
    try:
        document = Document.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=True)[:MOST_PROBLEMS]:
            path = _path(detail["loc"], data)
            problems.append(source.problem(path, _say(detail, path)))
        further = max(0, error.error_count() - MOST_PROBLEMS)
    if problems or document is None:
        raise BadDocument(problems, further)
    return document, source


def _check_depth(text: str, name: str) -> None:
    """Refuse keys of very many parts, which take the parser longer than all else."""
    for found in _DOTTED.finditer(text):
        if found[0].count(".") > MOST_PARTS:
            line = text.count("\n", 0, found.start()) + 1
            raise BadDocument(
                [Problem(f"{name}:{line}", "", f"a key or name of more than {MOST_PARTS} words; use fewer")]
            )


def _check_numbers(text: str, name: str) -> None:
    """Refuse numbers that are no figure of anything; those that are not decimal have no bound of Python's."""
    if found := _HUGE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise BadDocument([Problem(f"{name}:{line}", "", "a number of more than 32 digits; write a smaller one")])


def toml(text: str, name: str) -> tuple[dict[str, Any], Source]:
    """Return what a TOML text says, and where; ``name`` is what errors call it.

    Raises:
        BadDocument: it is not TOML.
    """
    try:
        data = tomllib.loads(text)
        lines = toml_lines(text)
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError as error:  # also of what is no date, or too long a number
        what, _, where = str(error).partition(" (at ")
        found = re.match(r"line (\d+)", where)
        line = int(found[1]) if found else text.rstrip().count("\n") + 1
        hint = "JSON is in files named .json" if text.lstrip().startswith("{") else "see https://toml.io"
        raise BadDocument([Problem(f"{name}:{line}", "", f"{what}; this is not TOML, {hint}")]) from None
    return data, Source(name, lines)


def _json(text: str, name: str) -> tuple[dict[str, Any], Source, list[Problem]]:
    try:
        data = json.loads(text)
        lines, twice = json_lines(text) if isinstance(data, dict) else ({}, [])
    except RecursionError:
        raise _too_deep(name) from None
    except json.JSONDecodeError as error:
        hint = "this is not JSON, as a name that ends in .json promises"
        raise BadDocument([Problem(f"{name}:{error.lineno}", "", f"{error.msg}; {hint}")]) from None
    except ValueError as error:
        raise BadDocument([Problem(f"{name}:1", "", f"a number cannot be read: {error}")]) from None
    if not isinstance(data, dict):
        raise BadDocument([Problem(f"{name}:1", "", 'a policy is an object: {"destination": [...]}')])
    source = Source(name, lines)
    return data, source, [source.problem(path, "is given twice; keep one") for path in twice[:MOST_PROBLEMS]]


def _too_deep(name: str) -> BadDocument:
    return BadDocument([Problem(f"{name}:1", "", "tables or lists are nested too deep; a policy needs four levels")])


def _path(steps: tuple[str | int, ...], data: Any) -> Path:
    """Return where an error is in the document: without the names of the alternatives that were tried."""
    path: Path = ()
    for step in steps:
        known: dict[str | int, Any] = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(known, dict) and step in known:
            data = known[step]
            path = (*path, step)
        elif step not in ("table", "value"):
            return (*path, step)  # a key that is missing
    return path


def _say(detail: Any, path: Path) -> str:
    kind, value = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        return _unknown(str(path[-1]), path[:-1])
    if kind == "missing":
        return "is missing; give it"
    if kind == "value_error":
        error = detail["ctx"]["error"]
        return error.beside(str(path[-1])) if path and isinstance(error, InvalidValue | PolicyError) else str(error)
    if kind == "literal_error":
        return f"{value!r}; use {detail['ctx']['expected']}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{value!r} is not a table; it takes {', '.join(keys_at(path)) or 'name = value'}"
    if kind == "list_type":
        return f"{value!r} is not a list; write " + (f"[[{path[-1]}]]" if len(path) == 1 else "[ ... ]")
    if kind == "bool_type":
        return f"{value!r}; write true or false"
    if kind == "too_long":
        return f"{len(value)} are too many; at most {detail['ctx']['max_length']}"
    return f"{value!r}: {detail['msg'].lower()}"


def _unknown(key: str, table: Path) -> str:
    known = keys_at(table)
    if within := [name for name in known if key in keys_at((*table, name))]:
        return f"unknown key; did you mean {' or '.join(repr(f'{name}.{key}') for name in within)}?"
    if table[-1:] == ("rate",) and key.startswith("deliver"):  # that one is of senders alone
        return f"unknown key; did you mean 'consumer.shared_{'burst' if key.endswith('burst') else 'rate'}'?"
    return f"unknown key; {hint(key, 'policy', known)}"


def keys_at(path: Path) -> list[str]:
    """Return the keys that the table at a path takes."""
    model: type[BaseModel] | None = Document
    for step in path:
        if model and step in model.model_fields:
            model = next(iter(_models(model.model_fields[str(step)].annotation)), None)
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]

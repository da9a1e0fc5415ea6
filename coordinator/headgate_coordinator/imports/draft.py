"""A draft is a policy document in the making: it has settings by rule, each with the lines that it comes from."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Table:
    """A table is a rule, a pool, a store or a bridge of a document.

    Attributes:
        kind: of table: ``destination``, ``pool``, ``store``, ``bridge``.
        values: by dotted key.
        places: ``file:line`` of each.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: Any, place: str = "") -> None:
        """Add a note; it replaces an earlier one about the same thing."""
        self.values[key] = value
        if place:
            self.places[key] = place


@dataclass(slots=True)
class Draft:
    """The tables of a document, by what they are of, in order; ``top`` is above all, ``last`` was asked for last."""

    top: Table = field(default_factory=lambda: Table("document"))
    tables: dict[tuple[str, ...], Table] = field(default_factory=dict)
    last: tuple[str, ...] = ()

    def rule(self, match: str, kind: str = "") -> Table:
        """Return the rule of a pattern, made where there is none; rules of one kind are not those of all."""
        values = {"match": match, "kind": kind} if kind else {"match": match}
        self.last = ("destination", match, kind)
        return self.tables.setdefault(self.last, Table("destination", values))

    def named(self, kind: str, name: str) -> Table:
        """Return the pool, store or bridge of a name, made where there is none."""
        self.last = (kind, name)
        return self.tables.setdefault(self.last, Table(kind, {"name": name}))

    def text(self, head: str) -> str:
        """Return the document in TOML, under a line of comment."""
        lines = [f"# {head}", *_lines(self.top)]
        for table in self.tables.values():
            if table.kind == "destination" and set(table.values) <= {"match"}:
                continue
            lines += ["", f"[[{table.kind}]]", *_lines(table)]
        if len(lines) == 1:
            lines += ["", "destination = []"]
        return "\n".join(lines) + "\n"


def _lines(table: Table) -> Iterator[str]:
    for key, value in table.values.items():
        line = f"{key} = {_written(value)}"
        place = table.places.get(key, "")
        yield f"{line:<40} # {place}" if place else line


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    # Text, numbers, true and false are as in TOML, but for some characters that are not seen.
    return "".join(each if each.isprintable() else _escaped(each) for each in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    """Return how TOML spells a character that turns lines round, or that a terminal obeys."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"

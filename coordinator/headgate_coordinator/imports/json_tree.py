"""Values of a JSON file with the line of each, and bounds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.errors import InvalidValue
from headgate.policy.line_numbers import json_lines
from headgate_coordinator.imports.reading import data_of

MOST_VALUES: Final = 100_000
MOST_DEEP: Final = 64


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a JSON file keeps where it stands.

    Attributes:
        path: its keys, with a dot between them; positions in lists are left out.
        line: where its key stands, from 1; of an item of a list where it begins.
        plain: text, a number, true, false or nothing; of an object and a list nothing.
        members: of an object, by key.
        items: of a list.
    """

    path: str
    line: int
    plain: str | int | float | bool | None = None
    members: dict[str, "Value"] = field(default_factory=dict)
    items: tuple["Value", ...] = ()

    @property
    def text(self) -> str:
        """How it is written; text without its quotes, and nothing of an object or a list that is empty."""
        if self.members or self.items or self.plain is None:
            return ""
        return self.plain if isinstance(self.plain, str) else json.dumps(self.plain)

    @property
    def number(self) -> int:
        """The whole number that it is; raises ValueError where it is none."""
        if not isinstance(self.plain, int) or isinstance(self.plain, bool):
            raise ValueError(self.text)  # noqa: TRY004 -- as of other values that mean nothing
        return self.plain

    def get(self, key: str) -> "Value":
        """Return a member of an object; where it has none, one that says nothing."""
        return self.members.get(key, Value(key, self.line))

    def leaves(self) -> Iterator["Value"]:
        """Yield what stands in it and holds nothing further, objects and lists that are empty among them."""
        if not self.members and not self.items:
            yield self
        for child in (*self.members.values(), *self.items):
            yield from child.leaves()


def read_json(file: Path) -> Value:
    """Return what a JSON file says.

    Raises:
        InvalidValue: it cannot be read, is no JSON, is larger than 4 MiB, or says something twice; its line is named.
    """
    text = _text_of(file)
    try:
        data = json.loads(text, parse_constant=_no_number)
        lines, twice = json_lines(text)
    except json.JSONDecodeError as error:
        raise InvalidValue(f"{file.name}:{error.lineno}: is not JSON: {error.msg}") from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise InvalidValue(f"{file.name}:1: is not JSON that can be read: {str(error).partition(';')[0]}") from None
    except RecursionError:
        raise InvalidValue(f"{file.name}:1: objects or lists in one another, too deep; split the file") from None
    if twice:
        raise InvalidValue(f"{file.name}:{lines[twice[0]]}: {twice[0][-1]!r} stands twice in one object; keep one")

    def value(of: Any, path: tuple[str | int, ...]) -> Value:
        name, line = ".".join(key for key in path if isinstance(key, str)), lines.get(path, 1)
        if not (_is_whole(name) and (not isinstance(of, str) or _is_whole(of))):
            raise InvalidValue(f"{file.name}:{line}: half a character; write it whole, or as UTF-8")
        if len(path) > MOST_DEEP:
            raise InvalidValue(f"{file.name}:{line}: more than {MOST_DEEP} objects in one another; split the file")
        if isinstance(of, dict):
            return Value(name, line, members={key: value(one, (*path, key)) for key, one in of.items()})
        if isinstance(of, list):
            return Value(name, line, items=tuple(value(one, (*path, at)) for at, one in enumerate(of)))
        return Value(name, line, of)

    return value(data, ())


def _text_of(file: Path) -> str:
    try:
        text = data_of(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{file.name}:1: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise InvalidValue(f"{file.name}:1: more than {MOST_VALUES:,} values; split the file")
    return text


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")

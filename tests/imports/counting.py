"""Counts the settings of a configuration file by itself, without the importers, and finds those that no row reports."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headgate.policy.line_numbers import json_lines
from headgate_coordinator.imports.reading import HIDDEN
from headgate_coordinator.imports.report import SettingReport
from headgate_coordinator.imports.xml_tree import Element, read_xml

Setting = tuple[int, str, str]
"""Its line, its name, and its value as it is written."""
_NAMES_OF_THINGS = frozenset({"schemaLocation", "id", "vhost"})
"""They say which thing is meant, or are nothing of the product's."""


def settings_of(file: Path) -> list[Setting]:
    """Return what is set in a file: attributes and texts of XML, leaves of JSON, words and properties of lines."""
    if file.suffix == ".xml":
        return list(_of_xml(read_xml(file)))
    if file.suffix == ".json":
        return list(_of_json(file.read_text()))
    return list(_of_lines(file.read_text()))


def silent(settings: Sequence[Setting], rows: Sequence[SettingReport]) -> list[Setting]:
    """Return the settings that no row is about: none of its line has the name, the value, or hides it."""
    by_line: dict[int, list[SettingReport]] = {}
    for row in rows:
        by_line.setdefault(row.line, []).append(row)

    def is_said(setting: Setting) -> bool:
        line, name, value = setting
        return any(
            name in row.setting or name in row.value or (value and value[:50] in row.value) or row.value == HIDDEN
            for row in by_line.get(line, [])
        )

    return [setting for setting in settings if not is_said(setting)]


def _of_xml(element: Element) -> Iterator[Setting]:
    for key, value in element.attributes.items():
        if key not in _NAMES_OF_THINGS:
            yield element.line, key, value
    if element.text and not element.attributes:
        yield element.line, element.name, element.text
    for child in element.children:
        yield from _of_xml(child)


def _of_json(text: str) -> Iterator[Setting]:
    lines = json_lines(text)[0]

    def walk(value: Any, path: tuple[str | int, ...]) -> Iterator[Setting]:
        if isinstance(value, dict) and value:
            for key, one in value.items():
                yield from walk(one, (*path, key))
        elif isinstance(value, list) and value:
            for at, one in enumerate(value):
                yield from walk(one, (*path, at))
        elif value != []:
            name = [key for key in path if isinstance(key, str)][-1]
            if name not in _NAMES_OF_THINGS:
                yield lines[path], name, str(value)

    yield from walk(json.loads(text), ())


def _of_lines(text: str) -> Iterator[Setting]:
    for line, raw in enumerate(text.splitlines(), 1):
        said = raw.strip()
        if said and not said.startswith(("#", "[")):
            for part in re.split(r"[\s,]+(?=(?:[^\"']*[\"'][^\"']*[\"'])*[^\"']*$)", re.sub(r"\s*=\s*", "=", said)):
                name, _, value = part.partition("=")
                if name:
                    yield line, name, value.strip("\"'")

"""XML elements are read with their lines: no entities, no document type, nothing from elsewhere, and bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.parsers import expat

from headgate.errors import InvalidValue
from headgate_coordinator.imports.reading import data_of

MOST_ELEMENTS: Final = 100_000
MOST_DEEP: Final = 64


@dataclass(slots=True)
class Element:
    """An element has a name, attributes, children and text, and the line where it begins.

    Attributes:
        name: without its namespace.
        line: where it begins, from 1.
        attributes: of it, without those that declare namespaces.
        children: in order.
        parts: of the text directly in it.
    """

    name: str
    line: int
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text directly in it, without blanks around it."""
        return "".join(self.parts).strip()

    def find(self, name: str) -> Iterator["Element"]:
        """Return its children of a name."""
        return (child for child in self.children if child.name == name)


class _Builder:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.root: Element | None = None
        self.parser = expat.ParserCreate()
        self._open: list[Element] = []
        self._count = 0
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    def error(self, why: str, line: int | None = None) -> InvalidValue:
        return InvalidValue(f"{self.file.name}:{line or self.parser.CurrentLineNumber}: {why}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS or len(self._open) >= MOST_DEEP:
            raise self.error(f"more than {MOST_ELEMENTS:,} elements, or {MOST_DEEP} in one another; split the file")
        own = {key.rpartition(":")[2]: value for key, value in attributes.items() if not key.startswith("xmlns")}
        element = Element(name.rpartition(":")[2], self.parser.CurrentLineNumber, own)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].parts.append(text)

    def _doctype(self, *_: object) -> None:
        raise self.error("a document type, which may hide entities; remove <!DOCTYPE ...>")


def read_xml(file: Path) -> Element:
    """Return the root of an XML file.

    Raises:
        InvalidValue: it cannot be read, is no XML, is larger than 4 MiB, or has a document type; its line is named.
    """
    builder = _Builder(file)
    data = data_of(file)
    try:
        builder.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise builder.error(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    except InvalidValue:
        raise
    except (LookupError, ValueError) as error:  # an encoding that Python does not know
        raise builder.error(f"is not XML that can be read: {error}") from None
    if builder.root is None:
        raise builder.error("has no element; give an XML file", 1)
    return builder.root

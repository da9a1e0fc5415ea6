"""A configuration file has lines: sections in brackets, and what stands in each; comments begin with ``#``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import InvalidValue
from headgate_coordinator.imports.reading import data_of

MOST_LINES: Final = 100_000
_MOST_LENGTH: Final = 16_384
_SECTION: Final = re.compile(r"\[([^\]]*)\]")
_PARTS: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s,"'])+""")


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """A config line is one line that says something.

    Attributes:
        line: its number, from 1.
        section: the brackets above it; empty where there are none.
        text: of it, without comment and blanks around it; empty where it is the brackets themselves.
    """

    line: int
    section: str
    text: str

    @property
    def parts(self) -> list[str]:
        """Its words and properties: what blanks or commas part, quotes hold together."""
        return _PARTS.findall(re.sub(r"\s*=\s*", "=", self.text))


def unquoted(text: str) -> str:
    """Return a text without a pair of quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def read_lines(file: Path) -> Iterator[ConfigLine]:
    """Yield the lines of a file.

    Raises:
        InvalidValue: it cannot be read, is not UTF-8, or is too large; its line is named.
    """
    try:
        text = data_of(file).decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{file.name}:1: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    section = ""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise InvalidValue(f"{file.name}:{MOST_LINES}: more than {MOST_LINES:,} lines; split the file")
    for number, raw in enumerate(lines, 1):
        if len(raw) > _MOST_LENGTH:
            raise InvalidValue(f"{file.name}:{number}: more than {_MOST_LENGTH:,} characters; split the line")
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if found := _SECTION.fullmatch(line):
            section = found[1].strip()
            line = ""
        yield ConfigLine(number, section, line)

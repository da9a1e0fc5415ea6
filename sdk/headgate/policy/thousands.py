"""A note says once that KB, MB and GB count in thousands: ActiveMQ Classic and others count them in 1024s."""

import re
from collections.abc import Iterator
from typing import Any, Final

from headgate.core.settings_table import STORES
from headgate.policy.document import Document
from headgate.policy.line_numbers import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Source
from headgate.units import parse_size

_THOUSANDS: Final = re.compile(
    r"\s*((\d+(?:\.\d+)?)\s*([kmgt])b)\s*(?:/\s*(?:s|min|h|hour|day|week|month)\s*)?\Z", re.ASCII | re.IGNORECASE
)
_NO_SIZES: Final = frozenset({"name", "match", "url", "selector", "from", "to", *STORES})


def thousands(document: Document, source: Source) -> Problem | None:
    """Return a note about the first size of a document that counts in thousands; None where none does."""
    found = [
        (source.problem(path, ""), match)
        for path, text in _texts(document.model_dump(by_alias=True, exclude_unset=True))
        if (match := _THOUSANDS.match(text))
    ]
    if not found:
        return None
    first, match = min(found, key=lambda one: one[0].line)
    size, other = match[1], f"{match[2]}{match[3].upper()}iB"
    text = (
        f"{size!r} is {parse_size(size)} bytes: KB, MB, GB and TB count in thousands; {other!r} is {parse_size(other)}"
    )
    return Problem(first.place, first.key, text)


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if step not in _NO_SIZES or (isinstance(inner, list) and step == "store"):
                yield from _texts(inner, (*path, step))

"""A reading of a broker's files: the policy so far, what became of each setting, and how such a setting is noted."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate_coordinator.imports.draft import Draft
from headgate_coordinator.imports.report import Row
from headgate_coordinator.imports.words import NOT_COVERED, Verdict, Word, words
from headgate_coordinator.imports.xml_tree import Element

DEFAULTS: Final[dict[str, Any]] = {"consumer.window": {"bytes": 1048576}, "producer.window": 65536, "max_attempts": 10}
"""Of a broker that says nothing."""
KINDS: Final = {"anycast": "queue", "multicast": "topic"}
UNKNOWN: Final = "this word is not known; look it up in Artemis' manual, and whether a rule can say the same"
FOLDER: Final = "file:///var/spool/headgate"
"""Of the store that stands for the paging directory, until somebody says one that all nodes share."""
_MOST_SHOWN: Final = 200


@dataclass(slots=True)
class Reading:
    """The files that are read, one after the other."""

    draft: Draft = field(default_factory=Draft)
    rows: list[Row] = field(default_factory=list)
    file: str = ""
    connectors: dict[str, str] = field(default_factory=dict)

    def place(self, element: Element) -> str:
        """Return ``<file>:<line>`` of an element."""
        return f"{self.file}:{element.line}"

    def part_of_the_limit(self) -> None:
        """Have no consumer hold all that a destination may have: with Artemis its own client would."""
        for table in self.draft.tables.values():
            limit = table.values.get("limit.bytes")
            window = table.values.get("consumer.window", DEFAULTS["consumer.window"])
            if isinstance(limit, int) and isinstance(window, dict) and window["bytes"] > limit:
                table.set(
                    "consumer.window", {"bytes": max(1, limit // 2)}, "half the limit, so that one cannot hold all"
                )

    def note(self, element: Element, word: Word, verdict: Verdict, value: str, ours: str = "", why: str = "") -> None:
        """Note what became of a setting."""
        about = f"{word.group}.{word.name}"
        states = word.states
        self.rows.append(Row(verdict, self.file, element.line, about, value[:_MOST_SHOWN], ours, why, states))

    def take_back(self, place: str, ours: str, why: str) -> None:
        """Note that what a setting became cannot be, after all."""
        for at, row in enumerate(self.rows):
            if row.ours == ours and f"{row.file}:{row.line}" == place:
                self.rows[at] = replace(row, verdict=NOT_COVERED, ours="", why=why)

    def plain(self, element: Element, word: Word, value: str, ours: str = "") -> None:
        """Note what the table says of a word."""
        self.note(element, word, word.verdict, value, ours or word.ours, word.differs)


def setting(reading: Reading, element: Element) -> None:
    """Note a setting of the broker, or a table that is nothing to a policy, with all that is in it."""
    for one in _leaves(element):
        found = words("artemis")["core"].get(one.name) or _area(one.name) or _area(element.name)
        word = Word("core", one.name, states=found.states if found else "")
        reading.note(one, word, NOT_COVERED, value_of(one), why=found.differs if found else UNKNOWN)


def _area(name: str) -> Word | None:
    areas = words("artemis")["area"]
    begins = [prefix for prefix in areas if name.startswith(prefix)]
    return areas[max(begins, key=len)] if begins else None


def _leaves(element: Element) -> Iterator[Element]:
    if not element.children:
        yield element
    for child in element.children:
        yield from _leaves(child)


def value_of(element: Element) -> str:
    """Return what an element says, for people; passwords are not shown, nor what stands beside such a word."""
    hidden = any("assword" in text for text in (element.name, *element.attributes, *element.attributes.values()))
    if hidden:
        return "***"
    attributes = (f"{key}={value}" for key, value in element.attributes.items())
    return " ".join(filter(None, (*attributes, element.text)))

"""Settings of the broker without a place in a policy are noted, each with what to do instead."""

from collections.abc import Iterator
from typing import Any, Final

from headgate.brokers import NOT_COVERED, BrokerSetting, words
from headgate_coordinator.imports.reading import Reading
from headgate_coordinator.imports.xml_tree import Element

DEFAULTS: Final[dict[str, Any]] = {"consumer.window": {"bytes": 1048576}, "producer.window": 65536, "max_attempts": 10}
"""Of a broker that says nothing."""
KINDS: Final = {"anycast": "queue", "multicast": "topic"}
UNKNOWN: Final = "this setting is unknown; look it up in Artemis' manual, and see if a rule can say the same"
FOLDER: Final = "file:///var/spool/headgate"
"""Of the store that stands for the paging directory, until somebody says one that all nodes share."""


def setting(reading: Reading, element: Element) -> None:
    """Note a setting of the broker, or a whole table, that has no place in a policy."""
    for one in _leaves(element):
        found = words("artemis")["core"].get(one.name) or _area(one.name) or _area(element.name)
        word = BrokerSetting("core", one.name, states=found.states if found else "")
        reading.note(one, word, NOT_COVERED, value_of(one), why=found.differs if found else UNKNOWN)


def _area(name: str) -> BrokerSetting | None:
    areas = words("artemis")["area"]
    begins = [prefix for prefix in areas if name.startswith(prefix)]
    return areas[max(begins, key=len)] if begins else None


def _leaves(element: Element) -> Iterator[Element]:
    """Yield what says something: what holds nothing further, or has attributes of its own."""
    if element.attributes or not element.children:
        yield element
    for child in element.children:
        yield from _leaves(child)


def value_of(element: Element) -> str:
    """Return what an element says, for people."""
    attributes = (f"{key}={value}" for key, value in element.attributes.items())
    return " ".join(filter(None, (*attributes, element.text)))

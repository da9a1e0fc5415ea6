"""An activemq.xml has destination policies, system usage, redelivery and destinations; all else is noted."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from headgate.brokers import KEPT, NOT_COVERED, BrokerSetting, words
from headgate.core.names import encode_name
from headgate.core.printable import printable
from headgate.errors import HeadgateError, InvalidValue
from headgate_coordinator.imports.activemq.settings import TRUTH, count_of, turn
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.names import check_pattern
from headgate_coordinator.imports.reading import HIDDEN, MOST_FACTOR, NO_VALUE, Reading, is_secret
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.imports.sizes import bytes_of
from headgate_coordinator.imports.windows import fit_windows
from headgate_coordinator.imports.xml_tree import Element, read_xml

_KINDS: Final = ("queue", "topic")
_STORES: Final = {"storeUsage": "store", "tempUsage": "temp"}
_FOLDER: Final = "file:///var/spool/headgate"
_SHARED: Final = "the store must be one that all nodes share: set its url before you apply this"
_UNKNOWN: Final = "this setting is unknown; look it up in ActiveMQ's pages, and see if a rule can say the same"
_MEMORY: Final = 64 * 1024 * 1024
"""Of all destinations, as the preset has it."""
_IN_MEMORY: Final = ("vmQueueCursor", "vmCursor", "vmDurableCursor")
_ON_DISK: Final = ("storeCursor", "fileQueueCursor")
_DEAD_LETTERS: Final = "ActiveMQ.DLQ"


def read(files: Sequence[Path]) -> Imported:
    """Return the policy that these files amount to, and a report of each setting.

    Raises:
        InvalidValue: a file cannot be read, is no XML, has no broker of ActiveMQ, or is too large.
    """
    reading = Reading()
    reading.draft.top.set("preset", "activemq")
    reading.draft.top.set("include_parent", True, "FOO.> takes FOO too in ActiveMQ, of those who subscribe as well")
    base = reading.draft.rule("#", "queue")
    base.set("dead_letter", _DEAD_LETTERS, "default of ActiveMQ")
    base.set("max_attempts", 7, "default of ActiveMQ: it is redelivered 6 times")
    for file in files:
        root = read_xml(file)
        reading.file = printable(file.name)
        brokers = [root] if root.name == "broker" else list(root.find("broker"))
        if not brokers and (root.name != "beans" or len(files) == 1):  # routes of Camel may stand beside a broker
            place = f"{file.name}:{root.line}"
            raise InvalidValue(f"{place}: <{root.name}> has no <broker> of ActiveMQ; give an activemq.xml")
        for element in (*brokers, *(one for one in root.children if root.name != "broker" and one.name != "broker")):
            _broker(reading, element) if element.name == "broker" else _other(reading, element, element.name)
    _not_beyond_memory(reading)
    if any(table.values.get("store") == "store" for table in reading.draft.tables.values()):
        store = reading.draft.named("store", "store")
        if "url" not in store.values:
            store.set("url", f"{_FOLDER}/store", _SHARED)
    fit_windows(reading)
    reading.free_dead_letters()
    return reading.imported(files, "ActiveMQ Classic")


def _not_beyond_memory(reading: Reading) -> None:
    """Leave out limits that the memory of all is no larger than: it holds their senders up first, there as here."""
    pool = reading.draft.tables.get(("pool", "memory"))
    memory = pool.values.get("limit") if pool else _MEMORY
    for rule in reading.draft.tables.values():
        size = rule.values.get("limit.bytes")
        if isinstance(size, int) and isinstance(memory, int) and size >= memory:
            del rule.values["limit.bytes"]
            why = f"the memory of all destinations together, {memory}, is less than that or equal"
            reading.take_back({rule.places["limit.bytes"]}, f"limit.bytes = {size}", why, 'pool "memory"')


def _broker(reading: Reading, broker: Element) -> None:
    for key, value in broker.attributes.items():
        if key != "schemaLocation":
            _note_other(reading, broker, key, key, value)
    for element in broker.children:
        if element.name == "destinationPolicy":
            for entry in _within(element, "policyEntry", "defaultEntry"):
                _policy_entry(reading, entry)
            for stray in _strays(element, "policyEntry", "defaultEntry"):
                _other(reading, stray, stray.name)
        elif element.name == "systemUsage":
            _system_usage(reading, element)
        elif element.name == "destinations":
            for one in element.children:
                _destination(reading, one)
        elif element.name == "plugins":
            _plugins(reading, element)
        else:
            _other(reading, element, element.name)


def _within(element: Element, *names: str) -> Iterator[Element]:
    for child in element.children:
        if child.name in names and child.attributes:
            yield child
        else:
            yield from _within(child, *names)


def _strays(element: Element, *names: str) -> Iterator[Element]:
    """Yield what stands in none of these, and holds none."""
    for child in element.children:
        if child.name not in names and not child.children:
            yield child
        elif child.name not in names:
            yield from _strays(child, *names)


def _other(reading: Reading, element: Element, area: str) -> None:
    """Note an element that is nothing to a policy, with all that is in it."""
    for key, value in element.attributes.items() or ((element.name, element.text),):
        _note_other(reading, element, area, key if key == element.name else f"{element.name}.{key}", value)
    for child in element.children:
        _other(reading, child, area)


def _note_other(reading: Reading, element: Element, area: str, name: str, value: str) -> None:
    found = words("activemq")["area"].get(area)
    if any(is_secret(text) for text in element.attributes.values()):
        value = HIDDEN
    word = BrokerSetting("broker", name, states=found.states if found else "")
    reading.note(element, word, NOT_COVERED, value, why=found.differs if found else _UNKNOWN)


# -- Destination policies ------------------------------------------------------------------------------------------


def _policy_entry(reading: Reading, entry: Element) -> None:
    known = words("activemq")["policyEntry"]
    kind = next((kind for kind in _KINDS if kind in entry.attributes), "")
    written = entry.attributes.get(kind, ">")
    match = re.sub(r"(^|\.)>$", r"\1#", written)
    try:
        check_pattern(match)
    except HeadgateError as error:
        for key, value in entry.attributes.items():
            word = known.get(key, BrokerSetting("policyEntry", key))
            reading.note(entry, word, NOT_COVERED, value, why=f"no rule can have the pattern {written!r}: {error}")
        return
    rule = reading.draft.rule(match, kind)
    rule.places.setdefault("match", reading.place(entry))
    if kind:
        reading.note(entry, known[kind], KEPT, written, f'match = "{match}", kind = "{kind}"')
    in_memory = any(one.name in _IN_MEMORY for part in entry.children for one in part.children)
    given = entry.attributes | ({"pendingQueuePolicy": "in memory"} if in_memory else {})
    for key, value in entry.attributes.items():
        if key not in _KINDS:
            word = known.get(key, BrokerSetting("policyEntry", key, differs=_UNKNOWN))
            _say(reading, rule, entry, word, value, given)
    for part in entry.children:
        for one in part.children or [part]:
            _inside(reading, rule, one, written)


def _say(
    reading: Reading, rule: Table, element: Element, word: BrokerSetting, value: str, given: dict[str, str]
) -> None:
    """Set what one setting says in a rule, and note what became of it."""
    reading.become(element, word, value, *_turned(reading, rule, element, word.name, value, given))


def _turned(
    reading: Reading, rule: Table, element: Element, name: str, value: str, given: dict[str, str]
) -> tuple[str, str]:
    """Set what one setting says in a rule; return our words for it, and how they differ."""
    try:
        return turn(rule, name, value, given, reading.place(element))
    except (ValueError, KeyError):
        return "", NO_VALUE


def _inside(reading: Reading, rule: Table, one: Element, match: str) -> None:
    word = words("activemq")["inside"].get(one.name)
    place, value = reading.place(one), " ".join(f"{key}={text}" for key, text in one.attributes.items())
    if word is None:
        reading.note(one, BrokerSetting("policyEntry", one.name), NOT_COVERED, value, why=_UNKNOWN)
    elif one.name == "vmQueueCursor" and rule.values.get("enforce") == "off":
        why = "producerFlowControl is off, so nothing holds senders up"
        reading.become(one, word, value, 'enforce = "off"', why)
    elif one.name == "vmQueueCursor":
        rule.set("when_full", "block", place)
        reading.plain(one, word, value, 'when_full = "block"')
    elif one.name in _ON_DISK and rule.values.get("when_full", "spool") != "spool":
        kept = f'when_full = "{rule.values["when_full"]}"'
        reading.become(one, word, value, kept, "senders get an error, and nothing goes to a disk")
    elif one.name in _ON_DISK:
        rule.set("when_full", "spool", place)
        rule.set("store", "store", place)
        reading.plain(one, word, value, 'when_full = "spool", store = "store"')
    elif one.name.endswith("DeadLetterStrategy"):
        prefix = one.attributes.get("queuePrefix", "ActiveMQ.DLQ.Queue.")
        name = _DEAD_LETTERS if one.name.startswith("shared") else f"{prefix}{match}"
        if re.search("[*>#]", name):
            name = f"{prefix}NAME"
            why = f"there each destination has one of its own: write dead_letter = {name!r} for each"
            reading.note(one, word, NOT_COVERED, value, why=why)
        else:
            rule.set("dead_letter", name, place)
            reading.plain(one, word, value, f'dead_letter = "{name}"')
    elif one.name.startswith("abort"):
        rule.set("consumer.slow", {"multiple": 2, "action": "detach"}, place)
        reading.plain(one, word, value, 'consumer.slow.action = "detach"')
    else:
        reading.note(one, word, NOT_COVERED, value, word.ours, word.differs)


# -- System usage, redelivery, destinations --------------------------------------------------------------------------


def _system_usage(reading: Reading, element: Element) -> None:
    known = words("activemq")["systemUsage"]
    for usage in _usages(element):
        for key, value in usage.attributes.items() if usage.name == "systemUsage" else ():
            for kind in _KINDS:
                if key not in known:
                    continue
                become = _turned(reading, reading.draft.rule("#", kind), usage, key, value, usage.attributes)
                if kind == "queue":
                    reading.become(usage, known[key], value, *become)
            if key not in known:
                reading.note(usage, BrokerSetting("systemUsage", key), NOT_COVERED, value, why=_UNKNOWN)
        if usage.name in known and usage.attributes and usage.name != "systemUsage":
            _usage(reading, usage, known[usage.name])


def _usages(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _usages(child)


def _usage(reading: Reading, usage: Element, word: BrokerSetting) -> None:
    given, place = usage.attributes, reading.place(usage)
    text = " ".join(f"{key}={value}" for key, value in given.items())
    is_memory = usage.name == "memoryUsage"
    try:
        if "limit" in given:
            limit: dict[str, Any] = {"limit": bytes_of(given["limit"])}
        elif "percentLimit" in given and "total" in given:
            limit = {"percent": count_of(given["percentLimit"]), "total": bytes_of(given["total"])}
        else:
            why = "a share of the JVM's heap, or of a disk; write bytes, or percent with a total"
            reading.note(usage, word, NOT_COVERED, text, why=why)
            return
    except ValueError:
        reading.note(usage, word, NOT_COVERED, text, why=NO_VALUE)
        return
    table = reading.draft.named("pool" if is_memory else "store", "memory" if is_memory else _STORES[usage.name])
    if not is_memory:
        table.set("url", f"{_FOLDER}/{_STORES[usage.name]}", place)
    for key, value in limit.items():
        table.set(key, value, place)
    shown = ", ".join(f"{key} = {value}" for key, value in limit.items())
    reading.plain(usage, word, text, f"{table.kind}: {shown}")


def _plugins(reading: Reading, element: Element) -> None:
    for key, value in element.attributes.items():
        _note_other(reading, element, element.name, f"{element.name}.{key}", value)
    for child in element.children:
        if child.name != "redeliveryPlugin":
            _other(reading, child, element.name)
        for policy in _within(child, "redeliveryPolicy"):
            if child.name == "redeliveryPlugin":
                _redelivery(reading, policy)


def _redelivery(reading: Reading, policy: Element) -> None:
    known, given = words("activemq")["redelivery"], policy.attributes
    match = re.sub(r"(^|\.)>$", r"\1#", given.get("queue", ">"))
    try:
        check_pattern(match)
    except HeadgateError as error:
        for key, value in given.items():
            why = f"no rule can have the pattern {match!r}: {error}"
            reading.note(policy, known.get(key, BrokerSetting("redelivery", key)), NOT_COVERED, value, why=why)
        return
    rule, place = reading.draft.rule(match, "queue"), reading.place(policy)
    for key, value in given.items():
        word = known.get(key, BrokerSetting("redelivery", key, differs=_UNKNOWN))
        try:
            ours = f'match = "{match}"' if key == "queue" else _retry(rule, key, value, given, place)
        except (ValueError, KeyError):
            reading.note(policy, word, NOT_COVERED, value, why=NO_VALUE)
            continue
        reading.note(policy, word, KEPT if ours else NOT_COVERED, value, ours, "" if ours else word.differs)
    if {"retry.max", "retry.factor"} & rule.values.keys() and "retry.delay" not in rule.values:
        rule.set("retry.delay", "1000ms", "default of ActiveMQ")


def _retry(rule: Table, key: str, value: str, given: dict[str, str], place: str) -> str:
    """Return our word for a setting of redelivery; empty where there is none."""
    if key == "maximumRedeliveries":
        attempts: Any = "default" if value == "-1" else count_of(value) + 1
        rule.set("max_attempts", attempts, place)
        return f"max_attempts = {attempts}"
    if key in ("initialRedeliveryDelay", "maximumRedeliveryDelay"):
        name = "retry.delay" if key.startswith("initial") else "retry.max"
        delay = 0 if value == "-1" else count_of(value)
        if delay:
            rule.set(name, f"{delay}ms", place)
        return f'{name} = "{delay}ms"' if delay else f"no {name}"
    if key in ("backOffMultiplier", "useExponentialBackOff"):
        factor = _factor(given.get("backOffMultiplier", "5"))
        if not TRUTH[given.get("useExponentialBackOff", "false")]:
            return "no retry.factor"
        rule.set("retry.factor", min(factor, MOST_FACTOR), place)
        return f"retry.factor = {factor:g}" if factor <= MOST_FACTOR else "retry.factor = 100, which is the most here"
    return ""


def _factor(text: str) -> float:
    if not 1 <= float(text) <= 1000:
        raise ValueError(text)
    return float(text)


def _destination(reading: Reading, one: Element) -> None:
    name, kind = one.attributes.get("physicalName", ""), one.name
    word = BrokerSetting("destinations", one.name, "match", states="Configure startup destinations")
    try:
        encode_name(name)
        rule = reading.draft.rule(name, {"queue": "queue", "topic": "topic"}[kind])
    except (HeadgateError, KeyError):
        reading.note(one, word, NOT_COVERED, name, why="no queue and no topic can have this name; choose another")
        return
    rule.places.setdefault("match", reading.place(one))
    reading.note(one, word, KEPT, name, f'match = "{name}", kind = "{kind}"')

"""A broker's definitions are read: policies and queues become rules, fanouts and shovels bridges, all else is noted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.brokers import NOT_COVERED, BrokerSetting, words
from headgate.core.printable import printable
from headgate.errors import InvalidValue
from headgate_coordinator.imports.json_tree import Value, read_json
from headgate_coordinator.imports.names import is_name
from headgate_coordinator.imports.rabbitmq.rules import UNKNOWN, Routes, Rules
from headgate_coordinator.imports.reading import Reading
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.imports.windows import fit_windows

_PARTS: Final = ("policies", "queues", "exchanges", "bindings")
_OTHER_HOST: Final = "a virtual host is a namespace: export it by itself, and import it with another --namespace"
_MOST: Final = 4_000
"""Policies and queues, which are compared with each other."""
_NAMES: Final = ("name", "vhost")
"""Of an object, beside its settings."""


@dataclass(slots=True)
class _Found:
    """`_Found` holds the objects of all files, each with its file."""

    parts: dict[str, list[tuple[str, Value]]] = field(default_factory=lambda: {part: [] for part in _PARTS})
    others: list[tuple[str, str, Value]] = field(default_factory=list)

    def of(self, part: str, host: str) -> list[tuple[str, Value]]:
        """Return the objects of a virtual host."""
        return [(file, one) for file, one in self.parts[part] if one.get("vhost").text in ("", host)]

    @property
    def host(self) -> str:
        """The virtual host that is read: the usual one, where it has anything, else the first."""
        hosts = [one.get("vhost").text for part in ("queues", "policies") for _, one in self.parts[part]]
        return "/" if "/" in hosts or not any(hosts) else next(filter(None, hosts))


def read(files: Sequence[Path]) -> Imported:
    """Return the policy that these files amount to, and a report of each setting.

    Raises:
        InvalidValue: a file cannot be read, is no JSON, has no definitions of RabbitMQ, or is too large.
    """
    reading, found = Reading(), _Found()
    for file in files:
        _sort(found, read_json(file), printable(file.name))
    if sum(len(found.parts[part]) for part in ("policies", "queues")) > _MOST:
        raise InvalidValue(f"{files[0].name}:1: more than {_MOST:,} policies and queues; export one virtual host")
    host = found.host
    rules = Rules(reading, Routes([one for _, one in found.of("exchanges", host)],
                                  [one for _, one in found.of("bindings", host)]))  # fmt: skip
    _note_other_hosts(reading, found, host)
    rules.read(found.of("policies", host), found.of("queues", host))
    for name, one in found.of("exchanges", host):
        reading.file = name
        _exchange(reading, one, rules)
    for name, one in found.of("bindings", host):
        reading.file = name
        _binding(reading, one, rules)
    for name, part, one in found.others:
        reading.file = name
        _other(reading, part, one, host)
    fit_windows(reading)
    reading.free_dead_letters()
    return reading.imported(files, "RabbitMQ")


def _note_other_hosts(reading: Reading, found: _Found, host: str) -> None:
    for part, every in found.parts.items():
        for reading.file, one in every:
            its = one.get("vhost").text
            if its not in ("", host):
                name = one.get("name").text or one.get("destination").text
                reading.note(one, BrokerSetting(part, "vhost"), NOT_COVERED, f"{its} {name}", why=_OTHER_HOST)
                for leaf in one.leaves():
                    if leaf is not one.get("vhost"):
                        reading.note(
                            leaf, BrokerSetting("definitions", leaf.path), NOT_COVERED, leaf.text, why=f"as of {its}"
                        )


def _sort(found: _Found, root: Value, file: str) -> None:
    """Put the objects of a file where they belong: it has definitions, a list of policies, or one policy."""
    policies = (root,) if "pattern" in root.members else root.items
    if policies and all({"pattern", "definition"} <= one.members.keys() for one in policies):
        found.parts["policies"] += [(file, one) for one in policies]
        return
    known = (*_PARTS, *words("rabbitmq")["area"])
    if not any(key in root.members for key in known):
        raise InvalidValue(f"{file}:{root.line}: has no definitions of RabbitMQ, and no policies; give an export of it")
    for part, its in root.members.items():
        if part in _PARTS:
            found.parts[part] += [(file, one) for one in its.items]
        else:
            found.others += [(file, part, one) for one in its.items or (its,)]


def _other(reading: Reading, part: str, one: Value, host: str) -> None:
    """Note a part of definitions that is nothing to a policy, with all that is in it; a shovel may be a bridge."""
    component = one.get("component").text
    if component == "shovel" and one.get("vhost").text in ("", host) and _shovel(reading, one):
        return
    areas = words("rabbitmq")["area"]
    found = areas.get(f"{part}.{component}") or areas.get(part)
    for leaf in one.leaves():
        word = BrokerSetting("definitions", leaf.path or part, states=found.states if found else "")
        hidden = "***" if "hash" in leaf.path else leaf.text
        reading.note(leaf, word, NOT_COVERED, hidden, why=found.differs if found else UNKNOWN)


def _shovel(reading: Reading, one: Value) -> bool:
    """Return whether a shovel became a bridge: it is one within the same broker, from a queue to a queue."""
    name, its = one.get("name").text, one.get("value")
    source, target = its.get("src-queue").text, its.get("dest-queue").text
    local = its.get("src-uri").text == its.get("dest-uri").text
    if not (local and is_name(source) and is_name(target) and is_name(name) and source != target):
        return False
    bridge = reading.draft.named("bridge", name)
    bridge.set("from", source, reading.place(its.get("src-queue")))
    bridge.set("to", target, reading.place(its.get("dest-queue")))
    known = words("rabbitmq")["shovel"]
    for key in ("component", "name"):
        reading.plain(one.get(key), known[key], one.get(key).text, f'[[bridge]] "{name}"')
    for leaf in its.leaves():
        key = leaf.path.rpartition(".")[2]
        if key in known:
            reading.plain(leaf, known[key], leaf.text)
        else:
            reading.note(leaf, BrokerSetting("shovel", key), NOT_COVERED, leaf.text, why="a bridge has no such setting")
    return True


def _exchange(reading: Reading, one: Value, rules: Rules) -> None:
    known, name = words("rabbitmq")["exchange"], one.get("name").text
    targets = rules.routes.fanned_out(name)
    ours, why = "", _INSTEAD.get(one.get("type").text, "have a topic, or queues, with names of their own")
    if one.get("type").text == "fanout":
        why = f"senders go to the topic {name!r}"
        if rules.bridge(one, name, targets):
            ours = f'[[bridge]] "{name}", from a topic of this name'
        elif targets:
            why = f"write a [[bridge]] from the topic {name!r} to {', '.join(targets)}, and a limit for the topic"
        else:
            why = f"no queue is bound to it: senders go to the topic {name!r}, and consumers subscribe to it"
    for key in ("name", "type"):
        if key in one.members:
            reading.become(one.get(key), known[key], one.get(key).text, ours, why)
    for key, its in one.members.items():
        if key in ("auto_delete", "internal"):
            _flag(reading, its, known[key])
        elif key in known and key not in ("name", "type"):
            for leaf in its.leaves():
                reading.plain(leaf, known[key], leaf.text)
        elif key not in (*_NAMES, "type"):
            for leaf in its.leaves():
                reading.note(leaf, BrokerSetting("exchange", leaf.path), NOT_COVERED, leaf.text, why=UNKNOWN)


_INSTEAD: Final = {
    "direct": "senders go to the queue that is meant by its name",
    "topic": "senders go to topics that are named as their routing keys, and consumers subscribe to patterns of these",
    "headers": "write a [[bridge]] with a selector from a topic to each queue",
}


def _flag(reading: Reading, its: Value, word: BrokerSetting) -> None:
    is_on = its.plain is True
    reading.become(its, word, its.text, "" if is_on else "false, as always here",
                   "nothing is deleted by itself, and no name is of one connection" if is_on else "")  # fmt: skip


def _binding(reading: Reading, one: Value, rules: Rules) -> None:
    known, source = words("rabbitmq")["binding"], one.get("source").text
    is_bridged = ("bridge", source) in reading.draft.tables and rules.routes.types.get(source) == "fanout"
    for key, its in one.members.items():
        if key == "vhost":
            continue
        for leaf in its.leaves():
            value = leaf.text
            if is_bridged and key in ("source", "destination", "destination_type"):
                reading.become(leaf, known[key], value, f'{known[key].ours} of [[bridge]] "{source}"')
            elif is_bridged and key in ("routing_key", "arguments"):
                reading.become(leaf, known[key], value, "bridge", "a fanout has no use for it, there as here")
            elif key in ("source", "destination", "destination_type"):
                why = f"its exchange {source!r} became no bridge; its own entry says what to do instead"
                reading.become(leaf, known[key], value, "", why)
            else:
                word = known.get(key, BrokerSetting("binding", key, differs=UNKNOWN))
                if key in ("routing_key", "arguments") and not value:
                    reading.become(leaf, word, value, "nothing is set, as here", "it says nothing")
                else:
                    reading.become(leaf, word, value, "")

"""The files of a broker, by what is in them: domains become rules and pools, all else is noted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headgate.brokers import NOT_COVERED, BrokerSetting, words
from headgate.core.printable import printable
from headgate.errors import HeadgateError, InvalidValue
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.json_tree import Value, read_json
from headgate_coordinator.imports.names import check_pattern, is_name
from headgate_coordinator.imports.reading import NO_VALUE, Reading
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.imports.windows import fit_windows

_DOMAIN: Final = ("definition", "redirect")
_BROKER: Final = ("taskConfig", "appConfig", "myClusters", "myVirtualClusters", "proxyClusters")
_UNKNOWN: Final = "this setting is unknown; look it up in the schemas of BlazingMQ, and see if a rule can say the same"
_MOST: Final = 1 << 53
_MODES: Final = {"priority": "queue", "fanout": "topic", "broadcast": "topic"}


def read(files: Sequence[Path]) -> Imported:
    """Return the policy that these files amount to, and a report of each setting.

    Raises:
        InvalidValue: a file cannot be read, is no JSON, is none of BlazingMQ, or is too large.
    """
    reading = Reading()
    reading.draft.top.set("preset", "blazingmq")
    for file in files:
        root = read_json(file)
        reading.file = printable(file.name)
        if not any(key in root.members for key in (*_DOMAIN, *_BROKER)):
            raise InvalidValue(
                f"{file.name}:{root.line}: is not a file of BlazingMQ; give a domain's with 'definition', or a broker's"
            )
        for key, one in root.members.items():
            if key == "definition":
                _domain(reading, one, file.stem)
            elif key == "redirect":
                reading.plain(one, words("blazingmq")["domain"][key], one.text)
            else:
                _broker(reading, one)
    fit_windows(reading)
    return reading.imported(files, "BlazingMQ")


def _broker(reading: Reading, part: Value) -> None:
    """Note what is set for a broker or its clusters, with what there is instead."""
    areas = words("blazingmq")["area"]
    for leaf in part.leaves():
        begins = [prefix for prefix in areas if f"{leaf.path}.".startswith(f"{prefix}.")]
        found = areas[max(begins, key=len)] if begins else None
        word = BrokerSetting("broker", leaf.path, states=found.states if found else "")
        reading.note(leaf, word, NOT_COVERED, leaf.text, why=found.differs if found else _UNKNOWN)


def _domain(reading: Reading, definition: Value, stem: str) -> None:
    known = words("blazingmq")["domain"]
    parameters = definition.get("parameters")
    name = parameters.get("name").text or definition.get("name").text or stem
    match = f"{name}.>"
    try:
        check_pattern(match)
    except HeadgateError as error:
        for leaf in definition.leaves():
            word = BrokerSetting("domain", _short(leaf))
            reading.note(leaf, word, NOT_COVERED, leaf.text, why=f"no rule can have the pattern {match!r}: {error}")
        return
    mode = next((mode for mode in _MODES if mode in parameters.get("mode").members), "priority")
    rule = reading.draft.rule(match, _MODES[mode])
    rule.places["match"] = reading.place(definition)
    reading.plain(definition, known["name"], name, f'match = "{match}", kind = "{_MODES[mode]}"')
    for leaf in definition.leaves():
        if _short(leaf) != "name":
            _say(reading, rule, name, leaf)
    limit, pool = rule.values.get("limit.bytes", _MOST), reading.draft.tables.get(("pool", name))
    most = min(limit, pool.values["limit"]) if pool else limit
    if pool and limit != _MOST and limit > most:
        rule.set("limit.bytes", most, "no queue has more than its domain")


def _short(leaf: Value) -> str:
    return leaf.path.removeprefix("definition.").removeprefix("parameters.")


def _say(reading: Reading, rule: Table, domain: str, leaf: Value) -> None:
    """Set what one setting of a domain says, and note what became of it."""
    name = _short(leaf)
    word = words("blazingmq")["domain"].get(name)
    if word is None:
        reading.note(leaf, BrokerSetting("domain", name), NOT_COVERED, leaf.text, why=_UNKNOWN)
        return
    place = reading.place(leaf)
    try:
        ours, why = _TURNS[name](reading, rule, domain, leaf, place) if name in _TURNS else (word.ours, "")
    except ValueError:
        ours, why = "", NO_VALUE
    reading.become(leaf, word, leaf.text, ours, why)


Turn = Callable[[Reading, Table, str, Value, str], tuple[str, str]]
"""Sets what a leaf says in the rule of a domain; returns our words for it, and how they differ."""


def _limit(key: str) -> Turn:
    def turn(_reading: Reading, rule: Table, _domain: str, leaf: Value, place: str) -> tuple[str, str]:
        if leaf.number == 0:
            return "", "0 refuses all; give at least 1, or take away the grants of those that send"
        rule.set(key, _positive(leaf), place)
        rule.set("when_full", "fail", "BlazingMQ refuses what goes beyond a limit")
        return f"{key} = {leaf.number}", ""

    return turn


def _of_the_domain(reading: Reading, rule: Table, domain: str, leaf: Value, place: str) -> tuple[str, str]:
    if leaf.number == 0:
        return "", "0 refuses all; give at least 1, or take away the grants of those that send"
    if not is_name(domain):
        return "", "no pool can have this name; write a [[pool]] with another"
    size = _positive(leaf)
    reading.draft.named("pool", domain).set("limit", size, place)
    rule.set("pools", [domain], place)
    rule.set("when_full", "fail", "BlazingMQ refuses what goes beyond a limit")
    return f'pool "{domain}": limit = {leaf.number}', ""


def _positive(leaf: Value) -> int:
    if not 0 < leaf.number < _MOST:
        raise ValueError(leaf.text)
    return leaf.number


def _seconds(_reading: Reading, rule: Table, _domain: str, leaf: Value, place: str) -> tuple[str, str]:
    if leaf.number == 0:
        return "", "0 discards all; give at least a second"
    rule.set("message_ttl", f"{_positive(leaf)}s", place)
    return f'message_ttl = "{leaf.number}s"', ""


def _attempts(_reading: Reading, rule: Table, _domain: str, leaf: Value, place: str) -> tuple[str, str]:
    if leaf.number == 0:
        return "no max_attempts", ""
    rule.set("max_attempts", _positive(leaf), place)
    return f"max_attempts = {leaf.number}", ""


def _none_else(instead: str) -> Turn:
    def turn(_reading: Reading, _rule: Table, _domain: str, leaf: Value, _place: str) -> tuple[str, str]:
        if leaf.number < 0:
            raise ValueError(leaf.text)
        return ("", instead) if leaf.number else ("no bound, as here", "")

    return turn


def _mode(kind: str) -> Turn:
    def turn(_reading: Reading, rule: Table, _domain: str, _leaf: Value, place: str) -> tuple[str, str]:
        rule.places["kind"] = place
        return f'kind = "{kind}"', ""

    return turn


def _eventual(_reading: Reading, _rule: Table, _domain: str, _leaf: Value, _place: str) -> tuple[str, str]:
    return 'durability = "memory", which is the default', ""


def _strong(_reading: Reading, rule: Table, _domain: str, _leaf: Value, place: str) -> tuple[str, str]:
    rule.set("durability", "replicas:1", place)
    return 'durability = "replicas:1"', ""


_TURNS: Final[dict[str, Turn]] = {
    "storage.queueLimits.bytes": _limit("limit.bytes"),
    "storage.queueLimits.messages": _limit("limit.messages"),
    "storage.domainLimits.bytes": _of_the_domain,
    "messageTtl": _seconds,
    "maxDeliveryAttempts": _attempts,
    "mode.priority": _mode("queue"),
    "mode.fanout.appIDs": _mode("topic"),
    "mode.broadcast": _mode("topic"),
    "consistency.eventual": _eventual,
    "consistency.strong": _strong,
    "maxConsumers": _none_else("put a gate in front of the work: at most that many at once, on all hosts"),
    "maxProducers": _none_else("put a gate in front of the work: at most that many at once, on all hosts"),
    "maxQueues": _none_else("grants bound which names a user may make; see docs/security.md"),
    "maxIdleTime": _none_else("alert on a destination without consumers, with the Grafana dashboard"),
}

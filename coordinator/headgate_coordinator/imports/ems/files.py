"""The files of a server, by their names: each line becomes settings of a policy, or a line of the report."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.brokers import KEPT, NOT_COVERED, BrokerSetting, words
from headgate.core.printable import printable
from headgate.errors import HeadgateError, InvalidValue
from headgate_coordinator.imports.config_lines import ConfigLine, read_lines, unquoted
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.names import check_pattern, is_name
from headgate_coordinator.imports.reading import HIDDEN, NO_VALUE, Reading
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.imports.windows import fit_windows

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(KB|MB|GB)?", re.IGNORECASE)
_TIME: Final = re.compile(r"([0-9]{1,9})\s*(msec|sec|min|hour|day)?", re.IGNORECASE)
_MILLISECONDS: Final = {"msec": 1, "sec": 1000, "min": 60_000, "hour": 3_600_000, "day": 86_400_000}
_PREFETCH: Final = {"queue": 5, "topic": 64}
_BARE: Final = "256KB"
_MOST_ATTEMPTS: Final = 255
_BEFORE: Final = "default of EMS before 8.4; since then it is always"
_UNKNOWN: Final = "this setting is unknown; look it up in the User's Guide of EMS, and see if a rule can say the same"
_ON, _OFF = "on", "off"


@dataclass(slots=True)
class _Files(Reading):
    """`_Files` reads the files of one server.

    Attributes:
        flow_control: ``on`` or ``off``, as tibemsd.conf says; empty where it is not among them.
        kind: of the file that is read: its usual name, without ``.conf``.
    """

    flow_control: str = ""
    kind: str = ""


Say = Callable[[_Files, Table, ConfigLine, str], tuple[str, str]]
"""Sets in a rule what a property says; returns our words for it, and how they differ. A ValueError is nonsense."""


def read(files: Sequence[Path]) -> Imported:
    """Return the policy that these files amount to, and a report of each setting.

    Raises:
        InvalidValue: a file cannot be read, is too large, or has a name that none of EMS has.
    """
    reading = _Files()
    reading.draft.rule("#").set("enforce", "with-consumers", _BEFORE)
    for kind, messages in _PREFETCH.items():
        reading.draft.rule("#", kind).set("consumer.window", messages, "default of EMS")
    known = {
        "tibemsd": _server,
        "queues": _destinations,
        "topics": _destinations,
        "bridges": _bridges,
        "channels": _channels,
    }
    kinds = _kinds(files, (*known, *words("ems")["file"]))
    # The server says whether flow control is on, and topics in which channel they are.
    for file in sorted(files, key=lambda one: (kinds[one] != "tibemsd", kinds[one] == "channels")):
        reading.file, reading.kind = printable(file.name), kinds[file]
        reading.flow_control = reading.flow_control or _OFF if kinds[file] == "tibemsd" else reading.flow_control
        for line in read_lines(file):
            known.get(kinds[file], _other)(reading, line)
    _take_back_channels(reading)
    for table in reading.draft.tables.values():
        if "retry.delay" in table.values and "max_attempts" not in table.values:
            table.set("max_attempts", _MOST_ATTEMPTS, "the most that EMS takes, so that nothing comes again for ever")
    fit_windows(reading)
    return reading.imported(files, "TIBCO EMS")


def _kinds(files: Sequence[Path], known: Sequence[str]) -> dict[Path, str]:
    """Return what each file is: as tibemsd.conf calls it, or by its name, such as ``queuesroute1.conf``.

    Raises:
        InvalidValue: neither says it.
    """
    by_name = {file: max((name for name in known if file.stem.startswith(name)), key=len, default="") for file in files}
    named: dict[str, str] = {}
    for file in files:
        for line in read_lines(file) if by_name[file] == "tibemsd" else ():
            key, _, value = (part.strip() for part in line.text.partition("="))
            kind = key.removesuffix("_list")
            if kind in known and kind != "tibemsd":
                named[Path(unquoted(value)).name] = kind
    kinds = {file: named.get(file.name) or by_name[file] for file in files}
    for file, kind in kinds.items():
        if not kind:
            names = ", ".join(f"{name}.conf" for name in known)
            raise InvalidValue(
                f"{file.name}:1: no file of EMS is called so, and no tibemsd.conf here says which it is; "
                f"there are {names}, and names that go on after these"
            )
    return kinds


def _other(reading: _Files, line: ConfigLine) -> None:
    """Note a line of a file that is nothing to a policy; a section is noted with what is in it."""
    word = words("ems")["file"][reading.kind]
    if line.text:
        reading.note(line, word, NOT_COVERED, _hidden(line.text), why=word.differs)


def _hidden(text: str) -> str:
    """Return a line without a password that no word gives away: ``name:password:...`` is how users.conf has them."""
    return HIDDEN if re.match(r"[^:\s=]+:[^:\s]*(:|$)", text) else text


# -- tibemsd.conf -----------------------------------------------------------------------------------------------------


def _server(reading: _Files, line: ConfigLine) -> None:
    name, _, value = (part.strip() for part in line.text.partition("="))
    value = unquoted(value)
    word = words("ems")["tibemsd"].get(name)
    is_on = {"enabled": True, "enable": True, "disabled": False, "disable": False}.get(value.lower())
    if name == "flow_control" and word and is_on is not None:
        reading.flow_control = _ON if is_on else _OFF
        reading.plain(line, word, value, "limits of flowControl" if is_on else "no limits of flowControl")
    elif name == "flow_control_only_with_active_consumer" and word and is_on is not None:
        enforce = "with-consumers" if is_on else "always"
        reading.draft.rule("#").set("enforce", enforce, reading.place(line))
        reading.plain(line, word, value, f'enforce = "{enforce}"')
    else:
        areas = words("ems")["area"]
        begins = [prefix for prefix in areas if name.startswith(prefix)]
        found = word or (areas[max(begins, key=len)] if begins else None)
        about = BrokerSetting("tibemsd", name, states=found.states if found else "")
        why = NO_VALUE if word and word.ours and is_on is None else found.differs if found else _UNKNOWN
        reading.note(line, about, NOT_COVERED, value, why=why)


# -- queues.conf, topics.conf -----------------------------------------------------------------------------------------


def _destinations(reading: _Files, line: ConfigLine) -> None:
    kind = "queue" if reading.kind == "queues" else "topic"
    match, *properties = line.parts or [line.section]
    known = words("ems")["destination"]
    about = BrokerSetting(
        "destination", "name", "match", states="Destinations: a name, or a pattern whose properties it hands on"
    )
    try:
        check_pattern(match)
    except HeadgateError as error:
        for one in (match, *properties):
            why = f"no rule can have the pattern {match!r}: {error}"
            reading.note(
                line,
                about if one is match else BrokerSetting("destination", one.partition("=")[0]),
                NOT_COVERED,
                one,
                why=why,
            )
        return
    rule = reading.draft.rule("#" if match == ">" else match, kind)
    rule.places.setdefault("match", reading.place(line))
    reading.note(line, about, KEPT, match, f'match = "{match}", kind = "{kind}"')
    given = {name: unquoted(value) for name, _, value in (one.partition("=") for one in properties)}
    for name, value in given.items():
        word = known.get(name)
        if word is None:
            reading.note(line, BrokerSetting("destination", name), NOT_COVERED, value, why=_UNKNOWN)
            continue
        try:
            ours, why = _SAY[name](reading, rule, line, value) if name in _SAY else ("", "")
        except ValueError:
            ours, why = "", NO_VALUE
        reading.become(line, word, value, ours, why)


def _size(text: str) -> str | int:
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(text)
    return f"{int(found[1])}{found[2].upper()}" if found[2] and int(found[1]) else int(found[1])


def _flow_control(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    size = _size(value or _BARE)
    if size == 0:
        return "no limit.bytes", ""
    if reading.flow_control == _OFF:
        return "", "tibemsd.conf has flow control off, so this holds nobody there; with it on, it is limit.bytes"
    if "limit.bytes" in rule.values:  # maxbytes came first, and is the harder one
        rule.set("hard_limit", rule.values["limit.bytes"], reading.place(line))
    rule.set("limit.bytes", size, reading.place(line))
    rule.set("when_full", "block", reading.place(line))
    rule.values.pop("enforce", None)
    why = "" if reading.flow_control else "it holds there once tibemsd.conf has flow_control = enabled; give that file"
    return f"limit.bytes = {size}", why


def _most_bytes(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    size = _size(value)
    if size == 0:
        return "no limit.bytes", ""
    if rule.values.get("when_full") == "block":
        rule.set("hard_limit", size, reading.place(line))
        return f"hard_limit = {size}", "it holds for clients that count messages; others wait at flowControl"
    rule.set("limit.bytes", size, reading.place(line))
    _refuse(reading, rule, line)
    return f"limit.bytes = {size}", ""


def _most_messages(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    count = int(value) if re.fullmatch("[0-9]{1,15}", value) else -1
    if count < 0:
        raise ValueError(value)
    if count == 0:
        return "no limit.messages", ""
    rule.set("limit.messages", count, reading.place(line))
    if rule.values.get("when_full") == "block":
        return f"limit.messages = {count}", "senders wait for it, as for flowControl"
    _refuse(reading, rule, line)
    return f"limit.messages = {count}", ""


def _refuse(reading: _Files, rule: Table, line: ConfigLine) -> None:
    """Have senders get an error, whether anybody consumes or not: these limits are no flow control."""
    rule.set("when_full", "fail", reading.place(line))
    rule.set("enforce", "always", reading.place(line))


def _overflow(_reading: _Files, _rule: Table, _line: ConfigLine, value: str) -> tuple[str, str]:
    if value == "discardOld":
        return "", "the oldest is never dropped: senders get an error, or wait"
    if value not in ("default", "rejectIncoming"):
        raise ValueError(value)
    return 'when_full = "fail"', ""


def _prefetch(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    if value == "0":
        return "what a rule of more names says", ""
    window = "pull" if value == "none" else int(value) if re.fullmatch("[0-9]{1,9}", value) else None
    if window is None:
        raise ValueError(value)
    rule.set("consumer.window", window, reading.place(line))
    return f"consumer.window = {window}", ""


def _attempts(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    if not re.fullmatch("[0-9]{1,9}", value):
        raise ValueError(value)
    if int(value):
        rule.set("max_attempts", int(value), reading.place(line))
    return f"max_attempts = {value}" if int(value) else "no max_attempts", ""


def _time(key: str) -> Say:
    def say(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
        found = _TIME.fullmatch(value)
        if not found:
            raise ValueError(value)
        span = int(found[1]) * _MILLISECONDS[(found[2] or "msec").lower()]
        if span:
            rule.set(key, f"{span}ms", reading.place(line))
        return f'{key} = "{span}ms"' if span else f"no {key}", ""

    return say


def _failsafe(reading: _Files, rule: Table, line: ConfigLine, _value: str) -> tuple[str, str]:
    rule.set("durability", "fsync", reading.place(line))
    return 'durability = "fsync"', ""


def _channel(reading: _Files, rule: Table, line: ConfigLine, value: str) -> tuple[str, str]:
    if not is_name(rule.values["match"]):
        return "", "a channel names its topics one by one; write them into topics = [...] of a [[channel]]"
    channel = reading.draft.named("channel", value)
    channel.set("topics", [*channel.values.get("topics", ()), rule.values["match"]], reading.place(line))
    return f'[[channel]] "{value}"', ""


_SAY: Final[dict[str, Say]] = {
    "flowControl": _flow_control,
    "maxbytes": _most_bytes,
    "maxmsgs": _most_messages,
    "overflowPolicy": _overflow,
    "prefetch": _prefetch,
    "maxRedelivery": _attempts,
    "redeliveryDelay": _time("retry.delay"),
    "expiration": _time("message_ttl"),
    "failsafe": _failsafe,
    "channel": _channel,
}


# -- bridges.conf, channels.conf --------------------------------------------------------------------------------------


def _bridges(reading: _Files, line: ConfigLine) -> None:
    source_kind, _, source = line.section.partition(":")
    if not line.text:
        return
    word = BrokerSetting(
        "bridge", "target", "bridge", states="Bridges: what is sent to one destination goes to others too"
    )
    target, *properties = line.parts or [""]
    kind, _, name = target.partition("=")
    name = unquoted(name)
    if not (is_name(source) and is_name(name) and source_kind in _PREFETCH and kind in _PREFETCH):
        why = "a bridge has one source and targets, none of them a pattern; write [[bridge]] yourself"
        reading.note(line, word, NOT_COVERED, line.text, why=why)
        return
    bridge = reading.draft.named("bridge", f"{source} to {name}")
    for key, value in {"from": source, "to": name, "copies": True}.items():
        bridge.set(key, value, reading.place(line))
    for one, its in ((source, source_kind), (name, kind)):
        reading.draft.rule(one, its).places.setdefault("match", reading.place(line))
    reading.note(line, word, KEPT, target, f'[[bridge]] "{source} to {name}"')
    for one in properties:
        key, _, value = one.partition("=")
        known = words("ems")["bridge"].get(key)
        if known is None:
            reading.note(line, BrokerSetting("bridge", key), NOT_COVERED, value, why=_UNKNOWN)
            continue
        bridge.set("selector", unquoted(value), reading.place(line))
        reading.plain(line, known, value)


def _channels(reading: _Files, line: ConfigLine) -> None:
    if not line.text:
        return
    key, _, value = (part.strip() for part in line.text.partition("="))
    word = words("ems")["channel"].get(key)
    channel = reading.draft.named("channel", line.section)
    group, _, port = value.rpartition(":")
    if word is None:
        reading.note(line, BrokerSetting("channel", key), NOT_COVERED, value, why=_UNKNOWN)
    elif key == "address" and port.isdecimal() and len(port) < 6:
        channel.set("group", group, reading.place(line))
        channel.set("port", int(port), reading.place(line))
        reading.plain(line, word, value)
    elif key == "ttl" and value.isdecimal() and len(value) < 4:
        channel.set("ttl", int(value), reading.place(line))
        reading.plain(line, word, value)
    elif key in ("maxrate", "interface"):
        channel.set(key, value, reading.place(line))
        reading.plain(line, word, value)
    else:
        reading.note(line, word, NOT_COVERED, value, why=word.differs or NO_VALUE)


def _take_back_channels(reading: _Files) -> None:
    """Leave out channels without a topic, or without an address, of which a policy would be wrong."""
    for key, channel in list(reading.draft.tables.items()):
        if channel.kind == "channel" and not {"topics", "group"} <= channel.values.keys():
            del reading.draft.tables[key]
            about = BrokerSetting("channel", "name", states="channels.conf: a channel, which topics name")
            why = "a [[channel]] has an address and topics: give channels.conf and topics.conf together"
            places = list(channel.places.values()) or [f"{reading.file}:1"]
            file, _, number = places[0].rpartition(":")
            reading.file = file
            reading.note(ConfigLine(int(number), "", ""), about, NOT_COVERED, str(channel.values["name"]), why=why)

"""A setting of a destination is turned into our words for a rule, by what its value says."""

import re
from typing import Any, Final

from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.sizes import bytes_of

_COUNT: Final = re.compile("[0-9]{1,9}")
TRUTH: Final = {"true": True, "false": False}


def turn(rule: Table, name: str, value: str, given: dict[str, str], place: str) -> tuple[str, str]:
    """Return our words for a setting, and how they differ; raises ValueError or KeyError where it is nonsense."""
    if name in _WINDOWS:
        return _window(rule, name, value, place)
    return _TURNS[name](rule, value, given, place) if name in _TURNS else ("", "")


def _memory(rule: Table, value: str, given: dict[str, str], place: str) -> tuple[str, str]:
    size = bytes_of(value)
    if size and given.get("producerFlowControl") == "false" and "pendingQueuePolicy" in given:
        return "", "it holds nobody up there, as producerFlowControl is off and all stays in memory"
    if size:
        rule.set("limit.bytes", size, place)
    return f"limit.bytes = {size}" if size else "no limit.bytes", ""


def _flow_control(rule: Table, value: str, given: dict[str, str], place: str) -> tuple[str, str]:
    if TRUTH[value]:
        return "when_full, as the preset has it", ""
    if "pendingQueuePolicy" in given:
        rule.set("enforce", "off", place)
        rule.set("pools", [], place)
        return (
            'enforce = "off", pools = []',
            "nothing holds senders up, and messages stay in Redis: give it a message_ttl",
        )
    rule.set("when_full", "spool", place)
    rule.set("store", "store", place)
    return 'when_full = "spool", store = "store"', "messages go to the store until that is full; then senders wait"


def _fail(rule: Table, value: str, given: dict[str, str], place: str) -> tuple[str, str]:
    if not TRUTH[value] or count_of(given.get("sendFailIfNoSpaceAfterTimeout", "0")):
        return "when_full", ""
    rule.set("when_full", "fail", place)
    return 'when_full = "fail"', ""


def _fail_after(rule: Table, value: str, _given: dict[str, str], place: str) -> tuple[str, str]:
    if not count_of(value):
        return "when_full", ""
    rule.set("when_full", f"fail-after {value}ms", place)
    return f'when_full = "fail-after {value}ms"', ""


def _priority(rule: Table, value: str, _given: dict[str, str], place: str) -> tuple[str, str]:
    if not TRUTH[value]:
        return "no fair_by", ""
    if rule.values.get("kind") != "queue":
        return "", "a queue can deliver by priority, with fair_by; a topic is in order"
    rule.set("fair_by", "priority", place)
    return 'fair_by = "priority"', ""


def _notify(_rule: Table, _value: str, _given: dict[str, str], _place: str) -> tuple[str, str]:
    return 'consumer.slow.action = "notify"', ""


_TURNS: Final = {
    "memoryLimit": _memory,
    "producerFlowControl": _flow_control,
    "sendFailIfNoSpace": _fail,
    "sendFailIfNoSpaceAfterTimeout": _fail_after,
    "prioritizedMessages": _priority,
    "advisoryForSlowConsumers": _notify,
}
_WINDOWS: Final = {
    "queuePrefetch": "consumer.window",
    "topicPrefetch": "consumer.window",
    "durableTopicPrefetch": "consumer.durable.window",
    "queueBrowserPrefetch": "consumer.browser.window",
}


def _window(rule: Table, name: str, value: str, place: str) -> tuple[str, str]:
    count = count_of(value)
    kind = rule.values.get("kind")
    if (name.startswith("queue") and kind == "topic") or ("opic" in name and kind == "queue"):
        return "", "destinations of this kind have no such consumers"
    if name == "queueBrowserPrefetch" and not count:
        return "", "a browser reads at least one message at a time"
    window: Any = count or "pull"
    rule.set(_WINDOWS[name], window, place)
    return f"{_WINDOWS[name]} = {window}", ""


def count_of(text: str) -> int:
    """Return a count; raises ValueError where it is none."""
    if not _COUNT.fullmatch(text):
        raise ValueError(text)
    return int(text)

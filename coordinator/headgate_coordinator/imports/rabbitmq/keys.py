"""Keys of policies and arguments of queues: what the value of each becomes in a rule."""

from collections.abc import Callable
from typing import Final

from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.json_tree import Value

QUORUM_ATTEMPTS: Final = 21
"""The first, and 20 times again: the limit of quorum queues that say nothing, since 4.0."""
_MOST: Final = 1 << 53


def _positive(its: Value) -> int:
    if not 0 < its.number < _MOST:
        raise ValueError(its.text)
    return its.number


Turn = Callable[[Table, Value, dict[str, Value], str], tuple[str, str]]


def _limit(key: str) -> Turn:
    def turn(rule: Table, its: Value, given: dict[str, Value], place: str) -> tuple[str, str]:
        if its.number == 0:
            return "", "0 keeps nothing; have no queue, and senders without grants for it"
        rule.set(key, _positive(its), place)
        if "when_full" not in rule.values:
            rule.set("when_full", "fail", "the oldest is never dropped" if "overflow" not in given else "overflow")
        return f"{key} = {its.number}", ""

    return turn


def _overflow(rule: Table, its: Value, _given: dict[str, Value], place: str) -> tuple[str, str]:
    whys = {
        "reject-publish": "",
        "reject-publish-dlx": "senders get an error; what is refused is no dead letter",
        "drop-head": "the oldest is never dropped: senders get an error",
    }
    if its.text not in whys:
        raise ValueError(its.text)
    rule.set("when_full", "fail", place)
    return 'when_full = "fail"', whys[its.text]


def _time(key: str) -> Turn:
    def turn(rule: Table, its: Value, given: dict[str, Value], place: str) -> tuple[str, str]:
        if its.number == 0:
            return "", "0 keeps nothing that is not delivered at once; give at least 1 ms"
        if key.startswith("retry.") and not _retries(given):
            return "", "delayed-retry-type has nothing wait, or delayed-retry-min is not there"
        rule.set(key, f"{_positive(its)}ms", place)
        if key == "retry.delay":
            rule.values.setdefault("max_attempts", QUORUM_ATTEMPTS)
            rule.set("retry.factor", 2, "each wait is longer")
        return f'{key} = "{its.number}ms"', ""

    return turn


def _retries(given: dict[str, Value]) -> bool:
    on = given.get("delayed-retry-type")
    return on is not None and on.text in ("all", "failed", "returned") and "delayed-retry-min" in given


def _retry_type(_rule: Table, its: Value, given: dict[str, Value], _place: str) -> tuple[str, str]:
    if its.text == "disabled":
        return "no retry", ""
    if its.text not in ("all", "failed", "returned"):
        raise ValueError(its.text)
    if not _retries(given):
        return "", "without delayed-retry-min nothing waits"
    return "retry", "" if its.text == "failed" else "what failed waits; what is given back comes again at once"


def _attempts(rule: Table, its: Value, _given: dict[str, Value], place: str) -> tuple[str, str]:
    if its.number == -1:
        rule.set("max_attempts", "default", place)
        return 'max_attempts = "default", which is no bound', ""
    if not 0 <= its.number < _MOST:
        raise ValueError(its.text)
    rule.set("max_attempts", its.number + 1, place)
    return f"max_attempts = {its.number + 1}, for the first attempt counts here", ""


def _priorities(rule: Table, its: Value, _given: dict[str, Value], place: str) -> tuple[str, str]:
    if not 1 <= its.number <= 255:
        raise ValueError(its.text)
    rule.set("fair_by", "priority", place)
    return 'fair_by = "priority"', ""


TURNS: Final[dict[str, Turn]] = {
    "max-length": _limit("limit.messages"),
    "max-length-bytes": _limit("limit.bytes"),
    "overflow": _overflow,
    "message-ttl": _time("message_ttl"),
    "delivery-limit": _attempts,
    "delayed-retry-type": _retry_type,
    "delayed-retry-min": _time("retry.delay"),
    "delayed-retry-max": _time("retry.max"),
    "max-priority": _priorities,
}

"""Settings of addresses are turned into settings of the rule of their pattern."""

import re
from collections.abc import Callable
from typing import Final

from headgate import policy as documents
from headgate.brokers import NOT_COVERED, BrokerSetting, words
from headgate.errors import HeadgateError
from headgate_coordinator.imports.artemis.settings import FOLDER, KINDS, UNKNOWN, setting, value_of
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.names import check_pattern, example_of
from headgate_coordinator.imports.reading import MOST_FACTOR, NO_VALUE, Reading
from headgate_coordinator.imports.sizes import bytes_of
from headgate_coordinator.imports.xml_tree import Element

_WHOLE: Final = re.compile(r"-?[0-9]{1,12}")
_EACH: Final = {"SECOND": "s", "MINUTE": "min", "HOUR": "h", "DAY": "day"}
_WHEN_FULL: Final = {"PAGE": "spool", "DROP": "drop", "FAIL": "fail", "BLOCK": "block"}
_STORE: Final = "paging"
_SPOOLS: Final = f'when_full = "spool", store = "{_STORE}"'
_WITHOUT_LIMIT: Final = (
    "without a limit nothing is ever full, where Artemis goes by its heap; give a limit, or a global-max-size"
)


def address_settings(reading: Reading, element: Element) -> None:
    """Read all settings of addresses."""
    for one in element.children:
        if one.name == "address-setting":
            _address_setting(reading, one)
        else:
            setting(reading, one)


def _address_setting(reading: Reading, its: Element) -> None:
    known = words("artemis")["address-setting"]
    match = its.attributes.get("match", "")
    try:
        check_pattern(match)
    except HeadgateError as error:
        for one in (its, *its.children):
            word = known.get(one.name, BrokerSetting("address-setting", "match"))
            value = match if one is its else one.text
            reading.note(one, word, NOT_COVERED, value, why=f"no rule can have the pattern {match!r}: {error}")
        return
    rule = reading.draft.rule(match)
    reading.plain(its, known["match"], match)
    given = {one.name: one.text for one in its.children}
    for one in its.children:
        if one.name not in known:
            reading.note(one, BrokerSetting("address-setting", one.name), NOT_COVERED, value_of(one), why=UNKNOWN)
            continue
        word = known[one.name]
        turn = _TURNS.get(one.name)
        try:
            ours, why = turn(reading, rule, one, given) if turn else ("", "")
        except ValueError:
            ours, why = "", NO_VALUE
        reading.become(one, word, one.text, ours, why)


Turn = Callable[[Reading, Table, Element, dict[str, str]], tuple[str, str]]
"""Sets what an element says in a rule; returns our words for it, and how they differ. A ValueError is nonsense."""


def _number(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def in_bytes(text: str) -> int:
    """Return a size, of which -1 is none; raises ValueError where it is nonsense."""
    return bytes_of(text, least=-1)


def _limit(key: str, none: str = "unlimited") -> Turn:
    def turn(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
        amount = in_bytes(one.text)
        if amount == 0:
            return "", '0 pages or refuses all; give at least 1, or when_full = "spool" with a small limit'
        if amount < 0 and not none:
            return f"no {key}", ""
        value = amount if amount > 0 else none
        rule.set(key, value, reading.place(one))
        return f"{key} = {value}", ""

    return turn


def _store(reading: Reading, place: str) -> Table:
    store = reading.draft.named("store", _STORE)
    if "url" not in store.values:
        store.set("url", FOLDER, place)
        store.set("limit", "unlimited")
    return store


def page_where_full(reading: Reading) -> None:
    """Have destinations with a limit page, as Artemis does where nothing else is set, and those without one not."""
    try:
        policy, without = documents.loads(reading.draft.text("")), set[str]()
    except documents.BadDocument:
        return  # reading the policy fails with the reason
    for table in [table for table in reading.draft.tables.values() if table.kind == "destination"]:
        example, kind = example_of(table.values["match"]), table.values.get("kind", "queue")
        resolved = policy.resolve(example, kind)
        fields = resolved.fields
        is_limited = fields.get("limit_bytes", "").isdigit()
        pages = fields.get("when_full") == "spool" or "when_full" not in resolved.origins
        if not is_limited and not fields.get("pools"):
            if table.values.get("when_full") == "spool":
                del table.values["when_full"], table.values["store"]
                without.add(table.places["when_full"])
        elif pages and (is_limited or table.values["match"] == "#"):
            _spool(reading, table, table.places.get("when_full", "Artemis pages where nothing else is set"))
    reading.take_back(without, _SPOOLS, _WITHOUT_LIMIT)
    stored = any(table.values.get("store") for table in reading.draft.tables.values())
    if not stored:
        reading.draft.tables.pop(("store", _STORE), None)


def _spool(reading: Reading, rule: Table, place: str) -> None:
    _store(reading, place)
    rule.set("when_full", "spool", place)
    rule.set("store", _STORE, place)


def _when_full(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    if one.text not in _WHEN_FULL:
        raise ValueError(one.text)
    rule.set("when_full", _WHEN_FULL[one.text], reading.place(one))
    if one.text != "PAGE":
        return f'when_full = "{_WHEN_FULL[one.text]}"', ""
    _spool(reading, rule, reading.place(one))
    return _SPOOLS, "the store must be one that all nodes share: set its url before you apply this"


def _page_size(reading: Reading, _rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    amount = in_bytes(one.text)
    store = _store(reading, reading.place(one))
    segment = min(max(4096, amount, store.values.get("segment", 0)), 64 * 1024 * 1024)
    store.set("segment", segment, reading.place(one))
    return f"store.segment = {segment}", ""


def _page_limit(reading: Reading, _rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    amount = in_bytes(one.text)
    if amount <= 0:
        return 'store.limit = "unlimited"', ""
    store = _store(reading, reading.place(one))
    before = store.values["limit"]
    store.set("limit", amount + before if isinstance(before, int) else amount, reading.place(one))
    return f"store.limit = {store.values['limit']}", ""


def _page_full(reading: Reading, _rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    if one.text not in ("DROP", "FAIL"):
        raise ValueError(one.text)
    _store(reading, reading.place(one)).set("when_full", one.text.lower(), reading.place(one))
    return f'store.when_full = "{one.text.lower()}"', ""


def _name(key: str) -> Turn:
    def turn(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
        if not one.text:
            return f"no {key}", ""
        rule.set(key, one.text, reading.place(one))
        return f'{key} = "{one.text}"', ""

    return turn


def _attempts(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    attempts = _number(one.text)
    rule.set("max_attempts", attempts if attempts > 0 else "default", reading.place(one))
    return f"max_attempts = {attempts}" if attempts > 0 else 'max_attempts = "default", which is no bound', ""


def _milliseconds(key: str) -> Turn:
    def turn(reading: Reading, rule: Table, one: Element, given: dict[str, str]) -> tuple[str, str]:
        delay = _number(one.text)
        if delay <= 0:
            return f"no {key}", ""
        if one.name == "max-expiry-delay" and _number(given.get("expiry-delay", "-1")) > 0:
            return "", "expiry-delay is what became message_ttl; one time holds for all messages"
        if one.name == "max-redelivery-delay" and _number(given.get("redelivery-delay", "0")) <= 0:
            return "", "without redelivery-delay nothing waits"
        rule.set(key, f"{delay}ms", reading.place(one))
        return f'{key} = "{delay}ms"', ""

    return turn


def _factor(reading: Reading, rule: Table, one: Element, given: dict[str, str]) -> tuple[str, str]:
    factor = float(one.text)
    if not 1 <= factor <= MOST_FACTOR * 10:
        raise ValueError(one.text)
    if _number(given.get("redelivery-delay", "0")) <= 0:
        return "", "without redelivery-delay nothing waits"
    rule.set("retry.factor", min(factor, MOST_FACTOR), reading.place(one))
    return f"retry.factor = {min(factor, MOST_FACTOR):g}", "" if factor <= MOST_FACTOR else "it is 100 at the most"


def _slow(reading: Reading, rule: Table, one: Element, given: dict[str, str]) -> tuple[str, str]:
    threshold = _number(given.get("slow-consumer-threshold", "-1"))
    if threshold <= 0:
        return "no consumer.slow", ""
    unit = given.get("slow-consumer-threshold-measurement-unit", "MESSAGES_PER_SECOND").rpartition("_")[2]
    action = {"KILL": "detach", "NOTIFY": "notify"}.get(given.get("slow-consumer-policy", "NOTIFY"))
    if unit not in _EACH or action is None:
        raise ValueError(one.text)
    period = _number(given.get("slow-consumer-check-period", "5"))
    rule.set("consumer.slow", {"rate": f"{threshold}/{_EACH[unit]}", "period": f"{period}s", "action": action})
    rule.places["consumer.slow"] = reading.place(one)
    key = {"slow-consumer-policy": "action", "slow-consumer-check-period": "period"}.get(one.name, "rate")
    why = "the consumer is detached, its connection stays" if one.text == "KILL" else ""
    return f'consumer.slow.{key} = "{rule.values["consumer.slow"][key]}"', why


def _window(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    amount = in_bytes(one.text)
    value = {"bytes": amount} if amount > 0 else "pull" if amount == 0 else "unlimited"
    rule.set("consumer.window", value, reading.place(one))
    return f"consumer.window = {value if isinstance(value, str) else value['bytes']}", ""


def _routing(reading: Reading, rule: Table, one: Element, _given: dict[str, str]) -> tuple[str, str]:
    kind = KINDS.get(one.text.lower(), "")
    if not kind:
        raise ValueError(one.text)
    if rule.values.get("kind", kind) != kind:
        return "", "addresses are of one kind and queues of another; a destination is a queue or a topic"
    rule.values = {"match": rule.values["match"], "kind": kind} | rule.values
    rule.places["kind"] = reading.place(one)
    return f'kind = "{kind}"', ""


_TURNS: Final[dict[str, Turn]] = {
    "max-size-bytes": _limit("limit.bytes"),
    "max-size-messages": _limit("limit.messages"),
    "max-size-bytes-reject-threshold": _limit("hard_limit", none=""),
    "address-full-policy": _when_full,
    "page-size-bytes": _page_size,
    "page-limit-bytes": _page_limit,
    "page-full-policy": _page_full,
    "dead-letter-address": _name("dead_letter"),
    "max-delivery-attempts": _attempts,
    "expiry-delay": _milliseconds("message_ttl"),
    "max-expiry-delay": _milliseconds("message_ttl"),
    "redelivery-delay": _milliseconds("retry.delay"),
    "max-redelivery-delay": _milliseconds("retry.max"),
    "redelivery-delay-multiplier": _factor,
    "slow-consumer-threshold": _slow,
    "slow-consumer-threshold-measurement-unit": _slow,
    "slow-consumer-policy": _slow,
    "slow-consumer-check-period": _slow,
    "default-consumer-window-size": _window,
    "default-address-routing-type": _routing,
    "default-queue-routing-type": _routing,
}

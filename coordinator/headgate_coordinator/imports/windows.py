"""Windows are made no larger than what they draw from: others let one consumer hold all of a small destination."""

from typing import Any, Final

from headgate import policy as documents
from headgate.core.policy import Policy
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.names import example_of
from headgate_coordinator.imports.reading import Reading

_WHY: Final = "half of what there is room for, so that one cannot hold all"


def fit_windows(reading: Reading) -> None:
    """Have no consumer, and no producer, hold all that a destination or its pool may have."""
    try:
        policy = documents.loads(reading.draft.text(""))
    except documents.BadDocument:
        return  # reading the policy fails with the reason
    pools = {pool.name: _number(pool.fields.get("limit_bytes")) for pool in policy.pools}
    for table in list(reading.draft.tables.values()):
        if table.kind == "destination":
            for kind in [table.values["kind"]] if "kind" in table.values else ["queue", "topic"]:
                _fit(policy, pools, table, kind)


def _fit(policy: Policy, pools: dict[str, int | None], table: Table, kind: str) -> None:
    fields = policy.resolve(example_of(table.values["match"]), kind).fields
    limit = _number(fields.get("limit_bytes"))
    lent = [pools[name] for name in fields.get("pools", "").split() if pools.get(name)]
    bounds = [bound for bound in (limit, *lent) if bound]
    room, messages = min(bounds, default=None), _number(fields.get("limit_messages"))
    most_messages, most_bytes = ([*map(_number, fields.get("consumer_window", "").split("/")), None, None])[:2]
    window: dict[str, Any] = {"messages": most_messages} if most_messages else {}
    if most_bytes and room and most_bytes > room:
        table.set("consumer.window", window | {"bytes": max(1, room // 2)}, _WHY)
    elif most_messages and messages and most_messages > messages and not most_bytes:
        table.set("consumer.window", max(1, messages // 2), _WHY)
    producer = _number(fields.get("producer_window"))
    if producer and room and producer > room:
        table.set("producer.window", max(1, room // 2), _WHY)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

"""A table holds the right that each call through a node's gateway needs, and the form of the call's values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.core.names import is_slice, read_name, whole_name
from headgate.core.segment import MARKED, is_reference
from headgate.errors import InvalidValue
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.scripts import Script
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.security import EVERYTHING, Action

ANY: Final = frozenset(Action)
NOBODY: Final[frozenset[Action]] = frozenset()
"""For what only nodes and operators do, who are at Redis themselves."""
SENDS, TAKES, MANAGES = Action.PRODUCE, Action.CONSUME, Action.MANAGE

RIGHTS: Final[Mapping[str, frozenset[Action]]] = {
    "acquire": frozenset({SENDS, TAKES}),  # who only consumes keeps its lease with it, and is given no credit
    "admit": frozenset({SENDS}),  # for holds of its own sessions
    "apply": frozenset({SENDS, TAKES, MANAGES}),  # who does not manage gets what the policy says
    "attach": frozenset({TAKES}),
    "detach": frozenset({TAKES}),
    "discard": frozenset({MANAGES}),
    "drop": frozenset({SENDS}),
    "free": NOBODY,
    "hold": NOBODY,
    "hold_off": frozenset({SENDS}),  # as long as the limiter's settings allow
    "join": frozenset({SENDS, MANAGES}),  # who does not manage the namespace has the node do it, as parted and pin
    "judge": frozenset({TAKES}),  # of its own consumers
    "lease": NOBODY,
    "levels": ANY,  # who does not manage sees neither holds nor keys
    "link_commit": NOBODY,
    "link_open": NOBODY,
    "link_read": NOBODY,
    "made": NOBODY,
    "move": NOBODY,
    "node": NOBODY,
    "note": frozenset({SENDS, TAKES}),  # of waits, and of its own consumers, where it takes, or holds
    "pace": frozenset({TAKES}),  # likewise
    "parted": frozenset({SENDS, MANAGES}),
    "pause": frozenset({SENDS}),  # as hold_off
    "pin": frozenset({SENDS, MANAGES}),
    "place": frozenset({SENDS}),
    "policy": frozenset({MANAGES}),
    "pool": frozenset({SENDS}),  # who does not manage has the node do it
    "pool_forget": frozenset({MANAGES}),  # likewise, and of what is gone alone
    "pool_set": frozenset({MANAGES}),  # at all, but to remove the pool of slices that are gone
    "pool_share": NOBODY,
    "pool_site": NOBODY,
    "publish": frozenset({SENDS}),
    "rate_lend": frozenset(
        {SENDS, TAKES}
    ),  # who does not manage the namespace has the node do it, of a rate of its own side
    "rate_take": frozenset({SENDS, TAKES}),  # likewise, and only looks
    "reap": ANY,
    "recount": frozenset({MANAGES}),
    "remove": frozenset({MANAGES}),
    "resolve": NOBODY,
    "secure": frozenset({SENDS, TAKES}),
    "settle": frozenset({TAKES}),
    "slice": ANY,  # who does not manage only looks
    "snapshot": ANY,
    "spent": NOBODY,
    "spread": frozenset({SENDS}),
    "take": frozenset({SENDS}),
    "unspool": NOBODY,
    "users": NOBODY,
    "topic": frozenset({SENDS, TAKES, MANAGES}),  # to take one out, manage
    "wildcard": frozenset({TAKES}),
}
"""Script -> any one of these is needed, at the destination that it is called for."""
SECURED: Final = frozenset({"publish", "acquire", "secure"})
"""Scripts after which a node waits for replicas, or for the disk."""
MOST_WAITED_MS: Final = 1000
READS: Final[Mapping[tuple[str, str], frozenset[Action]]] = {
    ("HGET", ""): ANY,
    ("HMGET", ""): ANY,
    ("HGETALL", "subscriptions"): ANY,
    ("HEXISTS", "consumers"): ANY,
    ("HSCAN", "sessions"): ANY,
    ("HGET", "links"): ANY,
    ("HKEYS", "slices"): ANY,
    ("XRANGE", "messages"): frozenset({Action.BROWSE}),
    ("XPENDING", "messages"): frozenset({TAKES}),  # ids of what a consumer of its own holds
}
"""Command and part of a destination -> any one of these is needed there."""
OPEN_READS: Final = frozenset(
    {
        ("HGET", "policy"),
        ("HMGET", "policy"),
        ("HGETALL", "wildcards"),
        ("SSCAN", "topics"),
        ("SISMEMBER", "topics"),
        ("HGETALL", "pool"),
        ("ZCARD", "pool:line"),
    }
)
"""Command and part of the namespace that every user may read: a client resolves policies and patterns by itself."""
STORE_SCRIPTS: Final = frozenset({"apply", "recount", "remove", "snapshot"})
"""Calls at a spool store that a manager of the namespace may make; nodes do the rest themselves."""
STORE_READS: Final = frozenset({("HGET", ""), ("HMGET", ""), ("HLEN", "refs")})
"""Command and part of a spool store that these may read."""
POOL_SCRIPTS: Final = frozenset({"pool", "pool_set", "pool_forget"})
INDEX_SCRIPTS: Final = frozenset({"topic", "wildcard"})
PIN_SCRIPTS: Final = frozenset({"pin", "parted", "join"})
LIMITER_SCRIPTS: Final = frozenset({"admit", "hold_off", "levels"}) | PIN_SCRIPTS
HOLD_WORDS: Final = 6
"""Words of one operation in a call of ``admit``; the second is the id of a hold."""
MOST_READ: Final = 10_000
"""The largest COUNT."""
MOST_NAMES: Final = 1000
"""Likewise of the names of topics, each of which is compared with the user's grants."""
MAX_BATCH: Final = 256
"""Messages in one call."""


def text_of(value: Any) -> str:
    """Return what may come as text or as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def named(op: Script, argv: Sequence[Any]) -> dict[str, Any]:
    """Return a script's fixed arguments by name, each of the type that the script's header declares: a number, or text.

    Raises:
        InvalidValue: there are too few or too many, or one is something else; what follows them is looked at too.
    """
    if (wrong := op.declared.wrong(argv)) is not None:
        raise InvalidValue(wrong)
    pairs = zip(op.declared.fixed, argv, strict=False)
    return {name: value if type(value) is int or value is None else text_of(value) for (name, _), value in pairs}


def keys_of(op: Script, place: Address, session: str) -> tuple[bytes, ...]:
    """Return what a script gets as KEYS at a destination."""
    if op.name == "remove":
        return place.every_key
    return place.limiter_keys(session) if op.name in LIMITER_SCRIPTS else place.keys(session)


def forges_references(values: Mapping[str, Any], bodies: Sequence[Any]) -> bool:
    """Return whether a publish is more than payloads with a mark, of which the node makes references itself."""
    if values["beyond"] != "spool" or " " in values["segment"]:
        return bool(values["segment"] != MARKED)
    return any(type(body) is not bytes or is_reference(body) for body in bodies)


def check_rest(name: str, values: Mapping[str, Any], rest: Sequence[Any]) -> None:
    """Check what follows a script's fixed arguments, beyond the type that its header declares.

    Raises:
        InvalidValue: it is too much or too little.
    """
    counted = (
        sum(values[outcome] for outcome in ("accepted", "released", "rejected", "failed")) if name == "settle" else 0
    )
    if name == "publish" and not 1 <= len(rest) <= MAX_BATCH:
        raise InvalidValue(f"publish: {len(rest)} messages; use 1 to {MAX_BATCH}")
    if name == "settle" and counted != len(rest):
        raise InvalidValue(f"settle: {len(rest)} ids, and it counts {counted}")
    if name == "take" and not rest:
        raise InvalidValue("take: nobody is in line")


def destination_of_pool_call(name: str, pool: PoolAddress, values: Mapping[str, Any]) -> str:
    """Return where the right is needed for a call at a pool: of one about a destination, there."""
    if name == "pool_set":
        return whole_name(pool.name) if is_slice(pool.name) and values["mode"] == "remove" else EVERYTHING
    return destination_named(values["member"])


def destination_named(encoded: str) -> str:
    """Return the name of a destination that an argument stands for."""
    name = read_name(encoded)
    if name is None or is_reply_queue(name):
        raise InvalidValue(f"{encoded[:80]!r} is not the name of a destination as clients spell it")
    return name

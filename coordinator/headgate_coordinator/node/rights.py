"""What each call through a node's gateway needs: a right for each script and read, and the form of its values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.errors import InvalidValue
from headgate.redis.scripts import Script
from headgate_coordinator.security import Action

ANY: Final = frozenset(Action)
NOBODY: Final[frozenset[Action]] = frozenset()
"""For what only nodes and operators do, who are at Redis themselves."""
SENDS, TAKES, MANAGES = Action.PRODUCE, Action.CONSUME, Action.MANAGE

RIGHTS: Final[Mapping[str, frozenset[Action]]] = {
    "acquire": frozenset({SENDS, TAKES}),  # who only consumes keeps its lease with it, and is given no credit
    "apply": frozenset({SENDS, TAKES, MANAGES}),  # who does not manage gets what the policy says
    "attach": frozenset({TAKES}),
    "detach": frozenset({TAKES}),
    "drop": frozenset({SENDS}),
    "free": NOBODY,
    "hold": NOBODY,
    "lease": NOBODY,
    "link_commit": NOBODY,
    "link_open": NOBODY,
    "link_read": NOBODY,
    "node": NOBODY,
    "note": frozenset({TAKES}),  # of waits, and of its own consumers
    "policy": frozenset({MANAGES}),
    "pool": frozenset({SENDS}),  # who does not manage has the node do it
    "pool_forget": frozenset({MANAGES}),
    "pool_set": frozenset({MANAGES}),
    "publish": frozenset({SENDS}),
    "reap": ANY,
    "recount": frozenset({MANAGES}),
    "remove": frozenset({MANAGES}),
    "resolve": NOBODY,
    "settle": frozenset({TAKES}),
    "slice": ANY,  # who does not manage only looks
    "snapshot": ANY,
    "spent": NOBODY,
    "take": frozenset({SENDS}),
    "unspool": NOBODY,
    "users": NOBODY,
    "topic": frozenset({SENDS, TAKES, MANAGES}),  # to take one out, manage
    "wildcard": frozenset({TAKES}),
}
"""Script -> any one of these is needed, at the destination that it is called for."""
READS: Final[Mapping[tuple[str, str], frozenset[Action]]] = {
    ("HGET", ""): ANY,
    ("HMGET", ""): ANY,
    ("HGETALL", "subscriptions"): ANY,
    ("HEXISTS", "consumers"): ANY,
    ("HSCAN", "sessions"): ANY,
    ("HGET", "links"): ANY,
    ("HKEYS", "slices"): ANY,
    ("XRANGE", "messages"): frozenset({Action.BROWSE}),
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
"""What who manages the namespace may do at a spool store; all else there nodes do themselves."""
STORE_READS: Final = frozenset({("HGET", ""), ("HMGET", ""), ("HLEN", "refs")})
"""Command and part of a spool store that these may read."""
POOL_SCRIPTS: Final = frozenset({"pool", "pool_set", "pool_forget"})
INDEX_SCRIPTS: Final = frozenset({"topic", "wildcard"})
MOST_READ: Final = 10_000
"""What COUNT may say."""
MOST: Final = 1 << 53
_NAME: Final = re.compile(r"[A-Za-z0-9._~%-]{1,800}\Z")
TEXTS: Final[Mapping[str, re.Pattern[str]]] = {
    "session": re.compile(r"[A-Za-z0-9_~-]{0,80}\Z"),
    "consumer": re.compile(r"([A-Za-z0-9_~-]{1,80}\.\d{1,2}|![A-Za-z0-9._~%-]{1,800})\Z"),
    "holder": re.compile(r"[A-Za-z0-9_~-]{1,90}\Z"),
    "subscription": _NAME,
    "member": _NAME,
    "pool": _NAME,
    "window": re.compile(r"[a-z0-9/]{1,40}\Z"),
    "after": re.compile(r"\d{1,16}(-\d{1,16})?\Z"),
    "leave": re.compile(r"(leave|stay|keep|resume)\Z"),
    "beyond": re.compile(r"(refuse|hard|spool)\Z"),
    "segment": re.compile(r"[A-Za-z0-9._~%/-]{1,900}( \d{1,16})?\Z"),
    "mode": re.compile(r"[a-z]{1,10}\Z"),
    "reserved": re.compile(r"(yes|no)\Z"),
    "debt": re.compile(r"(keep|owe|void)\Z"),
    "repair": re.compile(r"(look|repair)\Z"),
    "what": re.compile(r"(messages|all)\Z"),
    "expected": re.compile(r"lost\Z"),
    "name": re.compile(r"[A-Za-z0-9._~%*?#>-]{1,800}( [A-Za-z0-9._~%-]{1,800})?\Z"),
    "document": re.compile(r"", re.DOTALL),
    "source": re.compile(r"", re.DOTALL),
}
"""Arguments that are text, by the names that the scripts declare; all others are numbers from 0."""
_NUMBERS_TOO: Final = frozenset({"expected", "after"})


def text_of(value: Any) -> str:
    """Return what may come as text or as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def named(op: Script, argv: Sequence[Any]) -> dict[str, Any]:
    """Return a script's fixed arguments by name, each in the form that it must have.

    Raises:
        InvalidValue: there are too few or too many, or one is something else.
    """
    fixed = op.arguments[:-1] if op.variadic else op.arguments
    if len(argv) < len(fixed) or (len(argv) > len(fixed) and not op.variadic):
        raise InvalidValue(
            f"{op.name} takes {len(fixed)} arguments{' or more' if op.variadic else ''}, not {len(argv)}"
        )
    values = dict(zip(fixed, argv, strict=False))
    for name, value in values.items():
        if name == "run_id":
            continue
        number = type(value) is int and 0 <= value <= MOST
        form = TEXTS.get(name)
        if form is None or (number and name in _NUMBERS_TOO):
            if not number:
                raise InvalidValue(f"{op.name}: {name} is not a number from 0 on")
        else:
            text = values[name] = text_of(value)
            if not isinstance(value, str | bytes) or not form.match(text):
                raise InvalidValue(f"{op.name}: {name} has not the form that it should have")
    return values


def check_rest(name: str, values: Mapping[str, Any], rest: Sequence[Any]) -> None:
    """Check what follows a script's fixed arguments.

    Raises:
        InvalidValue: it is too much, too little, or something else.
    """
    if name == "publish":
        good = 1 <= len(rest) <= 256 and all(isinstance(body, bytes) for body in rest)
    elif name == "settle":
        told = sum(values[outcome] for outcome in ("accepted", "released", "rejected", "failed"))
        good = told == len(rest) <= 256 and all(isinstance(id_, str | bytes) for id_ in rest)
    elif name == "take":
        numbers = all(type(number) is int and 0 <= number <= MOST for number in rest)
        good = numbers and len(rest) % 2 == 0 and 1 <= len(rest) <= 256
    else:
        good = len(rest) % 2 == 0 and all(isinstance(text, str) and len(text) < 100_000 for text in rest)
    if not good:
        raise InvalidValue(f"{name}: what follows its {len(values)} arguments has not the form that it should have")

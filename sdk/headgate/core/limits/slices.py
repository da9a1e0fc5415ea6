"""A destination with slices takes only some settings beside them: those that all slices keep together."""

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.core.limits.fairness import PRODUCER
from headgate.core.limits.priority import PRIORITY
from headgate.core.names import encode_name, messages_pool, slices_pool
from headgate.errors import PolicyError

_LEVEL: Final = "set a limit in bytes alone, which holds over all slices"
_ONE: Final = "leave out one of the two, or write 'default' for what a preset or a wider rule sets"
_ALONE: Final[Mapping[str, tuple[str, frozenset[str], str]]] = {
    "hard_bytes": ("hard_limit", frozenset({""}), _LEVEL),
    "enforce": ("enforce", frozenset({"", "always", "off"}), "set it to always or off, which hold over all slices"),
    "confirm": ("confirm", frozenset({""}), _ONE),
    "shadow": (
        "shadow",
        frozenset({""}),
        "let headgate pipeline recommend say what all slices needed, or try it at one slice",
    ),
}
"""Fields that each slice would keep for itself: the setting of each, its values that say nothing, and what to do."""


SLICED_KINDS: Final = frozenset({"queue", "topic", "gate", "limiter"})
"""Kinds of destinations that may have slices."""


def is_sliced(fields: Mapping[str, str]) -> bool:
    """Return whether a destination with these fields has, or ever had, more than one slice."""
    return any(fields.get(name, "1") not in ("", "1") for name in ("slices", "sliced"))


_SUMMED: Final = frozenset({
    "pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "peak_bytes", "blocked", "message_seq",
    "dropped_messages", "dropped_bytes", "taken", "later", "orphans", "epochs", "lost_messages", "epoch_lost",
    "ledger_seq", "weight", "spooled_bytes", "reference_bytes",
})  # fmt: skip
"""Fields of slices that say together what those of a whole destination say."""
_HIGHEST: Final = frozenset({
    "consumers", "active", "learning_until", "epoch_ms", "largest_bytes", "bytes_full", "messages_full",
})  # fmt: skip
_LOWEST: Final = frozenset({"next_due"})
_RATES: Final = tuple(f"{kind}_{what}" for kind in ("send", "send_byte", "delivery") for what in ("hand", "lent"))
_OWN: Final = frozenset({"slices_pool", "messages_pool", "placed", "of_slices", "spread", *_RATES})
"""Fields that say how a destination is spread, and nothing of what it is."""


FULLEST: Final = "fullest_reference_bytes"
"""Bytes of references at the slice that has most, which has reached its part of their limit first."""


def whole_fields(slices: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the fields of a destination from those of all its slices, the first of them first."""
    whole = {name: value for name, value in slices[0].items() if name not in _OWN}
    for names, together in ((_SUMMED, sum), (_HIGHEST, max), (_LOWEST, min)):
        for name in names:
            if levels := [int(fields[name]) for fields in slices if fields.get(name)]:
                whole[name] = str(together(levels))
    if references := [int(fields.get("reference_bytes") or 0) for fields in slices if fields.get("store")]:
        whole[FULLEST] = str(max(references))
    if whole.get("limit_bytes", "").isdigit() and "peak_bytes" in whole:  # slices are not at their peaks together
        alone = max(int(fields.get("peak_bytes") or 0) for fields in slices)  # one message may go above the limit
        whole["peak_bytes"] = str(min(int(whole["peak_bytes"]), max(int(whole["limit_bytes"]), alone)))
    return whole


def is_shut(fields: Mapping[str, str], *units: str) -> bool:
    """Return whether a destination was full and has not resumed: in one of these units, where it has slices.

    >>> is_shut({"sliced": "4", "bytes_full": "3", "resume_bytes": "50.0%"}, "messages", "bytes")
    True
    >>> is_shut({"sliced": "4", "bytes_full": "3"}, "bytes")  # as it heard before the level was taken away
    False
    """
    if "sliced" not in fields and "of_slices" not in fields:
        return fields.get("shut") == "1"
    return any(f"resume_{unit}" in fields and int(fields.get(f"{unit}_full") or 0) % 2 for unit in units)


POOLS: Final = ("pools", "slices_pool", "messages_pool")
"""Fields of a destination that name pools: those that it is given, and those that slices have for themselves."""


def pools_of(fields: Mapping[str, str]) -> str:
    """Return the encoded names of all pools of a destination, in the order to draw them, with blanks between.

    That is by name, so that nobody waits in a circle. Where a store takes what finds no bytes, the pool of messages is
    the first: it has no other members than the slices of one destination, and a reference counts as a message.

    >>> pools_of({"pools": "memory", "slices_pool": "orders%.0"})
    'memory orders%.0'
    >>> pools_of({"slices_pool": "a%.0", "messages_pool": "a%.m", "store": "disk", "when_full": "spool"})
    'a%.m a%.0'
    """
    names = sorted({name for field in POOLS for name in fields.get(field, "").split()})
    first = fields.get("messages_pool") if fields.get("store") and fields.get("when_full") == "spool" else None
    return " ".join(sorted(names, key=lambda name: name != first))


def with_pools_of_slices(name: str, fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the fields of a whole destination, which say nothing of the pools of its slices, with these."""
    if "sliced" not in fields:
        return fields
    own = {"slices_pool": encode_name(slices_pool(name))}
    if fields.get("limit_messages", "unlimited") != "unlimited":
        own["messages_pool"] = encode_name(messages_pool(name))
    return {**fields, **own}


def check_slices(fields: Mapping[str, str], given: Mapping[str, str]) -> None:
    """See that nothing is set beside slices that each of them would keep for itself; about what is given.

    Raises:
        PolicyError: something is, which is named.
    """
    kind = fields.get("kind", "queue")
    if fields.get("order_by") and kind != "queue" and {"order_by", "kind"} & set(given):
        raise PolicyError(f"order_by belongs to a queue, not to a {kind}; leave it out", settings=("order_by",))
    if not is_sliced(fields):
        return
    if kind not in SLICED_KINDS and given.get("slices", "1") not in ("", "1"):
        raise PolicyError(
            f"belongs to a queue, a topic, a gate or a limiter: a {kind} has one slice; leave it out", setting="slices"
        )
    for unit, setting, limit in (("bytes", "resume_at", "limit"), ("messages", "resume_at_messages", "limit_messages")):
        level, most = f"resume_{unit}", f"limit_{unit}"
        is_about = {level, most, "slices"} & set(given)
        if is_about and fields.get(level, "").isdigit() and not fields.get(most, "").isdigit():
            raise PolicyError(
                f"{setting} beside slices goes with {limit}: a pool of them counts each; set {limit}, or leave it out",
                settings=(setting, limit, "slices"),
            )
    for field, (setting, idle, instead) in _ALONE.items():
        if fields.get(field, "") not in idle and {field, "slices"} & set(given):
            raise PolicyError(
                f"{setting} beside slices: each slice would keep to it alone; {instead}",
                settings=(setting, "slices"),
            )
    if {"fair_by", "order_by", "slices"} & set(given):
        _check_turns(fields.get("fair_by", ""), fields.get("order_by", ""))


def _check_turns(fair_by: str, order_by: str) -> None:
    """See that each key that takes turns lies in one slice, so that it has one turn."""
    if fair_by in ("", order_by) or (fair_by == PRODUCER and not order_by):
        return
    if fair_by == PRIORITY:
        why = "each slice would count alone how often a message is overtaken; give urgent ones a queue of their own"
    elif fair_by == PRODUCER:
        why = f"with order_by a producer sends to all of them, and has a turn at each; set fair_by to {order_by!r} too"
    else:
        why = f"a key has a turn at each slice where it lies; set order_by to {fair_by!r} too, so that it lies in one"
    raise PolicyError(f"fair_by = {fair_by!r} beside slices: {why}", settings=("fair_by", "order_by", "slices"))

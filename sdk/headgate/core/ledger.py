"""A ledger's entries have columns of text, as scripts write them, and events that ``detail`` lists.

The data dictionary (``lua/README.md``, "Ledger") describes both, and a test compares it with these tables. A new layout
is a row there and here; those before stay for ever, for ledgers outlive a release.
"""

from collections.abc import Iterator
from typing import Final

Layout = tuple[str, ...]
"""Names of the columns in order, ``version`` first; ``epoch`` is among them."""

LAYOUTS: Final[dict[int, Layout]] = {
    1: (
        *("version", "time", "op", "session", "bytes", "messages", "first", "detail"),
        *("pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "epoch"),
    ),
}
"""By version. A version that is not here is newer than this package."""
DIGITS: Final = 9
"""Of a version at most: more is no version."""

EVENTS: Final[dict[str, tuple[str, ...]]] = {
    "open": ("session",),
    "reopen": ("session", "bytes", "messages"),
    "claim": ("session", "granted", "granted_m"),
    "grant": ("session", "granted", "granted_m"),
    "return": ("bytes", "messages"),
    "block": ("session", "bytes", "messages"),
    "unblock": ("session", "ms"),
    "giveup": ("session", "ms"),
    "ticket": ("session", "bytes", "messages"),
    "late": ("session",),
    "reclaim": ("session", "bytes", "messages"),
    "lost": ("messages",),
    "attach": ("consumer", "subscription"),
    "detach": ("consumer",),
    "slow": ("consumer",),
    "brisk": ("consumer",),
    "settled": ("bytes", "messages"),
    "fetched": ("bytes", "messages"),
    "filed": ("counts",),
    "unfiled": ("messages",),
    "banded": ("bound", "waiting", "runs"),
    "purge": ("bytes", "messages"),
    "limits": ("bytes", "messages"),
    "binds": ("bound",),
    "above": ("oversize", "hard_bytes"),
    "shadow": ("limits",),
    "would-block": ("limit", "times", "over"),
    "slice": ("pool", "granted", "returned", "owed"),
    "overdrawn": ("pool", "returned"),
    "spooled": ("segment", "bytes"),
    "expired": ("bytes", "messages"),
    "later": ("what", "messages", "ms"),
    "released": ("link", "number"),
    "committed": ("link", "number"),
    "regressed": ("link", "mark", "number"),
    "limiter": ("limits", "key_limits"),
    "aging": ("aging",),
    "reserve": ("shares",),
    "adapted": ("limit", "how", "floor", "ceiling", "before", "why", "heard", "after"),
    "clock": ("ms",),
    "held": ("hold", "key", "amounts"),
    "claimed": ("hold", "key", "amounts"),
    "waits": ("hold", "key", "limit", "whose", "amounts"),
    "band": ("hold", "band"),
    "turns": ("limits", "key_limits", "aging", "reserve"),
    "went": ("hold", "key", "amounts"),
    "quit": ("hold",),
    "refused": ("limit", "whose", "times"),
    "used": ("hold", "amounts"),
    "freed": ("hold",),
    "lapsed": ("hold",),
    "off": ("key", "ms"),
    "levels": ("levels",),
    "would-wait": ("hold", "key", "limit", "whose", "us", "over"),
    "repair": ("pending_bytes", "pending_messages", "leased_bytes", "leased_messages"),
}
"""Arguments of each event. A ``purge`` of a subscription that is being removed has its name before them."""


def layout_of(version: bytes | str) -> Layout | None:
    """Return the layout of an entry that begins with this; None where there is none."""
    return LAYOUTS.get(int(version)) if version.isdigit() and len(version) <= DIGITS else None


def columns(text: str) -> dict[str, str] | None:
    """Return the columns of an entry by name; None where its layout is not known.

    >>> columns("1,1763600000000,settle,c~1,64,1,0,settled:64:1,0,0,0,0,7")["detail"]
    'settled:64:1'
    """
    values = text.split(",")
    layout = layout_of(values[0])
    return dict(zip(layout, values, strict=True)) if layout and len(layout) == len(values) else None


def events(detail: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the arguments of each event.

    >>> list(events("settled:64:1;late:s~1"))
    [('settled', ['64', '1']), ('late', ['s~1'])]
    """
    for event in detail.split(";") if detail else ():
        name, *arguments = event.split(":")
        yield name, arguments


def arguments_pattern(event: str) -> str:
    """Return a regular expression that finds an event in a ``detail``; its groups are the arguments.

    >>> arguments_pattern("limits")
    '(?:^|;)limits:([^:;]+):([^:;]+)'
    """
    return ":".join([f"(?:^|;){event}", *["([^:;]+)"] * len(EVENTS[event])])


def text_pattern(*names: str) -> str:
    """Return a regular expression that finds any of these events in a ``detail``; its group is the event's text.

    >>> text_pattern("unblock", "giveup")
    '(?:^|;)((?:unblock|giveup):[^;]+)'
    """
    unknown = set(names) - EVENTS.keys()
    if unknown:
        raise KeyError(*unknown)
    return rf"(?:^|;)((?:{'|'.join(names)}):[^;]+)"

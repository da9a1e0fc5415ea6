"""Arguments and replies of the scripts, as values with names."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core.account import calls
from headgate.core.limits.turns_over_slices import Turn
from headgate.core.segment import NO_STORE
from headgate.redis.keys import link_of

Account = calls.Totals
Credit = calls.Credit
Turns = tuple[int, int, dict[str, int]]
"""Messages that take turns, how many keys they have, and of some keys how many each."""

STORE_FIELDS: Final = ("limit_bytes", "pending_bytes", "pending_messages", "leased_bytes", "blocked", "policy")
"""Of a spool store, what tells whether it has room."""
TURNS: Final = 1 << 20
"""Parts of a turn in which scripts count."""


def no_credit(code: bytes, numbers: list[Any]) -> Credit:
    """Return a short answer to acquire or publish; what follows TOO_LARGE or FENCED stands where granted would."""
    if code == NO_STORE:
        epoch, why, when_full, limit = numbers
        return Credit("FULL", int(epoch), no_store=calls.NoStore(why.decode(), when_full.decode(), limit))
    return Credit(code.decode(), *(int(float(n)) if n != b"inf" else 2**52 for n in numbers))


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Settling is answered with deliveries: (id, body, failed attempts before this one) of each.

    ``again_ms`` says in how many ms there will be more, 0 when that is not known; ``beside`` whether nothing was left
    to fetch although others of the subscription hold messages; ``lacks``, where a slice lacks of the rate of
    deliveries that all share, what the next of those that are there need, and all of them; ``turn``, of a slice whose
    keys take turns, how much of a turn of all these keys the messages are; of another that gave some and has more, the
    part of it.
    """

    code: str
    epoch: int = 0
    stale: int = 0
    messages: tuple[tuple[bytes, bytes, int], ...] = ()
    again_ms: int = 0
    beside: bool = False
    lacks: tuple[int, ...] = ()
    turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """A pool as its own slot has it; no fields where there is no such pool.

    Attributes:
        holders: names of the destinations that hold most, with their bytes; empty also where the caller may not see
            them.
        now_ms: time of its server as it was read; 0 where the pool is over no sites.
    """

    fields: dict[str, str]
    holders: tuple[tuple[str, int], ...] = ()
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot holds a destination as :mod:`lua/snapshot` read it at one instant.

    Attributes:
        own: record of the session that was asked about; empty when it has none.
        slices: pool -> what the destination holds of it.
        alone: whether it is of one slice, because another one did not answer.
        groups: subscription -> its unsettled deliveries, and the number of the last message delivered.
        ledger: the newest entries, newest first.
        stores: fields of the spool stores where it spools, by setting, read a moment later; empty where it does not.
        pools: encoded name of a pool that it takes slices of -> that pool, read a moment later; only while a session
            waits.
        turns: of a queue whose keys take turns, the messages that nobody has, the keys, and the messages of some keys;
            None where that was not read.
    """

    now_ms: int
    fields: dict[str, str]
    waiters: list[tuple[str, dict[str, str]]]
    place: int
    sessions: int
    consumers: dict[str, dict[str, str]]
    subscriptions: dict[str, dict[str, str]]
    own: dict[str, str] = field(default_factory=dict)
    slices: dict[str, dict[str, str]] = field(default_factory=dict)
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    ledger: tuple[str, ...] = ()
    stores: dict[str, dict[str, str]] = field(default_factory=dict)
    pools: dict[str, PoolRecord] = field(default_factory=dict)
    turns: Turns | None = None
    alone: bool = False

    @classmethod
    def of(cls, reply: Sequence[Any]) -> "Snapshot":
        """Return what lua/snapshot answered; the spool store and the pools are read elsewhere."""
        return cls(
            now_ms=int(reply[1]),
            fields={name: value.decode() for name, value in pairs(reply[2]).items()},
            waiters=list(records(reply[3]).items()),
            place=int(reply[4]),
            sessions=int(reply[5]),
            consumers=records(reply[6]),
            subscriptions=records(reply[7]),
            own=record(reply[8]),
            slices=records(reply[9]),
            groups={name.decode(): (int(n), int(last.split(b"-")[0])) for name, n, last in reply[10]},
            ledger=tuple(entry.decode() for entry in reply[11]),
            turns=_turns(reply[12]) if len(reply) > 12 and reply[12] else None,  # an older node has none
        )

    def in_line(self, session: str) -> str:
        """Return under which id a session is the first in line, of a link that of a slice's; empty when it is not."""
        return next((name for name, _ in self.waiters if session in (name, link_of(name))), "")


@dataclass(frozen=True, slots=True)
class Recount:
    """Counters as they stand beside what was counted from the ground truth."""

    code: str
    stored: tuple[int, ...] = ()
    counted: tuple[int, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether pending, leased, blocked, weight, active consumers and messages in turn all agree."""
        return self.code == "OK" and self.stored == self.counted


def record(text: bytes) -> dict[str, str]:
    """Return the fields of a ``name=value name=value`` record."""
    return dict(part.split("=", 1) for part in text.decode().split() if "=" in part)


_HELD: Final = re.compile(rb" granted=(\d+) used=(\d+) returned=(\d+) granted_m=(\d+) used_m=(\d+) returned_m=(\d+) ")


def held(text: bytes) -> tuple[int, int]:
    """Return bytes and messages of credit that a session's record says it holds."""
    match = _HELD.search(text)
    if not match:
        return 0, 0
    granted, used, returned, granted_m, used_m, returned_m = map(int, match.groups())
    return granted - used - returned, granted_m - used_m - returned_m


def pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    """Return a flat reply of names and values as a dict."""
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


def records(flat: Iterable[bytes]) -> dict[str, dict[str, str]]:
    """Return a flat reply of names and records as a dict."""
    words = iter(flat)
    return {name.decode(): record(text) for name, text in zip(words, words, strict=True)}


def _turns(reply: Sequence[Any]) -> Turns:
    messages, keys, found = reply
    return int(messages), int(keys), {name: int(count) for name, count in pairs(found).items()}

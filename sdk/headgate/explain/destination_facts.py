"""A destination's facts are read at one instant, and its causes are judged by them. No I/O, and no clock."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core import ledger
from headgate.core.limits.slices import FULLEST
from headgate.core.names import decode_name, whole_name
from headgate.core.policy import origins
from headgate.explain.views import Backlog, Holder, Leaser, Limit, PoolView, StoreView, Unit, Waiter
from headgate.namespace.pool_sites import part_now
from headgate.redis.replies import PoolRecord, Snapshot

NAMED_MEMBERS: Final = 3
"""How many other destinations that hold slices of a pool are named."""
MOST_REFERENCES: Final = 1 << 26
"""Bytes of references to spooled messages where a destination does not say; as lua/lib/references.lua has it."""
LOOK_BACK_MS: Final = 5000
"""How far back the ledger is read for the pace of the last few seconds."""


@dataclass(frozen=True, slots=True)
class SettleRate:
    """Settlements of the last few seconds are counted: bytes and messages freed a second, and messages by consumer."""

    freed: float
    freed_messages: float
    settled: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    """A destination as it is judged.

    Attributes:
        need: bytes that the first in line, or the session whose view it is, could not get.
        own: record of that session; empty for nobody's view.
        place: its place in line, 0 when it is not in line.
        consumers: all that were read.
        leasers: sessions that hold credit; empty also when they were not read.
        alone: whether it is one slice, seen by itself because another one did not answer.
        stores: its spool stores, that of durable messages first; of the message in question, where that is known.
        pools: those that it takes slices of; empty also when they were not read.
        paid: whether what waits has its credit, so that only a rate can hold it up.
        paced: whether those that wait do so in the line of a rate, and nobody for credit.
        size: bytes of what waits, of which it lacks ``need``, where that is known to be above the whole limit; else 0.
    """

    name: str
    now_ms: int
    fields: Mapping[str, str]
    limits: tuple[Limit, ...]
    need: int
    session: str
    own: Mapping[str, str]
    place: int
    waiters: tuple[Waiter, ...]
    consumers: tuple[Holder, ...]
    leasers: tuple[Leaser, ...]
    backlogs: tuple[Backlog, ...]
    slices: Mapping[str, int]
    alone: bool
    pace: SettleRate | None
    stores: tuple[StoreView, ...] = ()
    pools: tuple[PoolView, ...] = ()
    paid: bool = False
    size: int = 0
    paced: bool = False

    def number(self, field: str, default: float = 0) -> float:
        """Return a field as a number."""
        return float(self.fields.get(field) or default)

    def count(self, field: str) -> int:
        """Return a field as a whole number, 0 where it is missing."""
        return int(self.fields.get(field) or 0)

    @property
    def due_in(self) -> float | None:
        """Seconds until the first message is due that waits for its time; None where none waits."""
        due = self.fields.get("next_due")
        return None if due is None else max(0.0, (int(due) - self.now_ms) / 1000)

    @property
    def references(self) -> Limit:
        """The limit of references to spooled messages; of slices, the part of the one that has most."""
        limit = self.fields.get("limit_reference_bytes", str(MOST_REFERENCES))
        most = int(limit) // int(self.fields.get("sliced") or 1) if limit.isdigit() else None
        taken = self.count(FULLEST if FULLEST in self.fields else "reference_bytes")
        return Limit("bytes", most, taken, 0, self.rule("limit_reference_bytes"))

    @property
    def is_lent_short(self) -> bool:
        """Whether a pool lends too little for what waits."""
        taken = self.limits[0].pending + self.limits[0].leased
        names = self.fields.get("pools", "").split() if self.session or self.count("blocked") else ()
        return any(self.slices.get(name, 0) - taken < self.need for name in names)

    @property
    def lent_bytes(self) -> list[tuple[str, int]]:
        """Bytes that pools lend it, by their encoded names."""
        return sorted((name, lent) for name, lent in self.slices.items() if name != self.fields.get("messages_pool"))

    @property
    def is_lent_less_than_others(self) -> bool:
        """Whether one slice, seen by itself, lacks what the others of its destination have, or may have."""
        needs = zip(("slices_pool", "messages_pool"), self.limits, (self.need, 1), strict=True)
        return any(
            field in self.fields and self.slices.get(self.fields[field], 0) - limit.pending - limit.leased < need
            for field, limit, need in needs
        )

    @property
    def is_shared(self) -> bool:
        """Whether each message waits for several subscriptions: of a topic, or of a queue that links copy from."""
        return self.fields["kind"] == "topic" or len(self.backlogs) > 1

    def in_hand(self, session: str) -> tuple[int, int]:
        """Return the bytes and messages of credit that a session holds, at all slices as far as they were read."""
        found = [held(self.own) if self.own else (0, 0)]
        found += [(one.bytes, one.messages) for one in self.leasers if session and one.session == session]
        return max(size for size, _ in found), max(messages for _, messages in found)

    def rule(self, field: str) -> str | None:
        """Return which policy rule set a field: ``<pattern> (<file>:<line>)``."""
        return rule_of(self.fields, field)


def rule_of(fields: Mapping[str, str], field: str) -> str | None:
    """Return which policy rule set a field, as ``<pattern> (<file>:<line>)``; None when none did."""
    rule = origins(fields.get("policy", "")).get(field)
    if rule is None:
        return None
    pattern, _, place = rule.rpartition("@")
    return f"{pattern} ({place})" if pattern else rule


def read(
    name: str,
    snapshot: Snapshot,
    sessions: Mapping[str, Mapping[str, str]],
    session: str,
    need: int | None,
    *,
    paid: bool = False,
    durable: bool | None = None,
) -> DestinationFacts:
    """Return the facts that a snapshot and the records of sessions tell; ``durable`` as :func:`explain` has it."""
    fields, now_ms = snapshot.fields, snapshot.now_ms
    waiters = tuple(
        Waiter(sid, place, _needs(one), max(0.0, (now_ms - int(one["since"])) / 1000))
        for place, (sid, one) in enumerate(snapshot.waiters, 1)
        if one
    )
    if need is None and snapshot.place and snapshot.own:
        need = _needs(snapshot.own)
    if need is None:
        need = waiters[0].needs if waiters and not session else 1
    subject = snapshot.own if session else next((one for _, one in snapshot.waiters), {})
    pace = _pace(snapshot)
    return DestinationFacts(
        name=name,
        now_ms=now_ms,
        fields=fields,
        limits=tuple(_limit(fields, unit) for unit in ("bytes", "messages")) if fields["kind"] != "bucket" else (),
        need=max(1, need),
        session=session,
        own=snapshot.own,
        place=snapshot.place,
        waiters=waiters,
        consumers=tuple(_holder(cid, one, fields, pace) for cid, one in snapshot.consumers.items()),
        leasers=_leasers(sessions, now_ms),
        backlogs=backlogs(snapshot),
        slices={
            pool: int(one.get("granted", 0)) - int(one.get("returned", 0)) for pool, one in snapshot.slices.items()
        },
        alone=snapshot.alone,
        pace=pace,
        stores=tuple(store for lasting, store in stores_of(snapshot) if durable in (None, lasting)),
        pools=tuple(_pool(name, pool, encoded, snapshot) for encoded, pool in snapshot.pools.items()),
        paid=paid,
        size=_size_alone(subject),
    )


def held(record: Mapping[str, str]) -> tuple[int, int]:
    """Return the bytes and messages of credit that a session holds."""
    size, messages = (
        int(record[f"granted{m}"]) - int(record[f"used{m}"]) - int(record[f"returned{m}"]) for m in ("", "_m")
    )
    return size, messages


def _needs(record: Mapping[str, str]) -> int:
    return max(0, int(record["need"]) - int(record["granted"]))


def _size_alone(record: Mapping[str, str]) -> int:
    """Return the bytes that a session waits for at once; 0 unless it wants nothing, as lua/lib/oversize.lua has it."""
    if not record or int(record["want"]) >= int(record["need"]):
        return 0
    return int(record["need"]) - int(record["used"]) - int(record["returned"])


def _limit(fields: Mapping[str, str], unit: Unit) -> Limit:
    limit = fields[f"limit_{unit}"]
    keeps = unit == "bytes" and limit != "unlimited" and fields.get("store") and fields.get("when_full") == "spool"
    keeps = keeps and fields["kind"] == "topic" and "sliced" not in fields and "of_slices" not in fields
    return Limit(
        unit,
        None if limit == "unlimited" else int(limit),
        int(fields[f"pending_{unit}"]),
        int(fields[f"leased_{unit}"]),
        rule_of(fields, f"limit_{unit}"),
        int(limit) // 8 if keeps else 0,  # for copies of spooled payloads, as lua/lib/hot.lua does
    )


def stores_of(snapshot: Snapshot) -> Iterator[tuple[bool | None, StoreView]]:
    """Yield the spool stores of a destination, each with whether it takes what is durable; None: all there is."""
    two = len(snapshot.stores) > 1
    for setting, store in snapshot.stores.items():
        lasting = setting == "store" if two else None
        takes = ("durable" if lasting else "not durable") if two else ""
        yield lasting, _store(snapshot, snapshot.fields[setting], store, takes)


def _store(snapshot: Snapshot, name: str, store: Mapping[str, str], takes: str) -> StoreView:
    limit = store.get("limit_bytes", "")
    return StoreView(
        decode_name(name),
        int(limit) if limit.isdigit() else None,
        int(store.get("pending_bytes", 0)),
        int(store.get("leased_bytes", 0)),
        int(snapshot.fields.get("spooled_bytes", 0)),
        int(store.get("blocked", 0)),
        rule_of(store, "limit_bytes"),
        takes,
    )


def _pool(member: str, pool: PoolRecord, encoded: str, snapshot: Snapshot) -> PoolView:
    own = snapshot.slices.get(encoded, {})
    text = pool.fields.get("limit_bytes", "")
    limit = int(text) if text.isdigit() else None
    part = part_now(pool.fields, pool.now_ms) if "part_of" in pool.fields else None
    if part is not None:
        limit = part.held if limit is None else min(limit, part.held)
    others, own_name = Counter[str](), whole_name(member)
    for name, held in pool.holders:  # one with slices is one
        if held > 0 and whole_name(name) != own_name:
            others[whole_name(name)] += held
    return PoolView(
        decode_name(encoded),
        bool(pool.fields),
        limit,
        int(pool.fields.get("granted_bytes", 0)),
        int(own.get("granted", 0)) - int(own.get("returned", 0)),
        tuple(others.most_common(NAMED_MEMBERS)),
        rule_of(pool.fields, "limit_bytes"),
        str(part or ""),
        part.remedy if part else "",
    )


def _leasers(sessions: Mapping[str, Mapping[str, str]], now_ms: int) -> tuple[Leaser, ...]:
    found = []
    for sid, record in sessions.items():
        size, messages = held(record)
        if size > 0 or messages > 0:
            found.append(Leaser(sid, messages, size, max(0.0, (now_ms - int(record["seen"])) / 1000)))
    return tuple(sorted(found, key=lambda one: (-one.bytes, -one.messages)))


def _window(text: str) -> tuple[float, float]:
    """Return the most messages and bytes that a window lets a consumer hold."""
    if text in ("paused", "pull"):
        return (0 if text == "paused" else 1), float("inf")
    messages, size, *_ = (*text.split("/"), "unlimited")
    return _number(messages), _number(size)


def _number(text: str) -> float:
    return float(text) if text.isdecimal() else float("inf")


def _holder(cid: str, record: Mapping[str, str], fields: Mapping[str, str], pace: SettleRate | None) -> Holder:
    messages = int(record["delivered"]) - int(record["settled"])
    size = int(record["delivered_b"]) - int(record["settled_b"])
    most, most_bytes = _window(record["window"])
    rate = pace.settled.get(cid, 0.0) if pace else None
    slow = record.get("slow") == "1" if "sliced" in fields else _is_slow(fields, messages, most, rate)
    full = record["window"] != "paused" and (messages >= most or size >= most_bytes)
    return Holder(cid, record["sub"], messages, size, record["window"], rate, full, slow)


def _is_slow(fields: Mapping[str, str], messages: int, most: float, rate: float | None) -> bool:
    if rate is not None and messages and (floor := fields.get("slow_rate")) and rate < float(floor):
        return True
    multiple = fields.get("slow_multiple")
    ready = int(fields["pending_messages"]) - messages
    return bool(multiple and messages and messages >= most and ready > float(multiple) * most)


def backlogs(snapshot: Snapshot) -> tuple[Backlog, ...]:
    """Return the subscriptions, also that of a queue, with what each has to settle; the most first."""
    newest, pending = int(snapshot.fields["message_seq"]), int(snapshot.fields["pending_messages"])
    found = []
    for name, (unsettled, last) in snapshot.groups.items():
        known = snapshot.subscriptions.get(name)
        if known is None or int(known["until"]):
            continue
        ready = max(0, min(newest - last, pending - unsettled))
        found.append(Backlog(name, int(known["consumers"]), ready, unsettled))
    return tuple(sorted(found, key=lambda one: -one.messages))


def is_clear(snapshot: Snapshot, subscription: str) -> bool:
    """Return whether a subscription of a topic has nothing to settle, or is not there."""
    found = next((one for one in backlogs(snapshot) if one.subscription == subscription), None)
    if found is None:  # where there are many, not all were read
        return subscription not in snapshot.subscriptions and len(snapshot.subscriptions) >= int(
            snapshot.fields["subscriptions"]
        )
    return found.messages == 0


def _pace(snapshot: Snapshot) -> SettleRate | None:
    """Read the pace from the ledger: what was freed since its oldest entry here, at most five seconds ago."""
    entries = [entry for entry in map(ledger.columns, snapshot.ledger) if entry]
    if not entries:
        return None
    begin = max(int(entries[-1]["time"]), snapshot.now_ms - LOOK_BACK_MS)
    seconds = max(0.1, (snapshot.now_ms - begin) / 1000)
    size = messages = 0
    settled: dict[str, int] = {}
    for entry in entries:
        if entry["op"] == "settle" and int(entry["time"]) >= begin:
            size, messages = size + int(entry["bytes"]), messages + int(entry["messages"])
            for name, arguments in ledger.events(entry["detail"]):
                if name == "settled":
                    settled[entry["session"]] = settled.get(entry["session"], 0) + int(arguments[1])
    return SettleRate(size / seconds, messages / seconds, {who: count / seconds for who, count in settled.items()})

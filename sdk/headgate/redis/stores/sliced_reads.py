"""A sliced read returns a destination that is spread over slices as one."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.core.ledger import columns
from headgate.core.limits.slices import whole_fields
from headgate.core.names import slice_name
from headgate.redis.backend import Backend
from headgate.redis.keys import Address, parse_key
from headgate.redis.replies import Recount, Snapshot, Turns

READ_AGAIN: Final = 2
"""How often slices are read again that seem to be above their limit together."""
_NAMES = frozenset({"sub", "window", "durable", "inc", "weight", "from", "until", "epoch", "pool", "ttl"})
"""Of records, what is the same at each slice, or means nothing when it is added."""
_TIMES: Final = frozenset({"seen", "since", "strike"})
"""Of records, moments: the last of them counts."""


def together(slices: Sequence[Snapshot]) -> Snapshot:
    """Return the snapshot of a whole destination from those of its slices, read one after the other."""
    first = slices[0]
    own = max(slices, key=lambda one: (one.place > 0, int(one.own.get("weight", 0)), bool(one.own)))  # where it sends
    fields = whole_fields([one.fields for one in slices])
    waiters = sorted((waiter for one in slices for waiter in one.waiters), key=lambda waiter: _since(waiter[1]))
    names = [name for name, _ in waiters]
    session = own.waiters[own.place - 1][0] if 0 < own.place <= len(own.waiters) else None
    shared = {first.fields.get(name) for name in ("slices_pool", "messages_pool")}
    return replace(
        first,
        fields=fields,
        waiters=waiters,
        place=names.index(session) + 1 if session is not None else own.place,
        sessions=sum(one.sessions for one in slices),
        consumers=added_records([one.consumers for one in slices]),
        subscriptions=added_records([one.subscriptions for one in slices], alike=True),
        own=own.own,
        slices={
            name: record for name, record in added_records([one.slices for one in slices]).items() if name not in shared
        },
        groups=_groups(slices),
        ledger=_ledger(slices),
        pools={name: record for one in slices for name, record in one.pools.items() if name not in shared},
        turns=_turns([one.turns for one in slices if one.turns is not None]),
    )


def _ledger(slices: Sequence[Snapshot]) -> tuple[str, ...]:
    """Return their newest entries, as far back as those of each were read: a busy slice wrote more in less time."""
    cut = [one.ledger for one in slices if 0 < len(one.ledger) < int(one.fields.get("ledger_seq") or 0)]
    since = max((_written(ledger[-1]) for ledger in cut), default=0)
    entries = (entry for one in slices for entry in one.ledger if _written(entry) >= since)
    return tuple(sorted(entries, key=_written, reverse=True))


def _turns(slices: Sequence[Turns]) -> Turns | None:
    """Return the keys that take turns at any slice; each of them lies in one, but for messages without a key."""
    counts = Counter[str]()
    for _, _, some in slices:
        counts.update(some)
    return (sum(one[0] for one in slices), sum(one[1] for one in slices), dict(counts)) if slices else None


def is_above(fields: Mapping[str, str]) -> bool:
    """Return whether more is in use than the limit allows, as these fields say."""
    for unit in ("bytes", "messages"):
        limit = fields.get(f"limit_{unit}", "")
        if limit.isdigit() and sum(int(fields.get(f"{name}_{unit}", 0)) for name in ("pending", "leased")) > int(limit):
            return True
    return False


async def read_within(read: Callable[[], Awaitable[Snapshot | None]]) -> Snapshot | None:
    """Return what is read, which is read again where slices are above their limit together.

    They are within it at each instant, and not read at one: room that went from one to another may be counted twice.
    A queue is really above its limit only after that was lowered, and then it is so at each read.
    """
    seen = await read()
    for _ in range(READ_AGAIN):
        if seen is None or "sliced" not in seen.fields or not is_above(seen.fields):
            break
        seen = await read()
    return seen


async def read_slices(
    address: Address, first: Snapshot, read: Callable[[Address], Awaitable[Snapshot | None]]
) -> Snapshot | None:
    """Return a destination read as one, with all the slices that it ever had; ``first`` was read of the first."""
    known: list[Snapshot | None] = [first]

    async def once() -> Snapshot | None:
        whole = known.pop() if known else await read(address)
        if whole is None:
            return None
        names = (slice_name(address.name, number) for number in range(1, int(whole.fields.get("sliced", 1))))
        parts = await asyncio.gather(*(read(Address.of(address.namespace, name)) for name in names))
        return together([whole, *(one for one in parts if one is not None)])

    return await read_within(once)


async def read_whole(
    server: Backend, address: Address, names: Sequence[str], fields: Mapping[str, str]
) -> dict[str, str]:
    """Return some fields of a destination with what its other slices add to them.

    Args:
        server: the way to Redis.
        address: the destination.
        names: of the fields, ``sliced`` among them.
        fields: what it has of them itself.
    """
    if "sliced" not in fields:
        return dict(fields)
    count = int(fields["sliced"])
    whole = whole_fields([dict(fields), *await _each(server, address, names, range(1, count))])
    for _ in range(READ_AGAIN):
        if not is_above(whole):
            break
        whole = whole_fields(await _each(server, address, names, range(count)))
    return whole


async def _each(
    server: Backend, address: Address, names: Sequence[str], numbers: Iterable[int]
) -> list[dict[str, str]]:
    keys = [Address.of(address.namespace, slice_name(address.name, number)).shared[0] for number in numbers]
    replies = await server.burst([(key, (b"HMGET", key, *names)) for key in keys])
    found = []
    for key, reply in zip(keys, replies, strict=True):
        moved = isinstance(reply, Exception)
        values = await server.command(key, "HMGET", key, *names) if moved else reply
        found.append({name: value.decode() for name, value in zip(names, values, strict=True) if value is not None})
    return found


async def slices_of(server: Backend, whole: Address) -> list[Address]:
    """Return the slices that a destination ever had, the first of them itself.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    count = int(await server.command(whole.shared[0], "HGET", whole.shared[0], "sliced") or 1)
    return [Address.of(whole.namespace, slice_name(whole.name, number)) for number in range(count)]


async def every_slice(server: Backend, namespace: str) -> list[str]:
    """Return the names of all destinations of a namespace, and of their slices; for sweeps of all of them.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    keys = await server.scan(f"hg:{{{namespace}/*}}")
    return [parsed[1] for key in keys if (parsed := parse_key(key))]


def added(counts: Sequence[Recount]) -> Recount:
    """Return what was counted at all slices of a destination, added up; that of one alone whose counters differ."""
    known = [one for one in counts if one.code != "UNKNOWN"]
    if wrong := [one for one in known if not one.equal]:
        return wrong[0]  # another may differ by as much the other way
    return Recount("OK", _sums([one.stored for one in known]), _sums([one.counted for one in known]))


def _sums(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


def _since(record: Mapping[str, str]) -> int:
    return int(record.get("since") or 0)


def _written(entry: str) -> int:
    known = columns(entry)
    return int(known["time"]) if known else 0


def added_records(
    found: Iterable[Mapping[str, Mapping[str, str]]], *, alike: bool = False
) -> dict[str, dict[str, str]]:
    """Return records by name, those of one name added up; with ``alike`` the first of them stands for all."""
    records: dict[str, dict[str, str]] = {}
    for by_name in found:
        for name, record in by_name.items():
            if name not in records:
                records[name] = dict(record)
            elif not alike:
                _add(records[name], record)
    return records


def _add(into: dict[str, str], record: Mapping[str, str]) -> None:
    for key, value in record.items():
        if key not in _NAMES and value.isdigit() and into.get(key, "").isdigit():
            join = max if key in _TIMES else int.__add__
            into[key] = str(join(int(into[key]), int(value)))


def _groups(slices: Sequence[Snapshot]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for one in slices:
        for name, (unsettled, last) in one.groups.items():
            before = found.get(name, (0, 0))
            found[name] = before[0] + unsettled, before[1] + last
    return found

"""Spool stores as they stand, for operators."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headgate.core.policy import origins
from headgate.redis.store import Store
from headgate.spool.storage import shown
from headgate.spool.stores import SEGMENT, Spools


@dataclass(frozen=True, slots=True)
class StoreState:
    """A spool store as it stands.

    Attributes:
        name: its name.
        url: where its segments are, without secrets.
        limit: bytes of segments that it holds at the most; None when it has no limit.
        held: bytes of the segments that it holds.
        leased: bytes of credit that sessions have for segments to come.
        segments: that it holds.
        waiting: sessions that wait for room here.
        segment: bytes of payload in one segment, about.
        when_full: what sends do that find neither memory nor room here.
        percent: where the limit comes from, as ``70 % of 1000 bytes``; empty when it is absolute.
        learning: its state may have been lost; nothing is granted until all sessions have claimed what they hold.
        origins: for each field that a policy set, ``<file>:<line>``; empty when it was set by hand.
    """

    name: str
    url: str
    limit: int | None
    held: int
    leased: int
    segments: int
    waiting: int
    segment: int
    when_full: str
    percent: str
    learning: bool
    origins: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)


async def store_states(spools: Spools, store: Store, names: Sequence[str] | None = None) -> list[StoreState]:
    """Return the spool stores of these names, or all of the namespace; see :meth:`headgate.Client.stores`."""
    names = await spools.names() if names is None else names
    found = await asyncio.gather(*(_state(spools, store, name) for name in names))
    return [state for state in found if state is not None]


async def _state(spools: Spools, store: Store, name: str) -> StoreState | None:
    snapshot = await store.snapshot(spools.address(name), waiters=0, consumers=1)
    if snapshot is None or "url" not in snapshot.fields:
        return None  # removed since it was listed
    fields = snapshot.fields
    limit = fields["limit_bytes"]
    return StoreState(
        name=name,
        url=shown(fields["url"]),
        limit=int(limit) if limit.isdigit() else None,
        held=int(fields["pending_bytes"]),
        leased=int(fields["leased_bytes"]),
        segments=int(fields["pending_messages"]),
        waiting=int(fields["blocked"]),
        segment=int(fields.get("segment_bytes") or SEGMENT),
        when_full=fields.get("when_full") or "block",
        percent=f"{fields['percent']} % of {fields['total_bytes']} bytes" if "percent" in fields else "",
        learning=snapshot.now_ms < int(fields["learning_until"]),
        origins=origins(fields.get("policy", "")),
    )

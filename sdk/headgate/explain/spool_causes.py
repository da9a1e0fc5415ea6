"""Only destinations with a spool store have these causes. Judged from facts."""

from collections.abc import Iterator
from typing import Final

from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.model import Reason
from headgate.explain.views import Limit, StoreView

REFERENCE_BYTES: Final = 64
"""More than a reference to a spooled message takes."""


def spool(facts: DestinationFacts) -> Iterator[Reason]:
    """Say what becomes of payloads for which memory has no room."""
    (memory, messages), references = facts.limits, facts.references
    if not (facts.is_lent_short or (memory.free is not None and memory.free < facts.need)):
        return
    for store in sorted(facts.stores, key=lambda store: store.free is None or store.free >= facts.need):
        reason = _spools_to(store, references, facts.need)
        if reason.cause != "spooling" or messages.free is None or messages.free > 0:  # each reference counts as one
            yield reason


def _spools_to(store: StoreView, references: Limit, need: int) -> Reason:
    """Return what becomes of those payloads that go to a store."""
    if store.free is not None and store.free < need:
        return Reason(
            "store-full",
            f"memory is full, and so is spool store {store.name}: {store.held} of {store.limit} bytes are held",
            Limit("bytes", store.limit, store.held, store.leased, store.rule),
            store.rule,
            f"settle what was spooled, or raise the limit of store {store.name}",
            settle=need - store.free,
            raise_to=store.held + store.leased + need,
        )
    if references.free is not None and references.free < REFERENCE_BYTES:
        return Reason(
            "store-full",
            f"memory is full, and so is the limit of references to spooled messages: they take {references.pending} of "
            f"{references.limit} bytes",
            references,
            references.rule,
            f"settle what was spooled, or raise limit_references: each message in store {store.name} takes up to "
            f"{REFERENCE_BYTES} bytes",
        )
    room = "" if store.free is None else f", which has {store.free} bytes left"
    which = f" that are {store.takes}" if store.takes else ""
    return Reason("spooling", f"memory is full: payloads{which} go to spool store {store.name}{room}")

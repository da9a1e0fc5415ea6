"""A link reads messages with their payloads at a source that spools, no more of them than was asked for."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from headgate.core.links.calls import Entry
from headgate.core.segment import is_reference, payload_size
from headgate.redis.keys import Address
from headgate.spool import Spooling
from headgate.spool.reader import UnreadablePayload

_log = logging.getLogger("headgate")


class SpooledReads:
    """`SpooledReads` reads for the links of one client."""

    def __init__(self, spooling: Spooling) -> None:
        self._spooling = spooling

    async def whole(self, address: Address, entries: Sequence[Entry], size: int) -> tuple[Entry, ...]:
        """Return the first of the entries, each with its payload, or as a stub where that is lost.

        Args:
            address: the source.
            entries: as it has them, which counted the bytes of references.
            size: most bytes of payloads; a larger one comes alone. The rest is read again.

        Raises:
            SpoolUnavailable: the storage does not answer.
            CoordinatorUnavailable: Redis does not.
        """
        found: list[Entry] = []
        total = 0
        for entry in entries:
            total += payload_size(entry.body)
            if found and total > size:
                break
            found.append(await self._entry(address, entry) if is_reference(entry.body) else entry)
        return tuple(found)

    async def _entry(self, address: Address, entry: Entry) -> Entry:
        self._spooling.sweeper.watch(address)
        payload = await self._spooling.reader.read(address, entry.body)
        if not isinstance(payload, UnreadablePayload):
            return replace(entry, body=payload)
        _log.warning("message %d of %r cannot be forwarded: %s", entry.seq, address.name, payload.trouble)
        return replace(entry, body=payload.stub, lost=payload.trouble)

"""Payloads of spooled messages in a node's answers to an SDK, which does not reach their store.

An answer with references waits for their payloads beside all other calls of its connection. An error
stands in the place of one that cannot be read; a client asks again for one that takes too long, and it is here by then.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.core.segment import Reference, is_reference, payload_size
from headgate.errors import CoordinatorUnavailable, SpoolUnavailable
from headgate.redis.keys import Address, parse_key
from headgate.spool import Spooling
from headgate.spool.reader import UnreadablePayload
from headgate_coordinator.node.gateway.required_grants import text_of

WITHIN: Final = 2.0
"""Seconds for the payloads of one answer; clients wait a little longer for it."""
LOOK: Final = 4 << 20
"""Bytes of payloads in the answer to a look at what is stored; its client asks for the others one by one."""


@dataclass(frozen=True, slots=True)
class PayloadReferences:
    """`PayloadReferences` lists where in an answer references stand for payloads.

    Attributes:
        address: the destination.
        places: list and index of each.
        look: whether they are to be looked at only, and not to be delivered.
    """

    address: Address
    places: list[tuple[list[Any], int]]
    look: bool


class PayloadReader:
    """A payload reader reads spooled payloads for the clients of one connection."""

    def __init__(self, spooling: Spooling) -> None:
        self._spooling = spooling
        self._under_way: set[asyncio.Task[None]] = set()

    @staticmethod
    def wanted(what: Any, words: Sequence[Any], answer: Any) -> PayloadReferences | None:
        """Return the references in the answer to a call; None where there are none."""
        key: Any = ""
        places: list[tuple[list[Any], int]] = []
        if what == "call" and words[0] == "settle" and len(answer) > 3:
            key, bodies = words[1], answer[3]
            places = [(bodies, at) for at in range(1, len(bodies), 2) if is_reference(bodies[at])]
        elif what == "command" and text_of(words[1][0]).upper() == "XRANGE":
            key = words[0]
            places = [(fields, 1) for _, fields in answer if is_reference(fields[1])]
        parsed = parse_key(text_of(key).partition("}")[0] + "}") if places else None
        return PayloadReferences(Address.of(*parsed), places, look=what == "command") if parsed else None

    async def fill(self, wanted: PayloadReferences) -> None:
        """Put payloads in the place of references.

        Raises:
            CoordinatorUnavailable: the store does not answer in time; the call may be repeated.
        """
        task = asyncio.create_task(self._fill(wanted), name=f"headgate payloads of {wanted.address.name}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait([task], timeout=WITHIN)
        if not task.done():  # it goes on: what it has read is here when it is asked for again
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise CoordinatorUnavailable(f"messages of {wanted.address.name!r} wait for payloads in a spool store")
        task.result()

    async def _fill(self, wanted: PayloadReferences) -> None:
        self._spooling.sweeper.watch(wanted.address)
        total, silent = 0, None
        for at, (holder, index) in enumerate(wanted.places):
            stored: bytes = holder[index]
            total += payload_size(stored)
            if wanted.look and at and total > LOOK:
                return
            payload = silent or await self._read(wanted, stored)
            if isinstance(payload, UnreadablePayload):
                silent = payload if wanted.look and payload.for_now else None
                payload = payload.noted_in(Reference.parse(stored))
            holder[index] = payload

    async def _read(self, wanted: PayloadReferences, stored: bytes) -> bytes | UnreadablePayload:
        try:
            return await self._spooling.reader.read(wanted.address, stored)
        except SpoolUnavailable as error:
            if wanted.look:
                return UnreadablePayload(Reference.parse(stored).segment, f"for now: {error}", for_now=True)
            raise CoordinatorUnavailable(f"messages of {wanted.address.name!r} wait: {error}") from None

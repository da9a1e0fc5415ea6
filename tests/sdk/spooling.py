"""A queue that spools to a storage with faults, and what a test looks at of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import headgate
from headgate.redis.keys import Address
from headgate.spool import Spooling
from headgate.spool.stores import Spool
from tests.sdk.observing import GUARD
from tests.support.faultyfs import FaultyStorage
from tests.support.waiting import wait_until


@dataclass
class Depot:
    """One client's queue ``orders`` with the store ``disk``."""

    client: headgate.Client
    storage: FaultyStorage

    async def make(
        self, limit: int | str = "16KiB", *, kind: str = "queue", store: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        fields: dict[str, Any] = {"limit": "10MB", "segment": "4KiB"}
        await self.client.set_store("disk", self.storage.url, **fields | (store or {}))
        await self.client.apply("orders", kind=kind, limit=limit, when_full="spool", store="disk", **settings)

    @property
    def spooling(self) -> Spooling:
        return self.client.parts.registry.spooling

    async def spool(self) -> Spool:
        return await self.spooling.spools.get("disk")

    async def usage(self) -> tuple[int, int]:
        """Return what memory and what the store has pending, recounted and found right, the credit of sessions too."""
        found = []
        for address in (Address.of(self.client.namespace, "orders"), Address.of_store(self.client.namespace, "disk")):
            count = await self.client.store.recount(address)
            assert count.equal, count
            found.append(count.stored[0])
        return found[0], found[1]

    async def spooled(self) -> int:
        """Return how many messages the stream has as references."""
        entries = await self.client.store.browse(Address.of(self.client.namespace, "orders"), after=None, count=100_000)
        return sum(stored[:1] == b"\xc1" for _, stored, *_ in entries)

    async def empty(self) -> None:
        """Wait until nothing is left: no message, no segment, no object, no room that is taken."""

        address = Address.of(self.client.namespace, "orders")

        async def nothing() -> bool:
            segments = await self.spooling.spools.calls.segments(address)
            return not segments and await self.usage() == (0, 0) and not self.storage.objects()

        self.spooling.sweeper.hurry()
        await wait_until(nothing, timeout=GUARD, description="nothing is left in memory, store and storage")

    async def no_credit_left(self) -> None:
        """Wait until no session has credit at the store or the queue."""

        async def none() -> bool:
            addresses = Address.of(self.client.namespace, "orders"), Address.of_store(self.client.namespace, "disk")
            counts = [await self.client.store.recount(address) for address in addresses]
            return all(count.equal and count.stored[2] == 0 for count in counts)

        await wait_until(none, timeout=GUARD, description="no credit is held")


def body(number: int, size: int = 1000) -> bytes:
    return b"%06d" % number + b"x" * (size - 6)


def number_of(message: headgate.Message) -> int:
    return int(message.body[:6])


async def sent(producer: headgate.Producer, count: int, *, first: int = 0, size: int = 1000) -> None:
    """Send so many at once, and wait for all receipts."""
    async with asyncio.timeout(GUARD):
        await asyncio.gather(*(producer.send(body(first + n, size), timeout=600) for n in range(count)))


async def received(consumer: headgate.Consumer, count: int) -> list[int]:
    """Receive and accept so many, and return their numbers."""
    numbers = []
    async with asyncio.timeout(GUARD):
        for _ in range(count):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            numbers.append(number_of(message))
            await message.accept()
        await consumer.flush()
    return numbers

"""Messages of a queue may go to its slices by values: here is where one belongs, and the steps of a change of that."""

from dataclasses import dataclass

from headgate.core.names import slice_name
from headgate.namespace.registry import Registry
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import SpreadStore


@dataclass(frozen=True, slots=True)
class Place:
    """A place is where a message belongs as long as its queue is spread as it is.

    Attributes:
        at: the destination, or the slice of it.
        number: of that spread; 0 where none is in force, and all goes to the first slice.
    """

    at: Address
    number: int = 0


class Spreads:
    """`Spreads` knows how queues are spread over their slices, for who has something to send.

    Args:
        registry: knows which slices there are.
        store: reads and changes how queues are spread.
    """

    def __init__(self, registry: Registry, store: SpreadStore) -> None:
        self._registry, self._store = registry, store

    async def place(self, whole: Address, stored: bytes, producer: str) -> Place | None:
        """Return where a message belongs; None while that is about to change, after a step of it.

        Args:
            whole: where it is to go.
            stored: the message.
            producer: with which it goes where it has no value.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        now, to = await self._store.in_force(whole)
        if to:
            await self._registry.refresh(whole)
            await self.change(whole, to)
            now, to = await self._store.in_force(whole)
        if to:
            return None
        if now is None:
            return Place(whole)
        await self._registry.refresh(whole)
        number = now.slice_of_stored(stored, producer)
        return Place(Address.of(whole.namespace, slice_name(whole.name, number)), now.number)

    async def is_in_force(self, place: Place) -> bool:
        """Return whether a queue is spread as it was when it was found where a message belongs.

        Credit that came before counts for this place alone: no change is in force while somebody has some.
        """
        now, to = await self._store.in_force(place.at.whole)
        return not to and (now.number if now else 0) == place.number

    def others(self, place: Place) -> list[Address]:
        """Return the slices of the same queue where a message may have gone as it was spread in another way."""
        return [part for part in self._registry.slices(place.at.whole) if place.number and part != place.at]

    async def change(self, whole: Address, to: str) -> int:
        """Take the steps of a change, as far as they can be taken now; returns how much is to be settled first."""
        parts = self._registry.slices(whole)
        left = 0
        for part in parts[1:]:
            code, busy = await self._store.step(part, to, "hold")
            left += busy if code in ("OK", "UNKNOWN") else 1
        if left == 0:
            code, left = await self._store.step(whole, to, "change")
            if code == "OK" and left == 0:
                for part in parts[1:]:
                    await self._store.step(part, to, "go")
        return left

    async def release(self, part: Address) -> bool:
        """Let a slice go on that was held for a change which is over; returns whether it was.

        A process that put it in force may have died before. The first slice alone says what is to come.
        """
        number = await self._store.held(part)
        if not number or (await self._store.in_force(part.whole))[1]:
            return False
        await self._store.step(part, f"{number} ", "go")
        return True

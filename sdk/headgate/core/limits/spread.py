"""A queue with slices may keep the order of a header's values: each value says which slice its messages go to."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limits.fairness import fair_key
from headgate.core.outbox import Outgoing

UNPLACED: Final = "its messages are about to go to other slices"
"""Why nobody sends to a queue meanwhile, for people."""
SPREAD: Final = ("spread", "spread_to", "spreading")
"""Fields of the state: what is in force, what is to come, and, at each slice, that nobody sends meanwhile."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A spread says which slice each message goes to.

    Attributes:
        number: which spread of the queue it is; a later one has a higher number.
        slices: over which the values are spread.
        by: what a value is, as ``order_by`` says; ``-`` for the producer.
    """

    number: int
    slices: int
    by: str

    @classmethod
    def read(cls, text: str) -> "Spread | None":
        """Return the spread that a field says; None where it says none, or only a later version can read it.

        >>> Spread.read("3 6 header:customer")
        Spread(number=3, slices=6, by='header:customer')
        """
        number, _, rest = text.partition(" ")
        slices, _, by = rest.partition(" ")
        return cls(int(number), int(slices), by) if number.isdigit() and slices.isdigit() and by else None

    def slice_of(self, item: Outgoing, producer: str) -> int:
        """Return the number of the slice of a message; one without a value goes with all else of its producer.

        Args:
            item: the message.
            producer: the session that sends it; where it says whose it is among several, that counts too.
        """
        return self.slice_of_stored(item.payload, f"{producer} {item.producer}")

    def slice_of_stored(self, stored: bytes, producer: str) -> int:
        """Return the same of a message as it is stored, or to be; ``producer`` says with which others it goes."""
        value = NO_KEY if self.by == "-" else fair_key(stored, self.by)
        if value == NO_KEY:
            value = f"{NO_KEY} {producer}"
        return zlib.crc32(value.encode()) % self.slices


def is_spread(fields: Mapping[str, str]) -> bool:
    """Return whether values say which slice a message goes to, or did, or are to; of a queue or a slice of it."""
    return "slices_pool" in fields and any(fields.get(name) for name in ("order_by", *SPREAD))

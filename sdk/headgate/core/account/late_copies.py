"""A copy of a call may come late: then no other batch may have the number of what it stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

COME_WITHIN: Final = 5.0
"""Seconds after which no copy of a call comes any more: a node is asked again over another connection, and whoever
carries a call out has given it up by then."""
STORED_LATER: Final = frozenset({"OK", "STOPPED", "ABOVE", "OVERUSE"})
"""Answers to a batch of which nothing was stored, and of which a late copy of the call may."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A batch was tried under the number that comes next, and a copy of its call may store it yet.

    Redis knows batches by their numbers alone, and takes another one with that number for this one. No copy is good
    any more once the account has a higher incarnation.

    Attributes:
        items: of the batch.
        inc: incarnation of the account whose call it was.
        segment: that it refers to.
    """

    items: Sequence[Any]
    inc: int
    segment: str = ""

    def begins(self, items: Sequence[object], segment: str) -> bool:
        """Return whether a batch begins with all of this one, so that it may have its number."""
        same = all(one is other for one, other in zip(self.items, items, strict=False))
        return same and len(self.items) <= len(items) and not (self.segment or segment)

"""A spread credit has only what came before the last look at how its queue is spread."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from headgate.core.credit import CreditLine


def _nothing() -> None:
    pass


@dataclass(slots=True)
class SpreadCredit(CreditLine):
    """A spread credit is taken only where it came before the last look at how the queue is spread.

    That changes only when nobody has credit at any slice, so whoever always has some need not look again. A session
    that had none may be granted some after a change.

    Attributes:
        sure: whether what is in hand may be taken.
        doubts: how often something came to one who had nothing.
        doubted: called then.
        seen: of the slice before the last look, for what costs no credit: ``<epoch>-<spreads>``; empty before a look.
    """

    sure: bool = False
    doubts: int = 0
    doubted: Callable[[], None] = _nothing
    seen: str = ""

    @classmethod
    def after(cls, line: CreditLine) -> "SpreadCredit":
        """Return the credit of an account that goes on for another, with its totals."""
        return cls(*(getattr(line, one.name) for one in fields(CreditLine)))

    def is_unsure(self, size: int) -> bool:
        """Return whether credit for a message of ``size`` bytes is in hand, and is not certain yet."""
        return not self.sure and self.in_hand >= size and self.in_hand_m > 0

    def may_refer(self) -> bool:
        """Return whether messages may go that cost no credit; before somebody looked, have it looked."""
        if not self.seen:
            self.doubted()
        return bool(self.seen)

    def take(self, size: int) -> bool:
        """Take credit for one message of ``size`` bytes if it is in hand, and certain."""
        return self.sure and CreditLine.take(self, size)

    def take_all(self, size: int, messages: int) -> bool:
        """Take credit for that many messages, of ``size`` bytes together, if it is in hand for all, and certain."""
        return self.sure and CreditLine.take_all(self, size, messages)

    def raise_to(self, granted: int, granted_m: int) -> bool:
        """Apply granted totals; what comes to one that has nothing is to be seen."""
        had_none = self.granted_m <= self.spent_m
        more = CreditLine.raise_to(self, granted, granted_m)
        if had_none and self.granted_m > self.spent_m:
            self.doubt()
        return more

    def doubt(self) -> None:
        """Take nothing before somebody looked."""
        self.sure = False
        self.doubts += 1
        self.doubted()

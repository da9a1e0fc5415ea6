"""A rate store makes the calls by which slices of a destination share its rates."""

from dataclasses import dataclass
from typing import Final, Literal

from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import script

Kind = Literal["send", "send_byte", "delivery"]
KINDS: Final[tuple[Kind, ...]] = ("send", "send_byte")
"""Rates of senders that are shared: of messages, and of bytes."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A sender is a session, or a link, in the line of a rate with its weight; or it stands there for consumers."""

    id: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Hand:
    """A hand is what a slice has of a rate, in totals, and what a sender may send of it; see ``lua/rate_take.lua``."""

    code: str
    home: int = 0
    epoch: int = 0
    granted: int = 0
    spent: int = 0
    back: int = 0
    own: int = 0

    @property
    def left(self) -> int:
        """All that is in hand, whoever it is for."""
        return self.granted - self.spent - self.back


@dataclass(frozen=True, slots=True)
class Loan:
    """A loan is the answer of the first slice, which lends a rate, to a sender ``lent``; see ``lua/rate_lend.lua``."""

    code: str
    home: int = 0
    granted: int = 0
    again_ms: int = 0
    slices: tuple[int, ...] = ()
    lent: int = 0


class RateStore:
    """A rate store lends what a rate allows to slices, and has them take it in hand."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def take(
        self, part: Address, kind: Kind, *, home: int = 0, epoch: int = 0, granted: int = 0, back: bool = False,
        sender: Sender | None = None, lent: int = 0,
    ) -> Hand:  # fmt: skip
        """Tell a slice what it was lent, ``lent`` of it for a sender, or only look.

        ``back`` has it give back what it keeps in hand.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        op = script("rate_take")
        values = {"kind": kind, "home": home, "epoch": epoch, "granted": granted, "mode": "back" if back else "keep"}
        behind = () if sender is None else (sender.id, lent)
        code, *totals = await self.server.call(op, part.keys("-"), op.argv({"run_id": None, **values}, behind))
        return Hand(code.decode(), *map(int, totals))

    async def lend(
        self, whole: Address, kind: Kind, number: int, hand: Hand, need: int = 0, want: int = 0, *,
        sender: Sender | None = None, part: int = 0,
    ) -> Loan:  # fmt: skip
        """Tell the first slice what another one has in hand, and what those that wait there need.

        A sender that is named stands in line for it, and takes ``part`` at once while others wait.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        op = script("rate_lend")
        totals = {name: getattr(hand, name) for name in ("home", "epoch", "granted", "spent", "back")}
        values = {"kind": kind, "slice": number, **totals, "need": need, "want": want}
        behind = () if sender is None else (sender.id, sender.weight, part)
        code, *numbers = await self.server.call(op, whole.keys("-"), op.argv({"run_id": None, **values}, behind))
        home, granted, again_ms, *more = map(int, numbers) if numbers else (0, 0, 0)
        if code == b"OK":
            return Loan("OK", home, granted, again_ms, lent=sum(more))
        return Loan(code.decode(), home, granted, again_ms, tuple(more))

"""A session's credit at one destination is arithmetic on cumulative totals, and a lease says how long it is good.

``granted`` is what Redis granted so far, ``spent`` what was taken from it here: used for a message, or given back. Both
only grow, but for what is put back unused. Credit in hand is their difference, so taking it costs no round trip, and an
answer that arrives late or twice cannot add credit: only a higher total counts.

A session holds all that it has, credit as well as deliveries, by a lease. The server starts to doubt a session 0.6 TTL
after its last call and reclaims it 0.3 TTL later (lua/lib/session.lua). The client renews every quarter, and stops to
use what it holds at 0.8 TTL, counted from before the call that renewed it.
"""

import math
from dataclasses import dataclass, field
from typing import Final

MESSAGES_PER_WINDOW_BYTE: Final = 1 / 64
"""How many messages a window of bytes asks for: enough that only a limit in messages ever binds on them."""
PERMITS_PER_WINDOW_BYTE: Final = 1.0
"""The same for a gate, whose permits may be of one byte each: one for every unit of what they count."""
RENEW_EVERY: Final = 0.25
USE_UNTIL: Final = 0.8


@dataclass(slots=True)
class CreditLine:
    """A credit line counts the bytes and messages (``_m``) of credit of one incarnation of an account.

    Attributes:
        inc: incarnation; raised when Redis no longer knows the account, and all totals start anew.
        epoch: of the destination, as last seen.
        used: published, as Redis confirmed.
        returned: given back.
        frozen: nothing may be taken, although it is there: its lease may be over.
        uses: how often something was taken by a gate; only whether it changes matters.
        most: the limit of a gate; more is lent for one call alone, which is above it.
        lent: whether more than that came, and nobody has looked yet for whom; nothing is for those who do not wait.
    """

    inc: int = 1
    epoch: int = 0
    granted: int = 0
    granted_m: int = 0
    spent: int = 0
    spent_m: int = 0
    used: int = 0
    used_m: int = 0
    returned: int = 0
    returned_m: int = 0
    frozen: bool = False
    uses: int = 0
    most: float = math.inf
    lent: bool = False

    @property
    def in_hand(self) -> int:
        """Bytes that may be taken now."""
        return self.granted - self.spent

    @property
    def in_hand_m(self) -> int:
        """Messages that may be taken now."""
        return self.granted_m - self.spent_m

    @property
    def held(self) -> int:
        """Bytes granted and neither published nor given back."""
        return self.granted - self.used - self.returned

    @property
    def held_m(self) -> int:
        """Messages granted and neither published nor given back."""
        return self.granted_m - self.used_m - self.returned_m

    @property
    def taken_m(self) -> int:
        """Messages, or permits of a gate, that credit was taken for, and that are neither put back nor given back."""
        return self.spent_m - self.returned_m

    def is_unsure(self, size: int) -> bool:  # noqa: ARG002 - as a credit that is certain only after a look
        """Return whether credit for a message of ``size`` bytes is in hand, and is not certain yet."""
        return False

    def may_refer(self) -> bool:
        """Return whether messages may go that cost no credit."""
        return True

    def take(self, size: int) -> bool:
        """Take credit for one message of ``size`` bytes if it is in hand."""
        spent = self.spent + size
        if spent > self.granted or self.spent_m >= self.granted_m or self.frozen:
            return False
        self.spent = spent
        self.spent_m += 1
        return True

    def take_all(self, size: int, messages: int) -> bool:
        """Take credit for that many messages, of ``size`` bytes together, if it is in hand for all."""
        spent, spent_m = self.spent + size, self.spent_m + messages
        if spent > self.granted or spent_m > self.granted_m or self.frozen:
            return False
        self.spent, self.spent_m = spent, spent_m
        return True

    def overdraw(self, size: int, messages: int = 1) -> None:
        """Take credit for messages whether it is in hand or not: what lacks is granted as they are published."""
        self.spent += size
        self.spent_m += messages

    def put_back(self, size: int) -> None:
        """Put back what :meth:`take` or :meth:`overdraw` took and nothing used."""
        self.spent -= size
        self.spent_m -= 1

    def publish(self, size: int, messages: int) -> None:
        """Note that Redis turned credit that was taken into stored messages."""
        self.used += size
        self.used_m += messages

    def raise_to(self, granted: int, granted_m: int) -> bool:
        """Apply granted totals; returns whether there is more than before."""
        more = granted > self.granted or granted_m > self.granted_m
        self.granted = max(self.granted, granted)
        self.granted_m = max(self.granted_m, granted_m)
        self.lent = self.granted - self.used - self.returned > self.most
        return more

    def give_back(self, size: int, messages: int) -> None:
        """Decide to return credit that is in hand; the totals say so at the next call."""
        size, messages = max(0, min(size, self.in_hand)), max(0, min(messages, self.in_hand_m))
        self.returned += size
        self.returned_m += messages
        self.spent += size
        self.spent_m += messages

    def is_lent_to_another(self, size: int) -> bool:
        """Return whether what is in hand was lent for one call above the limit, and not for this."""
        return self.held > self.most and (size <= self.most or self.held > self.in_hand)

    def keep_within(self) -> bool:
        """Give back what was lent for one call above the limit, which gave up; returns whether there was any."""
        spare = self.in_hand if self.held > self.most else 0
        CreditLine.give_back(self, spare, 0)
        self.lent = False
        return spare > 0

    def retire(self) -> bool:
        """Give back all that is in hand, unless some is in use: taken, and neither published nor put back."""
        if self.spent - self.returned > self.used:
            return False
        CreditLine.give_back(self, self.in_hand, self.in_hand_m)
        return True

    def start_anew(self) -> None:
        """Forget everything: Redis reclaimed or closed the account, the next one is empty."""
        self.inc += 1
        self.granted = self.granted_m = self.spent = self.spent_m = 0
        self.used = self.used_m = self.returned = self.returned_m = 0


@dataclass(slots=True)
class Lease:
    """A lease is good for ``ttl`` seconds on the caller's monotonic clock."""

    ttl: float
    renew_at: float = 0.0
    use_until: float = 0.0

    ttl_ms: int = field(init=False)
    """The length that the server is given."""

    def __post_init__(self) -> None:
        self.ttl_ms = int(self.ttl * 1000)

    def renewed(self, asked_at: float) -> None:
        """Note a successful call; ``asked_at`` is when it was sent, not when it was answered."""
        self.renew_at = asked_at + self.ttl * RENEW_EVERY
        self.use_until = asked_at + self.ttl * USE_UNTIL

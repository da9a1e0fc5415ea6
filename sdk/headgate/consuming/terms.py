"""Terms of a consumer, and its openers' calls."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headgate.core.durability import MEMORY, Durability
from headgate.core.names import encode_name
from headgate.core.selector.messages import Matcher
from headgate.core.selector.wanted import AS_IT_IS
from headgate.core.window import Window
from headgate.credit.calls import Ensure
from headgate.errors import HeadgateError, PolicyError, SubscriptionInUse
from headgate.redis.keys import Address


def refusal(code: str, kind: str, destination: str, subscription: str) -> HeadgateError | None:
    """Return why a consumer is not to be, by the code of the script ``attach``; None where it may be yet."""
    if code == "KIND":
        return PolicyError(f"{destination!r} is a {kind} and holds no messages to consume")
    return SubscriptionInUse(destination, subscription) if code == "SELECTOR" else None


@dataclass(frozen=True, slots=True)
class ConsumerTerms:
    """A consumer has terms: of which subscription it receives, under what window, and how safely it settles.

    Attributes:
        subscription: its name; ``queue`` for a queue.
        durable: whether the subscription stays when its last consumer goes.
        window: what it may hold.
        selects: says of a stored message whether it is for this consumer; None where all are.
        insists: the durability that its settlements have at least.
        wants: what its subscription is to want of a topic's messages, as the script ``attach`` takes it.
    """

    subscription: str
    durable: bool
    window: Window
    selects: Matcher | None = None
    insists: Durability = MEMORY
    wants: str = AS_IT_IS

    @property
    def encoded_subscription(self) -> str:
        """The subscription's name as keys have it."""
        return encode_name(self.subscription, "subscription")


@dataclass(frozen=True, slots=True)
class FeedOwner:
    """A feed has an owner, which numbers it, makes destinations exist, and hears when it is closed.

    Attributes:
        number: returns a number that no other consumer of the session has at the destination.
        ensure: makes the destination exist.
        ensure_at: the same for others, for dead letters.
        closed: called with a feed that is closed.
    """

    number: Callable[[], int]
    ensure: Ensure
    ensure_at: Callable[[Address], Ensure]
    closed: Callable[[Any], Awaitable[None]]

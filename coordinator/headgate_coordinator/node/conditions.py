"""Names our errors as AMQP does."""

from typing import Final

from headgate.amqp import link as amqp
from headgate.errors import (
    AccessDenied,
    CoordinatorUnavailable,
    DestinationFull,
    HeadgateError,
    InvalidName,
    InvalidValue,
    MessageFormatError,
    MessageTooLarge,
    NotDurable,
    PolicyError,
    SubscriptionInUse,
    TooManySubscriptions,
)
from headgate_coordinator.node.addresses import NoService
from headgate_coordinator.security.creation_quota import TooManyDestinations

NOT_DURABLE: Final = "headgate:not-durable"
"""Of a message that is stored, and must not be sent again."""


class LinkQueueGone(HeadgateError):
    """A queue was made for one link, and went with it."""


class TooManyTopics(HeadgateError):
    """Patterns of one connection match more topics than it may be on."""


class TooManyQueues(HeadgateError):
    """A connection has as many queues for single links as it may."""


def condition_of(error: BaseException) -> tuple[str, str]:
    """Return the AMQP error that says the same, and its text."""
    if isinstance(error, AccessDenied):
        return amqp.UNAUTHORIZED, str(error)
    if isinstance(error, NoService):
        return error.condition, str(error)
    if isinstance(error, LinkQueueGone):
        return amqp.NOT_FOUND, str(error)
    if isinstance(error, MessageTooLarge):
        return amqp.TOO_LARGE, str(error)
    if isinstance(error, NotDurable):
        return NOT_DURABLE, str(error)
    if isinstance(error, DestinationFull | TooManySubscriptions | TooManyTopics | TooManyQueues | TooManyDestinations):
        return amqp.RESOURCE_LIMIT, str(error)
    if isinstance(error, PolicyError | SubscriptionInUse):
        return amqp.NOT_ALLOWED, str(error)
    if isinstance(error, MessageFormatError):
        return amqp.DECODE_ERROR, str(error)
    if isinstance(error, InvalidName | InvalidValue):
        return amqp.INVALID_FIELD, str(error)
    if isinstance(error, CoordinatorUnavailable):
        return amqp.INTERNAL_ERROR, f"the node cannot reach its Redis: {error}"
    if isinstance(error, HeadgateError):
        return amqp.INTERNAL_ERROR, str(error)
    return amqp.INTERNAL_ERROR, f"the node failed: {type(error).__name__}"

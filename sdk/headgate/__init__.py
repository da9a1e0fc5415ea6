"""Flow control for messages over a whole cluster: credits, byte budgets and rates, held in Redis.

``async with headgate.connect(url) as client`` is where everything begins; :mod:`headgate.sync` is the same for threads.
"""

from headgate.client import Client, connect
from headgate.consuming.browse import Browsed
from headgate.consuming.consumer import Consumer
from headgate.core.policy import Policy
from headgate.core.window import Window
from headgate.credit.notices import Blocked, Unblocked
from headgate.errors import (
    AccessDenied,
    Closed,
    CoordinatorUnavailable,
    CreditTimeout,
    DeadlockDetected,
    DestinationDamaged,
    DestinationFull,
    HeadgateError,
    InvalidName,
    InvalidValue,
    MessageFormatError,
    MessageTooLarge,
    MessageUnavailable,
    NotDurable,
    PolicyConflict,
    PolicyError,
    SessionExpired,
    Shed,
    SlowConsumer,
    SpoolUnavailable,
    SubscriptionInUse,
    TooManySubscriptions,
    UnknownDestination,
)
from headgate.explain.levels import LimiterState, LimitState, ShadowState
from headgate.explain.model import Explanation
from headgate.limiting.bucket import Bucket
from headgate.limiting.gate import Gate, Permit
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.message import Message, Receipt
from headgate.namespace.deadlocks import FoundDeadlock
from headgate.namespace.losses import StateLoss
from headgate.namespace.pool_limits import PoolState
from headgate.namespace.pool_sites import PoolPart, SitePart
from headgate.producing.producer import Producer
from headgate.session.session import Session
from headgate.settings import Settings
from headgate.spool.states import StoreState

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Blocked",
    "Browsed",
    "Bucket",
    "Client",
    "Closed",
    "Consumer",
    "CoordinatorUnavailable",
    "CreditTimeout",
    "DeadlockDetected",
    "DestinationDamaged",
    "DestinationFull",
    "Explanation",
    "FoundDeadlock",
    "Gate",
    "HeadgateError",
    "Hold",
    "InvalidName",
    "InvalidValue",
    "LimitState",
    "Limiter",
    "LimiterState",
    "Message",
    "MessageFormatError",
    "MessageTooLarge",
    "MessageUnavailable",
    "NotDurable",
    "Permit",
    "Policy",
    "PolicyConflict",
    "PolicyError",
    "PoolPart",
    "PoolState",
    "Producer",
    "Receipt",
    "Refused",
    "Session",
    "SessionExpired",
    "Settings",
    "ShadowState",
    "Shed",
    "SitePart",
    "SlowConsumer",
    "SpoolUnavailable",
    "StateLoss",
    "StoreState",
    "SubscriptionInUse",
    "TooManySubscriptions",
    "Unblocked",
    "UnknownDestination",
    "Window",
    "connect",
]

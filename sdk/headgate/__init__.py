"""Flow control for messages over a whole cluster: credits, byte budgets and rates, held in Redis.

``async with headgate.connect(url) as client`` is where everything begins; :mod:`headgate.sync` is the same for threads.
"""

from headgate.blocked import Blocked, Unblocked
from headgate.browse import Browsed
from headgate.bucket import Bucket
from headgate.client import Client, connect
from headgate.consumer import Consumer
from headgate.core.policy import Policy
from headgate.core.window import Window
from headgate.deadlocks import FoundDeadlock
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
    PolicyConflict,
    PolicyError,
    SessionExpired,
    SlowConsumer,
    SpoolUnavailable,
)
from headgate.explanation import Explanation
from headgate.gate import Gate, Permit
from headgate.losses import StateLoss
from headgate.message import Message, Receipt
from headgate.pool_limits import PoolState
from headgate.producer import Producer
from headgate.session import Session
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
    "InvalidName",
    "InvalidValue",
    "Message",
    "MessageFormatError",
    "MessageTooLarge",
    "Permit",
    "Policy",
    "PolicyConflict",
    "PolicyError",
    "PoolState",
    "Producer",
    "Receipt",
    "Session",
    "SessionExpired",
    "Settings",
    "SlowConsumer",
    "SpoolUnavailable",
    "StateLoss",
    "StoreState",
    "Unblocked",
    "Window",
    "connect",
]

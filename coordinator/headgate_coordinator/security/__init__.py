"""Users of a node and their rights; and the users of Redis itself that Headgate's parts need."""

from headgate_coordinator.security.grants import EVERYTHING, Action, Grant, Identity
from headgate_coordinator.security.users import Users

__all__ = ["EVERYTHING", "Action", "Grant", "Identity", "Users"]

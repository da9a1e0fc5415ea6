"""A node has users with rights; and Redis itself has users, one for each part of Headgate that needs one."""

from headgate_coordinator.security.grants import EVERYTHING, Action, Grant, Identity
from headgate_coordinator.security.users import Users

__all__ = ["EVERYTHING", "Action", "Grant", "Identity", "Users"]

"""Access decides what the client of one connection may do.

Every gate of a node asks here, at each action, and nowhere else.

There are six: a link when it begins, and again whenever users change; a relay for each message; the gateway for each
call; the gateway for each channel that is listened to; the HTTP of limits, and admin HTTP, for each request. A name is
asked for as Redis knows it: without the options of an address, and without its spelling in a key.
"""

from typing import Final

from headgate.core.limits.user_limit import PREFIX
from headgate.core.names import whole_name
from headgate.redis.keys import session_prefix
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.security.grants import EVERYTHING, Action, Grant, Identity

REPLY_QUEUES: Final = 64
"""Reply queues that one connection may have at a time."""
_BOUND: Final = "amqp~"
"""How subscriptions begin that belong to AMQP clients of one user; what sessions begin with of this user follows."""


class Access:
    """The permissions of one connection, by the users as they are now.

    Attributes:
        identity: the user that the client logged in as, once it has.
        replies: the reply queues that were made for its links.
        dead_letters: where dead letters go of what its consumers receive -> the names of what they receive from.
    """

    __slots__ = ("dead_letters", "identity", "replies")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.replies: dict[str, None] = {}
        self.dead_letters: dict[str, list[str]] = {}

    @property
    def user(self) -> str:
        """The name of the client's user."""
        return self.identity.name if self.identity is not None else "nobody"

    @property
    def manages_all(self) -> bool:
        """Whether the client may change what concerns the whole namespace: a grant of ``manage`` says ``#``."""
        return self.identity is not None and self.identity.may(Action.MANAGE, EVERYTHING)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The client's grants as they are now; without any it is shown no lists."""
        return self.identity.grants if self.identity is not None else ()

    def may(self, action: Action, name: str) -> bool:
        """Return whether the client may do something at a destination, or at all that a pattern matches.

        No grant is for reply queues: anyone who knows the name of one may send there, and the connection that it was
        made for may receive from it. Everything else there takes the right to manage the namespace. A receiver from a
        destination may send its dead letters to where its settings say.
        """
        identity, name = self.identity, whole_name(name)
        if identity is None:
            return False
        if is_reply_queue(name):
            if action is Action.PRODUCE:
                return identity.valid
            return (action is Action.CONSUME and name in self.replies) or self.manages_all
        if name.startswith(PREFIX) and not self.manages_all:
            return False  # quotas of users, which are asked for them by nodes
        if identity.may(action, name):
            return True
        sources = self.dead_letters.get(name, ()) if action is Action.PRODUCE else ()
        return any(identity.may(Action.CONSUME, source) for source in sources)

    def owns(self, subscription: str) -> bool:
        """Return whether a subscription's name is not one that is kept for the AMQP clients of another user."""
        mine = f"{_BOUND}{session_prefix(self.user)}"
        return not subscription.startswith(_BOUND) or subscription.startswith(mine) or self.manages_all

    def subscription(self, container: str, link: str, *, users: bool) -> str:
        """Return the name of a subscription of one link of one container, and of one user where there are any.

        No two links, containers or users have the same: where a part has the separator, that is escaped.
        """
        own, of_link = (part.replace("%", "%25").replace(".", "%2E") for part in (container, link))
        return f"{_BOUND}{session_prefix(self.user)}{own}.{of_link}" if users else f"{own}.{of_link}"

    def refusal(self, action: Action, name: str) -> str:
        """Return the error for a client that may not do something."""
        return f"user {self.user!r} may not {action.value} at {name!r}; ask an operator for a grant"

"""Events of a connection, as its handler gets them."""

from typing import Any, Protocol

from headgate.amqp.link import Fate, Link

Incoming = tuple[bytes, Any]
"""A message as it came, and its delivery to be settled; None where its sender settled it."""


class Handler(Protocol):
    """A handler hears the events of a connection. None of its methods may call ``Engine.receive``."""

    def opened(self) -> None:
        """Note that the peer opened the connection; ``Engine.open`` answers it, unless that was first."""

    def attached(self, link: Link) -> None:
        """Note a link that the peer began: :meth:`Link.accept` or :meth:`Link.refuse` it."""

    def answered(self, link: Link) -> None:
        """Note that the peer answered a link that we began. One that it refuses is detached right after."""

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Take messages that came in."""

    def flowed(self, link: Link) -> None:
        """Note that a link has other credit than before, of which the peer may have used some for nothing."""

    def settled(self, link: Link, fates: list[Fate]) -> None:
        """Note what became of messages that went out; their deliveries are gone, and name nothing after this."""

    def detached(self, link: Link) -> None:
        """Note that a link is over, by the peer or by a fault of its; nothing of it may be used any more.

        Deliveries that came before the peer's end of it may still be settled after :meth:`Link.linger`, as long as the
        link ``lingers``.
        """

    def closed(self, condition: str, description: str) -> None:
        """Note that the peer closed the connection, or that it broke the protocol."""

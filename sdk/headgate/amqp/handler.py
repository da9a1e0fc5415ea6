"""What an engine is told of its peer, and tells its user."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headgate.amqp.link import Link, Outcome

Incoming = tuple[bytes, Any]
"""A message as it came, and its delivery to be settled; None where its sender settled it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may take.

    Attributes:
        frame: bytes of the largest frame.
        sessions: sessions at a time.
        links: links at a time, over all sessions.
        window: bytes that a session may have under way towards us.
        message: bytes of a message, where a link does not say otherwise.
        slack: transfers that a link may make after its credit was taken back.
        idle: seconds after which a silent peer is given up.
    """

    frame: int = 65_536
    sessions: int = 64
    links: int = 1024
    window: int = 16 << 20
    message: int = 16 << 20
    slack: int = 1000
    idle: float = 60.0


class Handler(Protocol):
    """What is told of a connection. None of this may call :meth:`Engine.receive`."""

    def opened(self) -> None:
        """Note that the peer opened the connection; it is answered by :meth:`Engine.open`, unless that was first."""

    def attached(self, link: "Link") -> None:
        """Note a link that the peer began: :meth:`Link.accept` or :meth:`Link.refuse` it."""

    def answered(self, link: "Link") -> None:
        """Note that the peer answered a link that we began. One that it refuses is detached right after."""

    def received(self, link: "Link", messages: list[Incoming]) -> None:
        """Take messages that came in."""

    def flowed(self, link: "Link") -> None:
        """Note that a link has other credit than before."""

    def settled(self, link: "Link", delivery: Any, outcome: "Outcome", reason: str) -> None:
        """Note what became of a message that went out; call :meth:`Link.forget` when that is dealt with."""

    def detached(self, link: "Link") -> None:
        """Note that a link is over, by the peer or by a fault of its; nothing of it may be used any more."""

    def closed(self, condition: str, description: str) -> None:
        """Note that the peer closed the connection, or that it broke the protocol."""

"""A large message is sent a piece at a time.

The library moves all that it has been given of a message whenever it takes a frame from it, which for 100 MB takes most
of a minute. So it is given the next piece only when it has passed on the last; that waits for the peer's window too.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.amqp.proton import lib

if TYPE_CHECKING:
    from headgate.amqp.link import Link

PIECE: Final = 262_144
"""Bytes that the library has of a message at a time."""


@dataclass(slots=True)
class PartialMessage:
    """A partial message is one that the library does not have all of yet; later messages of its link wait behind it."""

    delivery: Any
    message: bytes
    settled: bool
    at: int = 0


class Streams:
    """A connection keeps the deliveries here that are still to be sent, over all its links.

    Attributes:
        links: those that have any; nearly always none, and then there is nothing to ask for.
    """

    __slots__ = ("links",)

    def __init__(self) -> None:
        self.links: dict[Link, deque[PartialMessage]] = {}

    def waiting(self, link: "Link") -> int:
        """Return how many messages of a link are not sent yet: its credit is spent only when they are."""
        return len(self.links[link]) if link in self.links else 0

    def unsent(self, session: Any) -> int:
        """Return the bytes of a session's messages that the library does not have yet."""
        return sum(
            len(unsent.message) - unsent.at
            for link, line in self.links.items()
            if link.alive and lib.pn_link_session(link.raw) == session
            for unsent in line
        )

    def add(self, link: "Link", delivery: Any, message: bytes, *, settled: bool) -> None:
        """Send a message in pieces."""
        self.links.setdefault(link, deque()).append(PartialMessage(delivery, message, settled))

    def has(self, link: "Link", delivery: Any) -> bool:
        """Return whether a delivery is not sent yet: what the peer already says of it is heard when it is."""
        return any(unsent.delivery == delivery for unsent in self.links.get(link, ()))

    def feed(self) -> tuple[bool, "list[tuple[Link, Any]]"]:
        """Give the library the next pieces; returns whether it took any, and deliveries whose outcome is known."""
        fed, known = False, []
        for link, line in tuple(self.links.items()):
            if not link.alive:
                del self.links[link]
                continue
            if lib.pn_session_outgoing_bytes(lib.pn_link_session(link.raw)) > 0:
                continue  # the peer's window is full
            unsent, fed = line[0], True
            piece = unsent.message[unsent.at : unsent.at + PIECE]
            lib.pn_link_send(link.raw, piece, len(piece))
            unsent.at += PIECE
            if unsent.at < len(unsent.message):
                continue
            line.popleft()
            if not line:
                del self.links[link]
            if unsent.settled:
                lib.pn_delivery_settle(unsent.delivery)
                continue
            lib.pn_link_advance(link.raw)
            if lib.pn_delivery_remote_state(unsent.delivery) or lib.pn_delivery_settled(unsent.delivery):
                known.append((link, unsent.delivery))
        return fed, known

"""A policy has channels: which topics are sent to which multicast group, and how fast."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

HEADERS: Final = 28
"""Bytes of IP and UDP around each packet: they count for the rate."""
MAXRATE: Final = 10_000_000
"""Bytes a second where nobody says how many."""
PACKET: Final = 1400
"""Bytes of a packet where nobody says how many; with its headers it fits into a frame of Ethernet."""
SLICE: Final = 0.05
"""Seconds' worth of the rate that is taken at a time."""
USE_WITHIN: Final = 0.2
"""Seconds within which what was taken has to be sent, or is lost."""
_MARK: Final = ">>"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel sends the messages of its topics to one multicast group.

    Attributes:
        name: as the policy calls it.
        topics: that are sent.
        group: address, in 224.0.0.0/4.
        port: UDP's.
        ttl: networks that a packet may cross.
        interface: that packets leave by: its address, or the network that it is in; empty for the system's choice.
        maxrate: bytes a second of all nodes and topics together, headers included.
        packet: most bytes of a packet, without the headers of IP and UDP.
        origin: where it was written: ``<file>:<line>``.
    """

    name: str
    topics: tuple[str, ...]
    group: str
    port: int
    ttl: int = 1
    interface: str = ""
    maxrate: float = MAXRATE
    packet: int = PACKET
    origin: str = ""

    @property
    def slice(self) -> int:
        """Most bytes that are taken of the rate at a time, at least those of a packet."""
        return max(int(self.maxrate * SLICE), self.packet + HEADERS)

    @property
    def burst(self) -> int:
        """Bytes that the bucket holds."""
        return 2 * self.slice

    @property
    def most_at_once(self) -> int:
        """By how much more than ``maxrate * T`` bytes may leave in any T seconds."""
        return self.burst + int(self.maxrate * USE_WITHIN)

    @property
    def feeds(self) -> "tuple[Feed, ...]":
        """Its links, one a topic."""
        return tuple(Feed(topic, self) for topic in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """Return it as the compiled policy keeps it."""
        return asdict(self) | {"topics": list(self.topics)}

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "Channel":
        """Return the inverse of :meth:`as_dict`; KeyError or TypeError for any other mapping."""
        return cls(**{**entry, "topics": tuple(entry["topics"])})


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed is the link from one topic to a channel.

    Attributes:
        source: the topic.
        channel: to which it is sent.
    """

    source: str
    channel: Channel

    @property
    def name(self) -> str:
        """The channel's name for operators."""
        return self.channel.name

    @property
    def kind(self) -> Literal["channel"]:
        """Which table of a policy it comes from."""
        return "channel"

    @property
    def target(self) -> str:
        """Where it goes, for people."""
        return f"{self.channel.group}:{self.channel.port}"

    @property
    def where(self) -> str:
        """The same; of a link between destinations it may be at another site."""
        return self.target

    @property
    def origin(self) -> str:
        """Where it was written."""
        return self.channel.origin

    @property
    def link(self) -> str:
        """The name of its lease, and what its link is known by; no link between destinations is called so.

        >>> Feed("prices", Channel("quotes", ("prices",), "239.1.2.3", 7000)).link
        'prices>>quotes'
        """
        return f"{quote(self.source, safe='')}{_MARK}{quote(self.name, safe='')}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for people and programs that list links."""
        return {"kind": self.kind, "name": self.name, "from": self.source, "to": self.where, "origin": self.origin}


def feed_of(link: str) -> tuple[str, str] | None:
    """Return topic and channel of a :attr:`Feed.link`; None where that is a link between destinations.

    >>> feed_of("prices>>quotes"), feed_of("prices>%3Equotes")
    (('prices', 'quotes'), None)
    """
    topic, mark, channel = link.partition(_MARK)
    return (unquote(topic), unquote(channel)) if mark else None

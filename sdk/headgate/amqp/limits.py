"""What one connection may take, and the count of what the library keeps for its peer."""

from dataclasses import dataclass
from typing import Any

from headgate.amqp.proton import lib


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may take.

    Attributes:
        frame: bytes of the largest frame.
        sessions: sessions at a time.
        links: links at a time, over all sessions.
        window: bytes that a session may have under way towards us.
        message: bytes of a message, where a link does not say otherwise.
        unfinished: bytes of messages that have come in part, over all links; at least one message.
        described: bytes of filters and capabilities, over all links; in memory they take seventy times as much.
        slack: transfers that a link may make after its credit was taken back.
        idle: seconds after which a silent peer is given up.
    """

    frame: int = 65_536
    sessions: int = 64
    links: int = 1024
    window: int = 16 << 20
    message: int = 16 << 20
    unfinished: int = 32 << 20
    described: int = 256 << 10
    slack: int = 1000
    idle: float = 60.0


class Kept:
    """What the library keeps for a peer: links also after we closed them, until the peer says that it knows.

    Args:
        limits: how much it may be.

    Attributes:
        unfinished: bytes of messages that have come in part.
    """

    def __init__(self, limits: Limits) -> None:
        self.unfinished = 0
        self._limits = limits
        self._links = self._described = 0
        self._sessions: dict[Any, dict[Any, int]] = {}

    def add(self, raw: Any) -> None:
        """Count a link that the peer began."""
        size = 0
        for end in (lib.pn_link_remote_source(raw), lib.pn_link_remote_target(raw)):
            size += lib.pn_data_encoded_size(lib.pn_terminus_capabilities(end))
            size += lib.pn_data_encoded_size(lib.pn_terminus_filter(end))
        self._sessions.setdefault(lib.pn_link_session(raw), {})[raw] = size
        self._links += 1
        self._described += size

    def remove(self, raw: Any) -> None:
        """Count a link out that is about to be freed."""
        size = self._sessions.get(lib.pn_link_session(raw), {}).pop(raw, None)
        if size is not None:
            self._links -= 1
            self._described -= size

    def end(self, session: Any) -> tuple[Any, ...]:
        """Count a session out that is about to be freed; returns its links."""
        links = self._sessions.pop(session, {})
        self._links -= len(links)
        self._described -= sum(links.values())
        return tuple(links)

    @property
    def excess(self) -> str:
        """What is too much, in words; empty when nothing is."""
        limits = self._limits
        if self._links > 2 * limits.links:
            return f"{self._links} links, of which {limits.links} may be open; the others wait for their detach"
        if self._described > limits.described:
            return f"filters and capabilities of {self._described} bytes; a connection may have {limits.described}"
        most = max(limits.unfinished, limits.message)
        if self.unfinished > most:
            return f"messages begun with {self.unfinished} bytes; a connection may have {most}"
        return ""

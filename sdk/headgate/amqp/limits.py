"""Limits of one connection, and the count of what the library keeps for its peer."""

from dataclasses import dataclass
from typing import Any, Final

from headgate.amqp.proton import ffi, lib


@dataclass(frozen=True, slots=True)
class Limits:
    """A connection is bounded by these limits.

    Attributes:
        frame: bytes of the largest frame.
        sessions: sessions at a time.
        links: links at a time, over all sessions.
        window: bytes that a session may have under way towards us, in whole frames: at least as many as the credit.
        message: bytes of a message, where a link does not say otherwise.
        unfinished: bytes of messages that have come in part, over all links; at least one message.
        described: bytes of filters, capabilities, properties and outcomes, and of long names and addresses, over all
            links; in memory they take seventy times as much.
        slack: transfers that a link may make after its credit was taken back.
        idle: seconds after which a silent peer is given up.
    """

    frame: int = 65_536
    sessions: int = 64
    links: int = 1024
    window: int = 128 << 20
    message: int = 16 << 20
    unfinished: int = 32 << 20
    described: int = 256 << 10
    slack: int = 1000
    idle: float = 60.0


_PARTS: Final = (
    lib.pn_terminus_capabilities,
    lib.pn_terminus_filter,
    lib.pn_terminus_properties,
    lib.pn_terminus_outcomes,
)
_SHORT: Final = 256
"""Bytes of a name or an address that do not count."""


def _length(text: Any) -> int:
    return max(0, len(ffi.string(text)) - _SHORT) if text else 0


class RetainedLinks:
    """A count of what the library keeps for a peer: links also after we closed them, until the peer says that it knows.

    Attributes:
        unfinished: bytes of messages that have come in part.
        limits: how much it may be.
    """

    __slots__ = ("_described", "_links", "limits", "unfinished")

    def __init__(self, limits: Limits) -> None:
        self.unfinished = 0
        self.limits = limits
        self._described = 0
        self._links: dict[Any, int] = {}

    def add(self, raw: Any) -> None:
        """Count a link that the peer began."""
        properties = lib.pn_link_remote_properties(raw)
        size = (lib.pn_data_encoded_size(properties) if properties else 0) + _length(lib.pn_link_name(raw))
        for end in (lib.pn_link_remote_source(raw), lib.pn_link_remote_target(raw)):
            size += sum(lib.pn_data_encoded_size(part(end)) for part in _PARTS) + _length(
                lib.pn_terminus_get_address(end)
            )
        self._described += size - self._links.get(raw, 0)
        self._links[raw] = size

    def remove(self, raw: Any) -> None:
        """Count a link out that is about to be freed."""
        self._described -= self._links.pop(raw, 0)

    def end(self, session: Any) -> tuple[Any, ...]:
        """Count a session out that is about to be freed; returns its links."""
        links = tuple(raw for raw in self._links if lib.pn_link_session(raw) == session)
        for raw in links:
            self.remove(raw)
        return links

    def say_windows(self) -> None:
        """Have the library tell the windows of all sessions that have links: it does not hear who asks for them."""
        for session in self.sessions:
            lib.pn_session_set_incoming_capacity(session, self.limits.window)

    @property
    def sessions(self) -> set[Any]:
        """The sessions that have links."""
        return {lib.pn_link_session(raw) for raw in self._links}

    @property
    def excess(self) -> str:
        """Return which limit is exceeded, in words; empty when none is."""
        limits = self.limits
        if len(self._links) > 2 * limits.links:
            return f"{len(self._links)} links, of which {limits.links} may be open; the others wait for their detach"
        if self._described > limits.described:
            return f"links described in {self._described} bytes; a connection may have {limits.described}"
        most = max(limits.unfinished, limits.message)
        if self.unfinished > most:
            return f"messages begun with {self.unfinished} bytes; a connection may have {most}"
        return ""

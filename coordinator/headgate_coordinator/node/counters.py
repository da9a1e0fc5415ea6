"""A node counts messages, bytes and refusals since it started."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Messages and bytes over the wire, and what was refused, by reason."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def came(self, messages: int, size: int) -> None:
        """Count messages that came in."""
        self.messages_in += messages
        self.bytes_in += size

    def went(self, messages: int, size: int) -> None:
        """Count messages that went out."""
        self.messages_out += messages
        self.bytes_out += size

    def refused(self, reason: str, count: int = 1) -> None:
        """Count what was refused."""
        self.rejected[reason] += count

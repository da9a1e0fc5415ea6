"""When a lease must be renewed, and until when what it covers may be used.

The server starts to doubt a session 0.6 TTL after its last call and reclaims it 0.3 TTL later
(lua/lib/session.lua). The client renews every quarter, and stops using what it holds at 0.8 TTL, counted from before
the call that renewed it.
"""

from dataclasses import dataclass, field
from typing import Final

RENEW_EVERY: Final = 0.25
USE_UNTIL: Final = 0.8


@dataclass(slots=True)
class Lease:
    """A lease of ``ttl`` seconds on the caller's monotonic clock."""

    ttl: float
    renew_at: float = 0.0
    use_until: float = 0.0

    ttl_ms: int = field(init=False)
    """The length that the server is given."""

    def __post_init__(self) -> None:
        self.ttl_ms = int(self.ttl * 1000)

    def renewed(self, asked_at: float) -> None:
        """Note a successful call; ``asked_at`` is when it was sent, not when it was answered."""
        self.renew_at = asked_at + self.ttl * RENEW_EVERY
        self.use_until = asked_at + self.ttl * USE_UNTIL

"""One connection of admin HTTP: who says nothing is given up, and makes room for who does."""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 128
"""Connections at a time; above that the oldest that waits for its client is cut off."""
HEAD: Final = 8192
"""Bytes of a request before its body."""
PATIENCE: Final = 10.0
"""Seconds for a request to come, and for its body after that."""
SLOW_READER: Final = 30.0
"""Seconds after which a client that does not read its answer is cut off."""


class Visit(H11Protocol):
    """A connection whose waiting is bounded: for a request, and for its client to read the answer."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.since = 0.0
        self._waits: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing of it can go on before its client does something."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait; the oldest of too many goes."""
        super().connection_made(cast("asyncio.Transport", transport))
        self.since = self.loop.time()
        self._wait()
        if len(self.connections) > MOST:
            visits = (cast("Visit", visit) for visit in self.connections)
            oldest = min((visit for visit in visits if visit.idle), key=lambda visit: visit.since)
            self.connections.discard(oldest)  # it is not there any more for the next that comes in this turn
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on; a request that trickles in gets no more time by that."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """Wait for the client to read, for some time."""
        super().pause_writing()
        self._stuck = self.loop.call_later(SLOW_READER, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        for timer in (self._waits, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        asked = self.cycle is not None and not self.cycle.response_complete
        if asked and self._waits is not None:
            self._waits.cancel()
            self._waits = None
        elif not asked and self._waits is None:
            self._waits = self.loop.call_later(PATIENCE, self.transport.abort)

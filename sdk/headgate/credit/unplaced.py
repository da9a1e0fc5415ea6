"""Messages wait here, for a moment, while it is not known to which slice they go."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from headgate.core.limits.spread import UNPLACED
from headgate.core.outbox import Outgoing
from headgate.credit.failures import tell
from headgate.errors import CreditTimeout, HeadgateError

LOOK: Final = 5.0
"""Seconds after which deadlines are looked at again."""


class UnplacedMessages:
    """Unplaced messages have a deadline each, and nothing else happens to them until they are taken out.

    Args:
        name: the destination's, as people know it.

    Attributes:
        reason: why they wait, while any do; empty else.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._line: deque[Outgoing] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._line)

    @property
    def reason(self) -> str:
        """Why they wait, while any do."""
        return UNPLACED if self._line else ""

    def add(self, item: Outgoing) -> None:
        """Put one in line."""
        self._line.append(item)
        self._arrange()

    def put_first(self, items: Sequence[Outgoing]) -> None:
        """Put those in line that came before all that are."""
        self._line.extendleft(reversed(items))
        self._arrange()

    def take_out(self) -> Iterator[Outgoing]:
        """Yield all that wait still, and those that come meanwhile, the oldest first."""
        while self._line:
            item = self._line.popleft()
            if not item.done.done():
                yield item
        self._arrange()

    def fail(self, error: HeadgateError) -> None:
        """Tell all that it came to nothing."""
        for item in self.take_out():
            tell(item, error)

    def _arrange(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        first = min((item.deadline for item in self._line), default=None)
        if first is not None:
            self._timer = self._loop.call_at(min(first, self._loop.time() + LOOK), self._overdue)

    def _overdue(self) -> None:
        now = self._loop.time()
        for item in [item for item in self._line if item.deadline <= now or item.done.done()]:
            self._line.remove(item)
            waited = max(0.0, now - item.since) if item.since else 0.0
            tell(item, CreditTimeout(self._name, waited, item.size, reason=UNPLACED))
        self._arrange()

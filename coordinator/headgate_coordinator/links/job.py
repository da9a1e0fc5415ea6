"""A job works on one link: it tries again until a later lease is found to be in force, or it is stopped."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import Final, Generic, NamedTuple, TypeVar

from headgate._util.reconnect import AWAY
from headgate._util.tasks import stop
from headgate.core.links.channel import Feed
from headgate.core.links.link import Link
from headgate.core.links.trouble import STARTING, Trouble
from headgate.errors import HeadgateError

_log = logging.getLogger("headgate.explain.links")
AGAIN: Final = 0.5
"""Seconds between two tries."""
LOG_EVERY: Final = 60.0
"""Seconds in which a defect is logged once, with its traceback."""


class LinkTotals(NamedTuple):
    """Link totals are the messages and bytes that went over a link.

    Attributes:
        messages: that were forwarded.
        bytes: of these.
        packets: of a channel, that were sent.
        backlog: of a channel, messages that its topic has for it, as last seen; None of other links.
    """

    messages: int = 0
    bytes: int = 0
    packets: int = 0
    backlog: int | None = None

    def after(self, earlier: "LinkTotals") -> "LinkTotals":
        """Return the totals with those of a job that ended."""
        return LinkTotals(
            self.messages + earlier.messages, self.bytes + earlier.bytes, self.packets + earlier.packets, self.backlog
        )


_Kind = TypeVar("_Kind", bound=Link | Feed)


class Job(ABC, Generic[_Kind]):
    """A job does the work on one link under one lease.

    Attributes:
        later: the number of the lease that was found to be in force, after which the job is done; 0 while this one is.
    """

    def __init__(self, link: _Kind, fence: int) -> None:
        self.link, self.fence = link, fence
        self.later = 0
        self._trouble: Trouble | None = STARTING
        self._log_at = 0.0
        self._task = asyncio.create_task(self._run(), name=f"headgate {link.kind} {link.link}")

    @property
    @abstractmethod
    def trouble(self) -> Trouble | None:
        """Why nothing moves, None while it does."""

    @property
    @abstractmethod
    def carried(self) -> LinkTotals:
        """Messages and bytes forwarded so far."""

    @property
    def waits(self) -> str:
        """Name of its wait in line at the target, another one after each message; empty while it does not wait."""
        return ""

    def look_after(self) -> None:
        """Mend what can be mended while the work goes on."""

    async def stop(self, *, lost: bool = False) -> None:
        """Stop at once. Messages in hand stay with the link; its credit goes back, unless the lease is lost."""
        await stop(self._task)
        if not lost and not self.later:
            with contextlib.suppress(HeadgateError):  # without Redis it ends by itself, with its lease
                await self._leave()

    async def _run(self) -> None:
        while not self.later:
            try:
                self.later = await self._work()
            except AWAY as error:
                self._trouble = Trouble.of("error", error)
            except (HeadgateError, OSError) as error:
                link, where = self.link, f"cannot send to {self.link.where}: " if isinstance(error, OSError) else ""
                trouble = Trouble.of("error", f"{where}{error}")
                if self._trouble != trouble:
                    _log.warning("%s %s (%s) does not work: %s", link.kind, link.name, link.link, trouble.text)
                self._trouble = trouble
            except Exception as error:  # noqa: BLE001 -- a defect ends no link for good
                if (now := asyncio.get_running_loop().time()) >= self._log_at:
                    self._log_at = now + LOG_EVERY
                    _log.exception("%s %s (%s) failed, and begins anew", self.link.kind, self.link.name, self.link.link)
                self._trouble = Trouble.of("error", f"an unexpected {type(error).__name__}, which its node's log has")
            if not self.later:
                await asyncio.sleep(AGAIN)

    @abstractmethod
    async def _work(self) -> int:
        """Forward until a later lease is in force, and return its number. Makes ends that are not there."""

    @abstractmethod
    async def _leave(self) -> None:
        """Give back what the link holds."""


AnyJob = Job[Link] | Job[Feed]

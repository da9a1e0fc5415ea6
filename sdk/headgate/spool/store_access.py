"""A writer notes how it last found the way to one store: whether it has room, and when it may be tried again."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headgate.core.names import encode_name
from headgate.core.when_full import BLOCK, WhenFull
from headgate.spool.stores import SEGMENT, Spool

PAUSE: Final = (0.2, 5.0)
"""Seconds until a store is tried again that failed: at first, and at the most."""

LOOK_EVERY: Final = 1.0
"""Seconds between looks whether there is room for references, where nothing is heard of it."""


class StoreQuota(Protocol):
    """A session has room at a store: credit, as at any destination."""

    @property
    def spool(self) -> Spool:
        """The store."""

    @property
    def reason(self) -> str:
        """Why there is no room."""

    def take(self, size: int) -> bool:
        """Take room for ``size`` bytes if it is in hand; returns whether it was."""

    def ask(self, size: int, stir: Callable[[], None]) -> "asyncio.Future[None]":
        """Return a future that is done once there is room for ``size`` bytes; cancel it to give up.

        Until it is done, ``stir`` is called whenever the store may have answered.
        """

    def refused(self, asked: "asyncio.Future[None]") -> bool:
        """Return whether the store had no room when it was asked."""

    def put_back(self, size: int) -> None:
        """Give back room that is not needed after all."""

    async def hold(self, segment: str, size: int, sender: str = "") -> None:
        """Spend room that was asked for on a segment, which another session publishes if ``sender`` names one."""


class StoreAccess:
    """A store access is the way to one store, as a writer last found it.

    Attributes:
        store: its name; empty for none.
        encoded: the same, as references have it.
        quota: the session's room there; None until it was used.
        waits: whether the store has no room, or does not take anything: then memory is waited for as well.
        crowded: whether there is no room for references: nothing is written until a look at the destination finds some.
        when_full: the store's account of messages that find no room in it either.
        trouble: what failed last; empty where nothing did.
        resume_at: when it may be tried again, on the loop's clock.
        pause: seconds until then, after the next failure.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self.encoded = encode_name(store, "store") if store else ""
        self.quota: StoreQuota | None = None
        self.waits = self.crowded = False
        self.when_full: WhenFull = BLOCK
        self.trouble = ""
        self.resume_at = 0.0
        self.pause = PAUSE[0]

    @property
    def ahead(self) -> int:
        """Bytes that may wait in line for nothing but the storage: two segments."""
        return 2 * (self.quota.spool.settings.segment if self.quota else SEGMENT)

    @property
    def reason(self) -> str:
        """Why nothing goes to the store, empty where that is not known."""
        if self.trouble:
            return self.trouble
        if self.waits and self.quota:
            return f"spool store {self.store!r} has no room either: {self.quota.reason}"
        return ""

    def crowd(self, now: float) -> None:
        """Let nothing go to the store until there is room for references, and wait for memory."""
        self.resume_at = now + LOOK_EVERY
        self.trouble, self.waits, self.crowded = "there is no room for references to spooled messages", True, True

    def postpone(self, now: float, why: str) -> None:
        """Let nothing go to the store for a while, and wait for memory."""
        self.resume_at = now + self.pause
        self.pause = min(2 * self.pause, PAUSE[1])
        self.trouble, self.waits, self.crowded = why, True, False

    def written(self) -> None:
        """Note that the storage takes segments: the next failure is the first again."""
        self.pause = PAUSE[0]

    def opens(self) -> None:
        """Note that the store has room."""
        self.waits, self.trouble, self.crowded = False, "", False

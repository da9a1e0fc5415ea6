"""A client's report when Redis may have lost its last writes to a destination."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from headgate._util.callbacks import Callbacks
from headgate.redis.keys import Address

_log: Final = logging.getLogger("headgate")


@dataclass(frozen=True, slots=True)
class StateLoss:
    """Redis restarted, failed over or was emptied, and may have lost its last writes to a destination.

    Attributes:
        destination: its name.
        epoch: number of the epoch that began with it.
        lost: messages that one session of this client has receipts for, and of which Redis knows nothing any more.
            Consumers may have had some of them before, so it is the most that is lost. No message is in two events of
            one epoch.
        at: when the client met the epoch, in seconds as :func:`time.time` counts.
    """

    destination: str
    epoch: int
    lost: int
    at: float

    def __str__(self) -> str:
        if self.lost:
            lost = f"Not found of what a session sent and has receipts for: {self.lost} (consumers may have had some)"
        else:
            lost = "Of what a session sent and has receipts for, nothing is known to be missing"
        return (
            f"Redis may have lost its last writes to {self.destination!r}: it restarted, failed over or was emptied, "
            f"or the destination was made anew, and epoch {self.epoch} began. Until the longest lease is over only "
            f"what sessions claim and give back is granted, and what was delivered may come again. {lost}"
        )


LossCallback = Callable[[StateLoss], Awaitable[None] | None]


class LossListeners:
    """`LossListeners` notes the epochs that one client has met, and tells of them those who listen."""

    def __init__(self) -> None:
        self._callbacks: dict[object, LossCallback] = {}
        self._guarded = Callbacks("on_state_loss")
        self._reported: dict[str, int] = {}
        self.met: Callable[[Address], None] = lambda _: None
        """Hears of each destination with a new epoch, before anybody else does."""

    def add(self, callback: LossCallback) -> Callable[[], None]:
        """Tell ``callback`` too; returns what ends that."""
        key = object()
        self._callbacks[key] = callback

        def end() -> None:
            self._callbacks.pop(key, None)

        return end

    def meet(self, address: Address, epoch: int, lost: int = 0) -> None:
        """Report a new epoch once for all sessions, with the losses of each."""
        if self._reported.get(address.key) == epoch and not lost:
            return
        if self._reported.get(address.key) != epoch:
            self.met(address)
        self._reported[address.key] = epoch
        event = StateLoss(address.shown, epoch, lost, time.time())
        _log.warning("%s", event)
        for callback in tuple(self._callbacks.values()):
            self._guarded.call(callback, event)

    async def close(self) -> None:
        """Give callbacks that still run a moment, and end them."""
        await self._guarded.close()

"""Writes wait until replicas have them, or the disk, as their durability asks, before they are confirmed.

The first writer asks for that in the very call that writes, and waits a moment. Writes that take longer stand in line
here, and one call at a time waits for all of it, so that nothing else has to: neither a lease nor the next batch.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate._util.reconnect import AWAY
from headgate._util.tasks import stop
from headgate.core.durability import MEMORY, Durability, WriteProgress
from headgate.errors import CoordinatorUnavailable, HeadgateError, NotDurable
from headgate.message import Receipt
from headgate.redis.durable_calls import DurableBackend, secure
from headgate.redis.keys import Address
from headgate.redis.store import Store

PROMPT_MS: Final = 50
"""Milliseconds that the call waits which writes: no lease is renewed meanwhile."""
ROUND_MS: Final = 500
"""Milliseconds that a call waits for what stands in line; then the next one does."""
PAUSE: Final = 0.1
"""Seconds between calls while Redis does not answer, or answers with an error in place of waiting."""


@dataclass(slots=True, eq=False)
class WrittenPart:
    """A written part is one message or settlement of what a call wrote.

    Attributes:
        confirm: says that it is done.
        done: a future that gets errors.
        until: when its caller stops waiting, on the loop's clock.
        receipt: of a message.
    """

    confirm: Callable[[], None]
    done: Any
    until: float = math.inf
    receipt: Receipt | None = None


@dataclass(slots=True, eq=False)
class CallWrites:
    """The writes of one call.

    Attributes:
        epoch: in which it was written.
        number: of its last message, counted by the session; infinite where it is none.
        parts: that are not confirmed yet.
        since: when it was written, on the loop's clock.
        soonest: when the first of the callers stops waiting.
    """

    epoch: int
    number: float
    parts: list[WrittenPart]
    since: float
    soonest: float = math.inf

    def __post_init__(self) -> None:
        self.soonest = min((part.until for part in self.parts), default=math.inf)


class IgnoredFuture:
    """A stand-in for a future, where nobody waits for errors."""

    def done(self) -> bool:
        """Return False: it is confirmed in any case."""
        return False

    def set_exception(self, error: BaseException) -> None:
        """Tell nobody."""


def secured_by(
    durability: Durability, before: "DurableWrites | None", store: Store, address: Address, session: str
) -> "DurableWrites | None":
    """Return the line for a durability, the earlier one if there was one; None where nothing is asked for."""
    if durability:
        line = before or DurableWrites(store, address, session)
        line.durability = durability
        return line
    if before is not None:
        before.let_go()
    return None


class DurableWrites:
    """Writes of one session at one destination stand in this line until they are as safe as asked for.

    Args:
        store: the scripts.
        address: the destination.
        session: the session's id.

    Attributes:
        durability: what is asked for.
        held: how far it had come at the last look.
    """

    def __init__(self, store: Store, address: Address, session: str) -> None:
        self.durability = MEMORY
        self.held = WriteProgress()
        self._store = store
        self._address = address
        self._session = session
        self._line: deque[CallWrites] = deque()
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._trouble = ""
        self._loop = asyncio.get_running_loop()

    @property
    def waits(self) -> bool:
        """Whether anything is written and not confirmed."""
        return bool(self._line)

    @property
    def reason(self) -> str:
        """Why that is; empty when nothing is."""
        if not self._line:
            return ""
        needed = self.durability.replicas
        count = f"{self.held.replicas} of {needed} replicas have it" if needed else "it is not on disk"
        why = self._trouble or self.held.problem or count
        return f"what is granted or stored waits for durability {self.durability.text!r}: {why}"

    def waiting(self, store: Store) -> tuple[DurableBackend | None, Store]:
        """Return what makes the next call wait a moment too; None while others wait, whose call covers it."""
        if self._line:
            return None, store
        waiting = DurableBackend(store.server, self.durability, PROMPT_MS)
        return waiting, Store(waiting.backend)

    def is_met(self, held: WriteProgress | None) -> bool:
        """Return whether what a call wrote is as safe as asked for."""
        return not self.durability or (held is not None and self.durability.is_met(held))

    def wrote(self, written: CallWrites, held: WriteProgress | None = None) -> None:
        """Confirm something at once if that is enough, else once it is as safe as asked for."""
        if self.is_met(held):
            self._confirm(written)
            return
        if all(part.done.done() for part in written.parts):
            return  # nobody waits for it any more
        if held is not None or not self._line:
            self.held = held or WriteProgress()
        self._line.append(written)
        self._watch()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(), name=f"headgate secures {self._address.name}")

    def settled(self, epoch: int, futures: Iterable[asyncio.Future[None] | None]) -> None:
        """Tell those who wait for a settlement once it is as safe as asked for."""
        parts = [
            WrittenPart(partial(future.set_result, None), future) for future in futures if future and not future.done()
        ]
        if parts:
            self.wrote(CallWrites(epoch, math.inf, parts, self._loop.time()))

    async def up_to_now(self, epoch: int, until: float) -> None:
        """Wait until all that was written in an epoch is as safe as asked for.

        Raises:
            NotDurable: it is not in time.
            CoordinatorUnavailable: it may have been lost.
        """
        safe = self._loop.create_future()
        self.wrote(
            CallWrites(epoch, math.inf, [WrittenPart(partial(safe.set_result, None), safe, until)], self._loop.time())
        )
        await safe

    def epoch_began(self, epoch: int, last: float) -> None:
        """Fail what was written before and may be lost: all above a number."""
        self._lose(tuple(self._line), epoch, last)

    def _lose(self, line: Iterable[CallWrites], epoch: int, last: float) -> None:
        for written in line:
            if written.epoch == epoch or written not in self._line:
                continue
            if written.number <= last:
                written.epoch = epoch
                continue
            self._line.remove(written)
            for part in written.parts:
                self._fail(part, self._loss())

    def let_go(self) -> None:
        """Confirm everything: nothing is asked for any more."""
        line, self._line = self._line, deque()
        for written in line:
            self._confirm(written)
        self._progress.set()

    async def flush(self) -> None:
        """Wait until nothing stands in line."""
        while self._line:
            self._progress.clear()
            await self._progress.wait()

    async def close(self, within: float) -> None:
        """Wait that many seconds for writes in line, and report the rest as not known to be safe."""
        if self._line:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self.flush()
        self._late(math.inf)
        if self._timer is not None:
            self._timer.cancel()
        await stop(self._task)

    async def _keep(self) -> None:
        while self._line:
            covered, began = tuple(self._line), self._loop.time()
            try:
                answer = await secure(self._store.server, self._address, self._session, self.durability, ROUND_MS)
            except AWAY as error:
                self._trouble = str(error)
                await asyncio.sleep(PAUSE)
                continue
            self.held, self._trouble = answer.held, ""
            if answer.code != "OK":
                self._trouble = "the destination is gone"
                self._late(math.inf)
                continue
            self._lose(covered, answer.epoch, answer.last)
            met = self.durability.is_met(answer.held)
            if met:
                for written in covered:
                    if written in self._line:
                        self._line.remove(written)
                        self._confirm(written)
            elif answer.held.trouble == "refused":
                self._late(math.inf)
            self._watch()
            if self._line and not met and self._loop.time() - began < PAUSE:  # else more was written meanwhile
                await asyncio.sleep(PAUSE)

    def _watch(self) -> None:
        """Look again when the first of those who wait stops waiting."""
        self._progress.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        soonest = min((written.soonest for written in self._line), default=math.inf)
        if soonest < math.inf:
            self._timer = self._loop.call_at(soonest, self._late_now)

    def _late_now(self) -> None:
        self._late(self._loop.time())
        self._watch()

    def _late(self, now: float) -> None:
        """Tell those whose time is over."""
        for written in [written for written in self._line if written.soonest <= now or now == math.inf]:
            late = [part for part in written.parts if part.until <= now]
            for part in late:
                self._fail(part, self._error(written, part))
            written.parts = [part for part in written.parts if part.until > now and not part.done.done()]
            written.soonest = min((part.until for part in written.parts), default=math.inf)
            if not written.parts:
                self._line.remove(written)

    def _loss(self) -> CoordinatorUnavailable:
        return CoordinatorUnavailable(
            f"a failover or a restart of Redis may have lost what was written to {self._address.shown!r} before "
            f"{self.durability.text!r} had it; do it again (a message may be there, or a consumer may have had it)",
            answered=True,
        )

    def late(self, what: str, waited: float, receipt: Receipt | None = None) -> NotDurable:
        """Return the error for a write that was not known to be safe after that many seconds."""
        return NotDurable(
            self._address.shown,
            what,
            durability=self.durability.text,
            replicas=self.held.replicas,
            needed=self.durability.replicas,
            waited=waited,
            receipt=receipt,
            problem=self._trouble or self.held.problem,
        )

    def _error(self, written: CallWrites, part: WrittenPart) -> NotDurable:
        what = f"message {part.receipt.id}" if part.receipt is not None else "a settlement"
        return self.late(what, self._loop.time() - written.since, part.receipt)

    @staticmethod
    def _confirm(written: CallWrites) -> None:
        for part in written.parts:
            if not part.done.done():
                part.confirm()

    @staticmethod
    def _fail(part: WrittenPart, error: HeadgateError) -> None:
        if not part.done.done():
            part.done.set_exception(error)
            getattr(part.done, "exception", int)()  # whoever does not look at it has not lost anything

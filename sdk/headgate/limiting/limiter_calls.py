"""Makes the calls that one session's limiter machine asks for, and passes it time and hints."""

import asyncio
import contextlib
import math
from time import monotonic
from typing import Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import StepCallbacks, stop
from headgate.core.durability import MEMORY, Durability
from headgate.core.limiting.calls import UNSAFE, Call, Decide, Decision, Refusal
from headgate.core.limiting.machine import Limiter
from headgate.core.limiting.slices import LimiterSlices
from headgate.credit.calls import Ensure
from headgate.errors import CoordinatorUnavailable, HeadgateError
from headgate.redis.backend import WakeUps
from headgate.redis.durable_calls import secure
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore

CLOSE_WITHIN: Final = 0.5
"""Seconds that closing may take to give back what is held."""
SECURE_MS: Final = 50
"""Milliseconds that it waits for replicas, or the disk, to have what was admitted: no lease is renewed meanwhile."""
WITHIN: Final = 0.05
SAFE_WITHIN: Final = 1.0
"""Seconds within which what was admitted is as safe as its durability asks."""
PAUSE: Final = 1.0
"""Seconds until a call that was refused as a whole is made again, for what is held."""


class LimiterCalls:
    """One task makes the calls of a limiter, and one timer serves those whose time is over.

    Args:
        store: the scripts.
        wake_ups: hints.
        address: the limiter.
        session: the session's id.
        ensure: makes the limiter exist.
        machine: says which call is due.
        hand: what is in hand.

    Attributes:
        address: the limiter.
        ensure: makes it exist.
        trouble: why the last call was not answered with what it asks for; None where it was.
    """

    def __init__(
        self, store: LimiterStore, wake_ups: WakeUps, address: Address, session: str, ensure: Ensure, machine: Limiter,
        hand: LimiterSlices,
    ) -> None:  # fmt: skip
        self._store, self._wake_ups = store, wake_ups
        self.address, self._session = address, session
        self.ensure = ensure
        self._machine, self._hand = machine, hand
        self.trouble: BaseException | None = None
        self._durability, self._secures = MEMORY, False
        self._loop = asyncio.get_running_loop()
        self._wake, self._steps = asyncio.Event(), StepCallbacks()
        self._task: asyncio.Task[None] | None = None
        self._attending: asyncio.TimerHandle | None = None
        self._attend_at = math.inf
        self._words: set[str] = set()
        """Beginnings of ids that others use too."""
        hand.stir = self.stir

    async def start(self) -> None:
        """Begin to hear hints and to make calls."""
        await self._wake_ups.subscribe(self.address.channels(self._session), self._hear)
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.address.name}")

    def secure(self, durability: Durability) -> None:
        """Have nothing admitted from now on before it is as safe as that."""
        self._durability, self._secures = durability, bool(durability)

    @property
    def patience(self) -> float:
        """Seconds within which an admission for which there is room is known."""
        return SAFE_WITHIN if self._secures else WITHIN

    async def listen(self, word: str) -> None:
        """Hear of admissions whose ids begin with this word too."""
        if word not in self._words and word != self._session:
            self._words.add(word)
            await self._wake_ups.subscribe(self.address.channels(word)[:1], self._hear)

    def forked(self) -> None:
        """Make no call any more: the task is the parent process's."""
        self._task = None

    async def close(self) -> None:
        """Make the calls that are due, as far as that is quick, and no more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                self._wake.set()
                await self._steps.until(lambda: self._machine.idle, self._task)
        await stop(self._task)
        if self._attending is not None:
            self._attending.cancel()
        own = self.address.channels(self._session)
        await self._wake_ups.unsubscribe((*own, *(self.address.channels(w)[0] for w in self._words)), self._hear)

    def stir(self, attend_at: float = math.inf) -> None:
        """Look for a call that is due; ``attend_at``: when a wait that begins is over."""
        self._wake.set()
        if attend_at < self._attend_at:
            self._arrange(attend_at)

    def _arrange(self, attend_at: float) -> None:
        if self._attending is not None:
            self._attending.cancel()
        self._attending, self._attend_at = None, attend_at
        if attend_at < math.inf:
            self._attending = self._loop.call_at(attend_at, self._attend)

    def _attend(self) -> None:
        """Refuse those whose time is over, also while a call is under way."""
        self._machine.attend(monotonic())
        self._wake.set()
        self._arrange(self._machine.attend_at)

    async def _keep(self) -> None:
        while True:
            self._wake.clear()
            now = monotonic()
            if now >= self._hand.look_at:
                self._hand.look(now)
            call = self._machine.call(now)
            if call is None:
                await self._rest()
                continue
            try:
                await self._make_surely(call)
            except HeadgateError as error:  # a right was taken away, and may come back while holds have their leases
                if self._machine.refuse(Refusal("failed", error=error)):
                    await asyncio.sleep(PAUSE)

    async def _make_surely(self, call: Call) -> None:
        try:
            await self._make(call)  # a reader of an admission meets no repeater
        except CoordinatorUnavailable as error:
            self._missed(error)
            await until_answered(self._missed, away=(CoordinatorUnavailable,))(self._make, call)

    def _missed(self, error: BaseException) -> None:
        self.trouble = error
        self._machine.missed(monotonic())

    async def _make(self, call: Call) -> None:
        if isinstance(call, Decide):
            answer = await self._store.decide(
                self.address, self._session, seq=call.seq, epoch=call.epoch, words=call.words
            )
            self.trouble = None
            answers = await self._secured(call, answer.epoch, answer.answers) if self._secures else answer.answers
            self._machine.hear(call, Decision(answer.code, answer.epoch, answers), monotonic())
        else:
            await self.ensure(call.recover)
            self._machine.made()

    async def _secured(self, call: Decide, epoch: int, answers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the answers, where what they admit is as safe as asked for; else those who ask are to ask again."""
        admits = [
            operation.verb == "admit" and text == "held"
            for operation, text in zip(call.operations, answers, strict=False)
        ]
        if not any(admits):
            return answers
        done = await secure(self._store.server, self.address, self._session, self._durability, SECURE_MS)
        if done.code == "OK" and done.epoch == epoch and self._durability.is_met(done.held):
            return answers
        return tuple(UNSAFE if admit else text for admit, text in zip(admits, answers, strict=False))

    async def _rest(self) -> None:
        if self._steps:
            self._steps.made()
        now = monotonic()
        until = min(self._machine.wake_at(now), self._hand.look_at)
        if until <= now:
            return
        if not self._wake.is_set():
            timer = self._loop.call_at(until, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    def _hear(self, words: list[str]) -> None:
        """Take a hint."""
        if words[0] == "held" and self._secures:  # it asks, and so hears once that is safe
            words = ["turn", *words[1:2], "0"]
        if words[0] == "recall":
            self._hand.recall()
        elif self._machine.hear_hint(words, monotonic()):
            self.stir()

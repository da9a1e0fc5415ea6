"""A bucket keeps a rate that all hosts share. Slots are moments of Redis' clock, given out first come, first served."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.credit.calls import Ensure
from headgate.errors import Closed, CreditTimeout, HeadgateError, InvalidValue, MessageTooLarge, PolicyError
from headgate.explain.explainer import explain
from headgate.explain.levels import LimitState
from headgate.explain.model import Explanation
from headgate.figures import rounded
from headgate.limiting.by_key import KeyedLimiter
from headgate.limiting.refusals import Refused, unanswered
from headgate.options import DEFAULT_TIMEOUT
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.units import MAX_DURATION, parse_timeout
from headgate.waits import Waits

MAX_LINE: Final = 128
MAX_TOKENS: Final = 2**40
"""For one caller."""
AHEAD: Final = 60.0
"""Seconds before its slot that a take gets it; whoever has to wait longer asks again then. As in lua/take.lua."""
ANSWER_WITHIN: Final = 0.25
"""Seconds beyond the timeout for Redis to say whether there is a slot in time; a timeout of 0 needs them."""


@dataclass(slots=True, eq=False)
class _TokenWaiter:
    tokens: int
    deadline: float
    since: float
    slot: "asyncio.Future[float]"


class Bucket:
    """A bucket gives out tokens at a rate that all hosts share. Get one from :meth:`Session.bucket`.

    All takes of one turn of the event loop are one call; a take that must wait sleeps until its slot and asks no more.
    """

    def __init__(
        self, store: Store, address: Address, session: str, ensure: Ensure, keys: KeyedLimiter, *, waits: Waits
    ) -> None:
        self.address = address
        self.keys = keys
        self._store = store
        self._session = session
        self._ensure = ensure
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._line: deque[_TokenWaiter] = deque()
        self._wake = asyncio.Event()
        self._later: set[_TokenWaiter] = set()
        self._seq = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._trouble: BaseException | None = None

    def __repr__(self) -> str:
        return f"Bucket({self.address.name!r})"

    async def take(
        self, tokens: int = 1, *, key: str | None = None, timeout: float | str = DEFAULT_TIMEOUT,
        band: int | None = None,
    ) -> None:  # fmt: skip
        """Wait until ``tokens`` may be used. A take that is cancelled while it sleeps has used its slot.

        Args:
            tokens: how many.
            key: for whom, such as a tenant: keys that wait take turns, over all sessions, and limits of each key hold.
            timeout: seconds to wait, or ``"unlimited"``.
            band: 0 goes first of those who come with a key or a band, 7 last; that of the key, or 3, when None.

        Raises:
            CreditTimeout: the slot is later than the timeout; nothing was taken. It says when it is, and why.
            MessageTooLarge: more than the bucket's burst.
            CoordinatorUnavailable: Redis does not answer in time.
            InvalidValue: not a whole number from 1 to 2**40.
            InvalidName: the key cannot be used.
        """
        patience = parse_timeout(timeout)
        until = self._loop.time() + patience
        self._check(tokens)
        hold = None
        if key is not None or band is not None:
            hold = await (await self.keys.open()).admit(key=key, timeout=patience, band=band, tokens=tokens)
        try:
            with self._waits.timed("bucket", self.address.name):
                await self._take(tokens, max(0.0, until - self._loop.time()))
        except BaseException as error:
            if hold is not None:
                hold.settle(tokens=0)
            if isinstance(error, CreditTimeout):
                error.key, error.explanation = key, await self._explain()
            raise
        finally:
            if hold is not None:
                hold.release()

    def _check(self, tokens: int) -> None:
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_TOKENS:
            raise InvalidValue(f"{tokens!r}; use a whole number from 1 to {MAX_TOKENS}", setting="tokens")
        if self._closed:
            raise Closed(f"the bucket {self.address.name!r} is closed")

    async def _take(self, tokens: int, patience: float) -> None:
        now = self._loop.time()
        taker = _TokenWaiter(tokens, now + patience, now, self._loop.create_future())
        self._line.append(taker)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"headgate {self.address.name}")
        try:
            async with asyncio.timeout_at(taker.deadline + ANSWER_WITHIN):
                slot = await taker.slot
        except TimeoutError:
            if isinstance(
                taker.slot.exception() if taker.slot.done() and not taker.slot.cancelled() else None,
                HeadgateError,
            ):
                raise
            raise unanswered(f"the bucket {self.address.name!r}", self._trouble) from None
        delay = slot - self._loop.time()
        if delay > 0:
            await asyncio.sleep(delay)

    async def _explain(self) -> Explanation | None:
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN):
                snapshot = await self._store.snapshot(self.address, entries=1)
                return explain(self.address.name, snapshot) if snapshot is not None else None
        return None

    async def try_take(
        self, tokens: int = 1, *, key: str | None = None, band: int | None = None
    ) -> "Literal[True] | Refused":
        """Take tokens that may be used now, or return why not; asks Redis, and never waits for the rate.

        Returns:
            True, or a :class:`Refused`, which is false and says when to try again; nothing was taken.

        Raises:
            MessageTooLarge, CoordinatorUnavailable, InvalidValue, InvalidName, Closed: as :meth:`take`.
        """
        self._check(tokens)
        hold = None
        if key is not None or band is not None:
            hold = await (await self.keys.open()).attempt(key=key, band=band, tokens=tokens)
        if isinstance(hold, Refused):
            return hold
        try:
            await self._take(tokens, 0.0)
        except BaseException as error:
            if hold is not None:
                hold.settle(tokens=0)
            if not isinstance(error, CreditTimeout):
                raise
            amounts = MappingProxyType({"tokens": tokens})
            return Refused(self.address.name, error.limit, "all", error.retry_after, amounts, key)
        finally:
            if hold is not None:
                hold.release()
        return True

    async def state(self, *, key: str | None = None) -> LimitState | None:
        """Read how many tokens are left, as one limit of the form ``rate``; None of a bucket without a limit.

        With a ``key`` it is that key's own limit where less is left of that. During a hold-off nothing is left.

        Raises:
            InvalidName: the key cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        state = await self.keys.state(key)
        both = [limits["tokens"] for limits in (state.limits, state.key_limits) if "tokens" in limits]
        return min(both, key=lambda limit: limit.remaining, default=None)

    async def hold_off(self, seconds: float | str, *, reason: str = "", key: str | None = None) -> float:
        """Have nothing taken for a while, on all hosts, by Redis' clock; afterwards it has no burst to begin with.

        Arguments, result and errors are those of :meth:`Limiter.hold_off`.
        """
        return await self.keys.hold_off(seconds, reason, key)

    async def close(self) -> None:
        """Refuse whoever still waits for an answer."""
        self._closed = True
        await stop(self._task)
        for taker in (*self._line, *self._later):
            if not taker.slot.done():
                taker.slot.set_exception(Closed(f"the bucket {self.address.name!r} was closed"))

    async def _keep(self) -> None:
        while True:
            while not self._line:
                self._wake.clear()
                await self._wake.wait()
            self._seq += 1
            takers = [self._line.popleft() for _ in range(min(len(self._line), MAX_LINE))]
            answered: tuple[float, list[str]] = await until_answered(self._missed)(self._reserve, takers)
            self._trouble = None
            answered_at, answers = answered
            for taker, answer in zip(takers, answers, strict=True):
                self._answer(taker, answer, answered_at)

    def _missed(self, error: BaseException) -> None:
        self._trouble = error

    async def _reserve(self, takers: list[_TokenWaiter]) -> tuple[float, list[str]]:
        """Ask for all of them, with one number: repeated, the call gets the stored answers, so they stay the same."""
        while True:
            now = self._loop.time()
            line = [(taker.tokens, int(max(0.0, min(taker.deadline - now, MAX_DURATION)) * 1000)) for taker in takers]
            code, answers = await self._store.take(self.address, self._session, seq=self._seq, line=line)
            if code != "UNKNOWN":
                # Counted from the answer: Redis looked at its clock before, so a slot may be used late, never early.
                return self._loop.time(), answers if code == "OK" else [f"kind:{code}"] * len(takers)
            await self._ensure(True)

    def _line_up_again(self, taker: _TokenWaiter) -> None:
        self._later.discard(taker)
        if not self._closed and not taker.slot.done():
            self._line.append(taker)
            self._wake.set()

    def _answer(self, taker: _TokenWaiter, answer: str, answered_at: float) -> None:
        if taker.slot.done():
            return
        word, _, number = answer.rpartition(":")
        if not word:
            taker.slot.set_result(answered_at + int(number) / 1e6)
        elif word in ("late", "off") and (slot := answered_at + int(number) / 1e6) <= taker.deadline:
            self._later.add(taker)
            self._loop.call_at(max(slot - AHEAD, answered_at + 0.01), self._line_up_again, taker)
        elif word in ("late", "off"):
            after = int(number) / 1e6
            span = f"{rounded(after)} s"
            why = f"the rate allows it in {span}" if word == "late" else f"it is held off for {span} more"
            taker.slot.set_exception(
                CreditTimeout(
                    self.address.name,
                    self._loop.time() - taker.since,
                    taker.tokens,
                    reason=why,
                    retry_after=after,
                    limit="rate" if word == "late" else "hold_off",
                )
            )
        elif word == "never":
            taker.slot.set_exception(MessageTooLarge(self.address.name, taker.tokens, int(number)))
        else:
            taker.slot.set_exception(PolicyError(f"{self.address.name!r} is not a bucket"))

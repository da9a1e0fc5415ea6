"""A charge is made on things of an event loop, or on those that block."""

import asyncio
import logging
from typing import Any, ClassVar, Final

import headgate.sync
from headgate.charge.held import TAKEN, Held, Kept
from headgate.charge.terms import ChargeTerms
from headgate.errors import HeadgateError, InvalidValue
from headgate.limiting.bucket import Bucket
from headgate.limiting.gate import Gate
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.options import DEFAULT_TIMEOUT

Source = Limiter | Gate | Bucket
SyncSource = headgate.sync.Limiter | headgate.sync.Gate | headgate.sync.Bucket

_SIZE: Final = frozenset({"size"})
_TOKENS: Final = frozenset({"tokens"})
_log: Final = logging.getLogger("headgate.charge")


class Charge(ChargeTerms[Source]):
    """Charges calls on a limiter, gate or bucket of an event loop."""

    module = "headgate"
    takes: ClassVar = {Limiter: None, Gate: _SIZE, Bucket: _TOKENS}

    async def admit(self, *call: Any, **named: Any) -> Held:
        """Wait until a call is admitted; errors are those of :meth:`headgate.Limiter.admit`."""
        return await self.admit_within(self.within(*call, **named), *call, **named)

    async def admit_within(self, timeout: float | str | None, *call: Any, **named: Any) -> Held:
        """Wait so long until a call is admitted; errors as :meth:`admit`."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, Limiter):
            return await on.admit(timeout=timeout, **terms)
        if isinstance(on, Gate):
            return await on.admit(timeout=timeout, **terms).__aenter__()
        await on.take(**terms, timeout=DEFAULT_TIMEOUT if timeout is None else timeout)
        return TAKEN

    async def attempt(self, *call: Any, **named: Any) -> Held | Refused:
        """Return what a call is admitted with, or a refusal; never waits for others."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, Bucket):
            decision = await on.try_take(**terms)
            return decision if isinstance(decision, Refused) else TAKEN
        return await on.attempt(**terms)

    def keep(self, held: Held) -> Kept:
        """Return an admission for an answer to keep."""
        return Kept(held, asyncio.get_running_loop().call_soon_threadsafe)

    async def hold_off(self, seconds: float, reason: str, *call: Any) -> None:
        """Have nobody call for a while, as the other side asks; a failure of it is logged, for the call is done."""
        try:
            await self.on.hold_off(seconds, reason=reason, key=self.key_of(*call))
        except HeadgateError as error:
            _log.warning("%r could not be held off for %s s: %s", self.on, seconds, error)


class SyncCharge(ChargeTerms[SyncSource]):
    """Charges calls on a limiter, gate or bucket of :mod:`headgate.sync`."""

    module = "headgate.sync"
    takes: ClassVar = {headgate.sync.Limiter: None, headgate.sync.Gate: _SIZE, headgate.sync.Bucket: _TOKENS}

    def admit(self, *call: Any, **named: Any) -> Held:
        """Wait until a call is admitted; errors are those of :meth:`headgate.Limiter.admit`."""
        on, terms, timeout = self.on, self.of(*call, **named), self.within(*call, **named)
        if isinstance(on, headgate.sync.Limiter):
            return on.admit(timeout=timeout, **terms).wait()
        if isinstance(on, headgate.sync.Gate):
            return on.admit(timeout=timeout, **terms).__enter__()
        on.take(**terms, timeout=DEFAULT_TIMEOUT if timeout is None else timeout)
        return TAKEN

    async def spend(self, *call: Any, **named: Any) -> None:
        """Wait in a task of any loop, and hold nothing afterwards, for rates and quotas; errors as :meth:`admit`.

        No thread waits, and a task that is cancelled leaves the line.
        """
        on, terms, timeout = self.on, self.of(*call, **named), self.within(*call, **named)
        await on._thread.awaited(_spent(on, terms, timeout))  # noqa: SLF001 -- as for what a thread waits for

    def attempt(self, *call: Any, **named: Any) -> Held | Refused:
        """Return what a call is admitted with, or a refusal; never waits for others."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, headgate.sync.Bucket):
            decision = on.try_take(**terms)
            return decision if isinstance(decision, Refused) else TAKEN
        return on.attempt(**terms)

    def keep(self, held: Held) -> Kept:
        """Return an admission for an answer to keep."""
        return Kept(held, self.on._thread.tell)  # noqa: SLF001 -- a finalizer may not take the locks of a release

    def hold_off(self, seconds: float, reason: str, *call: Any) -> None:
        """Have nobody call for a while, as the other side asks; a failure of it is logged, for the call is done."""
        try:
            self.on.hold_off(seconds, reason=reason, key=self.key_of(*call))
        except HeadgateError as error:
            _log.warning("%r could not be held off for %s s: %s", self.on, seconds, error)


async def _spent(on: SyncSource, terms: dict[str, Any], timeout: float | str | None) -> None:
    """Admit on the loop of a client for threads, and hold nothing: nobody may be left who could release it."""
    if isinstance(on, headgate.sync.Bucket):
        within = DEFAULT_TIMEOUT if timeout is None else timeout
        await on._inner.take(**terms, timeout=within)  # noqa: SLF001 -- it runs on the loop of what it wraps
    elif isinstance(on, headgate.sync.Limiter):
        key = terms.pop("key")
        (await on._inner.wait_for(key, terms, timeout)).release()  # noqa: SLF001 -- as above
    else:
        raise InvalidValue(f"{on!r:.80} holds until it is released, and cannot be spent", setting="on")

"""A gate admits without messages. A permit is credit in hand, taken and put back by arithmetic alone."""

# ruff: noqa: SLF001 -- a permit and an admission are their gate's other halves

import asyncio
from collections.abc import Coroutine
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

from headgate.core.limiting.amounts import encode_key
from headgate.core.limits.bands import check_band
from headgate.core.outbox import Outgoing
from headgate.core.when_full import FAIL, WhenFull
from headgate.credit.account import CreditAccount
from headgate.errors import Closed, CreditTimeout, DestinationFull
from headgate.explain.levels import LimiterState
from headgate.limiting.by_key import KeyedLimiter
from headgate.limiting.hold import BlockHold, Hold
from headgate.limiting.limiter import ATTEMPT_WITHIN
from headgate.limiting.refusals import Refused
from headgate.namespace.defaults import Defaults
from headgate.units import MAX_SIZE, check_timeout, parse_size, parse_timeout


class Permit:
    """A permit keeps bytes admitted until :meth:`release`, or the end of its block. Releasing twice frees once."""

    __slots__ = ("_gate", "_inc", "size")

    _gate: "Gate | None"  # set by the gate: a call to do so would be a tenth of the time of an admission
    _inc: int
    size: int

    def release(self) -> None:
        """Put the bytes back."""
        gate = self._gate
        if gate is not None:
            self._gate = None
            size, line = self.size, gate._credit
            gate._in_use -= size
            if line.inc != self._inc:
                return  # its credit was reclaimed with the session's lease, and belongs to others
            recalled = gate._state.recalled
            if size > line.most or (recalled and gate._state.owes):
                line.returned += size
                line.returned_m += 1
                gate._account.hand_on()
                return
            line.spent -= size
            line.spent_m -= 1
            if recalled or gate._outbox.waiting:
                gate._account.freed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def holding(self) -> BlockHold | None:
        """Return by what Redis knows it, its session's credit; None once it is released."""
        gate = self._gate
        if gate is None:
            return None
        account, line = gate._account, gate._credit
        return BlockHold(account.address.shown, f"{account.session}.0", line.taken_m)


class KeyedPermit(Permit):
    """A permit for a key has the key's turn as long as it is held."""

    __slots__ = ("_hold",)

    def __init__(self, permit: Permit, hold: Hold) -> None:
        self._gate, self._inc, self.size = permit._gate, permit._inc, permit.size
        self._hold = hold

    def release(self) -> None:
        """Put the bytes back, and let the next key go."""
        super().release()
        self._hold.release()


class Admission(Permit):
    """An admission is granted on entering ``async with gate.admit(...)``, and is a permit while inside."""

    __slots__ = ("_timeout", "_wanted")

    def __init__(self, gate: "Gate", size: int, timeout: float | str | None) -> None:
        self._wanted = gate
        self._gate = None
        self.size = size
        self._timeout = timeout

    @property
    def held(self) -> Permit:
        """Itself, for those who look what a task is inside of."""
        return self

    async def __aenter__(self) -> Permit:
        gate, size = self._wanted, self.size
        line = gate._credit
        spent = line.spent + size
        if (
            spent <= line.granted
            and line.spent_m < line.granted_m
            and not (line.frozen or line.lent)
            and not gate._outbox.waiting
            and monotonic() <= gate._lease.use_until
        ):
            line.spent = spent
            line.spent_m += 1
            line.uses += 1
            gate._in_use += size
            self._inc = line.inc
        else:
            gate._lacks(size)
            self._inc = await gate._wait(size, self._timeout)
        self._gate = gate
        return self

    def __aexit__(self, *_: object) -> Coroutine[Any, Any, None]:
        self.release()
        return self._wanted._nothing_left  # type: ignore[no-any-return]  # a future, which is awaited as one


class KeyedAdmission(Admission):
    """An admission for a key has the key's turn as long as it is held."""

    __slots__ = ("_band", "_hold", "_key")

    def __init__(self, gate: "Gate", size: int, timeout: float | str | None, key: str | None, band: int | None) -> None:
        super().__init__(gate, size, timeout)
        self._key, self._band = key, band
        self._hold: Hold | None = None

    async def __aenter__(self) -> Permit:
        patience = self._timeout
        hold, self._timeout = await self._wanted.take_turn(self.size, self._key, patience, self._band)
        try:
            permit = await super().__aenter__()
        except BaseException as error:
            hold.release()
            if isinstance(error, CreditTimeout):
                error.key = self._key
            raise
        finally:
            self._timeout = patience
        self._hold = hold
        return permit

    def release(self) -> None:
        """Put the bytes back, and let the next key go."""
        super().release()
        if self._hold is not None:
            self._hold.release()


class Gate:
    """A gate admits bytes under a limit shared by all sessions. Get one from :meth:`Session.gate`."""

    __slots__ = (
        "__weakref__",
        "_account",
        "_closed",
        "_credit",
        "_given_timeout",
        "_in_use",
        "_lease",
        "_nothing_left",
        "_outbox",
        "_state",
        "_timeout",
        "_when_full",
        "keys",
    )  # fmt: skip

    def __init__(
        self, account: CreditAccount, keys: KeyedLimiter, *, timeout: float | None, when_full: WhenFull | None = None
    ) -> None:
        self.keys = keys
        self._when_full = when_full
        self._account = account
        account.failures.gate = True
        self._state = account.state
        self._credit = account.credit
        self._lease = account.lease
        self._outbox = account.outbox
        self._given_timeout = timeout
        self.adopt(Defaults())
        self._in_use = 0
        self._closed = False
        self._nothing_left: Any = asyncio.get_running_loop().create_future()
        self._nothing_left.set_result(None)  # to leave a block is to await this, which costs less than a coroutine

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._in_use} in use, {self._credit.in_hand} in hand"
        return f"Gate({self._account.address.shown!r}, {state})"

    def adopt(self, defaults: Defaults) -> None:
        """Go by what the destination's settings say, but for what the gate was opened with."""
        self._timeout = defaults.timeout if self._given_timeout is None else self._given_timeout

    @property
    def in_use(self) -> int:
        """Bytes that permits of this gate object hold."""
        return self._in_use

    def try_admit(self, size: int = 1, *, key: str | None = None, band: int | None = None) -> Permit | None:
        """Return a permit for ``size`` bytes if the credit is in hand, else None; never waits, makes no call.

        With a ``key`` or a ``band`` its turn has to be in hand too, which it is once many such come at a time.

        Raises:
            InvalidValue: not a whole number, negative, or 2**52 and more.
            InvalidName: the key cannot be used.
        """
        if type(size) is not int or size < 0:
            size = parse_size(size, "size")
        if key is not None or band is not None:
            return self._try_in_turn(parse_size(size, "size"), key, band)
        line = self._credit
        spent = line.spent + size
        if (
            spent > line.granted
            or line.spent_m >= line.granted_m
            or line.frozen
            or line.lent
            or self._outbox.waiting
            or monotonic() > self._lease.use_until
        ):
            self._lacks(size)
            return None
        line.spent = spent
        line.spent_m += 1
        line.uses += 1
        self._in_use += size
        permit = Permit()
        permit._gate = self
        permit._inc = line.inc
        permit.size = size
        return permit

    def admit(
        self, size: int | str = 1, *, key: str | None = None, timeout: float | str | None = None,
        band: int | None = None,
    ) -> Admission:  # fmt: skip
        """Return an ``async with`` block that is entered once ``size`` bytes are admitted.

        Args:
            size: bytes, or text such as "64KiB".
            key: for whom, such as a tenant: keys that wait take turns, over all sessions, and limits of each key hold.
            timeout: seconds to wait, or ``"unlimited"``; the gate's own (30 s unless set) when None.
            band: 0 goes first of those who come with a key or a band, 7 last; that of the key, or 3, when None.

        Raises:
            CreditTimeout: not admitted in time.
            DestinationFull: not admitted, and ``when_full`` says not to wait, or not so long.
            MessageTooLarge: more than the gate's whole limit.
            InvalidValue: not a size, or not a timeout.
            InvalidName: the key cannot be used.
            Closed: the gate is closed.
        """
        if timeout is not None:
            check_timeout(timeout)
        if band is not None:
            check_band(band)
        if type(size) is not int or size < 0:
            size = parse_size(size, "size")
        if key is None and band is None:
            return Admission(self, size, timeout)
        return KeyedAdmission(self, size, timeout, key, band)

    async def attempt(
        self, size: int | str = 1, *, key: str | None = None, band: int | None = None
    ) -> "Permit | Refused":
        """Return a permit, or a refusal: asks Redis where no credit is in hand, and never waits for others.

        Raises:
            MessageTooLarge, InvalidValue, InvalidName, CoordinatorUnavailable, Closed: as :meth:`admit`.
        """
        size = parse_size(size, "size")
        hold = await self.attempt_turn(size, key, band)
        if hold is not None and not isinstance(hold, Hold):
            return hold
        try:
            permit = self.try_admit(size) or await self.wait(size, ATTEMPT_WITHIN, FAIL)
        except BaseException as error:
            if hold is not None:
                hold.release()
            if isinstance(error, CreditTimeout | DestinationFull):
                return await self.refused(size, key)
            raise
        return permit if hold is None else KeyedPermit(permit, hold)

    async def state(self, *, key: str | None = None) -> LimiterState:
        """Read how much is admitted, of ``bytes`` and ``calls`` as far as they are limited, and of one key.

        Credit that sessions have in hand counts as taken.

        Raises:
            InvalidName: the key cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        return await self.keys.state(key)

    async def hold_off(self, seconds: float | str, *, reason: str = "", key: str | None = None) -> float:
        """Have nothing admitted for a while, on all hosts, by Redis' clock; afterwards it begins slowly.

        Arguments, result and errors are those of :meth:`Limiter.hold_off`.
        """
        return await self.keys.hold_off(seconds, reason, key)

    async def attempt_turn(self, size: int, key: str | None, band: int | None) -> "Hold | Refused | None":
        """Return a key's turn, or why nobody or that key has one; None without a key and a band."""
        self._check_open()
        if self._state.waiters.stopped:
            return await self.refused(size, key)
        if key is None and band is None:
            return None
        return await (await self.keys.open()).attempt(key=key, band=band, bytes=size, calls=1)

    async def refused(self, size: int, key: str | None) -> Refused:
        """Return what binds."""
        state = await self.keys.state(key)
        wanted = {"bytes": size, "calls": 1}
        limit = next((name for name, one in state.limits.items() if one.remaining < wanted[name]), "line")
        limit, after = ("hold_off", state.held_off) if state.held_off else (limit, None)
        return Refused(self._account.address.shown, limit, "all", after, MappingProxyType(wanted), key)

    async def close(self) -> None:
        """Give the credit back; permits still held are void. Never flow-controlled, never longer than 1 s."""
        if not self._closed:
            self._closed = True
            await self._account.part()

    def _check_open(self) -> None:
        if self._closed or self._account.closed:
            raise Closed(f"the gate {self._account.address.shown!r} {self._account.why_closed}")

    def _try_in_turn(self, size: int, key: str | None, band: int | None) -> Permit | None:
        hold = self.try_turn(size, key, band)
        permit = None if hold is None else self.try_admit(size)
        if hold is None or permit is not None:
            return None if permit is None or hold is None else KeyedPermit(permit, hold)
        hold.release()
        return None

    def try_turn(self, size: int, key: str | None, band: int | None) -> Hold | None:
        """Return a key's turn if that is in hand."""
        encode_key(key)
        limiter = self.keys.limiter
        hold = None if limiter is None else limiter.try_admit(key=key, band=band, bytes=size, calls=1)
        return hold if isinstance(hold, Hold) else None

    async def take_turn(
        self, size: int, key: str | None, timeout: float | str | None, band: int | None
    ) -> tuple[Hold, float]:
        """Wait until it is a key's turn; returns that, and the seconds that are left to wait for credit."""
        self._check_open()
        patience = self._timeout if timeout is None else parse_timeout(timeout)
        until = monotonic() + patience
        limiter = await self.keys.open()
        hold = await limiter.admit(key=key, timeout=patience, band=band, bytes=size, calls=1)
        return hold, max(0.0, until - monotonic())

    def _lacks(self, size: int) -> None:
        """Note that credit was asked for that is not in hand."""
        if size >= MAX_SIZE:  # nothing that is granted is that much
            parse_size(size, "size")
        if not self._closed:
            self._account.wanted(size)

    async def wait(self, size: int, timeout: float | str | None, when_full: WhenFull | None = None) -> Permit:
        """Return a permit once there is credit; arguments and errors as :meth:`admit`."""
        permit = Permit()
        permit._inc, permit.size = await self._wait(size, timeout, when_full), size
        permit._gate = self
        return permit

    async def _wait(self, size: int, timeout: float | str | None, when_full: WhenFull | None = None) -> int:
        self._check_open()
        loop = asyncio.get_running_loop()
        patience = self._timeout if timeout is None else parse_timeout(timeout)
        done: Any = loop.create_future()
        item = Outgoing(b"", size, loop.time() + patience, done, when_full=when_full or self._when_full)
        try:
            with self._account.waits.timed("gate", self._account.address.shown):
                if not self._account.submit(item):
                    self._account.awaits(item)
                paid: int = await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None and done.result() == self._credit.inc:
                self._credit.put_back(size)  # admitted and cancelled in the same turn
                self._account.freed()
            raise
        self._in_use += size
        return paid

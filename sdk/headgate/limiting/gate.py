"""Gates: admission without messages. A permit is credit in hand, taken and put back by arithmetic alone."""

# ruff: noqa: SLF001 -- a permit and an admission are their gate's other halves

import asyncio
from time import monotonic
from types import TracebackType
from typing import Any, Self

from headgate.core.full import WhenFull
from headgate.core.outbox import Outgoing
from headgate.credit.account import CreditAccount
from headgate.errors import Closed, InvalidValue
from headgate.namespace.defaults import Defaults
from headgate.units import MAX_SIZE, parse_size, parse_timeout


class Permit:
    """Bytes admitted; put back on :meth:`release`, or on leaving its ``with`` block. Releasing twice frees once."""

    __slots__ = ("_gate", "_inc", "size")

    def __init__(self, gate: "Gate", size: int, inc: int) -> None:
        self._gate: Gate | None = gate
        self._inc = inc
        self.size = size

    def release(self) -> None:
        """Put the bytes back."""
        gate = self._gate
        if gate is not None:
            self._gate = None
            gate._in_use -= self.size
            line = gate._credit
            if line.inc != self._inc:
                return  # its credit was reclaimed with the session's lease, and belongs to others
            if gate._state.recalled and gate._state.owes:
                line.returned += self.size
                line.returned_m += 1
                gate._account.hand_on()
                return
            line.spent -= self.size
            line.spent_m -= 1
            if gate._outbox.waiting or gate._state.recalled:
                gate._account.freed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Admission:
    """``async with gate.admit(...)``: held while inside."""

    __slots__ = ("_gate", "_permit", "_size", "_timeout")
    _permit: Permit  # there from entering on

    def __init__(self, gate: "Gate", size: int, timeout: float | str | None) -> None:
        self._gate = gate
        self._size = size
        self._timeout = timeout

    async def __aenter__(self) -> Permit:
        permit = self._gate.try_admit(self._size)
        if permit is None:
            permit = await self._gate._wait(self._size, self._timeout)
        self._permit = permit
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._permit.release()


class Gate:
    """Admits bytes under a limit shared by all sessions. Get one from :meth:`Session.gate`."""

    __slots__ = (
        "__weakref__", "_account", "_closed", "_credit", "_in_use", "_lease", "_outbox", "_said_timeout", "_state",
        "_timeout", "_when_full",
    )  # fmt: skip

    def __init__(self, account: CreditAccount, *, timeout: float | None, when_full: WhenFull | None = None) -> None:
        self._when_full = when_full
        self._account = account
        account.failures.gate = True
        self._state = account.state
        self._credit = account.credit
        self._lease = account.lease
        self._outbox = account.outbox
        self._said_timeout = timeout
        self.adopt(Defaults())
        self._in_use = 0
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._in_use} in use, {self._credit.in_hand} in hand"
        return f"Gate({self._account.address.name!r}, {state})"

    def adopt(self, defaults: Defaults) -> None:
        """Go by what the destination's settings say, but for what the gate was opened with."""
        self._timeout = defaults.timeout if self._said_timeout is None else self._said_timeout

    @property
    def in_use(self) -> int:
        """Bytes that permits of this gate object hold."""
        return self._in_use

    def try_admit(self, size: int = 1) -> Permit | None:
        """Return a permit for ``size`` bytes if the credit is in hand, else None; never waits, makes no call.

        Raises:
            InvalidValue: a negative size, or one of 2**52 and more.
        """
        if not 0 <= size < MAX_SIZE:
            raise InvalidValue(f"{size!r} cannot be admitted; use 0 or more", setting="size")
        line = self._credit
        spent = line.spent + size
        if (
            spent > line.granted
            or line.spent_m >= line.granted_m
            or line.frozen
            or self._outbox.waiting
            or monotonic() > self._lease.use_until
        ):
            if not self._closed:
                self._account.wanted(size)
            return None
        line.spent = spent
        line.spent_m += 1
        line.uses += 1
        self._in_use += size
        return Permit(self, size, line.inc)

    def admit(self, size: int | str = 1, *, timeout: float | str | None = None) -> Admission:
        """Return an ``async with`` block that is entered once ``size`` bytes are admitted.

        Args:
            size: bytes, or text such as "64KiB".
            timeout: seconds to wait, or ``"unlimited"``; the gate's own (30 s unless set) when None.

        Raises:
            CreditTimeout: not admitted in time.
            DestinationFull: not admitted, and ``when_full`` says not to wait, or not so long.
            MessageTooLarge: more than the gate's whole limit.
            InvalidValue: not a size.
            Closed: the gate is closed.
        """
        return Admission(self, size if type(size) is int else parse_size(size, "size"), timeout)

    async def close(self) -> None:
        """Give the credit back; permits still held are void. Never flow-controlled, never longer than 1 s."""
        if not self._closed:
            self._closed = True
            await self._account.part()

    async def _wait(self, size: int, timeout: float | str | None) -> Permit:
        if self._closed or self._account.closed:
            raise Closed(f"the gate {self._account.address.name!r} {self._account.why_closed}")
        loop = asyncio.get_running_loop()
        patience = self._timeout if timeout is None else parse_timeout(timeout)
        done: Any = loop.create_future()
        item = Outgoing(b"", size, loop.time() + patience, done, when_full=self._when_full)
        self._account.submit(item)
        try:
            paid: int = await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None and done.result() == self._credit.inc:
                self._credit.put_back(size)  # admitted and cancelled in the same turn
                self._account.freed()
            raise
        self._in_use += size
        return Permit(self, size, paid)

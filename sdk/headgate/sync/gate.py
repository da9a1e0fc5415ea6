"""Threads are admitted to gates by arithmetic under a lock, on the credit line that the loop thread keeps."""

# ruff: noqa: SLF001 -- a permit is its gate's other half, and the gate that of the one it wraps

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Self, TypeVar

import headgate.limiting.gate
from headgate._util.forks import watch
from headgate.core.credit import CreditLine, Lease
from headgate.core.limits.bands import check_band
from headgate.core.when_full import FAIL, WhenFull
from headgate.errors import CreditTimeout, DestinationFull
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import ATTEMPT_WITHIN
from headgate.limiting.refusals import Refused
from headgate.sync.faces import blocking
from headgate.sync.thread import LoopThread
from headgate.sync.turn import ThreadTurn
from headgate.units import MAX_SIZE, check_timeout, parse_size

P = ParamSpec("P")
T = TypeVar("T")
_monotonic = time.monotonic
_OVER = Lease(0.0)


def _locked(call: Callable[Concatenate[CreditLine, P], T]) -> Callable[Concatenate["SharedCreditLine", P], T]:
    """Return the same call, under the lock of the line."""

    @functools.wraps(call)
    def locked(line: "SharedCreditLine", /, *args: P.args, **named: P.kwargs) -> T:
        with line.lock:
            return call(line, *args, **named)

    return locked


@dataclass(slots=True)
class SharedCreditLine(CreditLine):
    """A shared credit line is changed by several threads: every method that changes it holds its lock."""

    lock: ThreadTurn = field(default_factory=ThreadTurn, repr=False, compare=False)

    take = _locked(CreditLine.take)
    take_all = _locked(CreditLine.take_all)
    put_back = _locked(CreditLine.put_back)
    publish = _locked(CreditLine.publish)
    raise_to = _locked(CreditLine.raise_to)
    give_back = _locked(CreditLine.give_back)
    keep_within = _locked(CreditLine.keep_within)
    retire = _locked(CreditLine.retire)
    start_anew = _locked(CreditLine.start_anew)


class Permit:
    """A permit keeps bytes admitted until :meth:`release`, or the end of its block. Releasing twice frees once."""

    __slots__ = ("_gate", "_inc", "size")

    def __init__(self, gate: "Gate | None", size: int, inc: int) -> None:
        self._gate = gate
        self._inc = inc
        self.size = size

    def release(self) -> None:
        """Put the bytes back; from any thread."""
        gate = self._gate
        if gate is None:
            return
        with gate._lock as is_free:
            if not is_free:
                gate._thread.tell(self.release)
                return
            if self._gate is None:
                return
            self._gate = None
            size = self.size
            gate._in_use -= size
            line = gate._line
            account = gate._account
            owed = size > line.most or (account.state.recalled and account.state.owes)
            if line.inc == self._inc:  # else its credit was reclaimed with the session's lease, and belongs to others
                if owed:
                    line.returned += size
                    line.returned_m += 1
                else:
                    line.spent -= size
                    line.spent_m -= 1
                line.uses += 1
        if owed:
            gate._thread.tell(account.hand_on)
        elif gate._outbox.waiting or account.state.recalled:
            gate._thread.tell(account.freed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Admission(Permit):
    """An admission is granted on entering ``with gate.admit(...)``, and is a permit while inside."""

    __slots__ = ("_timeout", "_wanted")

    def __init__(self, gate: "Gate", size: int, timeout: float | str | None) -> None:
        self._wanted = gate
        self._gate = None
        self._inc = 0
        self.size = size
        self._timeout = timeout

    def __enter__(self) -> Self:
        gate, size = self._wanted, self.size
        line = gate._line
        with gate._lock as is_free:
            spent = line.spent + size
            if (
                is_free
                and spent <= line.granted
                and line.spent_m < line.granted_m
                and not (line.frozen or line.lent)
                and not gate._outbox.waiting
                and _monotonic() <= gate._lease.use_until
            ):
                line.spent = spent
                line.spent_m += 1
                gate._in_use += size
                self._inc = line.inc
                self._gate = gate
                return self
        self._inc = gate._wait(size, self._timeout)
        self._gate = gate
        return self


class KeyedAdmission(Admission):
    """An admission for a key has the key's turn as long as it is held."""

    __slots__ = ("_band", "_hold", "_key")

    def __init__(
        self, gate: "Gate", size: int, timeout: float | str | None, key: str | None, band: int | None,
        hold: Hold | None = None,
    ) -> None:  # fmt: skip
        super().__init__(gate, size, timeout)
        self._key, self._band, self._hold = key, band, hold

    def __enter__(self) -> Self:
        if self._gate is not None:  # it was admitted by an attempt
            return self
        gate = self._wanted
        turn = gate._inner.take_turn(self.size, self._key, self._timeout, self._band)
        self._hold, self._timeout = gate._thread.run(turn, undo=lambda taken: taken[0].release())
        try:
            return super().__enter__()
        except BaseException as error:
            self.release()
            if isinstance(error, CreditTimeout):
                error.key = self._key
            raise

    def admitted(self, permit: Permit) -> Self:
        """Take the place of a permit."""
        self._gate, self._inc = self._wanted, permit._inc
        return self

    def release(self) -> None:
        """Put the bytes back, and let the next key go; from any thread."""
        super().release()
        hold, self._hold = self._hold, None
        if hold is not None:
            self._wanted._thread.tell(hold.release)


class Gate:
    """This is :class:`headgate.Gate` for threads. Get one from :meth:`Session.gate`."""

    __slots__ = (
        "__weakref__",
        "_account",
        "_asked",
        "_in_use",
        "_inner",
        "_lease",
        "_line",
        "_lock",
        "_outbox",
        "_thread",
    )

    def __init__(self, thread: LoopThread, inner: headgate.limiting.gate.Gate) -> None:
        self._thread = thread
        self._inner = inner
        self._account = inner._account
        line = self._account.credit
        if not isinstance(line, SharedCreditLine):
            raise TypeError("the account of a gate for threads has a credit line for threads")
        self._line = line
        self._lock = line.lock
        self._lease = self._account.lease
        self._outbox = self._account.outbox
        self._in_use = 0
        self._asked = False
        watch(self)

    def forked(self) -> None:
        """Admit nothing from now on, whoever held the lock at that moment; to wait says why."""
        self._lock = ThreadTurn()
        self._lease = _OVER

    def __repr__(self) -> str:
        state = "closed" if self._lease is _OVER else f"{self._in_use} in use, {self._line.in_hand} in hand"
        return f"Gate({self._account.address.name!r}, {state})"

    @property
    def in_use(self) -> int:
        """Bytes that permits of this gate object hold."""
        return self._in_use

    def try_admit(self, size: int = 1, *, key: str | None = None, band: int | None = None) -> Permit | None:
        """Return a permit for ``size`` bytes if the credit is in hand, else None; never waits, makes no call.

        With a ``key`` or a ``band`` its turn has to be in hand too; the loop thread sees to that, and this waits.

        Raises:
            InvalidValue: not a whole number, negative, or 2**52 and more.
            InvalidName: the key cannot be used.
        """
        if size.__class__ is not int or not 0 <= size < MAX_SIZE:
            size = parse_size(size, "size")
        if key is not None or band is not None:
            return self._try_in_turn(size, key, band)
        line = self._line
        with self._lock as is_free:
            spent = line.spent + size
            if (
                is_free
                and spent <= line.granted
                and line.spent_m < line.granted_m
                and not (line.frozen or line.lent)
                and not self._outbox.waiting
                and _monotonic() <= self._lease.use_until
            ):
                line.spent = spent
                line.spent_m += 1
                self._in_use += size
                return Permit(self, size, line.inc)
            asked, self._asked = self._asked, self._lease is not _OVER
        if not asked and self._asked:
            self._thread.tell(self._want, size)
        return None

    def admit(
        self, size: int | str = 1, *, key: str | None = None, timeout: float | str | None = None,
        band: int | None = None,
    ) -> Admission:  # fmt: skip
        """Return a ``with`` block that is entered once ``size`` bytes are admitted; errors as :meth:`Gate.admit`."""
        if type(size) is not int or not 0 <= size < MAX_SIZE:
            size = parse_size(size, "size")
        check_timeout(timeout)
        if key is None and band is None:
            return Admission(self, size, timeout)
        check_band(band)
        return KeyedAdmission(self, size, timeout, key, band)

    def attempt(self, size: int | str = 1, *, key: str | None = None, band: int | None = None) -> Permit | Refused:
        """Return a permit, or a refusal; never waits for others; as :meth:`headgate.Gate.attempt`."""
        size = parse_size(size, "size")
        hold = self._thread.run(self._inner.attempt_turn(size, key, band))
        if isinstance(hold, Refused):
            return hold
        try:
            permit = self.try_admit(size) or Permit(self, size, self._wait(size, ATTEMPT_WITHIN, FAIL))
        except BaseException as error:
            if hold is not None:
                self._thread.tell(hold.release)
            if isinstance(error, CreditTimeout | DestinationFull):
                return self._thread.run(self._inner.refused(size, key))
            raise
        return permit if hold is None else KeyedAdmission(self, size, None, key, band, hold).admitted(permit)

    state = blocking(headgate.limiting.gate.Gate.state)
    hold_off = blocking(headgate.limiting.gate.Gate.hold_off)

    def close(self) -> None:
        """Give the credit back; permits still held are void. Never flow-controlled, never longer than 1 s."""
        with self._lock:
            self._lease = _OVER
        self._thread.finish(self._inner.close())

    def _want(self, size: int) -> None:
        self._asked = False
        self._account.wanted(size)

    def _try_in_turn(self, size: int, key: str | None, band: int | None) -> Permit | None:
        async def look() -> Hold | None:
            return self._inner.try_turn(size, key, band)

        hold = self._thread.run(look())
        permit = None if hold is None else self.try_admit(size)
        if hold is None or permit is not None:
            return None if permit is None else KeyedAdmission(self, size, None, key, band, hold).admitted(permit)
        self._thread.tell(hold.release)
        return None

    def _wait(self, size: int, timeout: float | str | None, when_full: WhenFull | None = None) -> int:
        """Wait in line; returns the incarnation of the account that paid."""
        permit = self._thread.run(
            self._inner.wait(size, timeout, when_full),
            undo=headgate.limiting.gate.Permit.release,
        )
        with self._lock:
            self._in_use += size
        return permit._inc

"""A hold keeps what a limiter admitted, until it is released."""

import asyncio
import re
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, Protocol, Self

from headgate.core.limiting.amounts import amounts_text, check_amounts
from headgate.core.limiting.calls import Reservation, State
from headgate.core.limiting.samples import Outcome, check_outcome
from headgate.core.limiting.slices import Slice
from headgate.errors import CoordinatorUnavailable, InvalidValue, SessionExpired
from headgate.options import MAX_TTL, MIN_TTL
from headgate.units import parse_duration

RENEWED_WITHIN: Final = 2.5
"""Seconds for Redis to answer whoever waits until a hold is renewed."""


_NOTHING: Final[frozenset[str]] = frozenset()
_ID: Final = re.compile(r"[A-Za-z0-9_~-]{1,90}\.[1-9]\d{0,18}\Z", re.ASCII)


class BlockHold(NamedTuple):
    """A block hold is one block's part of a limiter or a gate, for those who look for deadlocks.

    Attributes:
        name: of the limiter or gate.
        holder: by which Redis knows it.
        out: how many blocks, and holds outside of blocks, are of this holder.
    """

    name: str
    holder: str
    out: int


class Owner(Protocol):
    """The owner of a hold is its limiter, which settles, renews and ends it.

    Attributes:
        name: of the limiter.
        at_once: names of those of its limits that are held at once.
    """

    name: str
    at_once: frozenset[str]

    def settle(self, one: Reservation, used: str) -> None:
        """Say what a hold used."""

    def end(self, one: Reservation, outcome: Outcome, amounts: Mapping[str, int]) -> None:
        """End a hold, and count how it ended, where a limit adapts."""

    def renew(self, one: Reservation, ttl_ms: int, done: Callable[[bool], None]) -> None:
        """Renew a hold."""

    def leave(self, one: Reservation) -> None:
        """Forget a hold."""

    def settle_slice(self, slice_: Slice, reserved: Mapping[str, int], used: Mapping[str, int]) -> None:
        """Say what a hold of what is in hand used."""

    def release_slice(self, slice_: Slice, amounts: Mapping[str, int]) -> None:
        """End a hold of what is in hand."""


def check_hold(hold: str) -> None:
    """See that a text is the id of a hold.

    Raises:
        InvalidValue: it is not.
    """
    if not isinstance(hold, str) or not _ID.match(hold):
        raise InvalidValue(f"{hold!r:.120} is not the id of a hold", setting="hold")


def read_ttl(ttl: float | str) -> int:
    """Return the milliseconds of a hold's lease.

    Raises:
        InvalidValue: not a duration from 1 s to 1 h.
    """
    seconds = parse_duration(ttl, "ttl")
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise InvalidValue(f"{ttl!r}; use 1 s to 1 h", setting="ttl")
    return int(seconds * 1000)


class Hold:
    """A hold keeps amounts that a limiter admitted until :meth:`release`, or the end of a ``with`` block.

    Its lease is renewed as long as it is held. A process that dies frees what was held at once when the lease ends; of
    rates and quotas it used what it reserved.

    Attributes:
        key: for which it was admitted; None without one, and for one taken up by its id.
        part: of limits of all keys together, held at another slice of the limiter than this; None where there is none.
    """

    __slots__ = (
        "__weakref__", "_amounts", "_limiter", "_lost", "_outcome", "_over", "_reservation", "_settled",
        "_slice", "key", "part",
    )  # fmt: skip

    def __init__(
        self,
        limiter: Owner,
        key: str | None,
        amounts: dict[str, int],
        slice_: Slice | None = None,
        reservation: Reservation | None = None,
    ) -> None:
        self.key = key
        self.part: Hold | None = None
        self._limiter = limiter
        self._amounts = amounts
        self._slice = slice_
        self._reservation = reservation
        self._over = self._lost = False
        self._settled = _NOTHING

    def __repr__(self) -> str:
        state = "lost" if self.lost else "over" if self._over else "held"
        of = f" for {self.key!r}" if self.key is not None else ""
        return f"Hold({self._limiter.name!r}{of}, {amounts_text(self._amounts)}, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def amounts(self) -> Mapping[str, int]:
        """The amounts that it reserved, once settled those that were used; not known of one taken up by its id."""
        return dict(self._amounts)

    @property
    def id(self) -> str:
        """The id by which any process can take it up, with :meth:`Limiter.hold`, as long as it is held.

        Raises:
            InvalidValue: it is of what its session has in hand; a limiter that is opened with ``in_hand=False`` gives
                each of its holds an id.
        """
        return self._own("id").id

    @property
    def lost(self) -> bool:
        """Whether it is held no more, although nobody released it: its lease ran out, or Redis lost it."""
        if self.part is not None and self.part.lost:
            return True
        if self._slice is not None:
            return self._slice.gone
        one = self._reservation
        return self._lost or (not self._over and one is not None and one.state is State.OVER)

    @property
    def expires_in(self) -> float:
        """Seconds for which it is surely held if nothing more is heard of Redis; 0 once it is not."""
        reservation = self._reservation if self._slice is None else self._slice.reservation
        if self._over or self.lost or reservation is None:
            return 0.0
        own = max(0.0, reservation.use_until - monotonic())
        return own if self.part is None else min(own, self.part.expires_in)

    def settle(self, **used: int | str) -> None:
        """Say what was used of what it reserved, by the names of limits; those that are not named were used whole.

        Of rates and quotas less comes back and more is owed, once: the first settlement counts. Amounts that are held
        at once can only become less. It goes with the next call, and is not lost with an answer.

        Raises:
            InvalidValue: not a whole number from 0 to 2**52, or a limit of which nothing was reserved.
        """
        reserved, counted = self.count(used)
        if counted and self._slice is not None:
            self._limiter.settle_slice(self._slice, reserved, counted)
        elif counted and self._reservation is not None:
            self._limiter.settle(self._reservation, amounts_text(counted))
        if self.part is not None and (of_all := {name: used[name] for name in used if self.part.may_have(name)}):
            self.part.settle(**of_all)

    def may_have(self, name: str) -> bool:
        """Return whether it reserved something of a limit, as far as is known."""
        return name in self._amounts or (self._reservation is not None and self._reservation.foreign)

    def is_at(self, owner: Owner) -> bool:
        """Return whether that limiter, or slice of one, has it."""
        return self._limiter is owner

    @property
    def needs_part(self) -> bool:
        """Whether it is over without its part of limits of all keys, by its last renewal."""
        return self._reservation is not None and self._reservation.has_part

    @property
    def is_known(self) -> bool:
        """Whether Redis knows it by an id of its own."""
        return self._reservation is not None

    def undo(self) -> None:
        """Release it, and what it took of rates and quotas too: it was never used."""
        if reserved := [name for name, number in self._amounts.items() if number]:
            self.settle(**dict.fromkeys(reserved, 0))
        self.release("ignore")

    def count(self, used: Mapping[str, int | str]) -> tuple[dict[str, int], dict[str, int]]:
        """Note what was used; returns what was reserved, and what counts of what was used; errors as :meth:`settle`."""
        checked, reserved, at_once = check_amounts(used), self._amounts, self._limiter.at_once
        foreign = self._reservation is not None and self._reservation.foreign
        before = self._settled
        for name in checked:
            if not foreign and not reserved.get(name) and name not in before:
                raise InvalidValue(
                    "nothing of it was reserved, so nothing can be settled; reserve at least 1", setting=name
                )
        counted: dict[str, int] = {}
        for name, number in checked.items():
            if name in at_once:
                counted[name] = min(number, reserved.get(name, number))
            elif at_once >= before:
                counted[name] = number
        if self._over:
            return reserved, {}
        self._settled = before.union(counted)
        self._amounts = {**reserved, **counted}
        return reserved, counted

    def release(self, outcome: Outcome | None = None) -> None:
        """End it: what it held at once is free for others. Releasing twice frees once.

        Args:
            outcome: how it went, for a limit that adapts: ``ok``, ``overload`` where what it was for could not bear it,
                or ``ignore`` where it says nothing about that. :attr:`outcome` when None.

        Raises:
            InvalidValue: no such outcome; it is held still.
        """
        if outcome is not None:
            self.outcome = outcome
        if self._over:
            return
        if self.part is not None:
            self.part.release(self.outcome)
        one = self._reservation
        self._over, self._lost = True, one is not None and one.state is State.OVER
        if self._slice is not None:
            self._limiter.release_slice(self._slice, self._amounts)
        elif one is not None and not self._lost:
            self._limiter.end(one, self.outcome, self._amounts)

    @property
    def outcome(self) -> Outcome:
        """How it goes, as its release will say: ``ok`` unless it was set to ``overload`` or ``ignore``."""
        return getattr(self, "_outcome", "ok")

    @outcome.setter
    def outcome(self, outcome: Outcome) -> None:
        self._outcome = check_outcome(outcome)

    def renew(self, ttl: float | str | None = None) -> "asyncio.Future[None]":
        """Begin its lease again, with ``ttl`` seconds from now on; awaited, it says when that is done.

        Holds are renewed by themselves: this is for one that is to outlive its session, or to stay with a longer lease.

        Raises:
            InvalidValue: not a duration from 1 s to 1 h, or it is of what its session has in hand, which has a lease
                of its own.
            SessionExpired: when awaited: it is held no more.
            CoordinatorUnavailable: when awaited: Redis does not answer in time.
        """
        own = self._renew(ttl)
        if self.part is None:
            return own
        both = asyncio.ensure_future(_all_of(own, self.part.renew(ttl)))
        both.add_done_callback(_no_trouble)
        return both

    def _renew(self, ttl: float | str | None) -> "asyncio.Future[None]":
        one = self._own("renew")
        ttl_ms = one.ttl_ms if ttl is None else read_ttl(ttl)
        renewed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        renewed.add_done_callback(_no_trouble)

        def hear(held: bool) -> None:  # noqa: FBT001
            if renewed.done():
                return
            if held:
                renewed.set_result(None)
            elif one.state is State.HELD:  # an epoch began, and it was claimed
                self._limiter.renew(one, ttl_ms, hear)
            else:
                renewed.set_exception(SessionExpired(self._limiter.name, one.id))

        def give_up() -> None:
            if not renewed.done():
                late = f"{RENEWED_WITHIN} s: it may be renewed all the same, and its session goes on to renew it"
                renewed.set_exception(
                    CoordinatorUnavailable(f"the hold {one.id!r} is not known to be renewed after {late}")
                )

        self._limiter.renew(one, ttl_ms, hear)
        timer = renewed.get_loop().call_later(RENEWED_WITHIN, give_up)
        renewed.add_done_callback(lambda _: timer.cancel())
        return renewed

    async def hand_over(self, ttl: float | str | None = None) -> str:
        """Leave it to another process: renew it once more, release it no more, and return its id.

        Args:
            ttl: seconds within which the other one must have taken it up; as its lease is when None.

        Raises:
            InvalidValue: as :meth:`renew`.
            SessionExpired: it is held no more.
            CoordinatorUnavailable: Redis does not answer in time; it is held still.
        """
        await self.renew(ttl)
        return self.leave()

    def leave(self) -> str:
        """Leave it as it is: renew it no more, release it no more, and return its id.

        Raises:
            InvalidValue: as :meth:`renew`.
        """
        one = self._own("leave")
        self._over = True
        self._limiter.leave(one)
        if self.part is not None:
            self.part.leave()
        return one.id

    def _own(self, what: str) -> Reservation:
        if self._reservation is None or (self.part is not None and not self.part.is_known):
            raise InvalidValue(
                "this hold is part of what its session has in hand, so Redis does not know it; open the limiter with "
                "in_hand=False", setting=what,
            )  # fmt: skip
        return self._reservation

    def holding(self) -> BlockHold | None:
        """Return by what Redis knows it; None once it is over."""
        reservation = self._reservation if self._slice is None else self._slice.reservation
        if self._over or self.lost or reservation is None:
            return None
        return BlockHold(self._limiter.name, reservation.id, 1 if self._slice is None else self._slice.out)


async def _all_of(*renewals: "asyncio.Future[None]") -> None:
    await asyncio.gather(*renewals)


def _no_trouble(done: "asyncio.Future[None]") -> None:
    """Take its outcome: whoever does not wait lost nothing."""
    done.cancelled() or done.exception()

"""A machine, without I/O and clock, decides what a consumer asks of Redis next, and when it looks again.

Its driver (:mod:`headgate.consuming.feed`) makes one call at a time, and tells the machine each answer. Settlements on
their way out and a fetch go in the same call. A call whose reply was lost is made again as it was: Redis knows a fetch
by its number, and gives again what it gave.
"""

import math
from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic

from headgate.core.credit import Lease
from headgate.core.limits.turns_over_slices import Turn
from headgate.core.window import FETCH_BYTES, LINGER, MAX_FETCH, Allowance, Call, Demand, Exchange, T, Window

MAX_SETTLED: Final = 256
"""Settlements that one call carries."""
POLL: Final = 1.0
"""Seconds until the next look where the last one found less than there was room for."""
SEEK_AFTER: Final = 0.25
"""Seconds until the next look, after one that found messages only in the hands of others."""
MORE_MS: Final = 1
"""Milliseconds after which Redis has one look again that may have more at once."""
NO_ROOM: Final = (0, 0)
FIRST_PAGE: Final = b"0"


@dataclass(slots=True)
class WindowUse:
    """A window use counts what a consumer holds of its window, and which part of it is open for more.

    The window opens to its whole free room once ``top_up`` of it was settled, rounded down to messages; what is open
    stays open until filled.
    """

    window: Window
    messages: int = 0
    bytes: int = 0
    _open: int = 0
    _open_bytes: int = 0
    among: ClassVar[None] = None

    def linger(self, _settled: int) -> float:
        """Return the seconds for which settlements wait for company, however many they are."""
        return LINGER

    def deliver(self, messages: int, size: int) -> None:
        """Count deliveries, ``size`` bytes in all."""
        self.messages += messages
        self.bytes += size
        self._open -= messages
        self._open_bytes -= size

    def fill(self, size: int) -> None:
        """Close what is left of the bytes when it takes no message of ``size``: the next comes with the next top-up."""
        if self.window.bytes != "unlimited" and self._open_bytes < size:
            self._open_bytes = min(self._open_bytes, 0)

    def settle(self, messages: int, size: int) -> None:
        """Count settlements, ``size`` bytes in all."""
        self.messages -= messages
        self.bytes -= size

    def clear(self) -> None:
        """Count everything as given back."""
        self.messages = self.bytes = self._open = self._open_bytes = 0

    def configure(self, window: Window) -> None:
        """Change the window, which is open at once; below what is held, nothing more comes until enough is settled."""
        self.window = window
        most, most_bytes = self.most()
        self._open, self._open_bytes = max(0, most - self.messages), max(0, most_bytes - self.bytes)

    def most(self) -> tuple[int, int]:
        """Return the messages and bytes that the whole window is, or one reply where it has no bound."""
        window = self.window
        return (
            MAX_FETCH if window.messages == "unlimited" else int(window.messages),
            FETCH_BYTES if window.bytes == "unlimited" else int(window.bytes),
        )

    def room(self, asked: int) -> tuple[int, int]:
        """Return how many messages and bytes to fetch now; (0, 0) when none. Only ``pull`` cares for who asks."""
        window = self.window
        if window.mode == "paused":
            return 0, 0
        if window.mode == "pull":
            return (1, FETCH_BYTES) if asked and not self.messages else (0, 0)
        most, most_bytes = self.most()
        free = most if window.messages == "unlimited" else most - self.messages
        free_bytes = most_bytes if window.bytes == "unlimited" else most_bytes - self.bytes
        if free - self._open >= max(1, int(most * window.top_up)):
            self._open = free
        if free_bytes - self._open_bytes >= most_bytes * window.top_up:
            self._open_bytes = free_bytes
        if min(self._open, free) < 1 or min(self._open_bytes, free_bytes) < 1:
            return 0, 0
        return min(self._open, free, MAX_FETCH), min(self._open_bytes, free_bytes, FETCH_BYTES)

    def ask(self, going: int, going_bytes: int, asked: int, *, due: bool, again: bool, now: float) -> tuple[int, int]:
        """Return the room for a fetch in a call that settles ``going`` messages; see :meth:`room`."""
        del due, again, now
        if not going:
            return self.room(asked)
        self.messages -= going
        self.bytes -= going_bytes
        try:
            return self.room(asked)
        finally:
            self.messages += going
            self.bytes += going_bytes

    def free(self, asked: int) -> tuple[int, int]:
        """Return the room by which to decide when to look."""
        return self.room(asked)

    def reserve(self, messages: int) -> None:
        """Keep nothing for a fetch: nobody shares this window."""

    def release(self, _brought: int) -> bool:
        """Note that a fetch was answered; a window of its own tells by itself when to look again."""
        return False


class Fetching(Generic[T]):
    """The calls of one consumer, in their order.

    Args:
        holding: what it may hold.
        lease: until when what it holds is its own.
        demand: for whom it fetches.
        recalling: deliveries that wait for a payload; not empty while there are any.

    Attributes:
        outcomes: settlements on their way out: outcome, message, and a future for who waits.
        held: messages by id, as far as nothing is known of the end of their settlement.
        closing: whether nothing more is fetched.
        resting: whether it gave back what others wait for, and nobody asked here since then.
        lost_reply: whether the reply to the last fetch, or a part of it, is still to come.
        reattach: whether the lease is over.
        settings_changed: whether the settings are to be read.
        leads: returns what takes the place of ``holding`` once no call is on its way, given what is held; else None.
        window_known: whether Redis knows the window; before somebody asks for the first message it may stay ``paused``.
        hurries: whether somebody waits for what is on its way out.
    """

    __slots__ = (
        "_after", "_beside", "_flushed_at", "_hints", "_looked_at", "_looks", "_recalling", "_settled_since",
        "_unanswered", "_woken", "closing", "demand", "fetches", "held", "holding", "hurries", "leads", "lease",
        "look_at", "lost_reply", "outcomes", "reattach", "resting", "settings_changed", "window_known",
    )  # fmt: skip

    def __init__(self, holding: Allowance, lease: Lease, demand: Demand, recalling: Sized) -> None:
        self.lease = lease
        self.demand = demand
        self.outcomes: list[tuple[Any, T, Any]] = []
        self.hold(holding)
        self.held: dict[bytes, T] = {}
        self.closing = self.resting = self.lost_reply = self.reattach = self.hurries = False
        self.settings_changed = self.window_known = True
        self.look_at = 0.0
        self.leads: Callable[[Collection[T]], Allowance] | None = None
        self._recalling = recalling
        self._looked_at = self._flushed_at = 0.0
        self._settled_since = math.inf
        self._after = FIRST_PAGE
        self.fetches = self._unanswered = self._hints = self._looks = 0  # the first: the number of the last fetch
        self._beside = self._woken = False

    def begin(self) -> None:
        """Begin anew: it holds nothing, and Redis will know none of its fetches."""
        self.holding.clear()
        self.held.clear()
        self.outcomes.clear()
        self.fetches, self.lost_reply, self._after = 0, False, FIRST_PAGE

    def attached(self) -> None:
        """Take note that it is attached, under a lease that has begun."""
        self.reattach = False
        self.look_at = 0.0

    def hear(self, *, alone: bool = False) -> None:
        """Take a hint: look at once, and once more where it comes beside an answer; ``alone``: nobody else has it."""
        self.look_at = 0.0
        self._hints += 1
        if alone and (among := self.holding.among) is not None:
            among.woken()
        self._woken |= alone

    def look(self) -> None:
        """Look at once, for somebody who asks what there is from now on."""
        self.look_at = 0.0
        self._looks += 1

    def resume(self) -> None:
        """Fetch again after a rest."""
        if self.resting:
            self.resting = False
            self.look_at = 0.0

    def free(self) -> tuple[int, int]:
        """Return how many messages and bytes may be fetched, by what is held and what is asked for."""
        return self._bounded(self.holding.free(self._asked))

    @property
    def _asked(self) -> int:
        return self.demand.asked if self.holding.window.mode == "pull" else 0  # none else cares for who asks

    @property
    def waits(self) -> int:
        """How many wait for a message while none is here or on its way from a store."""
        return 0 if self._recalling else self.demand.waits

    def next(self, now: float, *, doubts: bool = False) -> Call | Exchange[T] | None:
        """Return the call that is due; None for a rest until :meth:`wake_at`.

        Args:
            now: seconds.
            doubts: whether Redis may hold something in this consumer's name of which the consumer does not know.
        """
        if (among := self.holding.among) is None:
            return self._next(now, doubts=doubts)
        among.calls(begins=False)
        if (call := self._next(now, doubts=doubts)) is not None:
            among.calls(begins=True)
        return call

    def _next(self, now: float, *, doubts: bool) -> Call | Exchange[T] | None:
        if self.outcomes and self._settled_since == math.inf:
            self._settled_since = now
        if self.leads is not None and not self.lost_reply:
            self.hold(self.leads(self.held.values()))
            self.leads = None
        if self.reattach:  # first: nothing else is answered before
            return Call.ATTACH
        if self.settings_changed:  # before messages, for they say what is done with those that failed
            return Call.READ_SETTINGS
        if not self.window_known:
            return Call.TELL
        if doubts and not self.lost_reply:  # what it holds is known once that reply is here
            return Call.COMPARE
        if self._beside and self.waits:  # somebody began to wait since the last look: others may have given back
            self.look_at = min(self.look_at, self._looked_at + SEEK_AFTER)
        goes = self._flush_due(now) or self.lost_reply
        if goes or now >= self.look_at:
            going = self.outcomes[:MAX_SETTLED]
            weight = sum([message.size for _, message, _ in going])
            room = NO_ROOM if self.closing or self._rests() else self._room(now, len(going), weight)
            if goes or room[0]:
                return self._exchange(now, room, going, weight)
        if self._passes_on():
            return Call.PASS_ON
        if now >= self.lease.renew_at:  # any call renews it
            going = self.outcomes[:MAX_SETTLED]
            return self._exchange(now, NO_ROOM, going, sum([message.size for _, message, _ in going]))
        return None

    def wake_at(self) -> float:
        """Return when to look again for what is due, if nothing is heard before."""
        until = self.lease.renew_at
        if self.outcomes:
            until = min(until, self._flush_at())
        if not self.closing and not self._rests() and self.free()[0]:
            until = min(until, self.look_at)
        return until

    def answered(self, call: Exchange[T], now: float) -> bool:
        """Take note that Redis carried a call out; returns whether it brought anything.

        Others may have what an answer brings after the lease is over, as after a freeze: it counts as lost.
        """
        late = now >= call.asked_at + self.lease.ttl
        self.lost_reply, self._unanswered = late and call.fetch > 0, 0
        if self.holding.among is not None:
            self.holding.among.answered(now - call.asked_at)
        self._flushed_at, self._settled_since = now, math.inf
        outcomes, held, going = self.outcomes, self.held, call.going
        for _, message, _ in going:
            held.pop(message.raw_id, None)
        del outcomes[: len(going)]
        self.hurries = self.hurries and bool(outcomes)
        if going:
            self.holding.settle(len(going), call.weight)
        self.lease.renewed(call.asked_at)
        return not late

    def refused(self, now: float) -> None:
        """Take note that the lease was over when a call came: what was held is others'."""
        self.lost_reply = False
        self._flushed_at = now
        self.holding.release(0)
        self.reattach = self.settings_changed = True

    def fetched(
        self, call: Exchange[T], now: float, brought: int, last: bytes, *, again_ms: int, beside: bool, repeated: bool,
        turn: Turn | None = None, lacks: bool = False, left: bool = False,
    ) -> bool:  # fmt: skip
        """Take note of what a call brought; returns whether that was all there is.

        Args:
            call: the call.
            now: seconds.
            brought: how many messages.
            last: id of the last of them.
            again_ms: ms after which there will be more, as Redis knows; 0 where it does not.
            beside: whether others hold messages, and nothing else was left.
            repeated: whether these are what an earlier call brought, whose reply was lost.
            turn: see :meth:`AmongOthers.took`.
            lacks: likewise.
            left: whether some of it goes back, so that it may be had again.
        """
        found_all = not left and call.messages > 0 and brought < call.messages
        if call.messages and (among := self.holding.among):
            among.took(brought, turn, rests=found_all and again_ms != MORE_MS and not lacks, lacks=lacks)
        if found_all:
            self.look_at = now + (again_ms / 1000 if again_ms else POLL)
        if self.holding.release(brought) or repeated:  # repeated, it leaves the room that there was before
            self.look_at = 0.0
        self._woken = self._woken and brought < call.messages  # else it was woken for some of these
        self._after = FIRST_PAGE
        if repeated and brought == MAX_FETCH:  # it holds more than one reply carries: the rest, after these
            self._after, self.lost_reply = last, True
        if call.messages:
            self._looked_at, self._beside = now, beside and not call.waits
        elif call.fetch:
            self.look_at = 0.0  # it gave something back, of which Redis wakes others: not this one until it asks again
        if call.hints != self._hints:
            self.look_at = 0.0  # something came after the answer was given, and the hint was faster than the answer
        if call.looks != self._looks:
            self.look_at = 0.0
            return False  # this was asked before somebody wanted to know
        return found_all

    def hold(self, holding: Allowance) -> None:
        """Count by this from now on."""
        self.holding = holding
        if holding.among is not None:
            holding.among.outcomes, holding.among.demand = self.outcomes, self.demand

    def _passes_on(self) -> bool:
        """Return whether another is to be woken for what this one was woken for: there is no room for it any more."""
        if (among := self.holding.among) is not None:
            return among.passes_on(rests=self._rests())
        passes = self._woken and (self._rests() or not self.free()[0])
        self._woken = self._woken and not passes
        return passes

    def _rests(self) -> bool:
        if self.resting and self.demand.resumes:
            self.resume()
        return self.resting

    def _flush_due(self, now: float) -> bool:
        if not self.outcomes:
            return False
        window, enough = self.holding.window, 64 if self._linger() <= LINGER else MAX_SETTLED
        if window.messages != "unlimited":
            enough = max(1, min(enough, int(int(window.messages) * window.top_up)))
        return len(self.outcomes) >= enough or self.closing or now >= self._flush_at()

    def _flush_at(self) -> float:
        """Return when settlements go out, if they do not become enough before that."""
        linger = self._linger()
        return self._flushed_at + LINGER if linger <= LINGER else self._settled_since + linger

    def _linger(self) -> float:
        return LINGER if self.hurries else self.holding.linger(len(self.outcomes))

    def _room(self, now: float, going: int, weight: int) -> tuple[int, int]:
        """Return the room there will be once that many settlements, of that many bytes, have gone out."""
        due, again = now >= self.look_at, self.lost_reply
        return self._bounded(self.holding.ask(going, weight, self._asked, due=due, again=again, now=now))

    def _bounded(self, room: tuple[int, int]) -> tuple[int, int]:
        messages = self.demand.room(room[0]) if room[0] else 0
        return (messages, room[1]) if messages > 0 else NO_ROOM

    def _exchange(self, now: float, room: tuple[int, int], going: list[tuple[Any, T, Any]], weight: int) -> Exchange[T]:
        most = len(going)
        if self._after != FIRST_PAGE:
            most = 0  # the next page of a repeated fetch: what goes out with it would count as repeated too
        elif self.lost_reply:
            most = self._unanswered  # a repeated call carries what it carried before
        if most < len(going):
            going = going[:most]
            weight = sum([message.size for _, message, _ in going])
        self._unanswered = len(going)
        # With a number, for a late copy of this call is not to give back what has come here again.
        if not self.lost_reply and (room[0] or any(one[0] != "accepted" for one in going)):
            self.fetches, self.lost_reply = self.fetches + 1, True
            if room[0]:
                self.holding.reserve(room[0])
                self._woken = False
        fetch = self.fetches if self.lost_reply else 0
        return Exchange(going, weight, fetch, *room, self._after, self.waits, now, self._hints, self._looks)

"""A limiter is a state machine for one session: it says which call to make, and hears the answer, without I/O.

At most one call is under way. It has a number, and is repeated word for word until it is answered: Redis keeps the
last answer under that number, so that a call which was applied and whose answer was lost is not applied again. Times
are seconds of the caller's monotonic clock.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from headgate.core.credit import RENEW_EVERY
from headgate.core.limiting.calls import Asker, Call, Create, Decide, Decision, Operation, Refusal, Reservation, State
from headgate.core.limiting.samples import Samples
from headgate.core.limiting.timers import Timers

MOST: Final = 128
"""Operations of one call."""
POLL: Final = 1.0
"""Seconds after which an admission in line is asked for again, although nothing was heard."""
LATER: Final = 60.0
"""Seconds after which a limiter with nothing to do looks at the time again."""
ANSWER_WITHIN: Final = 0.25
"""Seconds beyond the deadline for Redis to answer; a timeout of 0 needs them."""
RENEW_WITH: Final = 0.05
"""Seconds by which a hold is renewed sooner, so that it goes along with others."""
STEP: Final = 1 << 20
"""How far numbers jump when Redis has seen a later one: another process counts under the same id."""


class Limiter:
    """The admissions and holds of one session at one limiter.

    Args:
        session: the session's id; the ids of its holds begin with it.
        met: called with the epoch before and the new one, where Redis may have lost something.

    Attributes:
        epoch: of the destination, as last seen; 0 before the first answer.
        lost_since: when Redis stopped to answer; None while it does.
        samples: of a limit that adapts; None where none does.
        ids: gives the numbers of its holds.
    """

    def __init__(self, session: str, met: Callable[[int, int], None] = lambda _before, _epoch: None) -> None:
        self.epoch = 0
        self.lost_since: float | None = None
        self.samples: Samples | None = None
        self._session, self._met = session, met
        self.ids = itertools.count(1)
        self._seq = 0
        self._flight: Decide | None = None
        self._missing = False  # whether there is no such limiter, as Redis says
        self._urgent: deque[Operation] = deque()  # claims and renewals
        self._parting: deque[Operation] = deque()  # settlements and releases
        self._asking: deque[Reservation] = deque()
        self._unanswered_until = math.inf  # no deadline is sooner of those that nothing was heard of yet
        self._known: dict[str, Reservation] = {}  # all that are not over, by id
        self._waits: Timers[Reservation] = Timers(attrgetter("attend_at"))
        self._agains: Timers[Reservation] = Timers(attrgetter("again_at"))
        self._renewals: Timers[Reservation] = Timers(attrgetter("renew_at"))

    # What callers do.

    def admit(
        self, key: str, amounts: str, ttl_ms: int, now: float, deadline: float, taker: Asker, *, waits: bool = True,
        hold: str = "", again: bool = False,
    ) -> Reservation:  # fmt: skip
        """Ask for an admission, under an id of the caller's own where it has one; its ``taker`` hears the rest."""
        one = Reservation(hold or self.new_id(), key, amounts, ttl_ms, now, deadline, taker, waits, again)
        self._unanswered_until = min(self._unanswered_until, deadline)
        self._ask(one)
        return one

    def adopt(self, hold: str, ttl_ms: int, now: float, deadline: float, taker: Asker) -> Reservation:
        """Take up a hold that somebody else asked for: it is renewed from now on, if there is such a hold."""
        one = Reservation(hold, "*", "-", ttl_ms, now, deadline, taker)
        one.state, one.sent, one.foreign = State.DOUBTED, True, True
        self._time(one)
        self._known[hold] = one
        self._urgent.append(Operation("renew", one))
        return one

    def settle(self, one: Reservation, used: str, verb: str = "settle") -> None:
        """Say what was used of what is held, or how it ends (``sample``); what is over can no longer change."""
        if one.state is State.HELD:
            self._parting.append(Operation(verb, one, used))

    def renew(self, one: Reservation, ttl_ms: int, done: Callable[[bool], None]) -> None:
        """Begin its lease again, with this length from now on; ``done`` hears whether it did."""
        one.ttl_ms = ttl_ms
        if one.state is State.HELD:
            one.renew_at = math.inf
            self._urgent.append(Operation("renew", one, done=done))
        else:
            done(False)

    def release(self, one: Reservation) -> None:
        """End a hold or a wait: what it held is free for others, and so is its place in line."""
        if one.state is not State.OVER:
            self._end(one)
            if one.sent:
                self._parting.append(Operation("release", one))

    def leave(self, one: Reservation) -> None:
        """Forget a hold without releasing it: others who know its id go on with it, or its lease runs out."""
        self._end(one)

    def refuse(self, refusal: Refusal) -> bool:
        """Refuse all that wait; returns whether something is held, for which the call that failed is to be repeated."""
        for one in [one for one in self._known.values() if one.state is not State.HELD]:
            self._refuse(one, refusal)
        if not self._known:
            self.fail(refusal)
        return bool(self._known)

    def fail(self, refusal: Refusal) -> None:
        """Refuse all that wait, and give up what is held: there is no such limiter, and it cannot be made."""
        for operation in (*self._urgent, *(self._flight.operations if self._flight else ())):
            operation.done(False)
        self._missing, self._flight, self.epoch = False, None, 0
        for queue in (self._asking, self._urgent, self._parting):
            queue.clear()
        for one in tuple(self._known.values()):
            if one.state is State.HELD:
                self._lose(one)
            else:
                one.sent = False  # nothing is known of it, so nothing is to be taken back
                self._refuse(one, refusal)

    # What hints say.

    def hear_hint(self, words: list[str], now: float) -> bool:
        """Take in a hint; returns whether a call may be due."""
        match words:
            case ["held", hold, *_]:
                one = self._known.get(hold)
                if one is not None and one.state in (State.ASKING, State.IN_LINE):
                    self._again(one, now) if one.again else self._admitted(one, one.confirmed_at, now)
            case ["turn", hold, again_us, *_]:
                one = self._known.get(hold)
                if one is not None and one.state is State.IN_LINE:
                    self._again(one, min(one.again_at, now + int(again_us) / 1e6))
            case ["again" | "settings", *_]:
                self._ask_all_again(now)
            case ["removed", *_]:
                self.epoch = 0  # on purpose: what it was is not to be brought back
                self._ask_all_again(now)
                for one in [one for one in self._known.values() if one.state is State.HELD]:
                    self._lose(one)
            case _:
                return False
        return True

    # When to call, and what.

    @property
    def idle(self) -> bool:
        """Whether nothing waits for an answer, or to be sent."""
        return not (self._flight or self._urgent or self._parting or self._asking or self._missing)

    def __len__(self) -> int:
        """Return how many holds and waits there are."""
        return len(self._known)

    def close(self, refusal: Refusal) -> None:
        """Release all that is held, and refuse those that wait."""
        for one in tuple(self._known.values()):
            self.release(one) if one.state is State.HELD else self._refuse(one, refusal)

    def wake_at(self, now: float) -> float:
        """Return when to ask for a call again if nothing is heard before."""
        return min(now + LATER, self._agains.first, self._renewals.first, self._waits.first) if self.idle else now

    @property
    def attend_at(self) -> float:
        """When :meth:`attend` has something to do, whether a call is under way or not."""
        return min(self._waits.first, self._unanswered_until)

    def attend(self, now: float) -> None:
        """Refuse those whose time is over, but not before an answer that is on its way may have come."""
        if now >= self._unanswered_until:
            self._unanswered_until = math.inf
            flying = self._flight.operations if self._flight else ()
            for asked in (*self._asking, *(operation.reservation for operation in flying)):
                self._time(asked)
        while (one := self._waits.pop(now)) is not None:
            due = one.attend_at == one.deadline
            if due and (one.flying or one.state is not State.IN_LINE):
                one.attend_at = one.deadline + ANSWER_WITHIN
                self._waits.set(one)
                continue
            unanswered = one.state is not State.IN_LINE or self.lost_since is not None
            binding = one.binding or Refusal("timeout")
            why = "unanswered" if unanswered else "timeout"
            self._refuse(one, Refusal(why, binding.limit, binding.rule, binding.retry_at))

    def call(self, now: float) -> Call | None:
        """Return the call that is due, if any is; it is answered to :meth:`hear` or :meth:`made`, or missed."""
        self.attend(now)
        if self._missing:
            return Create(recover=self.epoch > 0)
        if self._flight is None:
            self._take_off(now)
        return self._flight

    def missed(self, now: float) -> None:
        """Note that a call was not answered, whether it was done or not: it will be made again."""
        self.lost_since = self.lost_since or now
        self.attend(now)

    def made(self) -> None:
        """Note that the limiter exists."""
        self._missing, self.lost_since = False, None

    def hear(self, call: Decide, answer: Decision, now: float) -> None:
        """Take in an answer.

        ========  ==============================================  =================================================
        OK        each operation was decided, now or before       each is heard; a new epoch has all holds claimed
        STALE     another process counts under the same id        asked again with a number that is far ahead
        UNKNOWN   there is no such limiter, or it was lost        it is made, and the same is asked again
        KIND      it is no limiter                                all fail
        ========  ==============================================  =================================================
        """
        self.lost_since = None
        if call is not self._flight:
            return
        if answer.code == "UNKNOWN":
            self._missing = True
        elif answer.code == "STALE":
            self._seq += STEP
            self._flight = Decide(self._seq, call.epoch, call.operations, call.words, call.since)
        elif answer.code == "OK":
            self._flight = None
            before, self.epoch = self.epoch, answer.epoch
            for operation, text in zip(call.operations, answer.answers, strict=False):
                verb, one, _, done = operation
                one.flying = False
                if one.state is not State.OVER:  # else its release goes with the next call
                    (self._asked if verb == "admit" else self._take)(operation, text, call.since, now)
                done(operation.is_done(text))
            if before != answer.epoch:
                self._met_epoch(before, now)
        else:
            self.fail(Refusal("kind"))

    def _met_epoch(self, before: int, now: float) -> None:
        """Claim what is held, and have those in line ask again: Redis may have lost both."""
        if before:
            self._met(before, self.epoch)
            self._ask_all_again(now)
        for one in self._known.values():
            one.epoch = one.epoch or self.epoch  # a hint may have come before the first answer
            self._claim(one)

    def new_id(self) -> str:
        """Return the id of a hold that there was not yet."""
        return f"{self._session}.{next(self.ids)}"

    def _ask(self, one: Reservation) -> None:
        self._known[one.id] = one
        self._asking.append(one)

    def _time(self, one: Reservation) -> None:
        """Have it attended to at its deadline; most are answered before that matters."""
        if one.attend_at == math.inf and one.state not in (State.HELD, State.OVER):
            one.attend_at = one.deadline
            self._waits.set(one)

    def _again(self, one: Reservation, at: float) -> None:
        one.again_at = at
        self._agains.set(one)

    def _ask_all_again(self, now: float) -> None:
        for one in self._known.values():
            if one.state is State.IN_LINE:
                self._again(one, now)

    def _take_off(self, now: float) -> None:
        """Put together the next call."""
        operations: list[Operation] = []
        # What leases need comes first: they run out.
        while (one := self._renewals.pop(now + RENEW_WITH)) is not None:
            one.renew_at = math.inf
            self._urgent.append(Operation("renew", one))
        epoch = self.epoch
        while self._urgent and len(operations) < MOST:
            operation = self._urgent.popleft()
            if operation.reservation.state not in (State.HELD, State.DOUBTED):
                operation.done(False)
            else:
                operations.append(operation)
            if operation.verb == "claim":  # it was held in an older epoch, and says so
                epoch = min(epoch, operation.reservation.epoch)
        # What is given back may be just what the next ones need.
        while self._parting and len(operations) < MOST:
            operations.append(self._parting.popleft())
        # However many ask again each second, those who ask for the first time have a half.
        most = (len(operations) + MOST) // 2 if self._asking else MOST
        while len(operations) < most and (one := self._agains.pop(now)) is not None:
            one.again_at = math.inf
            operations.append(Operation("admit", one, one.amounts))
        while self._asking and len(operations) < MOST:
            one = self._asking.popleft()
            if one.state is State.ASKING:
                operations.append(Operation("admit", one, one.amounts))
        if operations:
            more = self.samples.words(now) if self.samples and len(operations) < MOST else ()
            self._seq += 1
            self._flight = Decide.of(self._seq, epoch, tuple(operations), more, now)

    def _claim(self, one: Reservation) -> None:
        if one.state is State.HELD and one.epoch != self.epoch and not one.claimed and not one.foreign:
            one.claimed = True
            self._urgent.append(Operation("claim", one, one.amounts))

    def _take(self, operation: Operation, answer: str, asked_at: float, now: float) -> None:
        """Take in the answer to one operation of a hold that is not over."""
        verb, one, *_ = operation
        older = one.epoch != self.epoch
        if verb == "settle":
            if answer == "gone" and older:
                self._parting.append(operation)  # it is claimed first
            elif answer == "gone":
                self._lose(one)
        elif verb == "claim" and now >= one.use_until:
            # It may have run out before the state was lost, and others may have had it since: it is theirs.
            taker = one.taker
            self.release(one)
            taker.lost(one)
        elif operation.is_done(answer):
            one.epoch, one.claimed = self.epoch, False
            if one.state is State.DOUBTED:
                self._admitted(one, asked_at, now)
            else:
                one.confirm(asked_at)
                self._renewals.set(one)
        elif verb == "renew" and older and one.state is State.HELD and not one.foreign:
            self._claim(one)
        elif one.state is State.DOUBTED and not one.foreign:
            # Its lease was over before its holder ever had it: somebody else may have it by now.
            del self._known[one.id]
            one.id, one.state, one.sent = self.new_id(), State.ASKING, False
            self._ask(one)
        else:
            self._lose(one)

    def _asked(self, operation: Operation, answer: str, asked_at: float, now: float) -> None:
        """Take in the answer to an admission."""
        _, one, *_ = operation
        if one.state is State.HELD:  # a hint came before the answer
            return
        if answer == "held":
            # Perhaps it was admitted before this call, and a hint of that was lost: its lease began then.
            self._admitted(one, one.confirmed_at, now)
        elif answer == "gone":  # its place was given up, for it was not asked for in time
            self._time(one)
            self._again(one, now)
        elif answer.startswith("wait "):
            self._time(one)
            binding = one.stand_in_line(Refusal.read(answer.split(" "), now), asked_at)
            again_at = min(binding.retry_at or math.inf, now + POLL, now + RENEW_EVERY * one.ttl_ms / 1000)
            self._again(one, min(one.again_at, again_at))  # a hint that came meanwhile may say that it is sooner
        elif one.binding is None:  # nothing was taken
            self._end(one).refused(one, Refusal.read(answer.split(" "), now))
        else:  # it leaves the line
            self._refuse(one, Refusal.read(answer.split(" "), now))

    def _admitted(self, one: Reservation, asked_at: float, now: float) -> None:
        one.confirmed_at, one.again_at = asked_at, math.inf
        if one.may_be_over(now):  # it was heard of so late: first hear from Redis
            if one.state is not State.DOUBTED:
                one.state = State.DOUBTED
                self._time(one)
                self._urgent.append(Operation("renew", one))
            return
        one.state, one.epoch, one.attend_at = State.HELD, self.epoch, math.inf
        one.held_since, one.heard_at = asked_at, now
        one.confirm(asked_at)
        self._renewals.set(one)
        one.taker.admitted(one)

    def _end(self, one: Reservation) -> Asker:
        """Note that it is over; returns the one that may still have to hear of it."""
        self._known.pop(one.id, None)
        return one.end()

    def _refuse(self, one: Reservation, refusal: Refusal) -> None:
        """Say that its wait is over, and take back what Redis may have given meanwhile."""
        taker = one.taker
        (self.leave if one.foreign else self.release)(one)
        taker.refused(one, refusal)

    def _lose(self, one: Reservation) -> None:
        self._end(one).lost(one)

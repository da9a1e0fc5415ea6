"""Members of a large world: nodes, and the sessions in them, which run the client's own machines."""

import math
from collections import deque
from collections.abc import Collection
from random import Random
from typing import Any, Final

from headgate.core.account.calls import Call as AccountCall
from headgate.core.account.calls import Credit, Leave, Publish
from headgate.core.account.machine import Account
from headgate.core.account.waiters import SILENT, SLOW
from headgate.core.credit import CreditLine, Lease
from headgate.core.fetching import Fetching, WindowUse
from headgate.core.outbox import Batch, Outgoing
from headgate.core.when_full import BLOCK, WhenFull
from headgate.core.window import Call, Exchange, Window
from tests.simulation.fleet.events import BEGINS, Events
from tests.simulation.fleet.masters import Master, Place

LATENCY: Final = 0.0003
"""Seconds that a call or an answer takes on the network, at the least."""
CALL_TIMEOUT: Final = 2.0
TRIES_AGAIN: Final = 0.1
TTL: Final = 10.0
IDLE: Final = 2.0


class Node:
    """A process with many sessions; it may be frozen, cut off or killed, and has a clock of its own.

    Attributes:
        chance: draws what becomes of each call.
        rate: seconds by its clock in one of the world's.
        loses: the share of calls that are lost, half of them with their answers alone.
        repeats: the share of calls that come twice.
        cut_until: when it reaches masters again.
    """

    __slots__ = (
        "chance", "cut_until", "dead", "events", "frozen", "loses", "members", "missed", "number", "rate", "repeats",
    )  # fmt: skip

    def __init__(self, events: Events, number: int, chance: Random, *, rate: float = 1.0) -> None:
        self.events, self.number, self.chance, self.rate = events, number, chance, rate
        self.dead = self.frozen = False
        self.missed: list[tuple[Any, tuple[Any, ...]]] = []
        self.loses = self.repeats = 0.0
        self.cut_until = 0.0
        self.members: list[Any] = []

    def time(self) -> float:
        """Return the seconds of its monotonic clock."""
        return BEGINS + (self.events.now - BEGINS) * self.rate

    def do(self, what: Any, *args: Any) -> None:
        """Have something happen in it now, or once it is no longer frozen."""
        if self.dead:
            return
        if self.frozen:
            self.missed.append((what, args))
        else:
            what(*args)

    def thaw(self) -> None:
        """Go on after a freeze: all that was due happens at once."""
        self.frozen = False
        missed, self.missed = self.missed, []
        for what, args in missed:
            self.do(what, *args)

    def call_at(self, when: float, what: Any, *args: Any) -> None:
        """Have something happen in it at a time of its clock."""
        self.events.at(max(self.events.now, BEGINS + (when - BEGINS) / self.rate + 1e-6), self.do, what, *args)

    def call(self, master: Master, member: Any, call: Any, work: int) -> None:
        """Send a call to a master."""
        self.events.after(LATENCY * (1 + self.chance.random()), self._arrives, master, member, call, work)

    def _arrives(self, master: Master, member: Any, call: Any, work: int) -> None:
        events, chance = self.events, self.chance
        if events.now < self.cut_until:
            taken = None
        elif self.loses and chance.random() < self.loses / 2:
            taken = None  # it never came
        else:
            taken = master.take(member, call, work)
            if taken is not None and self.repeats and chance.random() < self.repeats:
                taken = master.take(member, call, work)  # it came twice
            if taken is not None and self.loses and chance.random() < self.loses / 2:
                taken = None  # its answer is lost
        if taken is None:
            events.after(CALL_TIMEOUT, self.do, member.missed, call)
        else:
            answer, leaves = taken
            events.at(leaves + LATENCY * (1 + chance.random()), self.do, member.answered, call, answer)

    def told(self, leaves: float, member: Any, what: tuple[Any, ...]) -> None:
        """Send a hint to a member; where it is lost nobody knows."""
        if self.events.now < self.cut_until or (self.loses and self.chance.random() < self.loses):
            return
        self.events.at(leaves + LATENCY * (1 + self.chance.random()), self.do, member.hear, what)


class Fate:
    """The fate of one message, as a future knows it and as the judge does."""

    __slots__ = ("number", "place", "settled", "taken", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.place: Place | None = None
        self.number = 0
        self.settled = self.taken = False
        """Whether its settlement is done, and whether its consumer knows that."""

    def done(self) -> bool:
        return self.value is not None

    def cancelled(self) -> bool:
        return False

    def set_result(self, value: Any) -> None:
        assert self.value is None, "told twice"
        self.value = value

    def stored(self, place: Place, number: int) -> None:
        """Note that it lies at a destination."""
        assert self.place is None, f"P5: a message is stored twice at {place.name}, as {self.number} and {number}"
        self.place, self.number = place, number


class Sender:
    """A session that sends to one destination: the client's account, and the calls that it asks for."""

    when_full: WhenFull = BLOCK
    hard = unreported = pooled = False
    consumers: Collection[Any] = ()
    report_at = 0.0
    number = 0

    __slots__ = (
        "account",
        "begun",
        "flying",
        "id",
        "judge",
        "lease",
        "master",
        "node",
        "place",
        "retry_at",
        "timer_at",
    )  # fmt: skip

    def __init__(self, node: Node, master: Master, place: Place, sid: str, window: int, judge: Any) -> None:
        self.node, self.master, self.place, self.id, self.judge = node, master, place, sid, judge
        self.lease = Lease(TTL)
        self.account = Account(
            place.name, sid, CreditLine(), self.lease, IDLE, self, self, self, lambda: 1, resumes=False,
            holds_messages=True,
        )  # fmt: skip
        self.account.resize(window, 1)
        self.begun = False
        self.flying: AccountCall | None = None
        self.retry_at = 0.0
        self.timer_at = math.inf
        place.listeners[sid] = self
        node.members.append(self)

    def send(self, size: int, timeout: float) -> None:
        """Send a message."""
        now = self.node.time()
        item = Outgoing(b"", size, now + timeout, Fate())
        item.span = self.node.events.now  # when it was sent, by the world's clock
        account = self.account
        if account.outbox.add(item):
            account.paid(item, now)
        else:
            account.come(item, now)
        self.stir()

    def stir(self) -> None:
        """Make the call that is due, or sleep until one is."""
        if self.flying is not None:
            return
        account, now = self.account, self.node.time()
        waiters = account.waiters
        if waiters.attend_at <= now:
            self._see_to(now)
        if now < self.retry_at:
            self._sleep(self.retry_at)
            return
        call = None
        if not self.begun:
            call = account.begin(now)
            self.begun = call is None
        if call is None:
            call = account.call(now)
        if call is None:
            account.answered(now)
            call = account.call(now)
        if call is None:
            self._sleep(min(account.wake_at(now), waiters.attend_at))
            return
        self.flying = call
        if waiters.attend_at < math.inf:
            self._sleep(waiters.attend_at)
        self.node.call(self.master, self, call, len(call.batch.items) if isinstance(call, Publish) else 0)

    def _see_to(self, now: float) -> None:
        account = self.account
        stuck, silent = (account.silent_since(now, slow) is not None for slow in (SLOW, SILENT))
        account.waiters.see_to(now, stuck=stuck, silent=silent)

    def _sleep(self, until: float) -> None:
        if until < self.timer_at and until < math.inf:
            self.timer_at = until
            self.node.call_at(until, self._wake, until)

    def _wake(self, at: float) -> None:
        if at >= self.timer_at:
            self.timer_at = math.inf
        if self.flying is None:
            self.stir()
        elif self.account.waiters.attend_at <= self.node.time():
            self._see_to(self.node.time())
            self._sleep(self.account.waiters.attend_at)

    def answered(self, call: Any, answer: Credit | None) -> None:
        """Take an answer."""
        self.flying = None
        self.account.hear(call, answer, self.node.time())
        if isinstance(call, Leave) and call.closes:
            self.begun = False
        self.stir()

    def missed(self, _call: Any) -> None:
        """Take note that a call was not answered."""
        self.flying = None
        now = self.node.time()
        self.account.missed(now, gives_up=False)
        self.retry_at = now + TRIES_AGAIN
        self.stir()

    def hear(self, what: tuple[Any, ...]) -> None:
        """Take a hint."""
        _, epoch, inc, amount = what
        if what[0] == "credit":
            self.account.hear_grant(epoch, inc, amount.bytes, amount.messages, self.node.time())
        elif not self.account.hear_recall(min(amount.bytes, 1 << 52), min(amount.messages, 1 << 52), epoch):
            return
        self.stir()

    # Ports of the account.

    def wait_begins(self, now: float) -> float:
        return math.inf

    def meet(self, before: int, epoch: int, lost: int) -> None:
        assert epoch >= before

    def start_anew(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def full(self, item: Outgoing, now: float) -> None:
        raise AssertionError("a send that blocks was told that there is no room")

    def timeout(self, item: Outgoing, now: float) -> None:
        assert now >= item.deadline
        self._ends(item, "timeout", now)

    def lost(self, item: Outgoing, *, unknown: bool) -> None:
        self._ends(item, "unknown" if unknown else "lost", self.node.time())

    def too_large(self, item: Outgoing, limit: int, pool: str = "") -> None:
        raise AssertionError(f"{item.size} bytes are above the limit of {limit}")

    def above_hard(self, item: Outgoing, stored: int, limit: int) -> None:
        raise AssertionError("it has no hard limit")

    def dropped(self, item: Outgoing) -> None:
        raise AssertionError("nothing is dropped")

    def _ends(self, item: Outgoing, how: str, now: float) -> None:
        item.done.set_result(how)
        self.judge.ended(self, item, now)

    def stored(self, batch: Batch, items: list[Outgoing], answer: Credit) -> None:
        now = self.node.time()
        for number, item in enumerate(items, answer.first):
            if not item.done.done():
                item.done.set_result(number)
                self.judge.receipt(self, item, number, now)

    def granted(self, epoch: int, granted: int, granted_m: int) -> bool:
        return self.account.credit.raise_to(granted, granted_m)

    def turn(self, when: float, latest: float) -> tuple[float, bool]:
        return round(4 * when) / 4, True

    def refill(self, head: Outgoing | None) -> None:
        pass


class Delivery:
    """A message in a consumer's hands."""

    __slots__ = ("item", "raw_id", "seq", "size")

    def __init__(self, seq: int, item: Outgoing) -> None:
        self.seq, self.item, self.size = seq, item, item.size
        self.raw_id = b"%d" % seq


class Taker:
    """A session that consumes from one destination, one message after another.

    Attributes:
        takes: seconds that a message takes it, on average.
        called_at: when it made its last call, by the world's clock.
    """

    asked = 0
    resumes = False

    __slots__ = (
        "called_at", "chance", "flying", "id", "inbox", "judge", "lease", "machine", "master", "node", "number",
        "place", "retry_at", "takes", "timer_at", "working",
    )  # fmt: skip

    def __init__(
        self, node: Node, master: Master, place: Place, sid: str, window: int, takes: float, judge: Any, chance: Random
    ) -> None:
        self.node, self.master, self.place, self.id, self.judge = node, master, place, sid, judge
        self.takes, self.chance = takes, chance
        self.lease = Lease(TTL)
        self.number = 0
        self.called_at = 0.0
        self.inbox: deque[Delivery] = deque()
        self.machine = Fetching[Any](WindowUse(Window(messages=window)), self.lease, self, ())
        self.machine.reattach = True
        self.flying: Any = None
        self.retry_at = 0.0
        self.timer_at = math.inf
        self.working: Delivery | None = None
        place.listeners[sid] = self
        node.members.append(self)

    @property
    def cid(self) -> str:
        return f"{self.id}.{self.number}"

    @property
    def waits(self) -> int:
        return 0 if self.inbox or self.working else 1

    def room(self, most: int) -> int:
        return most

    def stir(self) -> None:
        """Make the call that is due, or sleep until one is."""
        if self.flying is not None:
            return
        now, machine = self.node.time(), self.machine
        if now < self.retry_at:
            self._sleep(self.retry_at)
            return
        call = machine.next(now)
        while call is Call.READ_SETTINGS:
            machine.settings_changed = False
            call = machine.next(now)
        if call is None:
            self._sleep(machine.wake_at())
        elif isinstance(call, Exchange):
            self.flying, self.called_at = call, self.node.events.now
            self.node.call(self.master, self, call, len(call.going))
        else:
            assert call is Call.ATTACH
            self.number += 1
            machine.begin()
            self.inbox.clear()
            self.working = None
            self.flying = now
            self.node.call(self.master, self, "attach", 0)

    def _sleep(self, until: float) -> None:
        if until < self.timer_at and until < math.inf:
            self.timer_at = until
            self.node.call_at(until, self._wake, until)

    def _wake(self, at: float) -> None:
        if at >= self.timer_at:
            self.timer_at = math.inf
        self.stir()

    def answered(self, call: Any, answer: Any) -> None:
        """Take an answer."""
        machine, now = self.machine, self.node.time()
        asked_at, self.flying = self.flying, None
        if call == "attach":
            if answer == "OK":
                self.lease.renewed(asked_at)
                machine.attached()
        elif answer[0] == "EXPIRED":
            machine.refused(now)
            self.inbox.clear()
            self.working = None
        else:
            code, messages, _ = answer
            brought = machine.answered(call, now)
            for outcome, delivery, _ in call.going:
                if outcome == "accepted":
                    self.judge.accepted(self, delivery)
            if not brought:
                self.stir()
                return
            got = [Delivery(seq, item) for seq, item in messages if b"%d" % seq not in machine.held]
            for delivery in got:
                machine.held[delivery.raw_id] = delivery
                self.judge.received(self, delivery)
            machine.holding.deliver(len(got), sum([delivery.size for delivery in got]))
            self.inbox.extend(got)
            machine.fetched(
                call, now, len(messages), b"%d" % messages[-1][0] if messages else b"",
                again_ms=0, beside=False, repeated=code == "AGAIN",
            )  # fmt: skip
            self._work()
        self.stir()

    def missed(self, call: Any) -> None:
        """Take note that a call was not answered."""
        self.flying = None
        self.retry_at = self.node.time() + TRIES_AGAIN
        if call == "attach":
            self.machine.reattach = True
        self.stir()

    def hear(self, what: tuple[Any, ...]) -> None:
        """Take a hint."""
        if what[0] == "ready":
            self.machine.hear()
            self.stir()

    def _work(self) -> None:
        if self.working is None and self.inbox:
            self.working = self.inbox.popleft()
            took = self.takes * (0.5 + self.chance.random())
            self.node.call_at(self.node.time() + took, self._worked, self.working)

    def _worked(self, delivery: Delivery) -> None:
        if self.working is not delivery:
            return  # its lease was over meanwhile
        self.working = None
        self.machine.outcomes.append(("accepted", delivery, None))
        self._work()
        self.stir()

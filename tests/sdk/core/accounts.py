"""Accounts beside the model of their destination, in simulated time, with every fault that a call can meet."""

import math
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core.account.calls import Acquire, Call, Create, Credit, Leave, Publish, Reap
from headgate.core.account.machine import Account
from headgate.core.account.waiters import SILENT, SLOW
from headgate.core.credit import CreditLine, Lease
from headgate.core.outbox import Batch, Outgoing
from headgate.core.when_full import BLOCK, WhenFull
from tests.model.credit import UNLIMITED, Amount, Answer, Rules, Totals
from tests.model.destination import Destination

LIMIT: Final = 1000
TTL: Final = 2.0
IDLE: Final = 2.0
FAULTS: Final = (
    "unsent", "lost", "late", "repeated", "reclaimed", "fenced", "run", "removed", "stopped", "deaf", "cancelled",
    "overdue", "recalled", "used up",
)  # fmt: skip
"""What can happen to one call, or around it: it does not arrive, its answer is lost or late, it is made twice, the
account was reclaimed or is another's, another run of the server has the state, the destination is gone or stopped, the
next hint is lost, those who wait give up or run out of time, credit is recalled, or is used up by others."""
ENOUGH: Final = 20_000


class Fate:
    """What became of a message, as a future knows it."""

    def __init__(self) -> None:
        self.value: Any = None
        self.given_up = False

    def done(self) -> bool:
        return self.given_up or self.value is not None

    def cancelled(self) -> bool:
        return self.given_up

    def cancel(self) -> None:
        self.given_up = not self.done() or self.given_up

    def set_result(self, value: Any) -> None:
        assert not self.done(), "told twice"
        self.value = value


@dataclass(slots=True, eq=False)
class Flight:
    """A call whose answer is under way."""

    call: Call
    answer: Credit | None
    at: float
    lost: bool = False


class Session:
    """One account, and all that it needs of its surroundings."""

    def __init__(self, name: str, world: "World", window: int, *, holds_messages: bool = True) -> None:
        self.when_full: WhenFull = BLOCK
        self.hard = self.unreported = self.pooled = False
        self.consumers: Collection[Any] = ()
        self.report_at = 0.0
        self.name, self.world = name, world
        self.account = Account(
            "orders", name, CreditLine(), Lease(TTL), IDLE, self, self, self, lambda: 1, resumes=False,
            holds_messages=holds_messages,
        )  # fmt: skip
        self.account.resize(window, 1)
        self.items: list[Outgoing] = []
        self.asks_pools_for: Outgoing | None = None
        self.under_way: Flight | None = None
        self.begun = False
        self.forgotten = 0
        self.retry_at = 0.0
        self.relies = False
        """Whether another session looks for all who wait, and hints come for certain."""

    def send(self, size: int, timeout: float = 1e9) -> Outgoing:
        item = Outgoing(bytes(0), size, self.world.now + timeout, Fate())
        self.items.append(item)
        if self.account.outbox.add(item):
            self.account.paid(item, self.world.now)
        else:
            self.account.come(item, self.world.now)
        return item

    def give_up(self, item: Outgoing) -> None:
        item.done.cancel()
        self.account.waiters.left()

    # What it is told of its destination.

    def wait_begins(self, now: float) -> float:
        return math.inf

    def forget(self) -> None:
        self.forgotten += 1

    def meet(self, before: int, epoch: int, lost: int) -> None:
        assert epoch >= before

    def start_anew(self) -> None:
        assert self.account.credit.in_hand == 0

    # What its callers are told.

    def full(self, item: Outgoing, now: float) -> None:
        item.done.set_result("full")

    def timeout(self, item: Outgoing, now: float) -> None:
        assert now >= item.deadline
        item.done.set_result("timeout")

    def lost(self, item: Outgoing, *, unknown: bool) -> None:
        item.done.set_result("unknown" if unknown else "lost")

    def too_large(self, item: Outgoing, limit: int, pool: str = "") -> None:
        assert item.size > limit
        item.done.set_result("too large")

    def above_hard(self, item: Outgoing, stored: int, limit: int) -> None:
        raise AssertionError("it has no hard limit")

    def dropped(self, item: Outgoing) -> None:
        item.done.set_result("dropped")

    # What answers lead to.

    def stored(self, batch: Batch, items: list[Outgoing], answer: Credit) -> None:
        for seq, item in enumerate(items, answer.first):
            assert self.world.shelf[seq] is item, "a receipt names what is stored under its number"
            if not item.done.done():
                item.done.set_result(seq)

    def granted(self, epoch: int, granted: int, granted_m: int) -> bool:
        return self.account.credit.raise_to(granted, granted_m)

    def turn(self, when: float, latest: float) -> tuple[float, bool]:
        return (latest, False) if self.relies else (round(4 * when) / 4, True)

    def refill(self, head: Outgoing | None) -> None:
        """Take nothing from pools."""
        self.asks_pools_for = head


@dataclass(slots=True)
class World:
    """One destination, its sessions, and the time."""

    fault_at: dict[int, str] = field(default_factory=dict)
    """The number of a call -> what happens to it."""
    now: float = 1000.0
    calls: int = 0
    made: "Counter[tuple[str, type[Call]]]" = field(default_factory=Counter)
    """Calls of each sort, by the session's name."""
    deaf: int = 0
    gone: bool = False
    shelf: dict[int, Outgoing] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    plan: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    model: Destination = field(init=False)

    def __post_init__(self) -> None:
        self.model = Destination("queue", Amount(LIMIT, UNLIMITED), int(self.now * 1000), "run1")

    def session(self, name: str, window: int) -> Session:
        session = Session(name, self, window)
        self.sessions.append(session)
        return session

    def at(self, after: float, what: Callable[[], object]) -> None:
        self.plan.append((self.now + after, what))
        self.plan.sort(key=lambda entry: entry[0])

    # The destination.

    def consume(self) -> None:
        """Settle all that is stored."""
        self.observed(self.model.purge, None)

    def stop(self, *, stopped: bool) -> None:
        self.observed(lambda: self.model.change(self.model.limit, Rules(stopped=stopped)), None)
        for session in self.sessions:
            session.account.heed(self.now, stopped=stopped)

    def observed(self, work: Callable[[], Any], caller: str | None) -> Any:
        """Do something at the destination, and tell sessions of it as Redis would."""
        self.model.now = int(self.now * 1000)
        before = {sid: account.granted for sid, account in self.model.accounts.items()}
        result = work()
        assert self.model.pending.bytes <= LIMIT
        assert (self.model.pending + self.model.leased).bytes <= LIMIT or self.model.learning
        for session in self.sessions:
            account = self.model.accounts.get(session.name)
            if account is None or session.name == caller:
                continue
            if account.granted != before.get(session.name, account.granted):
                if self.deaf:
                    self.deaf -= 1
                    continue
                granted = account.granted
                session.account.hear_grant(self.model.epoch, account.inc, granted.bytes, granted.messages, self.now)
            elif self.model.line and session.name not in self.model.line:
                share = self.model.share(1)
                session.account.hear_recall(share.bytes, share.messages)
        return result

    def serve(self, session: Session, call: Call) -> Credit | None:
        """Return what the destination answers."""
        model = self.model
        if isinstance(call, Create):
            self.gone = False
            return None
        if isinstance(call, Reap):
            self.observed(model.reap, session.name)
            return None
        if not isinstance(call, Acquire | Publish | Leave):
            return None
        if self.gone:
            return Credit("UNKNOWN")
        t = call.totals
        totals = Totals(
            session=t.session, inc=t.inc, epoch=t.epoch, granted=Amount(t.granted, t.granted_m),
            used=Amount(t.used, t.used_m), returned=Amount(t.returned, t.returned_m), need=Amount(t.need, t.need_m),
            want=Amount(t.want, t.want_m), weight=t.weight, size=t.size, sent=getattr(call, "sent", 0),
            ttl_ms=session.account.lease.ttl_ms,
        )  # fmt: skip
        if isinstance(call, Publish):
            return self._publish(session, call, totals)
        leaves = isinstance(call, Leave) and call.closes
        answer = self.observed(lambda: model.acquire(totals, leave=leaves, resume=True), session.name)
        return None if isinstance(call, Leave) else self._credit(answer)

    def _publish(self, session: Session, call: Publish, totals: Totals) -> Credit:
        items, seq = call.batch.items, call.batch.seq
        answer = self.observed(lambda: self.model.publish(totals, seq, [item.size for item in items]), session.name)
        assert answer.code != "PASSED", "numbers go out one after the other"
        if answer.code == "OK":
            for number, item in enumerate(items, answer.first):
                assert item not in self.shelf.values(), "stored twice"
                self.shelf[number] = item
        return self._credit(answer, stored=len(items) if answer.code in ("OK", "DUPLICATE") else 0)

    def _credit(self, answer: Answer, stored: int = 0) -> Credit:
        granted = LIMIT if answer.code == "TOO_LARGE" else answer.granted.bytes
        return Credit(
            answer.code, answer.epoch, granted, answer.granted.messages, answer.place, answer.blocked, 1000,
            answer.first, stored, answer.lost,
        )  # fmt: skip

    # Time.

    def run(self, until: float) -> None:
        """Let time pass until there is nothing to do before that moment."""
        for _ in range(ENOUGH):
            for session in self.sessions:
                self._drive(session)
            moment = min([until, *(at for at, _ in self.plan), *map(self._next, self.sessions)])
            if moment >= until:
                self.now = until
                return
            self.now = max(self.now, moment)
            while self.plan and self.plan[0][0] <= self.now:
                self.plan.pop(0)[1]()
        raise AssertionError(f"it never rests: {[session.account.call(self.now) for session in self.sessions]}")

    def _next(self, session: Session) -> float:
        account = session.account
        due = session.under_way.at if session.under_way else max(account.wake_at(self.now), session.retry_at)
        return min(due, account.waiters.attend_at)

    def _drive(self, session: Session) -> None:
        account = session.account
        call: Call | None = None
        for _ in range(100):
            if account.waiters.attend_at <= self.now:
                stuck, silent = (account.silent_since(self.now, slow) is not None for slow in (SLOW, SILENT))
                account.waiters.see_to(self.now, stuck=stuck, silent=silent)
            if (flight := session.under_way) is not None:
                if flight.at > self.now:
                    return
                session.under_way = None
                if flight.lost:
                    account.missed(self.now, gives_up=False)
                    session.retry_at = self.now + 0.05
                else:
                    account.hear(flight.call, flight.answer, self.now)
                    account.answered(self.now)
            if session.retry_at > self.now:
                return
            call = None if session.begun else account.begin(self.now)
            session.begun = call is None
            call = call or account.call(self.now)
            if call is None:
                account.answered(self.now)
                if account.wake_at(self.now) > self.now:
                    return
                continue
            self._begin(session, call)
        raise AssertionError(f"{session.name} calls without end: {call}")

    def _begin(self, session: Session, call: Call) -> None:
        number, self.calls = self.calls, self.calls + 1
        self.made[session.name, type(call)] += 1
        fault = self.fault_at.get(number, "")
        self._around(session, fault)
        answer = None if fault == "unsent" else self.serve(session, call)
        if fault == "repeated":
            again = self.serve(session, call)
            answer = again if again is not None else answer
        late = 3.0 if fault == "late" else 0.5 if fault in ("overdue", "cancelled") else 0.001
        session.under_way = Flight(call, answer, self.now + late, lost=fault in ("unsent", "lost"))

    def _around(self, session: Session, fault: str) -> None:
        """Do to the destination, and to those who wait, what may happen just before a call gets there."""
        model, known = self.model, session.name in self.model.accounts
        if fault in ("reclaimed", "fenced"):
            if known and fault == "fenced":
                model.accounts[session.name].inc += 2
            elif known:
                self.observed(lambda: model._drop(session.name), None)
        elif fault == "run":
            model.run = f"{model.run}+"
        elif fault == "removed":
            for name in tuple(model.accounts):
                model._drop(name)
            self.gone = True
        elif fault == "stopped":
            self.stop(stopped=True)
            self.at(1.0, lambda: self.stop(stopped=False))
        elif fault == "deaf":
            self.deaf += 1
        else:
            self._to_waiters(session, fault)

    def _to_waiters(self, session: Session, fault: str) -> None:
        account = session.account
        if fault == "cancelled":
            self.at(0.1, lambda: self._give_up(session))
        elif fault == "overdue":
            for item in session.items:
                if not item.done.done():
                    item.deadline = min(item.deadline, self.now + 0.1)
            account.waiters.attend_by(self.now + 0.1)
        elif fault == "recalled":
            account.hear_recall(10, 1)
        elif fault == "used up":
            account.credit.give_back(account.credit.in_hand, 0)

    def _give_up(self, session: Session) -> None:
        for item in tuple(session.account.outbox.waiting):
            session.give_up(item)


def story(world: World, dice: random.Random | None = None) -> None:
    """Two sessions share a tight limit: paid sends, blocked ones, one that is cancelled, one whose time is over."""
    dice = dice or random.Random(1)
    ann, bob = world.session("ann", 300), world.session("bob", 200)
    for after, session, sizes in ((0.0, ann, (50, 60, 40)), (0.1, bob, (100, 30)), (0.3, ann, (400, 90, 10)),
                                  (0.35, bob, (500, 20)), (0.6, ann, (200, 200, 300))):  # fmt: skip
        for size in sizes:
            world.at(after, lambda session=session, size=size: session.send(size))  # type: ignore[misc]
    world.at(0.4, lambda: bob.send(900, timeout=0.3))
    given_up: list[Outgoing] = []
    world.at(0.45, lambda: given_up.append(ann.send(333)))
    world.at(0.5, lambda: ann.give_up(given_up[0]))
    world.at(0.7, lambda: bob.send(LIMIT + 1))
    for number in range(40):
        world.at(0.9 + number * dice.uniform(0.2, 1.0), world.consume)


def check(world: World) -> None:
    """See that everything has ended as it was told, and that nothing is held any more."""
    for session in world.sessions:
        stored = [item for item in world.shelf.values() if item in session.items]
        for item in session.items:
            fate = item.done.value
            assert item.done.done(), f"{item.size} waits for ever"
            if isinstance(fate, int):
                assert world.shelf[fate] is item
            elif fate is not None and fate != "unknown":
                assert item not in stored, f"{fate}, and it was stored"
        order = [session.items.index(item) for item in stored]
        assert order == sorted(order), "nobody overtakes"
        line = session.account.credit
        assert line.in_hand == 0, "all that was granted was used, or given back"
        assert (line.used, line.returned) == (0, 0), "and the account has ended"
    assert world.model.leased.bytes == 0
    assert not world.model.accounts
    assert not world.model.line

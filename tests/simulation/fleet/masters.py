"""Masters of a large world: each does one call after another, and decides by the plain model of a destination."""

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core.account.calls import Credit, Explain, Leave, Publish, Reap
from headgate.core.window import Exchange
from tests.model.credit import UNLIMITED, Account, Amount, Answer, Totals
from tests.model.destination import Destination
from tests.model.messages import RETURNED
from tests.simulation.fleet.events import Events

CALL: Final = 80e-6
"""Seconds of a master's processor that a call takes, and what each message in it adds; docs/scale.md says from what."""
MESSAGE: Final = 5e-6
RECALLS: Final = 0.2
"""Seconds between two recalls of idle credit at a destination."""


class Tallied(Destination):
    """The plain model, whose sums are made with less work: a large world asks for them all the time.

    What others than the caller hold is summed up once a call, and follows what the call does to them.
    """

    __slots__ = (
        "_caller", "_others", "_others_m", "_others_weight", "_pending", "_pending_of", "_soonest", "_total",
        "_weights",
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._caller: str | None = None
        self._total: Amount | None = None
        self._weights = self._others_weight = self._others = self._others_m = 0
        self._pending_of = (-1, 0)
        self._soonest = 0
        super().__post_init__()

    def late(self) -> list[tuple[int, str]]:
        """Look at leases only once the one that ended first when it looked last is over: all are of one length."""
        if self.now < self._soonest:
            return []
        due = super().late()
        self._soonest = min((account.lease_ends for account in self.accounts.values()), default=0)
        return due

    def acquire(self, totals: Totals, *, leave: bool = False, resume: bool = False) -> Answer:
        self._begin(totals.session)
        answer = super().acquire(totals, leave=leave, resume=resume)
        self._end_call()
        return answer

    def publish(self, totals: Totals, *batch: Any) -> Answer:
        self._begin(totals.session)
        answer = super().publish(totals, *batch)
        self._end_call()
        return answer

    def settle(self, sid: str, *args: Any, **named: Any) -> tuple[str, int]:
        self._begin(sid)
        answer = super().settle(sid, *args, **named)
        self._end_call()
        return answer

    def recount(self) -> tuple[Amount, int]:
        """Return what is leased, and the sum of weights, from the accounts."""
        size = messages = 0
        for account in self.accounts.values():
            granted, used, returned = account.granted, account.used, account.returned
            size += granted.bytes - used.bytes - returned.bytes
            messages += granted.messages - used.messages - returned.messages
        return Amount(size, messages), super().weights

    @property
    def leased(self) -> Amount:
        if self._caller is not None:
            return Amount(*self._sums())
        if self._total is None:
            self._total, self._weights = self.recount()
        return self._total

    @property
    def weights(self) -> int:
        if self._caller is None:
            return self._weights if self._total else self.recount()[1]
        account = self.accounts.get(self._caller)
        return self._others_weight + (account.weight if account else 0)

    @property
    def whole_room(self) -> Amount:
        if self.stopped or self.begins or self._caller is None or (self.shut and not self.rules.off):
            return super().whole_room
        limit, pending, (leased, leased_m) = self.binding, self.pending, self._sums()
        return Amount(limit.bytes - pending.bytes - leased, limit.messages - pending.messages - leased_m)

    def _sums(self) -> tuple[int, int]:
        """Return the bytes and messages that the caller and all others hold."""
        account = self.accounts.get(self._caller or "")
        if account is None:
            return self._others, self._others_m
        granted, used, returned = account.granted, account.used, account.returned
        return (
            self._others + granted.bytes - used.bytes - returned.bytes,
            self._others_m + granted.messages - used.messages - returned.messages,
        )

    def _begin(self, sid: str) -> None:
        total, account = self.leased, self.accounts.get(sid)
        self._others, self._others_m, self._others_weight = total.bytes, total.messages, self._weights
        self._caller = sid
        if account is not None:
            self._without(account)

    def _without(self, account: Account) -> None:
        granted, used, returned = account.granted, account.used, account.returned
        self._others -= granted.bytes - used.bytes - returned.bytes
        self._others_m -= granted.messages - used.messages - returned.messages
        self._others_weight -= account.weight

    def _end_call(self) -> None:
        self._total, self._weights, self._caller = self.leased, self.weights, None

    def _grant(self, account: Account) -> bool:
        before = account.granted
        granted = super()._grant(account)
        if self._caller is None:
            self._total = None
        elif account.granted is not before and account is not self.accounts.get(self._caller):
            self._others += account.granted.bytes - before.bytes
            self._others_m += account.granted.messages - before.messages
        return granted

    def _drop(self, sid: str) -> None:
        if self._caller is None:
            self._total = None
        elif sid != self._caller:
            self._without(self.accounts[sid])
        super()._drop(sid)

    @property
    def pending(self) -> Amount:
        shelf = self.shelf
        state = (shelf.seq, len(shelf.stored))  # what is stored changes one of them
        if self._pending_of != state:
            self._pending_of = state
            self._pending = Amount(sum([message.size for message in shelf.stored.values()]), len(shelf.stored))
        return self._pending


@dataclass(slots=True)
class Place:
    """A destination at its master, and those who hear of it.

    Attributes:
        model: decides.
        listeners: members by the id of their session.
        idle: consumers that found less than they had room for.
        items: what is stored, by number.
        recalled_at: when idle credit was asked for last.
        dead: when sessions died that are known here.
        given: messages that have receipts and are not settled, by number.
        total, epoch, head: bytes pending and leased, the epoch and the first in line after the last call.
        idle_since: since when the first in line has had room.
        judged: how often it was looked at.
    """

    name: str
    model: Tallied
    listeners: dict[str, Any] = field(default_factory=dict)
    idle: deque[str] = field(default_factory=deque)
    items: dict[int, Any] = field(default_factory=dict)
    recalled_at: float = 0.0
    dead: dict[str, float] = field(default_factory=dict)
    given: dict[int, Any] = field(default_factory=dict)
    total: int = 0
    epoch: int = 0
    head: str = ""
    idle_since: float = math.inf
    judged: int = 0


class Master:
    """One server. Calls come to it over a network, wait for each other, and are answered over the network.

    Attributes:
        calls: by their sort.
        busy: seconds for which it worked.
        free_at: when all is done that is here.
        longest: the longest that a call waited for others.
        serves: whether it takes calls.
        ahead: seconds by which its clock was set forward, and ``forwarded_at`` when that was last.
        judge: looks at a destination after each call there.
    """

    __slots__ = (
        "ahead", "busy", "calls", "events", "forwarded_at", "free_at", "judge", "longest", "number", "places", "run",
        "serves",
    )  # fmt: skip

    def __init__(self, events: Events, number: int) -> None:
        self.events, self.number = events, number
        self.places: list[Place] = []
        self.calls: Counter[str] = Counter()
        self.busy = self.free_at = self.longest = 0.0
        self.run = 1
        self.serves = True
        self.ahead = self.forwarded_at = 0.0
        self.judge: Callable[[Place], None] | None = None

    def make(self, name: str, limit: int) -> Place:
        """Return a new queue."""
        place = Place(
            name, Tallied("queue", Amount(limit, UNLIMITED), self._clock(self.events.now), f"{self.number}.1")
        )
        place.model.shelf.subscribe("queue", durable=True)
        self.places.append(place)
        return place

    def restart(self) -> None:
        """Serve again, as another run of the server; what is stored is as it was."""
        self.serves = True
        self.run += 1
        self.free_at = self.events.now
        for place in self.places:
            place.model.run = f"{self.number}.{self.run}"

    def change(self, place: Place, limit: int) -> None:
        """Change a limit, by hand."""
        self._served(place, None, lambda: place.model.change(Amount(limit, UNLIMITED), place.model.rules))

    def _clock(self, now: float) -> int:
        return int((now + self.ahead) * 1000)

    def take(self, member: Any, call: Any, work: int) -> tuple[Any, float] | None:
        """Do one call; returns the answer and when it leaves, or None where nothing answers."""
        if not self.serves:
            return None
        now = self.events.now
        begins = max(now, self.free_at)
        took = CALL + MESSAGE * work
        self.longest = max(self.longest, begins - now)
        self.free_at = begins + took
        self.busy += took
        self.calls[type(call).__name__] += 1
        place: Place = member.place
        model = place.model
        model.now = max(model.now, self._clock(self.free_at))
        model.run = f"{self.number}.{self.run}"
        if isinstance(call, Explain):
            return None, self.free_at
        answer: Any
        if isinstance(call, Exchange):
            answer = self._exchange(place, member, call)
        elif call == "attach":
            answer = model.attach(member.id, member.number, "queue", durable=True, ttl_ms=member.lease.ttl_ms)
        else:
            answer = self._credit(place, member, call)
        if self.judge is not None:
            self.judge(place)
        return answer, self.free_at

    # Credit.

    def _credit(self, place: Place, member: Any, call: Any) -> Credit | None:
        model = place.model
        if isinstance(call, Reap):
            self._served(place, member.id, model.reap)
            return None
        t = call.totals
        totals = Totals(
            session=t.session, inc=t.inc, epoch=t.epoch, granted=Amount(t.granted, t.granted_m),
            used=Amount(t.used, t.used_m), returned=Amount(t.returned, t.returned_m), need=Amount(t.need, t.need_m),
            want=Amount(t.want, t.want_m), weight=t.weight, size=t.size, sent=getattr(call, "sent", 0),
            ttl_ms=member.lease.ttl_ms,
        )  # fmt: skip
        stored = 0
        if isinstance(call, Publish):
            items = call.batch.items
            answer = self._served(
                place, member.id, lambda: model.publish(totals, call.batch.seq, [item.size for item in items])
            )
            if answer.code == "OK":
                for number, item in enumerate(items, answer.first):
                    item.done.stored(place, number)
                    place.items[number] = item
                self._wake_idle(place, len(items))
            stored = len(items) if answer.code in ("OK", "DUPLICATE") else 0
        else:
            leaves = isinstance(call, Leave) and call.closes
            answer = self._served(place, member.id, lambda: model.acquire(totals, leave=leaves, resume=not leaves))
        again = self._again(place, answer.place)
        granted = model.limit.bytes if answer.code == "TOO_LARGE" else answer.granted.bytes
        return Credit(
            answer.code, answer.epoch, granted, answer.granted.messages, answer.place, answer.blocked, again,
            answer.first, stored, answer.lost,
        )  # fmt: skip

    def _again(self, place: Place, turn: int) -> int:
        """Return ms until it is worth to ask again, as lua/lib/credit.lua says it."""
        model, again = place.model, 1000
        if model.learning:
            again = min(again, model.learning_until - model.now + 1)
        if turn == 1:
            soonest = min((account.lease_ends for account in model.accounts.values()), default=model.now + 1000)
            due = int(1000 * (RECALLS - abs(self.events.now - place.recalled_at)))
            again = max(50, min(again, soonest - model.now + 1, due if due > 0 else again))
        return again

    def _served(self, place: Place, caller: str | None, work: Any) -> Any:
        """Do something, and have those hear of it who were granted something, or hold what others lack."""
        model = place.model
        before = {sid: model.accounts[sid].granted for sid in model.line if sid in model.accounts}
        result = work()
        for sid, had in before.items():
            account = model.accounts.get(sid)
            if account is not None and sid != caller and account.granted != had:
                self._tell(place, sid, "credit", model.epoch, account.inc, account.granted)
        if model.line and self.events.now >= place.recalled_at + RECALLS:
            place.recalled_at = self.events.now
            share = model.share(1)
            for sid in tuple(model.accounts):
                self._tell(place, sid, "recall", model.epoch, 0, share)
        return result

    def _tell(self, place: Place, sid: str, *what: Any) -> None:
        member = place.listeners.get(sid)
        if member is not None:
            member.node.told(self.free_at, member, what)

    # Messages.

    def _wake_idle(self, place: Place, stored: int) -> None:
        for _ in range(min(stored, len(place.idle))):
            member = place.listeners.get(place.idle.popleft())
            if member is not None:
                member.node.told(self.free_at, member, ("ready",))

    def _exchange(self, place: Place, member: Any, call: Exchange[Any]) -> tuple[str, list[tuple[int, Any]], bool]:
        """Settle and fetch; returns the code, what was fetched, and whether it was fetched before."""
        model = place.model
        consumer = model.shelf.consumers.get(member.cid)
        known = consumer is not None and 0 < call.fetch <= consumer.fetches
        accepted = [message.seq for outcome, message, _ in call.going if outcome == "accepted"]
        released = [message.seq for outcome, message, _ in call.going if outcome != "accepted"]
        code, _ = self._served(
            place, member.id,
            lambda: model.settle(
                member.id, member.cid, accepted, released, [], fetch=call.fetch, ttl_ms=member.lease.ttl_ms
            ),
        )  # fmt: skip
        if code != "OK" or consumer is None:
            return "EXPIRED", [], False
        for seq in accepted:
            if seq not in model.shelf.stored and (item := place.items.pop(seq, None)):
                item.done.settled = True
                place.given.pop(seq, None)
        if not call.fetch:
            return "OK", [], False
        sub = model.shelf.subscriptions["queue"]
        if known:
            return "AGAIN", [(seq, place.items[seq]) for seq in sub.held_by(member.cid) if seq in place.items], True
        consumer.fetches = call.fetch
        got: list[int] = []
        size = 0
        for seq in (sub.held_by(RETURNED) + sub.unread[: call.messages])[: call.messages]:
            size += model.shelf.stored[seq].size
            if got and size > call.size:
                break
            got.append(seq)
        for seq in got:
            sub.deliver(seq, member.cid)
        if len(got) < call.messages:
            place.idle.append(member.id)
        elif sub.unread or got:
            self._wake_idle(place, 1 if sub.unread else 0)
        return "OK", [(seq, place.items[seq]) for seq in got], False

    def recount(self, place: Place) -> tuple[Amount, Amount]:
        """Return what is leased and pending by the plain model's own sums."""
        model = place.model
        leased, _ = model.recount()
        sizes = [message.size for message in model.shelf.stored.values()]
        return leased, Amount(sum(sizes), len(sizes))

"""A fleet: many nodes, their sessions, and the masters; what befalls them, what they promised, and what they cost."""

import gc
import math
from dataclasses import dataclass, field
from random import Random
from typing import Final

from headgate.core.outbox import Outgoing
from tests.simulation.fleet.events import BEGINS, Events
from tests.simulation.fleet.masters import Master, Place
from tests.simulation.fleet.members import CALL_TIMEOUT, TTL, Delivery, Node, Sender, Taker

FAULTS: Final = ("freeze", "kill", "cut", "lose", "repeat", "restart", "forward", "lower")
LATE: Final = CALL_TIMEOUT + 0.5
"""Seconds by which a send may end after its time where a call of its account is not answered."""
ENOUGH: Final = 20
"""Broken promises after which a history ends."""
RECOUNT: Final = 50
"""Calls at a destination after which its sums are made anew."""
POLL: Final = 2.0
"""Seconds for which the end of a pause may stay unnoticed, which no call brings."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a fleet is, and what it does.

    Attributes:
        nodes, masters: processes.
        senders, takers: sessions of a node of each sort.
        places: destinations; each session uses one.
        limit: bytes of each destination.
        window: bytes that a sender asks for ahead.
        every: seconds between two sends of a session, on average.
        takes: seconds that a consumer needs for a message, on average.
        seconds: for which messages are sent.
        faults: how many happen meanwhile.
    """

    nodes: int = 100
    masters: int = 3
    senders: int = 8
    takers: int = 2
    places: int = 50
    limit: int = 8_000
    window: int = 2_000
    size: int = 500
    every: float = 1.0
    takes: float = 0.02
    seconds: float = 10.0
    timeout: float = 30.0
    faults: int = 0


@dataclass(slots=True)
class Figures:
    """Counts of one history."""

    receipts: int = 0
    ended: int = 0
    taken: int = 0
    waits: list[float] = field(default_factory=list)
    by_sender: dict[str, int] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    """When each sender had a receipt first since :attr:`first_since`."""
    first_since: float = math.inf


class Fleet:
    """One history of a fleet, of one seed.

    Attributes:
        broken: promises that did not hold, each with what was seen.
    """

    def __init__(self, plan: Plan, seed: int = 0) -> None:
        self.plan, self.seed = plan, seed
        self.events = Events()
        self.figures = Figures()
        self.broken: list[str] = []
        self._chance = Random(f"fleet {seed}")
        self._faults = Random(f"faults {seed}")
        self._ids = 0
        self.masters = [Master(self.events, number) for number in range(plan.masters)]
        for master in self.masters:
            master.judge = self.judge
        self.places: list[tuple[Master, Place]] = []
        for number in range(plan.places):
            master = self.masters[number % plan.masters]
            self.places.append((master, master.make(f"q{number}", plan.limit)))
        self.nodes: list[Node] = []
        self._ends = BEGINS + plan.seconds
        self._next = 0
        self._disturbed = BEGINS
        """When the last of what befalls it ends."""
        for number in range(plan.nodes):
            self.nodes.append(self._node(number))

    def _node(self, number: int) -> Node:
        chance = self._chance  # of all: to have ten thousand would take more memory than all that they draw for
        node = Node(self.events, number, chance, rate=1 + chance.uniform(-0.01, 0.01))
        plan = self.plan
        for _ in range(plan.takers):
            master, place = self._place(number)
            taker = Taker(node, master, place, self._id("c"), 16, plan.takes, self, chance)
            self.events.after(chance.random(), node.do, taker.stir)
        for _ in range(plan.senders):
            master, place = self._place(number)
            sender = Sender(node, master, place, self._id("s"), plan.window, self)
            self.events.after(chance.random() * plan.every, self._send, sender)
        return node

    def _place(self, number: int) -> tuple[Master, Place]:
        self._next += 1
        return self.places[(self._next + number) % len(self.places)]

    def _id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}{self._ids}"

    def _send(self, sender: Sender) -> None:
        node, events, plan = sender.node, self.events, self.plan
        if node.dead or events.now >= self._ends:
            return
        if not node.frozen and len(sender.account.outbox) < 20:
            sender.send(plan.size, plan.timeout)
        events.after(plan.every * (0.5 + node.chance.random()), self._send, sender)

    def consume(self, *, node: int, takers: int, takes: float) -> None:
        """Have more sessions of a node consume from the first destination."""
        one, (master, place) = self.nodes[node], self.places[0]
        for _ in range(takers):
            taker = Taker(one, master, place, self._id("c"), 16, takes, self, one.chance)
            self.events.after(one.chance.random(), one.do, taker.stir)

    def restart_all(self, *, after: float, away: float) -> float:
        """Have all masters be away for a while; returns when that begins."""
        at = BEGINS + after
        self.figures.first_since = at + away
        for master in self.masters:
            self.events.at(at, setattr, master, "serves", False)
            self.events.at(at + away, master.restart)
        return at

    def first_receipts(self, since: float) -> dict[str, float]:
        """Return how long after a time each sender got its first receipt."""
        return {sid: at - since for sid, at in self.figures.first.items()}

    # The history.

    def tell(self, then: float = 40.0) -> list[str]:
        """Let all happen, and then come to an end; returns what was broken."""
        collects = gc.isenabled()
        gc.disable()  # a hundred thousand sessions are no garbage, and looking at them takes longer than what they do
        try:
            return self._tell(then)
        finally:
            if collects:
                gc.enable()

    def _tell(self, then: float) -> list[str]:
        plan, chance = self.plan, self._faults
        for _ in range(plan.faults):
            at = BEGINS + chance.uniform(1.0, max(1.5, plan.seconds))
            self.events.at(at, self._befall, chance.choice(FAULTS), round(chance.uniform(0.2, 1.5 * TTL), 2))
        self.events.run(self._ends)
        if plan.faults:
            self.events.run(self._ends + 1.5 * TTL)
        for node in self.nodes:
            node.loses = node.repeats = 0.0
        self.events.run(self.events.now + then)
        if len(self.broken) < ENOUGH:
            self._finish()
        return self.broken

    def breaks(self, promise: str, what: str) -> None:
        """Note a promise that did not hold."""
        self.broken.append(f"{promise}: {what} (seed {self.seed}, {self.events.now - BEGINS:.3f} s)")
        if len(self.broken) >= ENOUGH:
            self.events.end()

    # What befalls it.

    def _befall(self, what: str, seconds: float) -> None:
        chance, events = self._faults, self.events
        self._disturbed = max(self._disturbed, events.now + seconds)
        node = chance.choice(self.nodes)
        master, place = chance.choice(self.places)
        match what:
            case "freeze" if not node.frozen:
                node.frozen = True
                events.after(seconds, node.thaw)
            case "kill" if not node.dead:
                self._kill(node)
                events.after(seconds, self._replace, node)
            case "cut":
                node.cut_until = events.now + seconds
            case "lose" | "repeat":
                setattr(node, "loses" if what == "lose" else "repeats", 0.3)
                events.after(seconds, setattr, node, "loses" if what == "lose" else "repeats", 0.0)
            case "restart" if master.serves:
                master.serves = False
                events.after(seconds / 5, master.restart)
            case "forward":
                master.ahead, master.forwarded_at = master.ahead + seconds, events.now
            case "lower":
                master.change(place, int(self.plan.limit * chance.uniform(0.5, 1.5)))
            case _:
                pass

    def _kill(self, node: Node) -> None:
        node.dead = True
        for member in node.members:
            member.place.dead[member.id] = self.events.now
            member.place.listeners.pop(member.id, None)

    def _replace(self, node: Node) -> None:
        self.nodes[node.number] = self._node(node.number)

    # What it promised.

    def judge(self, place: Place) -> None:
        """See that what a call left at a destination is as promised."""
        model, now = place.model, self.events.now
        leased, pending = model.leased, model.pending
        place.judged += 1
        if place.judged % RECOUNT == 0:
            counted = leased, model.weights
            assert counted == model.recount(), f"the simulation counts {counted} at {place.name}"
        total = leased.bytes + pending.bytes
        if min(leased.bytes, leased.messages) < 0:
            self.breaks("P2", f"{leased} are leased at {place.name}")
        most = max(model.limit.bytes, place.total if place.epoch == model.epoch else 0)
        if total > most and not model.learning:
            self.breaks("P1", f"{total} bytes are pending and leased of {model.limit.bytes} at {place.name}")
        self._line(place, total < place.total)
        place.total, place.epoch = total, model.epoch
        for sid, died in tuple(place.dead.items()):
            account = model.accounts.get(sid)
            if account is None:
                del place.dead[sid]
            elif account.held.bytes and model.line and now > max(died, self._disturbed) + TTL + 1:
                self.breaks("P4", f"{sid} died {now - died:.2f} s ago and holds {account.held} at {place.name}")
                del place.dead[sid]

    def _line(self, place: Place, freed: bool) -> None:
        """See that the first in line has no room, that no call freed it, and that it did not come long ago."""
        model, now = place.model, self.events.now
        head = model.line[0] if model.line and not (model.shut or model.learning) else ""
        if not head or not model.accounts[head].lacks.fits(model.room):
            place.idle_since = math.inf
        elif freed and place.head == head:
            self.breaks("P6", f"a call left {head} in line at {place.name}, and room for it")
        else:
            place.idle_since = min(place.idle_since, now)
            if now > max(place.idle_since, self._disturbed) + POLL:
                self.breaks("P6", f"{head} is in line at {place.name} for {now - place.idle_since:.2f} s, with room")
                place.idle_since = math.inf
        place.head = head

    def receipt(self, sender: Sender, item: Outgoing, number: int, now: float) -> None:
        """Hear of a receipt."""
        fate = item.done
        if not fate.settled:
            sender.place.given[number] = item
        if fate.place is not sender.place or fate.number != number:
            self.breaks("P3", f"{sender.id} has a receipt {number} for what lies at {fate.number}")
        self.figures.receipts += 1
        self.figures.by_sender[sender.id] = self.figures.by_sender.get(sender.id, 0) + 1
        self.figures.waits.append(self.events.now - item.span)
        if self.events.now >= self.figures.first_since:
            self.figures.first.setdefault(sender.id, self.events.now)
        self._ended(sender, item, now)

    def ended(self, sender: Sender, item: Outgoing, now: float) -> None:
        """Hear of a send that ended otherwise."""
        self.figures.ended += 1
        self._ended(sender, item, now)

    def _ended(self, sender: Sender, item: Outgoing, now: float) -> None:
        late = self.events.now - max(item.span + self.plan.timeout * 1.02, self._disturbed)
        if late > LATE:
            self.breaks("P11", f"a send of {sender.id} at {sender.place.name} ended {late:.2f} s after its time")

    def received(self, taker: Taker, delivery: Delivery) -> None:
        """Hear of a delivery, which others may have had if the clock of leases jumped since it was asked for."""
        if delivery.item.done.taken and taker.master.forwarded_at < taker.called_at:
            self.breaks("P5", f"{delivery.seq} of {taker.place.name} was accepted, and came again")

    def accepted(self, taker: Taker, delivery: Delivery) -> None:
        """Hear that a settlement is done."""
        delivery.item.done.taken = True
        self.figures.taken += 1

    def _finish(self) -> None:
        for master, place in self.places:
            model = place.model
            if (there := master.recount(place)) != (model.leased, model.pending):
                self.breaks("P2", f"{place.name} counts {model.leased} and {model.pending}, where {there} are")
            if model.line:
                self.breaks("P6", f"{model.line} still wait at {place.name}, and nothing fails")
            here = set(model.shelf.stored)
            for number in place.given:
                if number not in here:
                    self.breaks("P3", f"the message {number} of {place.name} has a receipt and is gone")
        living = [member for node in self.nodes for member in node.members if isinstance(member, Sender)]
        for sender in living:
            if left := [item for item in sender.account.outbox.waiting if not item.done.done()]:
                self.breaks("P11", f"{len(left)} sends of {sender.id} at {sender.place.name} never end")

"""The machine behind the workers: begun, replaced, restarted in turn, ended."""

import random

import pytest

from headgate_coordinator.workers.machine import (
    FIRST,
    LONGEST,
    STEADY,
    Abandon,
    AllEnded,
    Begin,
    Drain,
    Kill,
    Order,
    Replace,
    RestartDone,
    WorkerMachine,
)
from tests.support.extent import each, examples


def running(count: int) -> WorkerMachine:
    """Return a machine whose workers all listen: 1 to `count`, at the places of the same numbers."""
    machine = WorkerMachine(count, patience=10.0)
    assert machine.begin(0.0) == [Begin(1, 1)]
    begun = machine.listens(1, 1.0)
    assert begun == [Begin(number, number) for number in range(2, count + 1)]
    for number in range(2, count + 1):
        assert machine.listens(number, 1.0) == []
    assert machine.unserved() == []
    return machine


def test_the_first_begins_alone_and_if_it_cannot_no_other_does() -> None:
    machine = WorkerMachine(3, patience=10.0)
    machine.begin(0.0)
    assert machine.ended(1, 0.5) == [AllEnded(1)]


def test_one_that_ends_by_itself_is_replaced_later_and_later() -> None:
    """Mutant: each failure is the first."""
    machine, now, worker, waits = running(2), 2.0, 2, []
    for _ in range(12):
        (replace,) = machine.ended(worker, now)
        assert isinstance(replace, Replace)
        assert machine.unserved() == [2]
        waits.append(replace.seconds)
        assert machine.due(now + replace.seconds * 0.99) == []
        now += replace.seconds
        assert machine.next_due() == pytest.approx(now)
        (begin,) = machine.due(now)
        assert isinstance(begin, Begin)
        assert begin.place == 2
        worker = begin.worker
        assert machine.next_due() is None
    assert waits[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert waits[-1] == LONGEST


def test_after_a_steady_time_it_is_replaced_at_once_again() -> None:
    machine = running(1)
    assert machine.ended(1, 2.0) == [Replace(1, 1, FIRST)]
    assert machine.due(3.0) == [Begin(2, 1)]
    machine.listens(2, 3.0)
    assert machine.ended(2, 3.0 + STEADY) == [Replace(2, 1, 2 * FIRST)]
    machine.due(100.0)
    machine.listens(3, 100.0)
    assert machine.ended(3, 100.1 + STEADY) == [Replace(3, 1, FIRST)]


def test_a_rolling_restart_takes_one_place_after_the_other_and_never_leaves_one_unserved() -> None:
    """Mutants: it drains before the next one listens; or goes on before the last one has ended."""
    machine = running(3)
    orders, now, drained = machine.roll(2.0), 2.0, []
    while orders and orders != [RestartDone()]:
        now += 1
        (order,) = orders
        assert machine.unserved() == []
        assert list(machine.states.values()).count("draining") == isinstance(order, Drain)
        if isinstance(order, Begin):
            orders = machine.listens(order.worker, now)
        else:
            assert isinstance(order, Drain)
            assert order.others
            drained.append(order.worker)
            orders = machine.ended(order.worker, now)
    assert orders == [RestartDone()]
    assert drained == [1, 2, 3]
    assert sorted(machine.states) == [4, 5, 6]


def test_a_restart_that_cannot_begin_leaves_the_others_as_they_are() -> None:
    machine = running(2)
    assert machine.roll(2.0) == [Begin(3, 1)]
    assert machine.ended(3, 2.5) == [Abandon(3, 1)]
    assert machine.states == {1: "ready", 2: "ready"}
    assert machine.next_due() is None
    assert machine.roll(3.0) == [Begin(4, 1)], "it may be tried again"


def test_a_restart_asked_for_during_one_follows_it() -> None:
    """Mutant: it is forgotten; what was asked for last is a file that workers begun before have not read."""
    machine = running(1)
    assert machine.roll(2.0) == [Begin(2, 1)]
    assert machine.roll(2.1) == []
    assert machine.listens(2, 3.0) == [Drain(1, others=True)]
    assert machine.ended(1, 4.0) == [Begin(3, 1)]
    assert machine.listens(3, 5.0) == [Drain(2, others=True)]
    assert machine.ended(2, 6.0) == [RestartDone()]


def test_a_restart_asked_for_before_the_first_listens_replaces_it_and_none_that_begins_later() -> None:
    """Mutant: it is forgotten until one listens, and a certificate that was renewed meanwhile is not read."""
    machine = WorkerMachine(2, patience=10.0)
    machine.begin(0.0)
    assert machine.roll(0.5) == []
    assert machine.listens(1, 1.0) == [Begin(2, 2), Begin(3, 1)]
    assert machine.listens(2, 2.0) == []
    assert machine.listens(3, 2.0) == [Drain(1, others=True)]
    assert machine.ended(1, 3.0) == [RestartDone()]


def test_a_restart_replaces_one_that_began_before_it_and_listens_later() -> None:
    """Mutant: one that begins anyhow is taken for its own successor."""
    machine = WorkerMachine(2, patience=10.0)
    machine.begin(0.0)
    assert machine.listens(1, 1.0) == [Begin(2, 2)]
    assert machine.roll(1.5) == [Begin(3, 1)]
    assert machine.listens(3, 2.0) == [Drain(1, others=True)]
    assert machine.ended(1, 2.5) == [], "place 2 is to listen first"
    assert machine.listens(2, 3.0) == [Begin(4, 2)]
    assert machine.listens(4, 4.0) == [Drain(2, others=True)]
    assert machine.ended(2, 5.0) == [RestartDone()]


def test_a_restart_begins_at_once_where_one_waits_to_begin_again() -> None:
    """Mutants: what was mended is tried half a minute later; or again without end."""
    machine = running(2)
    machine.ended(2, 2.0)
    assert machine.roll(2.01) == [Begin(3, 2), Begin(4, 1)]
    assert machine.ended(3, 2.02) == [Replace(3, 2, 2 * FIRST)]


def test_one_that_dies_while_its_successor_begins_needs_no_other() -> None:
    machine = running(1)
    machine.roll(2.0)
    assert machine.ended(1, 2.5) == []
    assert machine.unserved() == [1]
    assert machine.listens(2, 3.0) == [RestartDone()]


def test_a_successor_that_dies_after_its_predecessor_is_replaced() -> None:
    machine = running(1)
    machine.roll(2.0)
    machine.ended(1, 2.5)
    assert machine.ended(2, 3.0) == [Replace(2, 1, FIRST)]
    (begin,) = machine.due(4.0)
    assert machine.listens(begin.worker, 5.0) == [RestartDone()]  # type: ignore[union-attr]


def test_all_drain_when_it_stops_and_it_is_over_when_the_last_has_ended() -> None:
    machine = running(2)
    assert machine.stop(5.0) == [Drain(1, others=False), Drain(2, others=False)]
    assert machine.ended(1, 6.0) == []
    assert machine.ended(2, 6.0) == [AllEnded()]
    assert machine.roll(7.0) == []


def test_one_that_does_not_end_is_killed_after_its_time() -> None:
    machine = running(1)
    machine.stop(5.0)
    assert machine.next_due() == 15.0
    assert machine.due(14.9) == []
    assert machine.due(15.0) == [Kill(1)]
    assert machine.due(16.0) == []
    assert machine.ended(1, 16.0) == [AllEnded()]


def test_nobody_is_begun_again_once_it_stops() -> None:
    machine = running(2)
    machine.ended(2, 2.0)
    machine.stop(2.01)
    assert machine.next_due() == pytest.approx(12.01)
    assert machine.due(5.0) == []
    assert machine.ended(1, 6.0) == [AllEnded()]


def test_it_stops_while_the_first_begins() -> None:
    machine = WorkerMachine(2, patience=10.0)
    machine.begin(0.0)
    assert machine.stop(0.1) == [Drain(1, others=False)]
    assert machine.listens(1, 0.2) == [], "it has its order already"
    assert machine.ended(1, 0.3) == [AllEnded()]


class World:
    """Workers that begin, listen, drain and die as a seed has it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.randint(1, 4)
        self.machine = WorkerMachine(self.count, patience=10.0)
        self.now = 0.0
        self.alive: dict[int, int] = {}
        self.over: list[AllEnded] = []
        self.restarts = 0

    def obey(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Begin(worker, place):
                    self.alive[worker] = place
                case AllEnded():
                    self.over.append(order)
                case RestartDone():
                    self.restarts += 1
                case Drain(worker) | Kill(worker):
                    assert worker in self.alive

    def end(self, worker: int) -> None:
        del self.alive[worker]
        self.obey(self.machine.ended(worker, self.now))

    def step(self) -> None:
        self.now += self.random.random() * 5
        self.obey(self.machine.due(self.now))
        if self.random.random() < 0.2:
            self.obey(self.machine.roll(self.now))
            return
        what = self.random.choice(["starting", "starting", "draining", "ready"])
        for worker in [one for one, state in self.machine.states.items() if state == what][:1]:
            if what == "starting" and self.random.random() < 0.8:
                self.obey(self.machine.listens(worker, self.now))
            else:
                self.end(worker)

    def settle(self) -> None:
        """Go on, with nobody who dies, until nothing is left to do."""
        self.restarts = 0
        while self.machine.next_due() is not None or {*self.machine.states.values()} != {"ready"}:
            self.now += LONGEST
            self.obey(self.machine.due(self.now))
            for worker, state in self.machine.states.items():
                if state == "starting":
                    self.obey(self.machine.listens(worker, self.now))
                elif state == "draining":
                    self.end(worker)

    def check(self) -> None:
        states = self.machine.states
        assert set(states) == set(self.alive)
        ready = [self.alive[worker] for worker, state in states.items() if state == "ready"]
        assert len(ready) == len(set(ready)), "two listen at one place for good"
        missing = set(range(1, self.count + 1)) - set(self.alive.values())
        assert not missing or self.machine.next_due() is not None, "a place is forgotten"


@each("seed", range(examples(200)))
def test_whatever_happens_when(seed: int) -> None:
    """Deaths, restarts and stops at any time: no place has two that listen, none is forgotten, and the end comes.

    Nor is a restart forgotten: where nobody dies any more, it leaves no worker that had begun before.
    """
    world = World(seed)
    world.obey(world.machine.begin(0.0))
    world.obey(world.machine.listens(1, 0.0))
    for _ in range(100):
        world.step()
        world.check()
    assert world.over == []
    old = set(world.alive)
    world.obey(world.machine.roll(world.now))
    world.settle()
    assert old.isdisjoint(world.alive)
    assert world.restarts
    assert list(world.machine.states.values()) == ["ready"] * world.count
    world.obey(world.machine.stop(world.now))
    for worker in list(world.alive):
        world.end(worker)
    assert world.over == [AllEnded()]
    assert world.machine.next_due() is None

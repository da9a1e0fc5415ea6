"""The machine of a consumer: with every fault at every call nothing is lost, taken twice, or above the window."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from headgate import Window
from headgate.core.credit import Lease
from headgate.core.fetching import MAX_SETTLED, POLL, SEEK_AFTER, Fetching, WindowUse
from headgate.core.sharing import Share, SharedWindow
from headgate.core.window import LINGER, LINGER_SHARED, MAX_FETCH, Call, Exchange

COUNT = 12
TTL = 10.0


@dataclass
class Item:
    raw_id: bytes
    size: int = 10


@dataclass
class Takers:
    """Those who wait, and take what comes."""

    asked: int = 1
    waits: int = 1
    resumes: bool = True
    most: int = 1 << 30

    def room(self, most: int) -> int:
        return min(most, self.most)


@dataclass
class Server:
    """One consumer at Redis: it gives again what it gave for a number that it knows."""

    left: list[bytes]
    held: list[bytes] = field(default_factory=list)
    settled: list[bytes] = field(default_factory=list)
    last_fetch: int = 0
    attached: bool = True

    def exchange(self, call: Exchange[Item]) -> tuple[str, list[bytes]]:
        if not self.attached:
            return "EXPIRED", []
        for _, item, _ in call.going:
            if item.raw_id in self.held:
                self.held.remove(item.raw_id)
                self.settled.append(item.raw_id)
        if call.fetch and call.fetch == self.last_fetch:
            rest = [one for one in self.held if call.after == b"0" or one > call.after]
            return "AGAIN", rest[:MAX_FETCH]
        self.last_fetch = call.fetch or self.last_fetch
        count = min(call.messages, call.size // 10) if call.fetch else 0
        fresh, self.left = self.left[:count], self.left[count:]
        self.held += fresh
        return "OK", fresh

    def expire(self) -> None:
        self.left = sorted(self.held + self.left)
        self.held = []
        self.attached, self.last_fetch = False, 0


class World:
    """A machine that is driven as a feed does it, until all is settled; ``faults`` says what befalls which call."""

    def __init__(self, window: Window, faults: dict[int, str], count: int = COUNT) -> None:
        self.takers = Takers()
        self.machine = Fetching[Item](WindowUse(window), Lease(TTL), self.takers, ())
        self.server = Server([b"%04d" % number for number in range(count)])
        self.all = list(self.server.left)
        self.faults, self.calls = faults, itertools.count()
        self.now = 0.0
        self.most = 0
        self.machine.settings_changed = False
        self.machine.attached()

    def step(self) -> bool:
        """Make the call that is due; returns whether one was."""
        machine = self.machine
        call = machine.next(self.now)
        if call is None:
            return False
        if call is Call.ATTACH:
            machine.begin()
            self.server.attached = True
            machine.attached()
            return True
        if call is Call.READ_SETTINGS:
            machine.settings_changed = False
            return True
        assert isinstance(call, Exchange)
        fault = self.faults.get(next(self.calls), "")
        if fault == "expires":
            self.server.expire()
        if fault == "is lost":
            return True
        code, ids = self.server.exchange(call)
        if fault == "is done and its answer lost":
            return True
        if code == "EXPIRED":
            machine.refused(self.now)
            machine.outcomes.clear()
            return True
        machine.answered(call, self.now)
        for one in ids:
            if one not in machine.held:
                machine.held[one] = item = Item(one)
                machine.holding.deliver(1, item.size)
                machine.outcomes.append(("accepted", item, None))
        machine.fetched(
            call, self.now, len(ids), ids[-1] if ids else b"", again_ms=0, beside=False, repeated=code == "AGAIN"
        )
        self.most = max(self.most, len(self.server.held))
        return True

    def run(self) -> None:
        for _ in range(500):
            if not self.step():
                self.now = max(self.now + 1e-6, self.machine.wake_at())
            if len(self.server.settled) >= len(self.all) and not self.machine.outcomes and not self.machine.reattach:
                return
        raise AssertionError(f"{self.server.left} and {self.server.held} were never settled")


def places() -> Iterator[dict[int, str]]:
    kinds = ("is lost", "is done and its answer lost", "expires")
    for one in range(6):
        for kind in kinds:
            yield {one: kind}
            for other in range(one + 1, 6):
                for second in kinds:
                    yield {one: kind, other: second}


@pytest.mark.parametrize("window", [Window(5), Window(1), Window(100), Window(bytes=45), Window.pull])
def test_whatever_befalls_two_calls_each_message_is_settled_and_the_window_is_kept(window: Window) -> None:
    """Mutants: set lost_reply after the answer only; count a repeated call's fetch; forget `_unanswered`."""
    for faults in ({}, *places()):
        world = World(window, faults)
        world.run()
        assert sorted(world.server.settled) == world.all, faults
        limit = 4 if window.bytes != "unlimited" else 1 if window.mode == "pull" else window.messages
        assert world.most <= int(limit), faults
        assert not world.machine.held
        assert world.machine.holding.messages == world.machine.holding.bytes == 0


def test_a_repeated_fetch_of_more_than_a_reply_carries_is_read_page_by_page() -> None:
    world = World(Window(1000), {2: "is done and its answer lost"}, count=3 * MAX_FETCH)
    world.machine.outcomes.clear()
    world.run()
    assert sorted(world.server.settled) == world.all


def test_a_call_whose_answer_was_lost_carries_what_it_carried() -> None:
    world = World(Window(5), {1: "is lost"})
    while len(world.machine.held) < 5:
        assert world.step() or world.machine.wake_at() > world.now
    world.now += LINGER
    first = world.machine.next(world.now)
    assert isinstance(first, Exchange)
    world.machine.outcomes.append(("accepted", Item(b"late"), None))
    again = world.machine.next(world.now)
    assert isinstance(again, Exchange)
    assert (again.fetch, again.going) == (first.fetch, first.going)


def settling(held: int, settled: int, window: int = 1000) -> Fetching[Item]:
    """Return the machine of one of several destinations under one window, with nothing due but its settlements."""
    takers = Takers()
    share = Share(SharedWindow(Window(window), takers), lambda: None)
    machine = Fetching[Item](share, Lease(TTL), takers, ())
    machine.lease.renewed(0.0)
    machine.settings_changed = False
    machine.look_at = math.inf
    share.deliver(held, 10 * held)
    machine.outcomes.extend(("accepted", Item(b"%04d" % number), None) for number in range(settled))
    return machine


def test_settlements_of_one_of_several_wait_while_more_of_it_is_worked_on() -> None:
    machine = settling(held=3, settled=2)
    assert machine.next(1.0) is None
    assert machine.wake_at() == 1.0 + LINGER_SHARED
    assert machine.next(1.0 + LINGER_SHARED / 2) is None
    call = machine.next(machine.wake_at())
    assert isinstance(call, Exchange)
    assert len(call.going) == 2


@pytest.mark.parametrize(
    ("held", "settled", "window"),
    [(2, 2, 1000), (MAX_SETTLED + 1, MAX_SETTLED, 1000), (7, 2, 4)],
    ids=["all of it is settled", "one call carries no more", "they are half the window"],
)
def test_settlements_of_one_of_several_go_at_once_where(held: int, settled: int, window: int) -> None:
    assert isinstance(settling(held, settled, window).next(1.0), Exchange)
    assert settling(held, settled - 1, window).next(1.0) is None


def test_settlements_of_one_of_several_go_at_once_where_somebody_waits_for_them() -> None:
    machine = settling(held=5, settled=2)
    machine.hurries = True
    call = machine.next(1.0)
    assert isinstance(call, Exchange)
    machine.answered(call, 1.0)
    machine.outcomes.append(("accepted", Item(b"later"), None))
    assert machine.next(2.0) is None, "nobody waits for this one"


def test_it_looks_again_for_a_hint_that_came_beside_an_answer_and_for_who_asked_meanwhile() -> None:
    world = World(Window(5), {}, count=0)
    for stir, certain in ((world.machine.hear, True), (world.machine.look, False)):
        call = world.machine.next(world.now)
        assert isinstance(call, Exchange)
        stir()
        world.machine.answered(call, world.now)
        assert world.machine.fetched(call, world.now, 0, b"", again_ms=0, beside=False, repeated=False) is certain
        assert world.machine.wake_at() <= world.now


def test_an_answer_after_the_lease_brings_nothing_and_is_asked_for_again() -> None:
    """Mutant: whatever an answer brings is delivered, though it came to a process that was frozen meanwhile."""
    world = World(Window(5), {}, count=3)
    world.machine.outcomes.append(("accepted", Item(b"before"), None))
    call = world.machine.next(world.now)
    assert isinstance(call, Exchange)
    code, ids = world.server.exchange(call)
    assert (code, len(ids)) == ("OK", 3)
    assert not world.machine.answered(call, world.now + TTL), "others may have them"
    assert not world.machine.outcomes, "its settlements are made all the same"
    again = world.machine.next(world.now + TTL)
    assert isinstance(again, Exchange)
    assert (again.fetch, again.going) == (call.fetch, [])
    code, ids = world.server.exchange(again)
    assert (code, len(ids)) == ("AGAIN", 3)
    assert world.machine.answered(again, world.now + TTL)
    world.server.expire()
    world.run()


def test_after_an_empty_look_it_rests_and_sooner_looks_where_others_hold_messages() -> None:
    world = World(Window(5), {}, count=0)
    world.takers.waits = 0
    call = world.machine.next(world.now)
    assert isinstance(call, Exchange)
    world.machine.answered(call, world.now)
    assert world.machine.fetched(call, world.now, 0, b"", again_ms=0, beside=True, repeated=False)
    assert world.machine.wake_at() == world.now + POLL
    assert world.machine.next(world.now + SEEK_AFTER) is None
    world.takers.waits = 1
    assert isinstance(world.machine.next(world.now + SEEK_AFTER), Exchange)


def test_what_is_due_when_it_was_to_be_woken_is_due_however_the_sum_is_rounded() -> None:
    for begins in (1000.0, 1000.001003, 1000.07, 1000.7):
        world = World(Window(100), {}, count=1)
        call = world.machine.next(begins)
        assert isinstance(call, Exchange)
        world.machine.answered(call, begins)
        world.machine.look_at = begins + POLL
        world.machine.outcomes.append(("accepted", Item(b"0000"), None))
        assert world.machine.next(world.machine.wake_at()) is not None, begins


@pytest.mark.parametrize("is_repeated", [True, False])
def test_what_gives_something_back_has_a_number_though_it_fetches_nothing(is_repeated: bool) -> None:
    """A copy of such a call may come late, when that message is here once more: by its number it changes nothing."""
    world = World(Window(5), {})
    world.takers.most = 0
    world.machine.lease.renewed(world.now)
    for number, outcome in enumerate(("accepted", "released", "accepted", "failed"), 1):
        world.now += LINGER
        world.machine.outcomes.append((outcome, Item(b"%d" % number), None))
        call = world.machine.next(world.now)
        assert isinstance(call, Exchange)
        assert (call.fetch, call.messages) == (number // 2 if outcome != "accepted" else 0, 0)
        if is_repeated and call.fetch:
            again = world.machine.next(world.now)
            assert isinstance(again, Exchange)
            assert (again.fetch, again.going) == (call.fetch, call.going)
        assert world.machine.answered(call, world.now)
        world.machine.fetched(call, world.now, 0, b"", again_ms=0, beside=False, repeated=is_repeated)


def test_what_gave_something_back_while_others_had_their_turn_asks_again_once_it_has_its_own() -> None:
    """Mutant: it waits for a hint, though Redis does not wake it for what comes before it has asked."""
    takers = Takers()
    shared = SharedWindow(Window(2), takers)
    machine, other = Fetching[Item](Share(shared, lambda: None), Lease(TTL), takers, ()), Share(shared, lambda: None)
    machine.settings_changed = False
    machine.attached()
    machine.lease.renewed(0.0)
    found = machine.next(0.0)
    assert isinstance(found, Exchange)
    assert machine.answered(found, 0.0)
    machine.fetched(found, 0.0, 1, b"1-1", again_ms=0, beside=False, repeated=False)
    machine.holding.deliver(1, 10)
    assert machine.next(LINGER) is None, "it is woken for what comes"
    assert other.ask(0, 0) != (0, 0)
    machine.outcomes.append(("released", Item(b"1-1"), None))
    gives_back = machine.next(LINGER)
    assert isinstance(gives_back, Exchange)
    assert (gives_back.fetch, gives_back.messages) == (2, 0)
    assert machine.answered(gives_back, LINGER)
    machine.fetched(gives_back, LINGER, 0, b"", again_ms=0, beside=False, repeated=False)
    assert machine.next(LINGER) is None, "the other one is first"
    other.reserve(1)
    assert isinstance(machine.next(LINGER), Exchange)


def test_it_fetches_nothing_while_it_rests_is_closing_or_nobody_has_room() -> None:
    for change in ("resting", "closing", "no room"):
        world = World(Window(5), {})
        world.takers.resumes = False
        if change == "no room":
            world.takers.most = 0
        else:
            setattr(world.machine, change, True)
        assert world.machine.next(world.now) is not None or world.machine.lease.renew_at > world.now
        world.machine.lease.renewed(world.now)
        assert world.machine.next(world.now) is None, change
        assert world.machine.wake_at() == world.machine.lease.renew_at


def test_what_it_was_woken_for_and_has_no_room_for_is_passed_on_once() -> None:
    """Mutants: another is woken for it never, each time, or where there is room."""
    world = World(Window(2), {}, 0)
    machine = world.machine
    while world.step():
        pass
    machine.holding.deliver(1, 10)
    machine.hear(alone=True)
    assert isinstance(machine.next(world.now), Exchange), "there is room"
    machine.lost_reply = False
    machine.hear(alone=True)
    machine.holding.configure(Window(1))
    assert machine.next(world.now) is Call.PASS_ON
    assert machine.next(world.now) is None
    machine.hear()
    assert machine.next(world.now) is None, "all were woken"


@pytest.mark.parametrize("brought", [0, 1])
def test_what_it_was_woken_for_as_it_fetched_is_passed_on_unless_it_got_that(brought: int) -> None:
    """Mutant: it is passed on although it has it."""
    world = World(Window(1), {}, 1)
    call = world.machine.next(world.now)
    assert isinstance(call, Exchange)
    world.machine.hear(alone=True)
    assert world.machine.answered(call, world.now)
    world.machine.fetched(call, world.now, brought, b"1-1", again_ms=0, beside=False, repeated=False)
    if brought:
        world.machine.holding.deliver(1, 10)
    else:
        world.machine.holding.configure(Window.paused)
    assert (world.machine.next(world.now) is Call.PASS_ON) == (not brought)

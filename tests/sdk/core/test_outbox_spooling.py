"""A line of messages of which some go to a store and come back as references: order holds, whatever becomes of them."""

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.credit import CreditLine
from headgate.core.outbox import Outbox, Outgoing
from headgate.core.segment import is_reference, pack
from tests.sdk.core.test_core import Told
from tests.support.extent import examples

STEPS = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)


@dataclass(eq=False)
class Sent:
    item: Outgoing
    number: int
    payload: bytes
    told: Told = field(default_factory=Told)


class SpoolingOutbox(RuleBasedStateMachine):
    """An outbox, a writer and a server, against a plain list of what is to be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.line = CreditLine()
        self.outbox = Outbox(self.line)
        self.all: list[Sent] = []
        self.stored: list[int] = []
        self.granted = self.granted_m = self.stored_bytes = 0
        self.references: list[bytes] | None = None
        self.segments = 0
        self.now = 0.0

    def sent(self, item: Outgoing) -> Sent:
        return next(sent for sent in self.all if sent.item is item)

    @rule(size=st.integers(1, 60), patience=st.integers(5, 50), ttl=st.sampled_from((None, None, 5)))
    def add(self, size: int, patience: int, ttl: int | None) -> None:
        told, payload = Told(), bytes([65 + len(self.all) % 26]) * size
        item = Outgoing(payload, size, self.now + patience, told, ttl)
        self.all.append(Sent(item, len(self.all), payload, told))
        item.paid = self.outbox.add(item)

    @rule(more=st.sampled_from((30, 600)), more_m=st.sampled_from((1, 20)))
    def grant(self, more: int, more_m: int) -> None:
        self.granted, self.granted_m = self.granted + more, self.granted_m + more_m
        self.line.raise_to(self.granted, self.granted_m)
        self.outbox.admit()

    @precondition(lambda self: not self.outbox.spooling and self.outbox.waiting)
    @rule(most=st.sampled_from((1, 2, 5)), most_bytes=st.sampled_from((60, 500)), fits=st.sampled_from((None, bool)))
    def write(self, most: int, most_bytes: int, fits: type[bool] | None = None) -> None:
        items = self.outbox.spool(most, most_bytes, fits)
        assert len(items) <= most
        assert len(items) < 2 or sum(item.size for item in items) <= most_bytes
        assert len({item.ttl_ms for item in items}) < 2, "a batch has one"
        if items:
            self.segments += 1
            self.references = pack([item.payload for item in items], "disk", f"{self.segments}")[1]

    @precondition(lambda self: self.outbox.spooling)
    @rule()
    def writing_fails(self) -> None:
        self.outbox.unspool()
        self.references = None

    @precondition(lambda self: self.outbox.spooling and not self.outbox.flight and not self.outbox.ready)
    @rule()
    def fly(self) -> None:
        assert self.references is not None
        wanted = [item for item in self.outbox.spooling if not item.done.done()]
        assert self.outbox.fly(self.references, f"disk/{self.segments} 1") == bool(wanted)
        assert (self.outbox.flight.items if self.outbox.flight else []) == wanted
        self.references = None

    @precondition(lambda self: not self.outbox.flight and not self.outbox.ready and not self.outbox.spooling)
    @rule(count=st.integers(1, 3), behind=st.integers(0, 2), more=st.booleans())
    def spool_some(self, count: int, behind: int, more: bool) -> None:
        """What most often happens at once: some are spooled, and others come while they are published."""
        for _ in range(count):
            self.add(10, 50, None)
        if self.outbox.head() is not None:
            self.write(5, 500)
            if not self.outbox.ready:
                self.fly()
        if more:
            self.grant(600, 20)
        for _ in range(behind):
            self.add(10, 50, None)

    @rule()
    def batch(self) -> None:
        before = self.outbox.flight
        batch = self.outbox.batch()
        assert before is None or batch is before, "its fate is unknown: no other is made"

    @precondition(lambda self: self.outbox.flight is not None)
    @rule(most=st.sampled_from((0, 1, 1000)))
    def published(self, most: int) -> None:
        """The rate lets so many of them go."""
        batch = self.outbox.flight
        assert batch is not None
        stored = batch.items[:most]
        for item in stored:
            sent = self.sent(item)
            assert is_reference(item.payload) == bool(batch.segment)
            assert (item.whole or item.payload) == sent.payload
            self.stored.append(sent.number)
            item.done.state = "stored"
        size = sum(item.size for item in stored)
        held, held_m = self.line.held, self.granted_m - self.line.used_m - self.line.returned_m
        assert batch.segment or (size <= held and len(stored) <= held_m), "only references are granted as they go"
        self.granted += max(0, size - held)
        self.granted_m += max(0, len(stored) - held_m)
        self.stored_bytes += size
        self.line.publish(size, len(stored))
        assert self.outbox.published(len(stored)) == stored
        self.line.raise_to(self.granted, self.granted_m)
        self.outbox.admit()
        self.forget_writing()

    @precondition(lambda self: self.outbox.flight is not None)
    @rule()
    def refused(self) -> None:
        """The references found no room, or the destination is stopped."""
        self.outbox.unspend()
        self.forget_writing()

    def forget_writing(self) -> None:
        if not self.outbox.spooling:
            self.references = None

    @rule()
    def the_account_is_lost(self) -> None:
        unsettled = [sent.number for sent in self.all if not sent.told.done()]
        self.outbox.unpaid()
        self.line.start_anew()
        self.granted = self.granted_m = self.stored_bytes = 0
        self.references = None
        assert [self.sent(item).number for item in self.outbox.waiting if not item.done.done()] == unsettled

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ones = [sent for sent in self.all if not sent.told.done()]
        if open_ones:
            data.draw(st.sampled_from(open_ones)).told.state = "cancelled"

    @rule(seconds=st.integers(0, 10), stuck=st.booleans(), silent=st.booleans())
    def time_passes(self, seconds: int, stuck: bool, silent: bool) -> None:
        self.now += seconds
        for item, unknown in list(self.outbox.overdue(self.now, stuck=stuck, silent=silent)):
            assert unknown == bool(self.outbox.flight and item in self.outbox.flight.items)
            item.done.state = "late"
        waiting = [item for item in (*self.outbox.spooling, *self.outbox.waiting) if not item.done.done()]
        assert self.outbox.deadlines.soonest() <= min((item.deadline for item in waiting), default=math.inf)
        assert not waiting or self.now < min(item.deadline for item in waiting), "nobody's time is over"

    @rule(size=st.integers(0, 500), messages=st.integers(0, 5))
    def give_back(self, size: int, messages: int) -> None:
        self.line.give_back(size, messages)

    def teardown(self) -> None:
        """In the end all that is wanted is stored, or in line."""
        wanted = [sent.number for sent in self.all if not sent.told.done()]
        self.grant(100_000, 1000)
        for _ in range(200):
            if self.outbox.flight or self.outbox.batch():
                self.published(1000)
            elif self.outbox.spooling:
                self.fly()
            elif not self.outbox.waiting:
                break
            else:
                self.grant(100_000, 1000)
                if self.outbox.waiting and not self.outbox.ready:
                    self.outbox.head()
        assert [number for number in self.stored if number in wanted] == wanted
        assert len(self.outbox) == 0

    @invariant()
    def a_payload_goes_as_it_came(self) -> None:
        for item in (*self.outbox.ready, *self.outbox.spooling, *self.outbox.waiting):
            assert item.whole is None
            assert item.payload == self.sent(item).payload
            assert item.size == len(item.payload)

    @invariant()
    def credit_is_what_was_granted(self) -> None:
        line, flight = self.line, self.outbox.flight
        paid = sum(item.size for item in self.outbox.ready) + (flight.size if flight else 0)
        assert line.granted == self.granted == line.in_hand + paid + line.used + line.returned
        assert line.used == self.stored_bytes
        assert line.in_hand >= -(flight.size if flight and flight.segment else 0)

    @invariant()
    def order_is_kept_and_each_is_in_one_place(self) -> None:
        outbox = self.outbox
        flight = outbox.flight.items if outbox.flight else []
        line = [self.sent(item).number for item in (*flight, *outbox.ready, *outbox.spooling, *outbox.waiting)]
        assert line == sorted(set(line))
        assert self.stored == sorted(set(self.stored))
        if self.stored and line:
            assert self.stored[-1] < line[0]
        assert {sent.number for sent in self.all if not sent.told.done()} <= set(line), "nobody is forgotten"
        assert len(outbox) == len(line)


SpoolingOutbox.TestCase.settings = STEPS
TestSpoolingOutbox = SpoolingOutbox.TestCase


def test_what_nobody_waits_for_any_more_is_not_written() -> None:
    """Mutants: `Outbox.spool` takes those that have their answer, or whose senders gave up."""
    outbox = Outbox(CreditLine())
    items = [Outgoing(b"%d" % n, 1, 10.0, Told(), credited=Told()) for n in range(5)]
    for item in items:
        outbox.add(item)
    items[1].done.state = "done"
    items[3].credited.state = "cancelled"
    assert outbox.spool(10, 100) == [items[0], items[2], items[4]]
    assert not outbox.waiting


def test_nothing_is_kept_of_what_went_to_the_store_in_time() -> None:
    """Else the garbage collector walks all that there is. Mutants: `Outbox.add`, or `unspool`, watches deadlines."""
    outbox = Outbox(CreditLine())
    for turn in range(3):
        items = [Outgoing(b"%d" % n, 1, 10.0 + turn, Told()) for n in range(5)]
        for item in items:
            outbox.add(item)
        outbox.spool(5, 100)
        outbox.unspool()
        assert outbox.spool(5, 100) == items
        assert outbox.fly([b"x"] * 5, f"disk/{turn} 5")
        outbox.published(5)
        assert not len(outbox.deadlines)
        assert not any(hasattr(item, "__dict__") for item in items), "one more object of each"


def test_time_is_over_wherever_one_is_in_line() -> None:
    """Mutants: `Outbox.overdue` looks at no deadline of what is being written; `unpaid` watches none."""
    line = CreditLine()
    outbox, items = Outbox(line), [Outgoing(b"x", 1, deadline, Told()) for deadline in (5.0, 3.0, 4.0, 6.0)]
    line.raise_to(1, 1)
    for item in items[:3]:
        outbox.add(item)
    assert not list(outbox.overdue(2.0, stuck=False, silent=False))
    outbox.unpaid()  # the first had its credit
    line.start_anew()
    outbox.add(items[3])
    outbox.spool(4, 100)
    assert [item for item, _ in outbox.overdue(9.0, stuck=False, silent=False)] == [
        items[1], items[2], items[0], items[3],
    ]  # fmt: skip


def test_time_is_over_for_what_a_rate_held_back_from_a_segment() -> None:
    """Mutant: `Outbox.published` watches none of it."""
    outbox, items = Outbox(CreditLine()), [Outgoing(b"x", 1, 5.0, Told()) for _ in range(3)]
    for item in items:
        outbox.add(item)
    outbox.spool(2, 100)
    assert outbox.fly([b"r", b"r"], "disk/1 2")
    assert not list(outbox.overdue(2.0, stuck=False, silent=False))
    outbox.published(1)
    assert [item for item, _ in outbox.overdue(5.0, stuck=False, silent=False)] == [items[2], items[1]]

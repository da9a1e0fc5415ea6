"""The arithmetic under everything: whatever happens in whatever order, no credit is lost, doubled or overdrawn."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.credit import CreditLine, Lease
from headgate.core.fetching import WindowUse
from headgate.core.outbox import MAX_BATCH, MAX_BATCH_BYTES, Outbox, Outgoing
from headgate.core.rate import Rate
from headgate.core.window import FETCH_BYTES, MAX_FETCH, Window
from headgate.sync.gate import SharedCreditLine
from tests.support.extent import examples

STEPS = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)


@dataclass
class Told:
    """What stands in for a future."""

    state: str = "open"

    def done(self) -> bool:
        return self.state != "open"

    def cancelled(self) -> bool:
        return self.state == "cancelled"


@dataclass(eq=False)
class Sent:
    item: Outgoing
    number: int
    told: Told = field(default_factory=Told)


class OutboxMachine(RuleBasedStateMachine):
    """An outbox with its credit, against a plain account of what was granted, stored and given back."""

    line_type: type[CreditLine] = CreditLine

    def __init__(self) -> None:
        super().__init__()
        self.line = self.line_type()
        self.outbox = Outbox(self.line)
        self.all: list[Sent] = []
        self.stored: list[int] = []
        self.stored_bytes = self.returned = self.granted = self.granted_m = 0
        self.now = 0.0
        self.batch_seqs: list[int] = []

    def sent(self, item: Outgoing) -> Sent:
        return next(sent for sent in self.all if sent.item is item)

    @rule(size=st.integers(0, 300), patience=st.integers(0, 20))
    def add(self, size: int, patience: int) -> None:
        told = Told()
        item = Outgoing(b"", size, self.now + patience, told)
        self.all.append(Sent(item, len(self.all), told))
        had = self.line.in_hand
        nobody_waits = not self.outbox.waiting
        paid = self.outbox.add(item)
        assert paid == (nobody_waits and size <= had and self.line.spent_m <= self.granted_m and paid)
        assert self.line.in_hand == had - (size if paid else 0)

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5))
    def add_all(self, sizes: list[int]) -> None:
        """Mutants: credit of what is not taken together is gone; those who wait are overtaken."""
        items = [Outgoing(b"", size, self.now + 100, Told()) for size in sizes]
        had, had_m, in_line = self.line.in_hand, self.line.in_hand_m, len(self.outbox)
        fits = not self.outbox.waiting and sum(sizes) <= had and len(sizes) <= had_m
        assert self.outbox.add_all(items) == fits
        assert self.line.in_hand == had - (sum(sizes) if fits else 0)
        assert len(self.outbox) == in_line + (len(sizes) if fits else 0)
        if fits:
            self.all += [Sent(item, len(self.all) + at, item.done) for at, item in enumerate(items)]

    @rule(more=st.integers(0, 1000), more_m=st.integers(0, 10), late=st.booleans())
    def grant(self, more: int, more_m: int, late: bool) -> None:
        if late:  # an older answer that comes after a newer one: nothing new in it
            assert not self.line.raise_to(max(0, self.granted - more), max(0, self.granted_m - more_m))
        else:
            self.granted, self.granted_m = self.granted + more, self.granted_m + more_m
            assert self.line.raise_to(self.granted, self.granted_m) == (more > 0 or more_m > 0)
            assert not self.line.raise_to(self.granted, self.granted_m), "twice is once"
        self.outbox.admit()

    @rule()
    def batch(self) -> None:
        batch = self.outbox.batch()
        assert self.outbox.batch() is batch, "its fate is unknown: no other is made"
        if batch is not None:
            assert 1 <= len(batch.items) <= MAX_BATCH
            assert batch.size == sum(item.size for item in batch.items) <= max(MAX_BATCH_BYTES, batch.items[0].size)

    @precondition(lambda self: self.outbox.flight is not None)
    @rule()
    def published(self) -> None:
        batch = self.outbox.flight
        assert batch is not None
        self.line.publish(batch.size, len(batch.items))
        self.outbox.published(len(batch.items))
        assert not self.batch_seqs or batch.seq > self.batch_seqs[-1]
        self.batch_seqs.append(batch.seq)
        assert batch.seq == len(self.stored) + 1, "numbers are dense"
        for item in batch.items:
            self.stored.append(self.sent(item).number)
            item.done.state = "stored"
        self.stored_bytes += batch.size

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ones = [sent for sent in self.all if not sent.told.done()]
        if open_ones:
            data.draw(st.sampled_from(open_ones)).told.state = "cancelled"

    @rule(seconds=st.integers(0, 10), stuck=st.booleans(), silent=st.booleans())
    def time_passes(self, seconds: int, stuck: bool, silent: bool) -> None:
        self.now += seconds
        for item, unknown in list(self.outbox.overdue(self.now, stuck=stuck, silent=silent)):
            assert item.deadline <= self.now
            assert not item.done.done()
            in_flight = bool(self.outbox.flight and item in self.outbox.flight.items)
            assert unknown == in_flight
            assert silent or not in_flight
            assert stuck or in_flight or item in self.outbox.waiting
            item.done.state = "late"

    @rule(size=st.integers(0, 500), messages=st.integers(0, 5))
    def give_back(self, size: int, messages: int) -> None:
        before = self.line.in_hand
        self.line.give_back(size, messages)
        assert self.line.in_hand == before - min(size, before)

    @rule()
    def retire(self) -> None:
        taken = self.line.spent - self.line.returned - self.line.used
        assert self.line.retire() == (taken <= 0)
        if taken <= 0:
            assert self.line.in_hand == 0

    @rule()
    def the_account_is_lost(self) -> None:
        unsettled = [sent.number for sent in self.all if not sent.told.done()]
        self.outbox.unpaid()
        self.line.start_anew()
        self.granted = self.granted_m = self.stored_bytes = 0
        assert [self.sent(item).number for item in self.outbox.waiting if not item.done.done()] == unsettled

    @invariant()
    def nothing_is_overdrawn_lost_or_doubled(self) -> None:
        line = self.line
        assert 0 <= line.in_hand <= line.held
        assert line.in_hand_m >= 0
        paid = sum(item.size for item in self.outbox.ready) + (self.outbox.flight.size if self.outbox.flight else 0)
        assert line.granted == self.granted == line.in_hand + paid + line.used + line.returned
        assert line.used == self.stored_bytes

    @invariant()
    def order_is_kept_and_each_is_in_one_place(self) -> None:
        flight = self.outbox.flight.items if self.outbox.flight else []
        line = [self.sent(item).number for item in (*flight, *self.outbox.ready, *self.outbox.waiting)]
        assert line == sorted(set(line))
        assert self.stored == sorted(set(self.stored))
        if self.stored and line:
            assert self.stored[-1] < line[0]
        undecided = {sent.number for sent in self.all if not sent.told.done()}
        assert undecided <= set(line), "nobody is forgotten"
        assert len(self.outbox) == len(line)


class SharedOutboxMachine(OutboxMachine):
    """The same with the credit line that threads share."""

    line_type = SharedCreditLine


OutboxMachine.TestCase.settings = STEPS
SharedOutboxMachine.TestCase.settings = STEPS
TestOutbox = OutboxMachine.TestCase
TestSharedOutbox = SharedOutboxMachine.TestCase

windows = st.builds(
    Window,
    messages=st.one_of(st.integers(1, 600), st.just("unlimited")),
    bytes=st.one_of(st.integers(1, 10_000), st.just("unlimited")),
    top_up=st.floats(0.01, 1),
)


@given(windows, st.lists(st.integers(1, 3000), max_size=80), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_window_is_exceeded_by_one_message_at_most_and_never_stays_shut(window, sizes, rng) -> None:  # type: ignore[no-untyped-def]
    holding = WindowUse(window)
    held: list[int] = []
    waiting = list(sizes)
    while waiting or held:
        messages, size = holding.room(0)
        assert messages <= MAX_FETCH
        assert size <= FETCH_BYTES
        fetched = 0
        while waiting and messages and (size > 0 or not fetched):  # as the script delivers: at least one
            if fetched and waiting[0] > size:
                break
            held.append(waiting.pop(0))
            holding.deliver(1, held[-1])
            messages, size, fetched = messages - 1, size - held[-1], fetched + 1
        assert (holding.messages, holding.bytes) == (len(held), sum(held))
        if window.messages != "unlimited":
            assert len(held) <= window.messages
        if window.bytes != "unlimited":
            assert sum(held[:-1]) <= int(window.bytes)
        if not held:
            assert fetched or not waiting, "all is settled and more waits: it must come"
        for _ in range(rng.randint(0 if fetched else 1, max(1, len(held)))):
            if held:
                holding.settle(1, held.pop(rng.randrange(len(held))))


def test_an_unlimited_window_stays_open_however_much_is_held() -> None:
    holding = WindowUse(Window.unlimited)
    for _ in range(50):
        messages, size = holding.room(0)
        assert messages > 0
        assert size > 0
        for _ in range(messages):
            holding.deliver(1, 1000)


def test_a_share_of_a_window_that_is_no_whole_message_is_rounded_down() -> None:
    """Mutant: half of three are two, and one slot of three stays empty."""
    for messages, settled in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (100, 50)):
        holding = WindowUse(Window(messages))
        holding.room(0)
        holding.deliver(messages, messages)
        for _ in range(settled - 1):
            holding.settle(1, 1)
            assert holding.room(0) == (0, 0)
        holding.settle(1, 1)
        assert holding.room(0)[0] == settled


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 4)), min_size=1, max_size=60), st.integers(1, 100))
def test_a_rate_is_kept_in_every_window(takes: list[tuple[float, int]], per_second: int) -> None:
    rate, now, moments = Rate(float(per_second), burst=5.0), 0.0, []
    for pause, amount in takes:
        now += pause
        delay = rate.delay(now, amount)
        assert delay >= 0
        moments.append((now + delay, amount))
    assert [moment for moment, _ in moments] == sorted(moment for moment, _ in moments)
    for first in range(len(moments)):
        total = 0
        for moment, amount in moments[first:]:
            total += amount
            assert total <= per_second * (moment - moments[first][0]) + max(5, moments[first][1]) + 1e-6


@given(st.floats(1, 3600), st.floats(0, 1e6))
def test_a_lease_is_renewed_long_before_it_may_not_be_used(ttl: float, asked_at: float) -> None:
    lease = Lease(ttl)
    lease.renewed(asked_at)
    assert asked_at < lease.renew_at < lease.use_until < asked_at + 0.9 * ttl + 1e-6


@pytest.mark.parametrize("line", [CreditLine(), SharedCreditLine()], ids=lambda line: type(line).__name__)
def test_frozen_credit_is_there_and_cannot_be_taken(line: CreditLine) -> None:
    line.raise_to(100, 5)
    line.frozen = True
    assert not line.take(1)
    assert line.in_hand == 100
    line.frozen = False
    assert line.take(100)
    assert not line.take(1)

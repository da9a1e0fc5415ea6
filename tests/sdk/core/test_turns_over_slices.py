"""Keys take turns over slices: the window of a consumer goes by them, whatever slice a key lies in."""

import random
from collections import Counter
from itertools import count

import pytest

from headgate import Window
from headgate.core.limits.turns_over_slices import FIRST, Turn
from headgate.core.sharing import Share, SharedWindow
from tests.support.extent import each

KEYS = (1, 10, 3)
"""How many keys lie in each slice."""
TOGETHER = sum(KEYS)


class Takers:
    asked = 1

    def room(self, most: int) -> int:
        return most


class Slice:
    """A slice gives its keys turns, each of which has messages without end, or as many as ``backlog`` says."""

    def __init__(self, names: list[str], weights: dict[str, int]) -> None:
        self.starts = dict.fromkeys(names, 0.0)
        self.weights = weights
        self.backlog: dict[str, int] = {}
        self.served = Counter[str](dict.fromkeys(names, 0))

    def take(self, most: int) -> tuple[int, float]:
        """Return how many messages it gives, and how much of a turn of its keys they are."""
        given, turned = 0, 0.0
        while given < most and self.starts:
            name = min(self.starts, key=lambda one: (self.starts[one], one))
            if self.backlog.get(name, 1) < 1:
                del self.starts[name]
                continue
            if name in self.backlog:
                self.backlog[name] -= 1
            step = 1 / self.weights.get(name, 1)
            self.starts[name] += step
            self.served[name] += 1
            given, turned = given + 1, turned + step / len(self.starts)
        return given, turned

    def send(self, name: str) -> None:
        self.starts.setdefault(name, min(self.starts.values(), default=0.0))
        self.backlog[name] = self.backlog.get(name, 0) + 1


class Queue:
    """A queue of slices, and how often each key was served."""

    def __init__(self, weights: dict[str, int] | None = None) -> None:
        self.weights = weights or {}
        names = [[f"{number}-{key}" for key in range(keys)] for number, keys in enumerate(KEYS)]
        self.slices = [Slice(here, self.weights) for here in names]

    @property
    def served(self) -> dict[str, int]:
        return {name: served for one in self.slices for name, served in one.served.items()}

    def apart(self, since: dict[str, int] | None = None) -> float:
        """Return by how many messages a key is before another, if its weight were 1."""
        turns = [(n - (since or {}).get(name, 0)) / self.weights.get(name, 1) for name, n in self.served.items()]
        return max(turns) - min(turns)


class Consumer:
    """A consumer at all slices: feeds that ask, and are answered, when the test says so."""

    def __init__(self, queue: Queue, window: int, chance: random.Random) -> None:
        self.queue, self.chance = queue, chance
        self.window = SharedWindow(Window(messages=window), Takers())
        self.window.in_turn = self.window.of_keys = True
        self.shares = [Share(self.window, lambda: None, chance.random()) for _ in KEYS]
        self.window.is_held = True  # as feeds do, all stand in line before one fetches
        for number in range(len(KEYS)):
            self.ask(number)
        self.window.is_held = False

    def ask(self, number: int) -> int:
        share = self.shares[number]
        room = 0 if share in self.window.under_way else share.ask(0, 0)[0]
        if room:
            share.reserve(room)
            share.calls(begins=True)
        return room

    def answer(self, number: int) -> None:
        share = self.shares[number]
        if most := share.reserved:
            given, turn = self.queue.slices[number].take(most)
            share.calls(begins=False)
            share.answered(0.001)
            share.deliver(given, given)
            share.release(given)
            share.took(given, Turn(turn), rests=given < most)
            if given == most and (room := share.ask(0, 0)[0]):  # it looks for more at once
                share.reserve(room)

    def settle(self, number: int, messages: int) -> None:
        share = self.shares[number]
        if settled := min(messages, share.messages):
            share.settle(settled, settled)

    def act(self, *, at: tuple[int, ...] = tuple(range(len(KEYS)))) -> None:
        """Do something at one of these slices."""
        number, action = self.chance.choice(at), self.chance.random()
        if action < 0.5:
            self.ask(number)
        elif action < 0.8:
            self.answer(number)
        else:
            self.settle(number, self.chance.randint(1, 100))


def bound(consumers: int, window: int, weights: dict[str, int] | None = None) -> float:
    """Return by how many messages keys may be apart, as the documents say."""
    together = TOGETHER + sum(weight - 1 for weight in (weights or {}).values())
    return consumers * (3 * window / together + 2) + FIRST


@each("window,consumers,weights", [
    (1, 1, {}), (10, 1, {}), (300, 1, {}), (1, 20, {}), (10, 5, {}), (100, 3, {}),
    (10, 3, {"0-0": 7}), (100, 3, {"1-3": 5, "2-0": 2}), (1, 5, {"1-0": 9}),
])  # fmt: skip
def test_keys_come_equally_far_wherever_they_lie(window: int, consumers: int, weights: dict[str, int]) -> None:
    """Mutants: the line goes by arrival; a fetch takes all the room; all are alike."""
    for seed in range(3):
        chance, queue, apart = random.Random(seed), Queue(weights), 0.0
        crowd = [Consumer(queue, window, chance) for _ in range(consumers)]
        for _ in range(2000):
            chance.choice(crowd).act()
            apart = max(apart, queue.apart())
        assert sum(queue.served.values()) > 40
        assert apart <= bound(consumers, window, weights), (seed, queue.served)


def test_consumers_that_begin_late_change_nothing() -> None:
    chance, queue, apart = random.Random(1), Queue(), 0.0
    crowd = [Consumer(queue, 10, chance)]
    for step in range(3000):
        chance.choice(crowd).act()
        apart = max(apart, queue.apart())
        if step % 500 == 499:
            crowd.append(Consumer(queue, 10, chance))
    assert apart <= bound(len(crowd), 10), queue.served


def test_one_that_had_nothing_begins_where_the_others_are() -> None:
    """Mutant: it makes up for the time in which it had nothing."""
    chance, queue = random.Random(2), Queue()
    consumer = Consumer(queue, 10, chance)
    queue.slices[0].backlog["0-0"] = 1
    for _ in range(3000):
        consumer.act()
    before = queue.served
    assert before["1-0"] > 50
    for _ in range(500):
        queue.slices[0].send("0-0")
    for _ in range(3000):
        consumer.act()
    assert queue.apart(before) <= bound(1, 10), queue.served


def test_one_that_had_nothing_begins_there_too_if_it_fetches_beside_what_it_settles() -> None:
    """Mutant: only who joins the line begins where the others are."""
    window = SharedWindow(Window(messages=10), Takers())
    window.in_turn = window.of_keys = True
    one, other = (Share(window, lambda: None) for _ in range(2))
    one.deliver(1, 1)
    one.took(1, Turn(1.0), rests=True)
    other.took(100, Turn(100.0), rests=False)
    other.reserve(other.ask(0, 0)[0] - 5)
    room, _ = one.ask(1, 1, due=False)
    assert room
    one.reserve(room)
    assert one.turn.reached == window.turn == 100


def test_one_that_sends_a_message_at_a_time_gets_its_share_and_no_more() -> None:
    """Mutant: it begins before those that it just overtook."""
    queue = Queue()
    queue.slices[0].backlog["0-0"] = 1
    consumer = Consumer(queue, 1, random.Random(3))
    for _ in range(4000):
        if not queue.slices[0].backlog["0-0"]:
            queue.slices[0].send("0-0")
        consumer.act()
    served = queue.served
    assert served["1-0"] - FIRST <= served["0-0"] <= served["1-0"] + 2, served


@pytest.mark.parametrize("away", [False, True])
def test_the_others_do_not_wait_for_one_that_does_not_answer(*, away: bool) -> None:
    """Mutants: they wait for ever; they do not wait a moment; one that was away makes up for all of it."""
    queue = Queue()
    consumer = Consumer(queue, 300, random.Random(4))
    for _ in range(500):
        consumer.act()
    steps = count()
    while not consumer.ask(1):
        consumer.act()
        assert next(steps) < 1000
    consumer.settle(1, 300)
    for _ in range(500):
        consumer.act(at=(0, 2))
    assert queue.apart() <= bound(1, 300), "they leave its part to it"
    before = queue.served["0-0"]
    consumer.shares[1].overdue(away=away)
    for _ in range(3000):
        consumer.act(at=(0, 2))
        for number in (0, 2):
            consumer.settle(number, 300)
    assert queue.served["0-0"] > before + 500
    consumer.answer(1)
    behind = consumer.window.turn - consumer.shares[1].turn.reached
    assert behind < 60 if away else behind > 400

"""A small stand-in for the script of limiters, and a world in which calls to it go wrong."""

import random
from dataclasses import dataclass, field
from typing import Any

from headgate.core.limiting.amounts import amounts_text
from headgate.core.limiting.calls import Create, Decide, Decision, Refusal, Reservation, State
from headgate.core.limiting.machine import ANSWER_WITHIN, Limiter


def amounts_of(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (part.partition("=") for part in text.split(",") if part != "-")}


@dataclass
class Record:
    key: str
    amounts: dict[str, int]
    ttl: float
    until: float
    waits: bool
    settled: bool = False


@dataclass
class FakeScript:
    """One limiter with a limit of what is held at once, ``slots``, and one that only counts, ``tokens``."""

    slots: int
    now: float = 0.0
    epoch: int = 0
    learning_until: float = 0.0
    longest: float = 0.0
    exists: bool = True
    records: dict[str, Record] = field(default_factory=dict)
    receipts: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    tokens: int = 0
    hints: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.epoch = self.epoch or 1000

    @property
    def used(self) -> int:
        return sum(record.amounts.get("slots", 0) for record in self.records.values() if not record.waits)

    def lose(self) -> None:
        """Forget everything: Redis began anew, and knows the settings only."""
        self.records.clear()
        self.receipts.clear()
        self.epoch += 1
        self.learning_until = self.now + self.longest

    def vanish(self) -> None:
        self.lose()
        self.exists = False

    def make(self, *, recover: bool) -> None:
        if not self.exists:
            self.exists = True
            assert recover or not self.receipts
            self.learning_until = self.now + self.longest

    def sweep(self) -> None:
        for hold in [hold for hold, record in self.records.items() if record.until <= self.now]:
            del self.records[hold]
        self.serve()

    def fits(self, amounts: dict[str, int]) -> bool:
        return self.now >= self.learning_until and self.used + amounts.get("slots", 0) <= self.slots

    def serve(self) -> None:
        for hold, record in self.records.items():
            if record.waits:
                if not self.fits(record.amounts):
                    return
                record.waits, record.until = False, self.now + record.ttl
                self.tokens += record.amounts.get("tokens", 0)
                self.hints.append(["held", hold])

    def call(self, session: str, call: Decide) -> Decision:
        if not self.exists:
            return Decision("UNKNOWN")
        seq, stored = self.receipts.get(session, (0, ()))
        if call.seq == seq:
            return Decision("OK", self.epoch, stored)
        if call.seq < seq:
            return Decision("STALE")
        self.sweep()
        words: list[Any] = [call.words[at : at + 6] for at in range(0, len(call.words), 6)]
        answers = tuple(self.decide(call.epoch, *word) for word in words)
        self.sweep()
        self.receipts[session] = call.seq, answers
        return Decision("OK", self.epoch, answers)

    def decide(self, epoch: int, verb: str, hold: str, key: str, text: str, ttl_ms: int, wait_ms: int) -> str:
        record, amounts, ttl = self.records.get(hold), amounts_of(text), ttl_ms / 1000
        self.longest = max(self.longest, ttl)
        if verb == "admit":
            return self.admit(hold, key, amounts, ttl, wait_ms)
        if verb == "claim":
            fits = self.used + amounts.get("slots", 0) <= self.slots
            if record is None and epoch < self.epoch and self.now < self.learning_until and fits:
                self.records[hold] = Record(key, amounts, ttl, self.now + ttl, waits=False)
                return "ok"
            return "ok" if record is not None else "gone"
        if record is None or (record.waits and verb != "release"):
            return "gone"
        if verb == "renew":
            record.ttl, record.until = ttl, self.now + ttl
        elif verb == "release":
            del self.records[hold]
        elif "slots" in amounts and amounts["slots"] < record.amounts.get("slots", 0):
            record.amounts["slots"] = amounts["slots"]
        elif record.settled or "tokens" not in amounts:
            return "again"
        else:
            self.tokens += amounts.get("tokens", 0) - record.amounts.get("tokens", 0)
            record.settled = True
        return "ok"

    def admit(self, hold: str, key: str, amounts: dict[str, int], ttl: float, wait_ms: int) -> str:
        record = self.records.get(hold)
        if record is not None and not record.waits:
            return "held"
        if amounts.get("slots", 0) > self.slots:
            return f"never {self.slots} slots all"
        others = any(one.waits for name, one in self.records.items() if name != hold)
        if record is None and not others and self.fits(amounts):
            self.records[hold] = Record(key, amounts, ttl, self.now + ttl, waits=False)
            self.tokens += amounts.get("tokens", 0)
            return "held"
        if wait_ms == 0 and record is None:
            return "late 1000000 slots all"
        self.records[hold] = record or Record(key, amounts, ttl, 0.0, waits=True)
        self.records[hold].until = self.now + ttl
        return "wait 1000000 slots all"


@dataclass(eq=False)
class Asker:
    """Somebody who asks for one admission, and what became of it."""

    world: "World"
    session: str
    deadline: float
    one: Reservation | None = None
    outcome: Refusal | str = ""
    ended_at: float = 0.0

    def in_line(self, reservation: Reservation) -> None:
        assert self.outcome == ""

    def admitted(self, reservation: Reservation) -> None:
        assert self.outcome == ""
        self.outcome = "held"
        self.world.check(f"{reservation.id} was admitted")

    def refused(self, reservation: Reservation, refusal: Refusal) -> None:
        assert self.outcome == ""
        self.outcome, self.ended_at = refusal, self.world.now

    def lost(self, reservation: Reservation) -> None:
        assert self.outcome == "held"
        self.outcome, self.ended_at = "lost", self.world.now


class World:
    """Sessions at one limiter, a network that loses, repeats and delays, and a clock that is moved by hand."""

    def __init__(self, seed: int, *, slots: int = 4, sessions: int = 3, faults: float = 0.3) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.script = FakeScript(slots, now=self.now)
        self.machines = {f"s{n}": Limiter(f"s{n}") for n in range(sessions)}
        self.askers: list[Asker] = []
        self.faults = faults
        self.late: list[tuple[str, Decide]] = []
        """Calls that are still somewhere on the way, although others were answered since."""
        self.slots = slots

    def check(self, when: str) -> None:
        """No more is in use than may be, counting those that may rely on it."""
        live = (a for a in self.askers if a.outcome == "held" and a.one and a.one.state is State.HELD)
        used = sum(amounts_of(a.one.amounts).get("slots", 0) for a in live if a.one and self.now < a.one.use_until)
        assert used <= self.slots, f"{when} at {self.now}: {used} of {self.slots} are in use"

    def ask(self, session: str, timeout: float, *, waits: bool = True, ttl: float = 4.0, slots: int = 1) -> Asker:
        asker = Asker(self, session, self.now + timeout)
        self.askers.append(asker)
        asker.one = self.machines[session].admit(
            "*", amounts_text({"slots": slots, "tokens": 10}), int(ttl * 1000), self.now, asker.deadline, asker,
            waits=waits,
        )  # fmt: skip
        return asker

    def step(self, session: str) -> bool:
        """Have one call made, if one is due, with whatever goes wrong with it."""
        machine = self.machines[session]
        call = machine.call(self.now)
        if call is None:
            return False
        fate = self.random.random() / self.faults if self.faults else 1.0
        if fate < 0.3:  # it never arrives
            self.advance(self.random.random())
            machine.missed(self.now)
        elif isinstance(call, Create):
            self.script.make(recover=call.recover)
            machine.made()
        elif fate < 0.6:  # its answer is lost
            self.script.call(session, call)
            self.advance(self.random.random())
            machine.missed(self.now)
        elif fate < 0.7:  # it arrives later than the next one
            self.late.append((session, call))
            machine.missed(self.now)
        else:
            answer = self.script.call(session, call)
            if fate < 0.8:  # twice
                self.script.call(session, call)
            if fate < 0.9:  # slowly
                self.advance(self.random.random() * 5)
            machine.hear(call, answer, self.now)
        self.deliver()
        return True

    def deliver(self) -> None:
        hints, self.script.hints = self.script.hints, []
        for words in hints:
            if self.random.random() >= self.faults / 2:  # some are lost
                for machine in self.machines.values():
                    machine.hear_hint(words, self.now)
        self.check("hints came")

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.script.now = self.now
        if self.late and self.random.random() < 0.3:
            self.script.call(*self.late.pop(self.random.randrange(len(self.late))))

    def settle_down(self) -> None:
        """Let all calls be made, without faults."""
        self.faults = 0.0
        for _ in range(2000):
            if sum(self.step(session) for session in self.machines) == 0:
                return
        raise AssertionError("calls are due for ever")

    def run(self, steps: int, *, losses: float = 0.0) -> None:
        for _ in range(steps):
            session = self.random.choice(list(self.machines))
            action = self.random.random()
            if action < 0.3:
                timeout = self.random.choice([0.0, 0.5, 3.0, 20.0])
                self.ask(session, timeout, waits=self.random.random() < 0.8, slots=self.random.choice([1, 1, 2]))
            elif action < 0.5 and self.askers:
                self.end(self.random.choice(self.askers))
            elif action < 0.6:
                self.advance(self.random.random())
            elif action < 0.6 + losses:
                self.random.choice([self.script.lose, self.script.vanish])()
                self.late.clear()  # a connection belongs to one run of Redis
            else:
                self.step(session)
            for machine in self.machines.values():
                machine.attend(self.now)
            self.check("a step was taken")
            self.check_waits()

    def end(self, asker: Asker) -> None:
        machine = self.machines[asker.session]
        assert asker.one is not None
        if asker.one.state is State.HELD and self.random.random() < 0.5:
            machine.settle(asker.one, "tokens=3")
        if asker.one.state is not State.OVER:
            asker.outcome = "over"
            machine.release(asker.one)

    def check_waits(self) -> None:
        for asker in self.askers:
            if asker.outcome == "" and asker.one and asker.one.state is not State.OVER:
                assert self.now <= asker.deadline + ANSWER_WITHIN, f"{asker.one} waits for ever"

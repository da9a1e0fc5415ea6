"""An oracle of a limiter with slices: what of it is held, as it lies there and as applications were told."""

from dataclasses import dataclass
from typing import Any, Final

import headgate
from headgate.core.credit import USE_UNTIL
from tests.simulation.judge.lease import TTL
from tests.simulation.judge.oracle import Oracle
from tests.simulation.judge.sight import Sight
from tests.simulation.judge.turns import HoldSight, Rule, Turns, read
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.server import Call

KEYS: Final = ("a", "b", "c")
ALL: Final = "all keys"

REMEMBERS: Final = 30.0
"""Seconds for which somebody may wait that came before a clock was set."""
LOOKS: Final = 0.3 * TTL + 1
"""Seconds between the call that finds a lease over and the one that ends it, where calls are few."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What is admitted for one key, or for all: so many slots at once, and tokens by a rate."""

    slots: int
    rate: float
    burst: int


KEY: Final = Limit(3, 0.2, 4)
OF_ALL, FEW_OF_ALL = Limit(5, 0.5, 9), Limit(3, 0.5, 9)
RULES: Final = {0: Rule(by_deadline=True), 1: Rule(bands=(0, 1, 2))}
"""By what calls take turns in fifths of all histories; in the others by what is held."""
RESERVE: Final = 0.3
"""What a third of those with bands keeps for the best one."""


@dataclass(eq=False, slots=True)
class Held:
    """What an application holds, as it was told.

    Attributes:
        asked: when it asked for it.
        over: whether it gave it back.
        less: tokens that it gave back, at ``settled``.
    """

    process: Process
    hold: headgate.Hold
    key: str
    amounts: dict[str, int]
    asked: float
    over: bool = False
    less: int = 0
    settled: float = 0.0

    @property
    def tokens(self) -> int:
        return self.amounts.get("tokens", 0) - self.less

    def is_of(self, whose: str) -> bool:
        return whose in (self.key, ALL)


class Holdings(Oracle):
    """What must hold of a limiter; half of them have limits of all keys, and sessions of half take amounts in hand."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop)
        self.of_all = (FEW_OF_ALL if seed % 5 < 3 else OF_ALL) if seed % 2 else None
        self.in_hand = bool(seed // 2 % 2)
        self.rule = RULES.get(seed % 5, Rule())
        if self.rule.bands and seed % 3 == 0:
            self.rule = self.rule._replace(reserve=RESERVE)
        self._turns = Turns(self.rule, self.of_all.slots if self.of_all else None)
        self._held: list[Held] = []
        self._of_ghosts: dict[str, float] = {}
        """Process -> when it was answered last by a server that was in charge no more."""
        self._ahead: list[float] = []
        """When clocks were set ahead."""
        self._began: dict[str, float] = {}
        """Slice -> since when it has been in its epoch."""
        self._late: dict[tuple[str, str], float] = {}
        """Slice and hold of a dead session -> when a call first found it there too late."""

    @property
    def _limits(self) -> list[tuple[str, Limit]]:
        return [*((key, KEY) for key in KEYS), *([(ALL, self.of_all)] if self.of_all else [])]

    # What holders may rely on.

    def begins(self, process: Process, hold: headgate.Hold, key: str, amounts: dict[str, int], asked: float) -> Held:
        """Judge all that is held as an application hears that it is admitted."""
        one = Held(process, hold, key, amounts, asked)
        if self._of_ghosts.get(process.name, 0.0) >= asked:
            return one  # whoever decided it may have been in charge no more
        self._held.append(one)
        for whose, limit in self._limits:
            slots = sum(one.amounts["slots"] for one in self._held if one.is_of(whose) and self._is_sure(one))
            if slots > limit.slots:
                self.breaks("P1", f"{slots} of {limit.slots} slots of {whose} are held")
            if one.is_of(whose) and one.tokens and not self.in_hand:
                self._rate(whose, limit)
        return one

    def settles(self, one: Held, tokens: int) -> None:
        """Note that an application says to have used so many tokens."""
        one.less, one.settled = one.tokens - tokens, self.loop.now

    def _is_sure(self, one: Held) -> bool:
        """Return whether it is surely held, by the clock of its process.

        It is not where its lease was not renewed since clocks were set ahead, or by a server that is in charge.
        """
        if one.over or one.process.dead:
            return False
        here, self.loop.process = self.loop.process, one.process
        left = one.hold.expires_in / one.process.rate
        self.loop.process = here
        doubted = max(self._of_ghosts.get(one.process.name, 0.0), *self._ahead, 0.0)
        return left > 0 and self.loop.now + left - USE_UNTIL * TTL / one.process.rate > doubted

    def _rate(self, whose: str, limit: Limit) -> None:
        """Judge each window of time that ends now, but for what came back in it, and may be used again."""
        used = [one for one in self._held if one.is_of(whose) and one.amounts.get("tokens")]
        for begin in (one.asked for one in used):
            inside = sum(one.tokens for one in used if one.asked >= begin)
            back = sum(one.less for one in used if one.asked < begin < one.settled + 1)
            bursts = 1 + sum(at >= begin for at in self._ahead)
            if inside - back > limit.rate * (self.loop.now - begin) + limit.burst * bursts:
                self.breaks("P8", f"{inside} tokens of {whose} were used in {self.loop.now - begin:.2f} s")

    # What lies there.

    def saw(self, call: Call) -> None:
        if call.superseded:
            self._of_ghosts[call.caller] = self.loop.now
        super().saw(call)

    def clock_set(self, ahead: float) -> None:
        super().clock_set(ahead)
        if ahead > 0:
            self._ahead.append(self.loop.now)

    def _read(self, name: str, call: Call) -> Sight:
        before = self.last.get(name)
        return read(call, before if isinstance(before, HoldSight) else None)

    def _stored(self, name: str, before: Any, sight: Sight) -> None:
        if before is None or before.epoch != sight.epoch:
            self._began[name] = self.loop.now

    def _limit(self, name: str, call: Call, before: Sight, sight: Sight, total_before: int) -> None:
        """Judge that no more lies there than a limit, as long as nothing that was written is lost."""
        if self.lost_writes:
            return
        parts = [one for one in self._parts(name) if isinstance(one, HoldSight)]
        for key in KEYS:
            slots = sum(one.slots_of(key) for one in parts)
            if slots > KEY.slots:
                self.breaks("P1", f"{call.script} at {name} left {slots} of {KEY.slots} slots of {key} held")
        if self.of_all and "%" not in name and sight.total > self.of_all.slots:
            self.breaks("P1", f"{call.script} left {sight.total} of {self.of_all.slots} slots of all keys held")

    def _leases(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        """Judge that the dead hold nothing for longer than their leases, where somebody calls."""
        for hold in sight.leased if call.script == "admit" else ():
            died = self.died.get(hold.rpartition(".")[0])
            if died is None or self.loop.now < max(died, self.disturbed, self._began[name]) + TTL + 1:
                self._late.pop((name, hold), None)
            elif self.loop.now > self._late.setdefault((name, hold), self.loop.now) + LOOKS:
                self.breaks("P4", f"{hold}, whose session died {self.loop.now - died:.2f} s ago, is held at {name}")

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        """Judge who was let in, and whose turn it was."""
        assert isinstance(before, HoldSight)
        assert isinstance(sight, HoldSight)
        clock_was_set = bool(self._jumps) and self.loop.now < self._jumps[-1] + REMEMBERS
        for what in self._turns.broken(call, before, sight, clock_was_set=clock_was_set):
            self.breaks("P7", f"{call.script} let in {what} at {name}")

"""The plain model of a limiter: what is taken of each limit, by what the ledger says was done."""

import math
from dataclasses import dataclass, field
from typing import Final

ALL: Final = "*"
"""Stands for all keys together, and for no key."""
TEN_YEARS_US: Final = 315_576_000_000_000


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit by name: ``rate`` with a burst, ``at_once``, or ``quota`` of a day. ``most``: the burst of a rate.

    One that adapts has a ``floor``, and says how.
    """

    name: str
    form: str
    most: int
    rate: float = 0.0
    floor: int = 0
    adapt: str = ""

    @property
    def text(self) -> str:
        more = {"rate": f"{self.rate} {self.most}", "at_once": self._at_once, "quota": f"{self.most} day 0"}
        return f"{self.name} {self.form} {more[self.form]}"

    @property
    def _at_once(self) -> str:
        return f"{self.most} {self.floor} {self.adapt}" if self.adapt else str(self.most)

    def burst_us(self, most: int) -> int:
        return math.ceil(most * 1_000_000 / self.rate)


@dataclass(slots=True)
class Held:
    """One hold. ``since``: ms at which it was admitted."""

    key: str
    amounts: dict[str, int]
    since: int
    settled: bool = False


@dataclass(slots=True)
class Level:
    """What is taken of one limit by one owner. ``day``: of a quota, the day that ``used`` is of."""

    tat: int = 0
    used: int = 0
    day: int = 0


@dataclass(slots=True)
class Limiter:
    """All limits, those of all keys and those of each, and what is taken of them at ``now``, in us of its own clock.

    ``reserve`` and ``shed`` are thousandths by band; ``now_most`` says where a limit is that adapts.
    """

    limits: dict[str, Limit]
    key_limits: dict[str, Limit]
    reserve: dict[int, int] = field(default_factory=dict)
    shed: dict[int, int] = field(default_factory=dict)
    now_most: dict[str, int] = field(default_factory=dict)
    shadows: dict[str, Limit] = field(default_factory=dict)
    key_shadows: dict[str, Limit] = field(default_factory=dict)
    now: int = 0
    clock: int = 0
    holds: dict[str, Held] = field(default_factory=dict)
    levels: dict[tuple[str, str], Level] = field(default_factory=dict)

    def tick(self, clock_ms: int) -> None:
        """Look at the clock: its own never goes back."""
        self.now = max(self.now, self.now + clock_ms * 1000 - self.clock)
        self.clock = clock_ms * 1000

    def owners(self, key: str, name: str) -> list[tuple[str, Limit]]:
        found = [(ALL, self.limits[name])]
        if key != ALL and name in self.key_limits:
            found.append((f"key {key}", self.key_limits[name]))
        return found

    def watchers(self, key: str, name: str) -> list[tuple[str, str, Limit]]:
        """Return (whose levels, whose holds, limit) of the shadow limits of a name."""
        found = [("shadow", ALL, self.shadows[name])] if name in self.shadows else []
        if key != ALL and name in self.key_shadows:
            found.append((f"shadow of {key}", f"key {key}", self.key_shadows[name]))
        return found

    def level(self, owner: str, name: str) -> Level:
        return self.levels.setdefault((owner, name), Level())

    def held(self, owner: str, name: str) -> int:
        """Return what is held at once, counted from the holds themselves."""
        mine = (h for h in self.holds.values() if owner in (ALL, f"key {h.key}"))
        return sum(h.amounts.get(name, 0) for h in mine)

    def used(self, owner: str, name: str) -> int:
        level = self.level(owner, name)
        return level.used if level.day == self.clock // 86_400_000_000 else 0

    def tokens_owed_until(self, owner: str, limit: Limit, amount: int) -> int:
        cost = min(math.ceil(amount * 1_000_000 / limit.rate), TEN_YEARS_US)
        return max(self.level(owner, limit.name).tat, self.now) + cost

    def kept_from(self, band: int) -> int:
        """Return the thousandths of each limit of all keys that are for better bands."""
        return max((share for upto, share in self.reserve.items() if upto < band), default=0)

    def fits(self, key: str, amounts: dict[str, int], band: int) -> bool:
        """Return whether all of it may be taken now."""
        for name, amount in amounts.items():
            for owner, limit in self.owners(key, name):
                kept = self.kept_from(band) if owner == ALL else 0
                if not self.has_room(owner, owner, limit, amount, kept):
                    return False
        return True

    def has_room(self, owner: str, holder: str, limit: Limit, amount: int, kept: int = 0) -> bool:
        most = self.most(owner, limit)
        most -= math.ceil(most * kept / 1000)
        least = limit.floor or limit.most
        if amount > least - math.ceil(least * kept / 1000):
            return False
        if limit.form == "at_once":
            return self.held(holder, limit.name) + amount <= most
        if limit.form == "quota":
            return self.used(owner, limit.name) + amount <= most
        return self.tokens_owed_until(owner, limit, amount) - limit.burst_us(most) <= self.now

    def most(self, owner: str, limit: Limit) -> int:
        """Return the most that may be taken of it now."""
        return self.now_most.get(limit.name, limit.most) if owner == ALL else limit.most

    def shed_above(self, band: int) -> int | None:
        """Return the fill from which on a band is shed, in thousandths; None where it never is."""
        return self.shed.get(max((of for of in self.shed if of <= band), default=-1))

    def fill(self, owner: str, limit: Limit) -> int:
        """Return how much of a limit is taken, in thousandths."""
        taken: float = self.held(owner, limit.name)
        if limit.form == "rate":
            taken = max(0, self.level(owner, limit.name).tat - self.now) * limit.rate / 1_000_000
        elif limit.form == "quota":
            taken = self.used(owner, limit.name)
        return math.floor(1000 * taken / self.most(owner, limit))

    def would_wait(self, key: str, amounts: dict[str, int]) -> set[tuple[str, str]]:
        """Return the shadow limits that have no room for it: name, and ``all`` or ``key``."""
        return {
            (name, "all" if holder == ALL else "key")
            for name, amount in amounts.items()
            for owner, holder, limit in self.watchers(key, name)
            if not self.has_room(owner, holder, limit, amount)
        }

    def take(self, hold: str, key: str, amounts: dict[str, int]) -> None:
        for name, amount in amounts.items():
            for owner, limit in self.owners(key, name):
                self._charge(owner, limit, amount)
            for owner, _, limit in self.watchers(key, name):
                self._charge(owner, limit, amount)
        self.holds[hold] = Held(key, amounts, self.clock // 1000)

    def settle(self, hold: str, actual: dict[str, int]) -> None:
        h = self.holds[hold]
        again = h.settled
        for name, amount in list(h.amounts.items()):
            if name not in actual or (again and self.limits[name].form != "at_once"):
                continue
            for owner, limit in self.owners(h.key, name):
                self._settle(owner, limit, h, amount, actual[name])
            for owner, _, limit in self.watchers(h.key, name):
                self._settle(owner, limit, h, amount, actual[name])
            form = self.limits[name].form
            h.amounts[name] = min(amount, actual[name]) if form == "at_once" else actual[name]
            h.settled = h.settled or form != "at_once"

    def _charge(self, owner: str, limit: Limit, amount: int) -> None:
        level = self.level(owner, limit.name)
        if limit.form == "rate":
            level.tat = self.tokens_owed_until(owner, limit, amount)
        elif limit.form == "quota":
            level.used = self.used(owner, limit.name) + amount
            level.day = self.clock // 86_400_000_000

    def _settle(self, owner: str, limit: Limit, h: Held, reserved: int, actual: int) -> None:
        level = self.level(owner, limit.name)
        if actual > reserved:
            self._charge(owner, limit, actual - reserved)
        elif limit.form == "rate":
            level.tat = max(self.now, level.tat - math.floor((reserved - actual) * 1_000_000 / limit.rate))
        elif limit.form == "quota" and h.since >= level.day * 86_400_000:
            level.used = max(0, self.used(owner, limit.name) - (reserved - actual))

"""A limiter's ledger shows its holds: each comes once, none above what may be held, none faster than a rate."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from headgate.core.limiting.pins import is_part
from headgate.core.limits.limit import Limit
from headgate_pipeline.audit.adapting import AdaptiveSteps
from headgate_pipeline.audit.bands import Bands
from headgate_pipeline.audit.limiter_shadow import LimiterShadows
from headgate_pipeline.audit.rates import SLACK_MS
from headgate_pipeline.ledger.limiter_course import NO_KEY, read_amounts, read_sides

Violated = Callable[[str, str, object, object], None]
_AMOUNT: Final = re.compile(r"(\w+)([=:])(\d+)(?:@(\d+))?")
HOLD_EVENTS: Final = (
    "limiter", "clock", "would-wait", "held", "claimed", "used", "freed", "lapsed", "levels", "waits", "band", "quit",
    "aging", "reserve", "adapted", "turns", "went",
)  # fmt: skip
"""Those that are about holds."""
MOST_KEYS: Final = 100_000
"""Keys whose rates are followed; beyond, they are followed anew."""


class Holds:
    """`Holds` follows the holds of one limiter as the events of its ledger tell them, in order.

    Of rates it follows the earliest moment at which a burst can be whole again: where even that was too late for what
    was admitted, the rate was broken.

    Args:
        violated: is called with the promise, what is wrong, what was expected, and what was found.
    """

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._shadows = LimiterShadows(violated)
        self._bands = Bands(violated)
        self._handlers: dict[str, Callable[[list[str]], None]] = {
            "limiter": self._set, "clock": self._tick, "would-wait": self._shadows.note,
            "held": self._admitted, "claimed": self._claimed,
            "used": self._settled, "freed": self._ended, "lapsed": self._ended, "levels": self._compare,
            "waits": self._bands.waits, "band": self._bands.band, "quit": self._bands.quit,
            "aging": self._bands.set_aging, "reserve": self._bands.set_reserve,
            "adapted": self._adapt,
            "turns": self._bands.set_turns, "went": self._bands.went,
        }  # fmt: skip
        self.ms = self._skew = 0
        self._went_back = False
        self.forget(whole=False)

    def forget(self, *, whole: bool) -> None:
        """Begin anew; ``whole``: with a limiter of which nothing was held before."""
        self.whole = whole
        self._bands.forget()
        self.holds: dict[str, tuple[str, dict[str, int]]] = {}
        self.held: dict[tuple[str, str], int] = {}
        self._tats: dict[tuple[str, str], float] = {}
        self._all: dict[str, tuple[str, float, float]] = {}
        self._each: dict[str, tuple[str, float, float]] = {}
        self._shadows.adopt({}, {})
        self._steps = AdaptiveSteps(self._violated, whole=whole)
        self._new: set[str] = set()
        self._paid: set[str] = set()

    def begin(self, ms: int) -> None:
        """Begin with an entry of that moment."""
        self._went_back |= bool(self._tats) and ms + self._skew < self.ms
        self.ms = ms + self._skew
        self._new.clear()

    def step(self, event: list[str]) -> None:
        """Follow one event: its name, and its arguments."""
        if self._went_back and event[0] != "clock":
            self._tats.clear()  # it is not known how far the limiter's own clock is
        self._went_back = False
        self._handlers[event[0]](event)

    def _limits(self, key: str) -> list[tuple[str, dict[str, tuple[str, float, float]]]]:
        return [(NO_KEY, self._all), *([] if key == NO_KEY or is_part(key) else [(key, self._each)])]

    def _set(self, event: list[str]) -> None:
        (limits, shadows), (of_keys, their_shadows) = map(read_sides, event[1:3])
        self._all, self._each = _forms(limits), _forms(of_keys)
        if adapting := next((limit for limit in limits.values() if limit.adapt), None):
            self._all[adapting.name] = ("at_once", self._steps.most(adapting), 0.0)
        self._shadows.adopt(shadows, their_shadows)
        self._bands.set_limits(event)
        self._tats.clear()

    def _adapt(self, event: list[str]) -> None:
        name, most = self._steps.take(event)
        self._all[name] = ("at_once", most, 0.0)

    def _tick(self, event: list[str]) -> None:
        """Go by the limiter's own clock from this entry on: it is ahead of Redis' by all that this was set back."""
        self._skew += int(event[1]) - self.ms
        self.ms = int(event[1])

    def _admitted(self, event: list[str]) -> None:
        hold, key, amounts = event[1], event[2], read_amounts(":".join(event[3:]))
        self._bands.held(event)
        self._enter(hold, key, amounts)
        self._shadows.judge(hold, key, amounts, self.held if self.whole else None, self.ms)
        for owner, limits in self._limits(key):
            for name, number in amounts.items():
                form, most, rate = limits.get(name, ("", 0.0, 0.0))
                if form == "at_once" and self.whole and self.held.get((owner, name), 0) > most:
                    self._violated("P1", f"more of {name} is held at once than may be", most, self.held[owner, name])
                elif form == "rate":
                    self._take((owner, name), number, most, rate)
                elif form == "quota":
                    self._new.add(name)

    def _claimed(self, event: list[str]) -> None:
        self._enter(event[1], event[2], read_amounts(":".join(event[3:])))

    def _enter(self, hold: str, key: str, amounts: dict[str, int]) -> None:
        if hold in self.holds:
            self._violated("P5", "a hold was admitted twice", "once", hold)
            return
        self.holds[hold] = (key, amounts)
        self._add(key, amounts, 1)

    def _add(self, key: str, amounts: dict[str, int], times: int) -> None:
        for owner in {NO_KEY, key}:
            for name, number in amounts.items():
                count = self.held.get((owner, name), 0) + times * number
                if count:
                    self.held[owner, name] = count
                else:
                    self.held.pop((owner, name), None)

    def _take(self, of: tuple[str, str], number: int, most: float, rate: float) -> None:
        if len(self._tats) > MOST_KEYS:
            self._tats.clear()
        tat = max(self._tats.get(of, 0.0), self.ms * 1000) + number * 1e6 / rate
        self._tats[of] = tat
        late = tat - most * 1e6 / rate - (self.ms + 1 + SLACK_MS) * 1000
        if late > 0:
            self._violated(
                "P8", f"{of[1]} was admitted faster than its rate", f"{number} later by {late:.0f} us", number
            )

    def _settled(self, event: list[str]) -> None:
        if event[1] not in self.holds:
            self._unknown(event)
            return
        key, amounts = self.holds[event[1]]
        again = event[1] in self._paid
        for name, taken in read_amounts(":".join(event[2:])).items():
            form, reserved = self._all.get(name, ("", 0.0, 0.0))[0], amounts.get(name)
            if reserved is None or form not in ("at_once", "rate"):
                continue
            if form == "at_once":
                amounts[name] = min(taken, reserved)
                self._add(key, {name: reserved - amounts[name]}, -1)
            elif not again:
                self._paid.add(event[1])
                self._give_back(key, name, reserved - taken)
                self._shadows.give_back(key, name, reserved - taken)

    def _give_back(self, key: str, name: str, number: int) -> None:
        """Follow what comes back of a rate; what is owed beside only makes it whole later."""
        for owner, limits in self._limits(key):
            rate = limits.get(name, ("", 0.0, 0.0))[2]
            if rate and number > 0:
                self._tats[owner, name] = self._tats.get((owner, name), 0.0) - number * 1e6 / rate

    def _ended(self, event: list[str]) -> None:
        if event[1] not in self.holds:
            self._unknown(event)
            return
        key, amounts = self.holds.pop(event[1])
        self._paid.discard(event[1])
        self._add(key, amounts, -1)

    def _unknown(self, event: list[str]) -> None:
        if self.whole:
            self._violated("P5", f"{event[0]} of a hold that does not exist", "one that was admitted", event[1])

    def _compare(self, event: list[str]) -> None:
        """Compare what the entry says is taken with what its holds add up to."""
        found = {name: (sign, int(number)) for name, sign, number, _ in _AMOUNT.findall(":".join(event[1:]))}
        for name, (form, most, _) in self._all.items():
            sign, number = found.get(name, (":", 0))
            if form == "at_once" and self.whole and sign == ":" and number != self.held.get((NO_KEY, name), 0):
                self._violated("P2", f"what is held of {name} is not what its holds add up to",
                               self.held.get((NO_KEY, name), 0), number)  # fmt: skip
            if form == "quota" and name in self._new and sign == "=" and number > most:
                self._violated("P8", f"more of {name} was admitted than its quota", most, number)


def _forms(limits: Mapping[str, Limit]) -> dict[str, tuple[str, float, float]]:
    """Return (form, most, rate) by name."""
    return {name: (limit.form, float(limit.most), limit.rate or 0.0) for name, limit in limits.items()}

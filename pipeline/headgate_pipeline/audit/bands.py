"""A limiter's ledger shows how its bands wait: none may be passed for longer than its aging says."""

from collections.abc import Callable
from dataclasses import dataclass

from headgate.core.limiting.pins import is_part
from headgate.core.limits.bands import BANDS, USUAL_BAND
from headgate.core.limits.limit import Limit
from headgate_pipeline.ledger.limiter_course import NO_KEY, read_amounts, read_limits


@dataclass(slots=True)
class _Passed:
    """`_Passed` counts how many wait in a band for one limit, and what it had admitted at their last turn."""

    waiting: int
    since: float


class Bands:
    """`Bands` follows the bands that wait for one limit of all keys, and how much of that went before them.

    A caller that asks for several limits, or has limits of its key, may wait elsewhere meanwhile: it is not followed.

    Args:
        violated: is called with the promise, what is wrong, what was expected, and what was found.
    """

    def __init__(self, violated: Callable[[str, str, object, object], None]) -> None:
        self._violated = violated
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._limits: dict[str, Limit] = {}
        self._each: dict[str, Limit] = {}
        self._aging = 1.0
        self._kept_from = BANDS
        self._waits: dict[str, tuple[str, int]] = {}
        self._bands: dict[str, int] = {}
        self._restart()

    def _restart(self) -> None:
        """Count from now on what passes those who wait."""
        self._passed: dict[tuple[str, int], _Passed] = {}
        self._work: dict[str, float] = {}
        self._largest: dict[str, float] = {}
        for limit, band in self._waits.values():
            self._passed.setdefault((limit, band), _Passed(0, 0.0)).waiting += 1

    def set_limits(self, event: list[str]) -> None:
        """Go by these limits; whoever waits is looked at anew."""
        self._limits, self._each = map(read_limits, event[1:3])
        self._restart()

    def set_aging(self, event: list[str]) -> None:
        """Go by this aging."""
        self._aging = float(event[1])
        self._restart()

    def set_reserve(self, event: list[str]) -> None:
        """Go by a reserve: those who have it pass a band that it is kept from twice as far."""
        bands = [int(entry.partition("=")[0]) for entry in event[1].split("+") if "=" in entry]
        self._kept_from = min(bands, default=BANDS)
        self._restart()

    def set_turns(self, event: list[str]) -> None:
        """Go by the limits and the order of a gate or a bucket, as its ledger has them."""
        self.set_limits(event)
        self.set_aging(event[2:])
        self.set_reserve(event[3:])

    def waits(self, event: list[str]) -> None:
        """Note one that joined the line, in band 3 unless the next event says another."""
        hold, key, limit, whose = event[1:5]
        of_key = {} if key == NO_KEY or is_part(key) else self._each
        bound = {name for name in read_amounts(":".join(event[5:])) if name in self._limits or name in of_key}
        if whose == "all" and bound == {limit} and limit not in of_key:
            self._enter(hold, limit, USUAL_BAND)
        else:
            self._bands[hold] = USUAL_BAND

    def band(self, event: list[str]) -> None:
        """Take the band of one that has just joined."""
        hold, band = event[1], int(event[2])
        if hold in self._waits:
            limit, _ = self._leave(hold)
            self._enter(hold, limit, band)
        else:
            self._bands[hold] = band

    def held(self, event: list[str]) -> None:
        """Count what was admitted, and see that no band was passed for too long."""
        self._let_in(event, None)

    def went(self, event: list[str]) -> None:
        """Do so for a gate or a bucket: there its band stands before each one that has another than the usual one."""
        self._let_in(event, USUAL_BAND)

    def _let_in(self, event: list[str], unknown: int | None) -> None:
        hold, amounts = event[1], read_amounts(":".join(event[3:]))
        followed = hold in self._waits
        band = self._leave(hold)[1] if followed else self._bands.pop(hold, unknown)
        for name, number in amounts.items():
            limit = self._limits.get(name)
            if limit is None:
                continue
            part = number / (limit.rate or limit.most)
            self._work[name] = work = self._work.get(name, 0.0) + part
            self._largest[name] = largest = max(self._largest.get(name, 0.0), part)
            for each in range(BANDS):
                passed = self._passed.get((name, each))
                if passed is None:
                    continue
                if each == band:
                    passed.since = work
                    continue
                most, found = each * self._aging * (2 if each > self._kept_from else 1), work - passed.since
                if found > most + BANDS * largest + 1e-6:
                    self._violated("P7", f"band {each} waits for {name} and was passed for too long",
                                   f"at most {most:g} and one of each band", f"{found:.3f}")  # fmt: skip
                    passed.since = work

    def quit(self, event: list[str]) -> None:
        """Note one that left the line."""
        self._bands.pop(event[1], None)
        if event[1] in self._waits:
            self._leave(event[1])

    def _enter(self, hold: str, limit: str, band: int) -> None:
        self._waits[hold] = limit, band
        passed = self._passed.setdefault((limit, band), _Passed(0, self._work.get(limit, 0.0)))
        passed.waiting += 1

    def _leave(self, hold: str) -> tuple[str, int]:
        limit, band = self._waits.pop(hold)
        passed = self._passed[limit, band]
        passed.waiting -= 1
        if not passed.waiting:
            del self._passed[limit, band]
        return limit, band

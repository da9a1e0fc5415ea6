"""Shadow limits of a limiter, judged from its ledger: each admission above one is noted, and none that is not."""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.core.limiting.pins import is_part
from headgate.core.limits.limit import Limit
from headgate_pipeline.audit.rates import SLACK_MS
from headgate_pipeline.ledger.limiter_course import NO_KEY

Of = tuple[str, str]
MOST_KEYS: Final = 100_000
"""Keys whose rates are followed; beyond, they are followed anew."""


class LimiterShadows:
    """Shadow limits follow each admission, and are compared with what the ledger notes of it.

    Of what is held at once both are known to the unit. Of rates the earliest moment is followed at which a burst can be
    whole again: what was late even so has to be noted. Of quotas only amounts that are above the whole are judged.

    Args:
        violated: hears the promise, what is wrong, what was expected, and what was found.
    """

    def __init__(self, violated: Callable[[str, str, object, object], None]) -> None:
        self._violated = violated
        self._limits: dict[str, Mapping[str, Limit]] = {"all": {}, "key": {}}
        self._noted: dict[str, dict[Of, int]] = {}
        self._tats: dict[tuple[str, str], float] = {}

    def adopt(self, of_all: Mapping[str, Limit], of_keys: Mapping[str, Limit]) -> None:
        """Go by these limits from now on."""
        self._limits = {"all": of_all, "key": of_keys}
        self._tats.clear()

    def note(self, event: list[str]) -> None:
        """Take in that a hold would have waited, and how far above the limit it is."""
        self._noted.setdefault(event[1], {})[event[3], event[4]] = int(event[6])

    def judge(
        self, hold: str, key: str, amounts: Mapping[str, int], held: Mapping[tuple[str, str], int] | None, ms: int
    ) -> None:
        """Compare what was noted of an admission with what its limits say.

        Args:
            hold: that was admitted.
            key: of it.
            amounts: of it.
            held: of all and of each key, it included; None where that is not known.
            ms: when.
        """
        noted = self._noted.pop(hold, {})
        for whose, owner in (("all", NO_KEY), *([] if key == NO_KEY or is_part(key) else [("key", key)])):
            for name, limit in self._limits[whose].items():
                if not amounts.get(name):
                    continue
                of, number = noted.pop((name, whose), None), amounts[name]
                if limit.form == "at_once" and held is not None:
                    above = max(0, (number if number > limit.most else held.get((owner, name), 0)) - limit.most)
                    if above != (of or 0):
                        self._violated("P10", f"how far a hold is above the shadow limit {name} of {whose}", above, of)
                elif of is None and (number > limit.most or self._is_late(limit, (owner, name), number, ms)):
                    self._violated("P10", f"a hold above the shadow limit {name} of {whose} is noted", "noted", hold)
        if noted:
            self._violated("P10", "a hold is noted for a shadow limit that does not exist", "none", sorted(noted))

    def _is_late(self, limit: Limit, of: tuple[str, str], number: int, ms: int) -> bool:
        """Return whether it certainly came before its time."""
        if not limit.rate:
            return False
        if len(self._tats) > MOST_KEYS:
            self._tats.clear()
        tat = self._tats[of] = max(self._tats.get(of, 0.0), ms * 1000) + number * 1e6 / limit.rate
        return tat - limit.most * 1e6 / limit.rate > (ms + 1 + SLACK_MS) * 1000

    def give_back(self, key: str, name: str, number: int) -> None:
        """Follow what comes back of a rate by settling."""
        for whose, owner in (("all", NO_KEY), ("key", key)):
            limit = self._limits[whose].get(name)
            if limit is not None and limit.rate and number > 0:
                self._tats[owner, name] = self._tats.get((owner, name), 0.0) - number * 1e6 / limit.rate

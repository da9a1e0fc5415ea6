"""Shadow limits of queues, topics, gates and buckets, judged from a ledger: what is above is noted."""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.core.limits.limit import Limit
from headgate_pipeline.audit.rates import SLACK_MS
from headgate_pipeline.ledger.limiter_course import read_limits

TRIED_EVENTS: Final = ("shadow", "would-block")


class DestinationShadows:
    """Shadow limits follow what is stored, granted or taken, and are compared with what the ledger notes of it.

    Of what is pending both are known to the byte. Of rates the earliest moment is followed at which a burst can be
    whole again: what was late even so has to be noted. A gate's ledger does not tell what its sessions asked for, so
    there only what is noted is judged.

    Args:
        violated: hears the promise, what is wrong, what was expected, and what was found.
    """

    def __init__(self, violated: Callable[[str, str, object, object], None]) -> None:
        self._violated = violated
        self._limits: Mapping[str, Limit] | None = None
        self._noted: dict[str, tuple[int, int]] = {}
        self._tats: dict[str, float] = {}
        self._ms, self._given = 0, False

    @property
    def is_tried(self) -> bool:
        """Whether there is a shadow limit."""
        return bool(self._limits)

    def forget(self, *, whole: bool) -> None:
        """Go by nothing from before: entries are missing, or ``whole``, the destination was made anew."""
        self._limits = {} if whole else None
        self._noted.clear()
        self._tats.clear()

    def none(self) -> None:
        """Take it that settings changed, and there is no shadow limit unless the same entry set one."""
        self._limits = self._limits if self._given else {}
        self._tats.clear()

    def step(self, event: list[str]) -> None:
        """Take in an event of an entry."""
        if event[0] == "shadow":
            self._limits, self._given = read_limits(event[1]), True
        else:
            self._noted[event[1]] = (int(event[2]), int(event[3]))

    def judge(self, op: str, ms: int, size: int, messages: int, pending: tuple[int, int] | None) -> None:
        """Compare what an entry notes with what its limits say.

        Args:
            op: of the entry.
            ms: when.
            size: bytes that were stored, or tokens that were taken.
            messages: that were stored.
            pending: bytes and messages, these included; None where they are not, or that is not known.
        """
        noted, self._noted, self._given = self._noted, {}, False
        if self._limits is None:
            return
        if self._limits and ms < self._ms:
            self._tats.clear()
        self._ms = ms if self._limits else 0
        for name in noted.keys() - self._limits.keys():
            self._violated("P10", "something is noted for a shadow limit that does not exist", "none", name)
        amounts = {"publish": (("bytes", size), ("messages", messages), ("rate", messages), ("byte_rate", size))}.get(
            op, (("tokens", size),) if op == "take" else ()
        )
        most_times = messages if op == "publish" else max(1, size)
        for name, number in amounts:
            limit = self._limits.get(name)
            if limit is None or not number:
                continue
            times, over = noted.get(name, (0, 0))
            if not 0 <= times <= most_times:
                self._violated("P10", f"how many are above the shadow limit {name}", f"at most {most_times}", times)
            if limit.form != "at_once":
                if self._is_late(name, limit, number, ms) and not times:
                    self._violated("P10", f"what is above the shadow limit {name} is noted", "noted", "nothing")
            elif pending is not None:
                above = max(0, pending[name == "messages"] - limit.most)
                if above != over or (name == "messages" and times != min(messages, above)):
                    self._violated("P10", f"how far it is above the shadow limit {name}", above, (times, over))

    def _is_late(self, name: str, limit: Limit, number: int, ms: int) -> bool:
        """Return whether it certainly came before its time."""
        rate = limit.rate or 1.0
        tat = self._tats[name] = max(self._tats.get(name, 0.0), ms * 1000) + number * 1e6 / rate
        return tat - limit.most * 1e6 / rate > (ms + 1 + SLACK_MS) * 1000

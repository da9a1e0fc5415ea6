"""A queue may deliver by priority: its ledger shows that what is next in a band is overtaken so often, and no more.

The audit counts by itself what waits in each band: what came (`filed`) and what went (`banded`, `unfiled`). Pure: no
Spark, no I/O.
"""

from collections.abc import Callable
from typing import Final

Violated = Callable[[str, str, object, object], None]
BANDS: Final = 8
PRIORITY_EVENTS: Final = ("filed", "unfiled", "banded")
"""Those that are about bands of queues."""
_ANEW: Final = frozenset({"apply", "recount"})


class Overtaking:
    """`Overtaking` follows the bands of one queue, and counts how often each was overtaken.

    Args:
        violated: is called with the promise, what is wrong, what was expected, and what was found.
    """

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self.forget()

    def begin(self, op: str) -> None:
        """Begin an entry: another setting, or a repair, puts what waits where it is to be."""
        if op in _ANEW:
            self.forget()

    def forget(self, *, whole: bool = False) -> None:  # noqa: ARG002  as all that a replay forgets
        """Begin anew: what waits is known with the next delivery."""
        self._waiting: dict[int, int] | None = None
        self._unfiled = 0
        self._overtaken: dict[int, int] = {}
        self._sure: set[int] = set()  # bands of which no less than that is known

    def step(self, event: list[str]) -> None:
        """Follow one event.

        Raises:
            ValueError, IndexError: it cannot be read.
        """
        if event[0] == "filed":
            for band, count in _counts(event[1]):
                if self._waiting is not None:
                    self._begin(band)
                    self._waiting[band] = self._waiting.get(band, 0) + count
        elif event[0] == "unfiled":
            self._unfiled += int(event[1])
        else:
            self._delivered(int(event[1]), dict(_counts(event[2])), _counts(event[3]))

    def _begin(self, band: int) -> None:
        if self._waiting is not None and not self._waiting.get(band) and not self._unfiled:
            self._overtaken[band] = 0
            self._sure.add(band)

    def _compare(self, noted: dict[int, int]) -> None:
        """Compare what the ledger says waits with what does, as far as it is known which messages left unread."""
        if self._waiting is not None:
            known = {band: count for band, count in self._waiting.items() if count}
            above = {band: count for band, count in noted.items() if count > known.get(band, 0)}
            if above or sum(known.values()) - self._unfiled != sum(noted.values()):
                less = f" less {self._unfiled}" if self._unfiled else ""
                self._violated("P7", "what waits by priority is not what came and did not go", f"{known}{less}", noted)
        if self._waiting is None or self._unfiled:  # some may have been empty meanwhile, and begun anew
            self._overtaken.clear()
            self._sure.clear()
        self._waiting, self._unfiled = dict(noted), 0

    def _delivered(self, bound: int, waiting: dict[int, int], runs: list[tuple[int, int]]) -> None:
        self._compare(waiting)
        left = dict(waiting)
        due = bound - BANDS + 1
        for band, count in runs:
            before = self._overtaken.get(band, 0)
            higher = [other for other in range(band) if left.get(other)]
            if higher and (count > 1 or (band in self._sure and before < due)):
                self._violated(
                    "P7", f"{count} of band {band} went before higher ones", f"band {higher[0]}", f"band {band}"
                )
            if left.get(band, 0) < count:
                self._violated("P7", f"more of band {band} went than waited", left.get(band, 0), count)
            left[band] = max(0, left.get(band, 0) - count)
            self._overtaken[band] = 0
            self._sure.add(band)
            for other, waits in left.items():
                if other != band and waits:
                    self._overtaken[other] = self._overtaken.get(other, 0) + count
                    if self._overtaken[other] > bound:
                        what = f"what was next of band {other} was overtaken more often than the bound"
                        self._violated("P7", what, bound, self._overtaken[other])
                        self._overtaken[other] = 0
        self._waiting = left


def _counts(text: str) -> list[tuple[int, int]]:
    pairs = [] if text == "-" else [part.split("=") for part in text.split("+")]
    counts = [(int(band), int(count)) for band, count in pairs]
    if any(not 0 <= band < BANDS or count < 1 for band, count in counts):
        raise ValueError(text)
    return counts

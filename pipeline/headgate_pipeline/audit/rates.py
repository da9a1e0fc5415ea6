"""Rates, judged from what a ledger tells: moments in milliseconds, and a bucket's `tat`. Pure: no Spark, no I/O."""

from math import inf
from typing import Any, Final

from headgate_pipeline.audit.findings import Settings

Row = tuple[Any, ...]
Broken = tuple[str, object, object]

MOST_PAIRS: Final = 128
"""Callers that one `take` serves; for each the time of its tokens is rounded up to a microsecond."""

SLACK_MS: Final = 2
"""Entries tell milliseconds, scripts reckon in microseconds: an entry may be this much later or earlier."""


class BucketRate:
    """A bucket's rate is found from its takes: every token costs the same time, and that time is the rate."""

    def __init__(self) -> None:
        self.forget()

    def forget(self, tat: int | None = None) -> None:
        """Begin anew, for the rate may be another one; ``tat`` where it is known."""
        self.tat = tat
        self.ms = 0
        self.least, self.most = 0.0, inf
        self.row: Row | None = None

    def step(self, row: Row) -> Broken | None:
        """Follow a take; returns what is wrong with it."""
        ms, tokens, tat = row[1], row[4], row[6]
        before, self.tat = self.tat, tat
        clock, self.ms = self.ms, ms
        if tokens < 1 or row[5] < 0:
            return "a take of nothing has no entry", "1 token or more", f"{tokens}, {row[5]} refused"
        if before is None or ms < clock:
            return None
        if tat <= before:
            if self.least > 0 or tat < before:
                return f"{tokens} tokens that cost nothing", f"tat above {before}", tat
            return None  # unlimited
        most = tat - max(before, ms * 1000)
        least = tat - max(before, ms * 1000 + 999) - min(tokens, MOST_PAIRS)
        rate_least = tokens * 1e6 / most if most > 0 else inf
        rate_most = tokens * 1e6 / least if least > 0 else inf
        if rate_least > self.most or rate_most < self.least:
            broken = (
                f"{tokens} tokens at another rate than those before", f"{self.least:.6g} to {self.most:.6g} tokens/s",
                f"{rate_least:.6g} to {rate_most:.6g} tokens/s",
            )  # fmt: skip
            self.least, self.most = rate_least, rate_most
            return broken
        self.least, self.most, self.row = max(self.least, rate_least), min(self.most, rate_most), row
        return None

    def finish(self, rate: float | None) -> list[tuple[str, str, object, object, Row]]:
        """Compare with the rate that is set."""
        if rate is None or self.row is None or self.least <= rate * (1 + 1e-9):
            return []
        return [("P8", "tokens were taken faster than the rate", f"{rate:.6g} tokens/s", f"{self.least:.6g}", self.row)]


class SendRate:
    """The rate of all senders is checked as GCRA over the entries since the last `apply`: earlier, other rates held."""

    def __init__(self, settings: Settings, slack_ms: int = 0) -> None:
        self.slack_ms = SLACK_MS + slack_ms
        self.buckets = [
            (name, at, rate, burst if burst is not None else rate)
            for name, at, rate, burst in (
                ("messages", 5, settings.send_rate, settings.send_burst),
                ("bytes", 4, settings.send_byte_rate, settings.send_byte_burst),
            )
            if rate
        ]
        self.forget()

    def forget(self) -> None:
        """Begin anew, for the rates may be others."""
        self._tokens = [float(burst or 0) for _, _, _, burst in self.buckets]
        self.ms = 0
        self._broken: list[tuple[str, str, object, object, Row]] = []

    def step(self, row: Row, size: int, messages: int) -> None:
        """Follow what was sent."""
        for at, (name, column, rate, burst) in enumerate(self.buckets):
            assert rate is not None and burst is not None  # noqa: PT018, S101
            there = min(burst, self._tokens[at] + max(0, row[1] - self.ms) * rate / 1000)
            need = row[column] if messages > 1 or name == "messages" else min(size, burst)
            may = there + self.slack_ms * rate / 1000
            if need > may:
                self._broken.append(("P8", f"more {name} were sent than the rate allows", f"{may:.6g}", need, row))
            self._tokens[at] = there - row[column]
        self.ms = row[1]

    def finish(self) -> list[tuple[str, str, object, object, Row]]:
        """Return what was beyond the rates."""
        return self._broken

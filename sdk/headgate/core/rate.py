"""A rate of one producer or consumer is kept by itself (GCRA): no bursts above ``burst``, one number of state."""

from dataclasses import dataclass


@dataclass(slots=True)
class Rate:
    """A rate lets go at most ``rate * T + burst`` in any T seconds."""

    rate: float
    burst: float = 1.0
    _next: float = 0.0

    def delay(self, now: float, amount: float = 1.0) -> float:
        """Take ``amount`` and return how many seconds from now it may be used; first come, first served."""
        self._next = max(self._next, now) + amount / self.rate
        return max(0.0, self._next - self.burst / self.rate - now)

    def owed(self, now: float) -> float:
        """Return in how many seconds all that was taken is paid off."""
        return max(0.0, self._next - now)

    def put_back(self, amount: float = 1.0) -> None:
        """Put back what was just taken and will not be used."""
        self._next -= amount / self.rate

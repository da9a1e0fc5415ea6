"""Whether what a link has in hand goes to a store of its target: where memory has no room, and a store may have."""


class StoreTurn:
    """The stores of a target, as its link last found them. No I/O and no clock.

    Attributes:
        spools: whether the target spools.
        full: whether its memory has no room for the oldest message.
        again_at: when a store may be tried again that took nothing.
    """

    def __init__(self) -> None:
        self.spools = self.full = False
        self.again_at = 0.0
        self._open = True

    @property
    def takes(self) -> bool:
        """Whether a store is to be tried now."""
        return self.spools and self.full and self._open

    @property
    def rests(self) -> bool:
        """Whether one is to be tried later."""
        return self.spools and self.full and not self._open

    def look(self, now: float) -> None:
        """Take in what time it is."""
        self._open = now >= self.again_at

    def rest(self, until: float) -> None:
        """Try none until then, or until one has room."""
        self.again_at, self._open = until, False

    def woken(self) -> None:
        """Take the hint that one has room."""
        self.again_at = 0.0

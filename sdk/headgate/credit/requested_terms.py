"""A user of an account asks for a window, a weight and a durability; the settings decide the rest."""

from collections.abc import Callable

from headgate.core.durability import MEMORY, Durability


class RequestedTerms:
    """One user asks for an account's window, weight and durability; None leaves it to the settings."""

    __slots__ = ("_heed", "durability", "weight", "window")

    def __init__(self, window: int | None, weight: int | None, heed: Callable[[], None]) -> None:
        self.window = window
        self.weight = weight
        self.durability = MEMORY
        self._heed = heed

    def insist(self, durability: Durability) -> None:
        """Have what is written at least so safe before it is confirmed."""
        self.durability = durability
        self._heed()

    def change(self, window: int | None, weight: int | None) -> None:
        """Change the wish from now on; None leaves it as it was."""
        self.window = self.window if window is None else window
        self.weight = self.weight if weight is None else weight
        self._heed()

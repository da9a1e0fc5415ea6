"""The window and weight that one user of an account asks for; the settings of the destination decide the rest."""

from collections.abc import Callable


class Wish:
    """What one user of an account says of its window and weight; None leaves it to the destination's settings."""

    __slots__ = ("_heed", "weight", "window")

    def __init__(self, window: int | None, weight: int | None, heed: Callable[[], None]) -> None:
        self.window = window
        self.weight = weight
        self._heed = heed

    def change(self, window: int | None, weight: int | None) -> None:
        """Say something else from now on; None leaves what was said."""
        self.window = self.window if window is None else window
        self.weight = self.weight if weight is None else weight
        self._heed()

"""An object opened before a fork is the parent's: in the child it refuses, and touches nothing of the parent's.

Credit that both would spend is twice the credit, and sockets that both would write to carry nonsense.
"""

import os
from typing import Final, Protocol
from weakref import WeakSet

FORKED: Final = "it was opened before this process was forked, and belongs to the parent; connect anew in this process"


class Forkable(Protocol):
    """A forkable object is one that a child must not use."""

    def forked(self) -> None:
        """Refuse to work from now on, without a word to anybody; called in the child."""

    def __hash__(self) -> int:
        """Tell one from another."""


_ours: Final[WeakSet[Forkable]] = WeakSet()


def watch(one: Forkable) -> None:
    """Notify a child, if this process forks as long as it is in use."""
    _ours.add(one)


def _in_child() -> None:
    for one in tuple(_ours):
        one.forked()
    _ours.clear()


os.register_at_fork(after_in_child=_in_child)

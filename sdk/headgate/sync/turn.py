"""A lock for what is in hand, for threads that may be interrupted while they have it.

A signal handler, and a finalizer that the garbage collector calls, run in the midst of whatever their thread does.
Where that is a change of what is in hand, they must neither wait for its end, which comes after theirs, nor make one.
"""

import threading
from typing import Final

from headgate._util.forks import watch


class _Inside(threading.local):
    """Counts how many turns this thread has."""

    count = 0


_inside: Final = _Inside()


def is_interrupted() -> bool:
    """Return whether this thread was interrupted in a turn, so that nothing it waits for may come."""
    return _inside.count > 0


class ThreadTurn:
    """A turn lets one thread in at a time: ``with turn as is_free``, False where a thread interrupted its own turn."""

    __slots__ = ("__weakref__", "_depth", "_lock")

    def __init__(self) -> None:
        self.forked()
        watch(self)

    def forked(self) -> None:
        """Begin anew in a child: whoever had it is a thread of the parent."""
        self._lock = threading.RLock()
        self._depth = 0

    def __enter__(self) -> bool:
        # What interrupts these lines leaves both counts as it found them.
        self._lock.acquire()
        _inside.count += 1
        self._depth += 1
        return self._depth == 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        _inside.count -= 1
        self._lock.release()

"""A node's full garbage collection goes through all that the node keeps, and everything waits meanwhile."""

import gc
import time
from typing import Final

SLOW: Final = 0.05
"""Seconds of processor time from which on a full collection is one that clients notice."""
THOROUGH: Final = 3600.0
"""Seconds from one collection of all that there is to the next."""
YOUNG: Final = 20_000
"""New objects, beyond those that are gone again, from which on the young ones are looked through.

Messages on their way are a few thousand objects that come and go: by Python's own 700 a node would look through them
for every hundred messages, a twelfth of its time, and find nothing.
"""


class ShortCollections:
    """A full collection is short: it leaves out what survived a slow one, such as a large policy's many links.

    Objects that are left out are freed as ever when nobody refers to them. Those that refer to each other and to which
    nobody else does wait for the next collection of everything, at most one every :data:`THOROUGH` seconds. Young
    objects are looked through when there are :data:`YOUNG` of them.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._thorough = time.monotonic()
        self._all = False
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Begin, with all that there is left out: most of it was imported, and stays."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, *self._thresholds[1:])
        gc.callbacks.append(self._hear)

    def stop(self) -> None:
        """Leave nothing more out; the process is about to end, and looks at nothing again."""
        gc.callbacks.remove(self._hear)
        gc.set_threshold(*self._thresholds)

    def _hear(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != 2:
            return
        if phase == "start":
            self._all = time.monotonic() - self._thorough > THOROUGH
            if self._all:
                gc.unfreeze()
            self._began = time.thread_time()
        elif self._all or time.thread_time() - self._began > SLOW:
            self._thorough = time.monotonic() if self._all else self._thorough
            gc.freeze()

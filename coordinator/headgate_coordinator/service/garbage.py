"""Garbage collections of a node: a full one goes through all that the node keeps, and everything waits meanwhile."""

import gc
import time
from typing import Final

SLOW: Final = 0.05
"""Seconds of processor time from which on a full collection is one that clients notice."""
THOROUGH: Final = 3600.0
"""Seconds from one collection of all that there is to the next."""


class ShortCollections:
    """Leaves out of full collections what survived a slow one, such as the thousands of links of a large policy.

    Objects that are left out are freed as ever when nobody refers to them. Those that refer to each other and to which
    nobody else does wait for the next collection of everything, at most one every :data:`THOROUGH` seconds. A node that
    keeps little collects as any Python does.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._thorough = time.monotonic()
        self._all = False

    def start(self) -> None:
        """Begin, with all that there is left out: most of it was imported, and stays."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._hear)

    def stop(self) -> None:
        """Leave nothing more out; the process is about to end, and looks at nothing again."""
        gc.callbacks.remove(self._hear)

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

"""A process makes its connection to Headgate once, for Spark uses its Python workers again and again."""

import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import headgate
from headgate.sync.thread import LoopThread
from headgate_pipeline.exchange.options import Options

T = TypeVar("T")


class Connection:
    """A connection runs a client on an event loop in its own thread, which keeps leases while the task computes."""

    def __init__(self, url: str, namespace: str) -> None:
        self._thread = LoopThread()
        self.client = headgate.connect(url, namespace=namespace)
        try:
            self.run(self.client.__aenter__())
        except BaseException:
            self._thread.stop()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and return its result."""
        return self._thread.run(work)

    def close(self) -> None:
        """Close the client and end the thread."""
        self._thread.run(self.client.close())
        self._thread.stop()


_OPEN: Final[dict[tuple[int, str, str], Connection]] = {}


def connection(options: Options) -> Connection:
    """Return this process' connection to what the options say. It ends with the process.

    Raises:
        CoordinatorUnavailable, AccessDenied, InvalidValue: there is none to be had.
    """
    key = (os.getpid(), options.where(), options.namespace)
    if key not in _OPEN:
        _OPEN[key] = Connection(key[1], key[2])
    return _OPEN[key]

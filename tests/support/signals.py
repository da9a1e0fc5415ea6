"""Signals as in a terminal, however the tests are run.

Under `nohup` a process begins with SIGHUP ignored, as a job in the background of a script with SIGINT ignored, and so
does all that it starts. Tests that send these signals would wait forever.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SENT = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def ignored() -> list[signal.Signals]:
    """Return those that this process ignores."""
    return [number for number in _SENT if signal.getsignal(number) is signal.SIG_IGN]


def hear_what_was_ignored(*, leave_the_group: bool) -> None:
    """Let those that this process starts begin with the defaults; it goes on without heed itself.

    Args:
        leave_the_group: whether to keep from them what the terminal sends to all of this process's group.
    """
    unheard = ignored()
    for number in unheard:
        signal.signal(number, lambda *_: None)  # a handler ends with an exec, unlike that something is ignored
    if unheard and leave_the_group:
        os.setpgid(0, 0)


@contextmanager
def ctrl_c_interrupts() -> Iterator[Callable[[], None]]:
    """Have the next SIGINT raise KeyboardInterrupt in this process, once; yield what sends it from another thread.

    A signal that comes in the moment before the main thread begins to wait is not heard until that wait is over, so
    it is sent until it was heard. Whoever sends it must have returned before this ends.
    """
    heard = threading.Event()

    def interrupt(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def send() -> None:
        while not heard.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            heard.wait(0.1)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield send
    finally:
        signal.signal(signal.SIGINT, before)

"""Signals as in a terminal, however the tests are run.

Under `nohup` a process begins with SIGHUP ignored, as a job in the background of a script with SIGINT ignored, and so
does all that it starts. Tests that send these signals would wait for ever.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SENT = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def hear_what_was_ignored(*, leave_the_group: bool) -> None:
    """Let those that this process starts begin with the defaults; it goes on without heed itself.

    Args:
        leave_the_group: whether to keep from them what the terminal sends to all of this process's group.
    """
    ignored = [number for number in _SENT if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)  # a handler ends with an exec, unlike that something is ignored
    if ignored and leave_the_group:
        os.setpgid(0, 0)


@contextmanager
def ctrl_c_interrupts() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

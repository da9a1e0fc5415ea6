"""A service of `Type=notify` sends notes to systemd; none where nobody asks for them."""

import contextlib
import os
import socket
import time
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(*words: str) -> None:
    """Tell the service manager that started this process, if it wants to hear."""
    path = os.environ.get(VARIABLE, "")
    if not path.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        systemd.send("\n".join(words).encode())


def reloading() -> None:
    """Tell that a rolling restart begins; :data:`READY` ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

"""A worker's health is judged from outside: by its process as the system sees it, and by its beats.

No clock judges, for on a busy machine a worker may rightly be silent for long. A look counts against one that could
have gone on: it is stopped, or it slept, or it ran and sent nothing. One that is ready to run and gets no processor
is as it was before.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

BEAT: Final = 1.0
"""Seconds between two beats of a worker."""
EVERY: Final = 0.5
"""Seconds between two looks at it."""
STOPPED: Final = 5
"""Looks in a row at which one is stopped, after which it is given up: 2.5 s, so that who falls to it waits for 3."""
HUNG: Final = 60
"""Looks without a beat that count: 30 s of a loop that sleeps when it should not, or is in one call all the time."""
Verdict = Literal["is stopped", "does not answer"]


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """A sample holds facts of a process at one moment.

    Attributes:
        state: the system's letter; `T` is stopped by a signal, and `t` held by a debugger, which we leave alone.
        ran: seconds of processor that it had so far.
    """

    state: str
    ran: float


def glimpse(pid: int) -> ProcessSample | None:
    """Return how a process is; None where the system does not tell, or it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *figures = text.rpartition(b")")[2].split()  # before it is the command's name, which may hold anything
    return ProcessSample(state.decode(), (int(figures[10]) + int(figures[11])) / os.sysconf("SC_CLK_TCK"))


class WorkerHealth:
    """The looks at one worker; each takes what was seen, and whether it sent something since the one before."""

    def __init__(self) -> None:
        self._stopped = self._silent = 0
        self._ran = 0.0

    def look(self, seen: ProcessSample | None, *, spoke: bool) -> Verdict | None:
        """Return why it is to be replaced, once; None otherwise."""
        if seen is None:
            return None
        ran, self._ran = seen.ran - self._ran, seen.ran
        self._stopped = self._stopped + 1 if seen.state == "T" else 0
        if self._stopped == STOPPED:
            return "is stopped"
        if spoke:
            self._silent = 0
        elif seen.state == "S" or ran >= EVERY / 2:
            self._silent += 1
            return "does not answer" if self._silent == HUNG else None
        return None

"""The command `headgate`: where it begins, and how it ends.

Exit codes, the same for every command:

    0    done; what was checked holds
    1    a check failed, or something that was asked for could not be done
    2    wrong usage: an option, a URL, a name or a setting that cannot be used
    3    Redis is unavailable, or refuses us
    130  interrupted

Errors are one line on stderr. The commands themselves are in :mod:`headgate_coordinator.cli.commands`, and the work
of each in a module of its own: this one needs nothing that the extra `node` brings, so it can say that it is missing.
"""

import sys
from typing import Final

from headgate import AccessDenied, CoordinatorUnavailable, HeadgateError, InvalidName, InvalidValue, PolicyError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = 3
INTERRUPTED: Final = 130

_EXTRA: Final = {"typer", "click", "rich", "pydantic"}


def exit_code(error: HeadgateError) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, CoordinatorUnavailable | AccessDenied):
        return UNAVAILABLE
    if isinstance(error, InvalidName | InvalidValue | PolicyError):
        return USAGE
    return FAILED


def one_line(error: BaseException) -> str:
    """Return what an error says, without line breaks."""
    return " | ".join(line.strip() for line in str(error).splitlines() if line.strip()) or type(error).__name__


def main() -> None:
    """Run the command line and exit."""
    try:
        from headgate_coordinator.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        print("headgate: the command line is an extra; install it with: pip install 'headgate[node]'", file=sys.stderr)
        sys.exit(USAGE)
    from headgate_coordinator.operate.terminal import Inert

    sys.stdout, sys.stderr = Inert(sys.stdout), Inert(sys.stderr)  # names are the words of others
    try:
        app(prog_name="headgate")
    except HeadgateError as error:
        print(f"headgate: {one_line(error)}", file=sys.stderr)
        sys.exit(exit_code(error))

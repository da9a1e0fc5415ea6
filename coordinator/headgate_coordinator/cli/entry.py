"""The command `headgate` begins and ends here.

Errors are one line on stderr; what an exit code means is in :mod:`headgate_coordinator.cli.exits`. The commands
themselves are in :mod:`headgate_coordinator.cli.commands`, and the work of each in a module of its own: this one needs
nothing that the extra `node` brings, so it can say that it is missing.
"""

import atexit
import gc
import sys
from typing import Final

_EXTRA: Final = {"typer", "click", "rich", "pydantic"}


def main() -> None:
    """Run the command line and exit."""
    gc.disable()  # what is imported stays: to look for garbage among it would take a third of a short command's time,
    atexit.register(gc.freeze)  # most of that as it ends
    from headgate import HeadgateError
    from headgate_coordinator.cli.exits import USAGE, advice, exit_code, one_line

    try:
        from headgate_coordinator.cli.commands import command_line

        app = command_line(sys.argv[1] if len(sys.argv) > 1 else "")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        print("headgate: the command line is an extra; install it with: pip install 'headgate[node]'", file=sys.stderr)
        sys.exit(USAGE)
    from headgate_coordinator.operate.terminal import InertStream

    gc.freeze()
    gc.enable()
    sys.stdout, sys.stderr = InertStream(sys.stdout), InertStream(sys.stderr)  # names are the words of others
    try:
        app(prog_name="headgate")
    except HeadgateError as error:
        print(f"headgate: {one_line(error).rstrip('.')}{advice(error)}", file=sys.stderr)
        sys.exit(exit_code(error))

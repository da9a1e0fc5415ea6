"""Runs a command while it is admitted: the way of a shell script to a limit that others share."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headgate import Client, CreditTimeout, DestinationFull, InvalidValue
from headgate.units import parse_size

NOT_ADMITTED: Final = 75
"""Exit code where the command was not run, for it was not admitted in time: EX_TEMPFAIL of sysexits.h."""
NOT_RUNNABLE: Final = 126
"""Exit code where there is a file of that name that cannot be run, as shells have it."""
NOT_FOUND: Final = 127
"""Exit code where there is no such command, as shells have it."""
SIGNALED: Final = 128
"""Exit code, plus its number, where a signal ended the command, as shells have it."""
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


async def run_admitted(
    client: Client, destination: str, command: Sequence[str], *, size: int | str | None,
    amounts: Mapping[str, int | str], key: str | None, timeout: float, ttl: float, band: int | None = None,
) -> int:  # fmt: skip
    """Run a command while a gate or limiter admits it; returns its exit code.

    Args:
        client: connected.
        destination: a gate, or a limiter.
        command: its program and arguments.
        size: of a gate; None where it is a limiter.
        amounts: of a limiter, by the names of limits.
        key: for whom; None for no key.
        timeout: seconds to wait.
        ttl: seconds after which others have what was held, if this process dies.
        band: 0 goes first of those who wait, 7 last; that of the key, or 3, when None.

    Raises:
        InvalidValue: an amount or a name cannot be used.
        PolicyError: it is no gate or limiter.
        CoordinatorUnavailable: Redis does not answer in time.
    """
    if size is not None and parse_size(size, "--size") == 0:
        raise InvalidValue("0 takes nothing of a gate; use 1 or more", setting="--size")
    if shutil.which(command[0]) is None:  # before anything is taken
        if os.path.sep in command[0] and os.access(command[0], os.F_OK):
            _say(f"{command[0]!r} cannot be run: it is not a file, or is not executable (chmod +x)")
            return NOT_RUNNABLE
        _say(f"there is no command {command[0]!r}")
        return NOT_FOUND
    async with client.session(ttl=ttl) as session, contextlib.AsyncExitStack() as stack:
        try:
            if size is not None:
                gate = await session.gate(destination)
                if not (await gate.state()).limits:  # any name is a gate, also one that was mistyped
                    _say(f"gate {destination!r} has no limit: it holds nothing back")
                await stack.enter_async_context(gate.admit(size, key=key, timeout=timeout, band=band))
            else:
                limiter = await session.limiter(destination, in_hand=False)
                admission = limiter.admit(key=key, timeout=timeout, ttl=None, band=band, fail_if_late=False, **amounts)
                await stack.enter_async_context(admission)
        except (CreditTimeout, DestinationFull) as error:
            _say(f"{command[0]} was not run: {error}")
            return NOT_ADMITTED
        return await _run(command)


async def _run(command: Sequence[str]) -> int:
    loop, early = asyncio.get_running_loop(), list[signal.Signals]()
    process: asyncio.subprocess.Process | None = None

    def send(number: signal.Signals) -> None:
        if process is None:
            early.append(number)  # between its start and ours: it would run on without us
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                process.send_signal(number)

    # What nohup or a shell's `&` has us ignore is ignored by the command too: it does not inherit that from a handler.
    heard = [number for number in (*_PASSED_ON, signal.SIGINT) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        if number is signal.SIGINT and sys.stdin.isatty():  # a terminal sends it to both of us
            loop.add_signal_handler(number, lambda: None)
        else:
            loop.add_signal_handler(number, send, number)
    try:
        process = await asyncio.create_subprocess_exec(*command)
        for number in early:
            send(number)
        code = await process.wait()
    except OSError as error:  # of a script whose interpreter is not there, or of what is no program
        _say(f"{command[0]!r} cannot be run: {error.strerror}; see its first line, as in #!/bin/sh")
        return NOT_RUNNABLE
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
    return SIGNALED - code if code < 0 else code


def _say(text: str) -> None:
    sys.stderr.write(f"headgate: {' '.join(text.split())}\n")


def amounts_of(texts: Sequence[str]) -> dict[str, int | str]:
    """Return amounts as ``<limit>=<number>`` spells them.

    Raises:
        InvalidValue: one is spelled otherwise, or a limit is named twice.
    """
    amounts: dict[str, int | str] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        if not equals or not name or name in amounts:
            raise InvalidValue(f"--amount {text!r:.80}: use <limit>=<number>, each limit once, such as requests=1")
        amounts[name] = int(number) if number.isascii() and number.isdigit() and len(number) < 17 else number
    return amounts

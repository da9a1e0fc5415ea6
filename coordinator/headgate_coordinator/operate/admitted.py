"""Runs a command while it is admitted: the way of a shell script to a limit that others share."""

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headgate import Client, CreditTimeout, DestinationFull, InvalidValue
from headgate.units import parse_size

NOT_ADMITTED: Final = 75
"""Exit code where the command was not run, for it was not admitted in time: EX_TEMPFAIL of sysexits.h."""
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
    process = await asyncio.create_subprocess_exec(*command)
    loop = asyncio.get_running_loop()
    # A terminal sends SIGINT to both of us; from elsewhere it is passed on as the others are.
    passed = (*_PASSED_ON, *(() if sys.stdin.isatty() else (signal.SIGINT,)))
    for number in passed:
        loop.add_signal_handler(number, _send, process, number)
    if signal.SIGINT not in passed:
        loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        code = await process.wait()
    finally:
        for number in (*passed, signal.SIGINT):
            loop.remove_signal_handler(number)
    return SIGNALED - code if code < 0 else code


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        process.send_signal(number)


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

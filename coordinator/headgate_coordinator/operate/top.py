"""`headgate top` shows the destinations of a namespace, live."""

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headgate import CoordinatorUnavailable
from headgate.explain.views import count
from headgate_coordinator.operate import status
from headgate_coordinator.operate.status import StatusData

KEYS: Final = {
    "n": "name", "p": "pending", "l": "leased", "b": "blocked", "c": "consumers", "r": "rate", "u": "used",
    "d": "dropped",
}  # fmt: skip
"""Which key sorts by what."""
QUIT: Final = ("q", "\x03", "\x04")


def frame(
    picture: StatusData,
    namespace: str,
    by: str,
    *,
    width: int,
    trouble: str = "",
    most: int | None = None,
    keys: bool = False,
) -> RenderableType:
    """Return one picture: totals, the table, and why whoever waits does.

    Args:
        picture: the destinations, and what they share.
        namespace: theirs.
        by: what they are sorted by.
        width: columns that there is room for.
        trouble: why they are not those of now; empty when they are.
        most: lines that there is room for.
        keys: whether to say which keys there are.
    """
    found = picture.found
    waiting = sum(one.blocked for one in found)
    stuck = sum(one.state != "open" for one in found)
    head = Text(overflow="ellipsis", no_wrap=True)
    head.append(f"headgate {namespace}", style="bold")
    head.append(f"  {count(len(found), 'destination')}, {stuck} not open, {waiting} waiting")
    head.append(f", by {by}  {time.strftime('%H:%M:%S')}")
    lines: list[RenderableType] = [head]
    if trouble:
        lines.append(Text(trouble, style="bold red", overflow="ellipsis", no_wrap=True))
    room = None if most is None else most - len(lines) - keys
    lines.append(status.render(picture, namespace, by=by, width=width, most=room))
    if keys:
        names = " ".join(f"{key} {name}" for key, name in KEYS.items())
        lines.append(Text(f"q quit {names}", style="dim", overflow="ellipsis", no_wrap=True))
    return Group(*lines)


async def watch(
    look: Callable[[], Awaitable[StatusData]], namespace: str, *, by: str, interval: float, console: Console
) -> None:
    """Show it until q, Ctrl-C or the end of the input; a Redis that goes away is waited for.

    Looking takes Redis at most half of the time: where it takes longer than the interval, so does the pause after it.

    Raises:
        CoordinatorUnavailable: Redis did not answer the first time.
    """
    looking = time.monotonic()
    picture = await look()
    pause = max(interval, time.monotonic() - looking)
    trouble, ended, pressed = "", asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def press() -> None:
        nonlocal by
        typed = os.read(sys.stdin.fileno(), 64).decode(errors="ignore")
        if not typed or any(key in QUIT for key in typed):
            ended.set()
        by = next((KEYS[key] for key in reversed(typed) if key in KEYS), by)
        pressed.set()

    with _keys(press, loop), Live(console=console, screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            width, most = console.width, console.height
            live.update(frame(picture, namespace, by, width=width, trouble=trouble, most=most, keys=True), refresh=True)
            pressed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await pressed.wait()
            if pressed.is_set():
                continue  # sorted anew at once
            looking = time.monotonic()
            try:
                picture, trouble = await look(), ""
            except CoordinatorUnavailable as error:
                trouble = f"as of the last answer: {error}"
            pause = max(interval, time.monotonic() - looking)


@contextlib.contextmanager
def _keys(press: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Call ``press`` for every key, without waiting for Enter; leave the terminal as it was."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, press)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

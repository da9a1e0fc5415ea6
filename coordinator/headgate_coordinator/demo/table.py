"""The demo's display while it runs: a live table on a terminal, a line a second elsewhere, or nothing."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate_coordinator.demo.watch import Sample
from headgate_coordinator.operate.terminal import size

REFRESH: Final = 0.125
"""Seconds between two frames of the live table."""
EVENTS: Final = 10
"""Events that stay in sight."""
_WAITING: Final = 5.0  # seconds between two lines that only say what is awaited
_SPAN: Final = 2.0  # seconds over which rates are taken
_BAR: Final = 44  # columns
_AROUND: Final = 9  # lines beside those of processes and events
_MARGIN: Final = 9  # columns before an event's text
_NARROW: Final = 110  # columns below which a table has to do without some
_STYLES: Final = {
    "waits": "red",
    "sending": "green",
    "receiving": "green",
    "killed": "bold red",
    "serving": "green",
    "at": "green",
}


class Rate:
    """Says how fast two growing numbers have grown over the last two seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int, int]] = deque()

    def update(self, now: float, messages: int, size_: int) -> tuple[float, float]:
        """Note where they are; returns messages and bytes a second."""
        self._marks.append((now, messages, size_))
        while now - self._marks[0][0] > _SPAN:
            self._marks.popleft()
        then, messages_then, size_then = self._marks[0]
        if now == then:
            return 0.0, 0.0
        return (messages - messages_then) / (now - then), (size_ - size_then) / (now - then)


@dataclass(frozen=True, slots=True)
class Row:
    """A row shows one process."""

    name: str
    pid: str
    messages: int
    bytes: int
    rate: float
    byte_rate: float
    holds: str
    state: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame shows the demo at one instant."""

    elapsed: float
    seconds: float
    limit: int
    sample: Sample
    rows: Sequence[Row]
    events: Sequence[tuple[float, str]] = field(default_factory=tuple)
    page: str = ""
    links: str = ""
    waiting: str = ""
    """The one thing still awaited; the numbers do not change any more. Empty: they do."""

    def rate_of(self, role: str) -> str:
        """Return how fast all producers, or all consumers, are together."""
        rows = [row for row in self.rows if row.name.startswith(role)]
        return f"{sum(row.rate for row in rows):.0f}/s {size(sum(row.byte_rate for row in rows))}/s"


class View:
    """A view shows frames and events; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, frame: Frame) -> None:
        """Show how things are."""

    def tell(self, elapsed: float, text: str) -> None:
        """Say what has just happened."""


class Lines(View):
    """Prints a line for every event, one every second for the state, and some for what is awaited."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 1.0

    def show(self, frame: Frame) -> None:
        """Print a line, if a second has passed since the last."""
        if frame.elapsed >= self._next:
            self._next = int(frame.elapsed) + (_WAITING if frame.waiting else 1.0)
            self._print(frame.elapsed, frame.waiting or line(frame))

    def tell(self, elapsed: float, text: str) -> None:
        """Print the event."""
        self._print(elapsed, f"* {text}")

    def _print(self, elapsed: float, text: str) -> None:
        self._console.print(Text(f"{elapsed:5.1f} s  {text}"), soft_wrap=True)


class LiveTable(View):
    """A live table keeps itself up to date in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._next = 0.0
        self._last: Frame | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._last:
            self._draw(self._last)
        self._live.stop()

    def show(self, frame: Frame) -> None:
        """Draw the table, unless it has just been drawn."""
        self._last = frame
        if frame.elapsed >= self._next or not frame.elapsed:
            self._next = frame.elapsed + REFRESH
            self._draw(frame)

    def _draw(self, frame: Frame) -> None:
        options = self._console.options
        narrow = options.max_width < _NARROW
        room = (
            options.max_height
            - len(frame.rows)
            - _AROUND
            - narrow
            - sum(map(bool, (frame.page, frame.links, frame.waiting)))
        )
        fitting = _last_events(frame.events, room, options.max_width - _MARGIN)
        drawn = table(replace(frame, events=fitting), narrow=narrow, ascii_only=options.ascii_only)
        self._live.update(drawn, refresh=True)


def view_for(console: Console) -> View:
    """Return the view that suits a console."""
    return LiveTable(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)


def line(frame: Frame) -> str:
    """Return a frame as one line."""
    sample = frame.sample
    share = 100 * (sample.pending + sample.leased) / frame.limit
    return (
        f"pending {size(sample.pending)} + leased {size(sample.leased)} = {share:.0f} % of {size(frame.limit)}, "
        f"{sample.blocked} blocked; in {frame.rate_of('producer')}, out {frame.rate_of('consumer')}"
    )


def table(frame: Frame, *, narrow: bool = False, ascii_only: bool = False) -> RenderableType:
    """Return a frame as something to look at."""
    sample = frame.sample
    head = Text.assemble(
        ("Headgate demo", "bold"),
        f"   {frame.elapsed:.1f} of about {frame.seconds:g} s   limit {size(frame.limit)}   ",
        (f"{sample.blocked} blocked", "bold red" if sample.blocked else "dim"),
        "\n" if narrow else "   ",
        f"in {frame.rate_of('producer')}   out {frame.rate_of('consumer')}",
    )
    # Minimum widths keep the columns where they are while the numbers change.
    widths = {"messages": 8, "msgs/s": 6, "data/s": 10, "holds": 8}
    if not narrow:
        widths = {"pid": 7, "messages": 8, "data": 8, "msgs/s": 6, "data/s": 10, "holds": 8}
    processes = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    processes.add_column("process", no_wrap=True, min_width=15)
    for header, width in widths.items():
        processes.add_column(header, justify="right", no_wrap=True, min_width=width)
    processes.add_column("state", no_wrap=True, min_width=17)
    for row in frame.rows:
        cells = {
            "pid": row.pid,
            "messages": str(row.messages),
            "data": size(row.bytes),
            "msgs/s": f"{row.rate:.0f}",
            "data/s": f"{size(row.byte_rate)}/s",
            "holds": row.holds,
        }
        style = _STYLES.get(row.state.split()[0].rstrip(","), "dim")
        processes.add_row(row.name, *(cells[header] for header in widths), Text(row.state, style=style))
    events = Table.grid(padding=(0, 2, 0, 0))
    events.add_column(justify="right", no_wrap=True, min_width=7)
    for elapsed, text in frame.events:
        events.add_row(f"{elapsed:.1f} s", Text(text))
    page = [Text(frame.links)] if frame.links else []
    page += [Text(f"the same on a live page: {frame.page}", style="dim")] if frame.page else []
    awaited = [Text(frame.waiting, style="bold")] if frame.waiting else []
    return Group(head, Text(), *_gauge(sample, frame.limit, ascii_only=ascii_only), *page, processes, events, *awaited)


def _last_events(events: Sequence[tuple[float, str]], lines: int, width: int) -> list[tuple[float, str]]:
    """Return the last events that fit into that many lines; one at least."""
    chosen: list[tuple[float, str]] = []
    for event in reversed(events[-EVENTS:]):
        lines -= -(-len(event[1]) // width)
        if chosen and lines < 0:
            break
        chosen.insert(0, event)
    return chosen


def _gauge(sample: Sample, limit: int, *, ascii_only: bool) -> list[Text]:
    """Draw how full the queue is. Nothing is rounded up to full: only what has reached the limit looks like it."""
    full, partly, empty = "#=." if ascii_only else "█▒·"
    taken = min(_BAR, _BAR * (sample.pending + sample.leased) // limit)
    pending = min(taken, _BAR * sample.pending // limit)
    share = 100 * (sample.pending + sample.leased) / limit
    bar = Text.assemble(
        (full * pending, "cyan"),
        (partly * (taken - pending), "yellow"),
        (empty * (_BAR - taken), "dim"),
        f"  {share:5.1f} %   at most {100 * sample.peak / limit:.1f} %",
    )
    legend = Text.assemble(
        (f"{full} ", "cyan"),
        f"pending {size(sample.pending)} in {sample.pending_messages} messages   ",
        (f"{partly} ", "yellow"),
        f"leased {size(sample.leased)}   ",
        (f"{empty} ", "dim"),
        f"free {size(max(0, limit - sample.pending - sample.leased))}",
    )
    return [bar, legend]

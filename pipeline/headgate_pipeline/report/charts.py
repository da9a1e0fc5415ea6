"""A report has pictures: plotly figures of what :mod:`~headgate_pipeline.report.report_data` computed."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Final

import plotly.graph_objects as go

from headgate_pipeline.formatting import size
from headgate_pipeline.report.report_data import ReportData, Row

PENDING: Final = "#2a7d9c"
LEASED: Final = "#9fd0e0"
LIMIT: Final = "#3b4650"
CAUSES: Final = {
    "bytes": ("limit in bytes", "#b3261e"),
    "messages": ("limit in messages", "#d9822b"),
    "turn": ("its turn, a pool or a stop", "#6a4aa8"),
    "unknown": ("limit not known", "#98a6b3"),
}
_CLOCK: Final = [
    {"dtickrange": [None, 1000], "value": "%H:%M:%S.%L"},
    {"dtickrange": [1000, 60_000], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 86_400_000], "value": "%H:%M"},
    {"dtickrange": [86_400_000, None], "value": "%m-%d"},
]
_COLOURS: Final = ("#2a7d9c", "#b3261e", "#d9822b", "#6a4aa8", "#22754a", "#98a6b3")


def _figure(title: str, figures: ReportData, height: int = 260) -> go.Figure:
    """Return an empty figure in the style of the page; ``title`` may hold what others wrote."""
    figure = go.Figure()
    figure.update_layout(
        title={"text": escape(title), "font": {"size": 14}, "x": 0, "xanchor": "left", "xref": "paper", "y": 0.97},
        template="plotly_white",
        height=height,
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#17212b"},
        paper_bgcolor="#fff",
        plot_bgcolor="#fff",
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.14, "x": 0, "font": {"size": 11}},
        xaxis={
            "automargin": True, "nticks": 6, "type": "date", "tickformatstops": _CLOCK,
            "range": [_time(figures.first_ms - figures.step), _time(figures.last_ms + figures.step)],
        },
        yaxis={"automargin": True, "rangemode": "tozero", "nticks": 5},
    )  # fmt: skip
    return figure


def levels(name: str, rows: list[Row], figures: ReportData) -> go.Figure:
    """Return pending and leased bytes of a destination under its limit."""
    figure = _figure(name, figures)
    rows = _filled(rows, figures)
    times = _times(rows)
    style = {"x": times, "line_shape": "hv", "mode": "lines"}
    figure.add_scatter(
        **style, y=[row["pending"] for row in rows], name="pending", line_color=PENDING, line_width=1, stackgroup="held"
    )
    figure.add_scatter(
        **style, y=[row["leased"] for row in rows], name="leased", line_color=LEASED, line_width=1, stackgroup="held"
    )
    figure.add_scatter(
        **style,
        y=[row["held_max"] for row in rows],
        name="most in the window",
        line={"color": PENDING, "width": 1, "dash": "dot"},
    )
    limits = [row["limit"] if row["limit"] not in (None, float("inf")) else None for row in rows]
    if any(limit is not None for limit in limits):
        figure.add_scatter(**style, y=limits, name="limit", line={"color": LIMIT, "width": 2})
    figure.update_layout(showlegend=False)  # the page has one for all
    most = max([row["held_max"] for row in rows] + [limit for limit in limits if limit is not None])
    ticks = _ticks(most)
    figure.update_yaxes(tickvals=ticks, ticktext=[size(tick) for tick in ticks], range=[0, most * 1.08 or 1])
    return figure


LEGEND: Final = (
    ("pending", PENDING),
    ("leased", LEASED),
    ("the most of both in a window (dotted)", PENDING),
    ("limit", LIMIT),
)
"""Of :func:`levels`."""


def _ticks(most: float) -> list[int]:
    """Return round sizes up to ``most``, at most 5 above 0."""
    step = 1
    while most / step > 5:
        step *= 2
    return [*range(0, int(most) + 1, step)]


def _filled(rows: list[Row], figures: ReportData) -> list[Row]:
    """Return the windows, and where a gap begins one in which nothing happened: what was left then, holds."""
    filled: list[Row] = []
    for row in (*rows, {**rows[-1], "window": figures.last_ms + figures.step}):
        if filled and row["window"] > filled[-1]["window"] + figures.step:
            before = filled[-1]
            held = before["pending"] + before["leased"]
            filled.append({**before, "window": before["window"] + figures.step, "held_min": held, "held_max": held})
        filled.append(row)
    return filled


def blocked(figures: ReportData) -> go.Figure:
    """Return how many sessions waited, by cause."""
    figure = _figure("Waiting sessions, by cause", figures, 280)
    for cause, (name, colour) in CAUSES.items():
        rows = [row for row in figures.blocked if row["cause"] == cause]
        if rows:
            waiting = [row["waited"] / figures.step for row in rows]
            figure.add_bar(x=_times(rows), y=waiting, name=name, marker_color=colour, marker_line_width=0)
    return _stacked(figure, figures.step)


def blocked_by(figures: ReportData, labels: dict[tuple[str, str], str]) -> go.Figure:
    """Return how many sessions waited, for those destinations where most did."""
    figure = _figure("Waiting sessions, by destination", figures, 280)
    by: dict[tuple[str, str], list[Row]] = {}
    for row in figures.blocked_by:
        by.setdefault((row["namespace"], row["destination"]), []).append(row)
    most = sorted(by, key=lambda place: -sum(row["waited"] for row in by[place]))[: len(_COLOURS)]
    for colour, place in zip(_COLOURS, most, strict=False):
        waiting = [row["waited"] / figures.step for row in by[place]]
        figure.add_bar(
            x=_times(by[place]), y=waiting, name=escape(labels[place]), marker_color=colour, marker_line_width=0
        )
    return _stacked(figure, figures.step)


def _stacked(figure: go.Figure, step: int) -> go.Figure:
    figure.update_traces(width=step, offset=0)
    figure.update_layout(barmode="stack", bargap=0, showlegend=True)
    return figure


def lags(figures: ReportData) -> go.Figure:
    """Return how many messages each link has still to forward."""
    figure = _figure("Messages still to forward", figures, 280)
    for colour, row in zip(_COLOURS, figures.links, strict=False):
        rows = figures.lags.get(row["link"], [])
        figure.add_scatter(
            x=_times(rows), y=[point["behind"] for point in rows], mode="lines", line_shape="hv",
            line_color=colour, name=escape(f"{row['source']} to {row['target'] or 'elsewhere'}"),
        )  # fmt: skip
    figure.update_layout(showlegend=True)
    return figure


def _times(rows: Iterable[Row]) -> list[str]:
    return [_time(row["window"]) for row in rows]


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

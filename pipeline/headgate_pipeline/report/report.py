"""A report tells what happened in a period, with pictures, as one HTML file."""

from collections.abc import Iterable, Iterator
from typing import Final

from headgate.core.limits.limit import UNLIMITED
from headgate_pipeline.formatting import count, size, span
from headgate_pipeline.report import charts, page
from headgate_pipeline.report.advice import advise, utilisation
from headgate_pipeline.report.report_data import ReportData, Row, has_level

TITLE: Final = "Headgate report"
_WAITS: Final = {"line": "its turn, behind others", "hold_off": "the end of a hold-off"}
"""Reasons for which calls wait at a limiter, beside its limits."""
Cells = Iterator[tuple[str, ...]]


def render(figures: ReportData) -> str:
    """Return the report as HTML that needs no network and no other file. Names of others are escaped."""
    problems = [(row["destination"] or "-", row["problem"], count(row["times"])) for row in figures.problems]
    if not figures.entries:
        return page.document("report.html", TITLE, pictures=False, figures=figures, problems=problems)
    labels = labels_of(figures)
    listed = [row for row in figures.destinations if has_level(row)]
    levels = [
        charts.levels(_label(row, labels), figures.levels[row["namespace"], row["destination"]], figures)
        for row in listed
        if (row["namespace"], row["destination"]) in figures.levels
    ]
    drawn, shown, every = len(levels), len(listed), figures.count - len(figures.destinations) + len(listed)
    return page.document(
        "report.html",
        TITLE,
        figures=figures,
        problems=problems,
        facts=_facts(figures),
        advice=advise(figures, labels),
        waits=[charts.blocked(figures), charts.blocked_by(figures, labels)] if figures.blocked else [],
        producers=_producers(figures, labels),
        legend=charts.LEGEND,
        levels=levels,
        levels_note=f"the {drawn} of {every:,} where most waited; the table below has the rest"
        if every > drawn
        else "",
        consumers=_consumers(figures, labels),
        lags=[charts.lags(figures)] if figures.links else [],
        links=_links(figures),
        limits=_limits(figures, labels),
        shown=shown,
        destinations=_destinations(listed, labels),
        destinations_note=(
            f"the {shown:,} where most waited; {every - shown:,} more are left out" if every > shown else ""
        ),
    )


def labels_of(figures: ReportData) -> dict[tuple[str, str], str]:
    """Return what to call each destination: its name, with the namespace where there are several."""
    several = len({row["namespace"] for row in figures.destinations}) > 1
    return {
        (row["namespace"], row["destination"]): f"{row['namespace']}/{row['destination']}"
        if several
        else row["destination"]
        for row in figures.destinations
    }


def _facts(figures: ReportData) -> list[tuple[str, str]]:
    waited = sum(row["waited"] for row in figures.blocked)
    return [
        ("period", span(figures.span_ms)),
        ("ledger entries", count(figures.entries)),
        ("destinations", count(figures.count)),
        ("published", size(sum(row["published"] for row in figures.destinations))),
        ("settled", size(sum(row["settled"] for row in figures.destinations))),
        ("waited for room", span(waited)),
    ]


def _producers(figures: ReportData, labels: dict[tuple[str, str], str]) -> Cells:
    for row in figures.producers:
        yield (
            row["session"], _label(row, labels), span(row["waited"]), span(row["longest"]), count(row["waits"]),
            count(row["gave_up"]), charts.CAUSES[row["cause"]][0],
        )  # fmt: skip


def _consumers(figures: ReportData, labels: dict[tuple[str, str], str]) -> Cells:
    for row in figures.consumers:
        yield (
            row["consumer"], _label(row, labels), span(row["slow"]), count(row["times"]), count(row["messages"] or 0)
        )  # fmt: skip


def _links(figures: ReportData) -> Cells:
    for row in figures.links:
        yield (
            row["link"], row["source"] or "elsewhere", row["target"] or "elsewhere", count(row["forwarded"]),
            f"{count(row['forwarded'] / max(row['last_ms'] - row['first_ms'], 1) * 1000)}/s", count(row["behind"]),
        )  # fmt: skip


def _limits(figures: ReportData, labels: dict[tuple[str, str], str]) -> Cells:
    for row in figures.limits:
        waits_for = _WAITS.get(row["limit"], row["limit"])
        yield (
            f"{_label(row, labels)}: {waits_for}{' of each key' if row['of'] == 'key' else ''}",
            "no limit" if row["most"] == UNLIMITED else count(row["most"]),
            count(row["taken_p95"]), span(row["full_ms"]), span(row["waited_ms"]), count(row["waits"]),
            count(row["unserved"]), count(row["refused"]), span(row["held_p99_ms"]),
        )  # fmt: skip


def _destinations(rows: Iterable[Row], labels: dict[tuple[str, str], str]) -> Cells:
    for row in rows:
        yield (
            _label(row, labels), size(row["limit"]), size(row["peak_held"]), utilisation(row), span(row["waited"]),
            count(row["gave_up"]), count(row["published_messages"]), size(row["published"]),
            count(row["settled_messages"]), size(row["pending"]),
        )  # fmt: skip


def _label(row: Row, labels: dict[tuple[str, str], str]) -> str:
    return labels.get((row["namespace"], row["destination"])) or str(row["destination"])

"""The report: what happened in a period, with pictures, as one HTML file."""

from html import escape

from headgate_pipeline.formatting import count, moment, size, span
from headgate_pipeline.report import charts, page
from headgate_pipeline.report.advice import advise, utilisation
from headgate_pipeline.report.figures import Figures, Row

TITLE = "Headgate report"


def render(figures: Figures) -> str:
    """Return the report as HTML that needs no network and no other file. Names of others are escaped."""
    if not figures.entries:
        return page.document(TITLE, [f"<h1>{TITLE}</h1>", _empty(figures)], pictures=False)
    labels = labels_of(figures)
    parts = [
        f"<h1>{TITLE}</h1>",
        f'<p class="quiet">{_period(figures)}</p>',
        page.tiles(_facts(figures)),
        _verdict(figures),
        page.section("What to do", page.listing(advise(figures, labels))),
        _waiting(figures, labels),
        _pictures(figures, labels),
        _links(figures),
        _destinations(figures, labels),
        _problems(figures),
    ]
    return page.document(TITLE, parts, pictures=True)


def _period(figures: Figures) -> str:
    windows = f"the pictures show windows of {span(figures.step)}"
    return f"{moment(figures.first_ms)} to {moment(figures.last_ms)}; {windows}"


def labels_of(figures: Figures) -> dict[tuple[str, str], str]:
    """Return what to call each destination: its name, with the namespace where there are several."""
    several = len({row["namespace"] for row in figures.destinations}) > 1
    return {
        (row["namespace"], row["destination"]): f"{row['namespace']}/{row['destination']}"
        if several
        else row["destination"]
        for row in figures.destinations
    }


def _empty(figures: Figures) -> str:
    sentence = "The ledger is empty: no entry was found for this namespace, so there is nothing to show. "
    sentence += "Is the namespace right, and is ledger = 'all' for its destinations?"
    return f'<p class="card">{escape(sentence)}</p>' + _verdict(figures) + _problems(figures)


def _facts(figures: Figures) -> list[tuple[str, str]]:
    waited = sum(row["waited"] for row in figures.blocked)
    return [
        ("period", span(figures.span_ms)),
        ("ledger entries", count(figures.entries)),
        ("destinations", count(figures.count)),
        ("published", size(sum(row["published"] for row in figures.destinations))),
        ("settled", size(sum(row["settled"] for row in figures.destinations))),
        ("waited for room", span(waited)),
    ]


def _verdict(figures: Figures) -> str:
    if figures.verdict is None:
        return ""
    held = figures.verdict.held
    sentence = "Every promise held." if held else "A promise did not hold."
    lines = page.listing(figures.verdict.lines, ordered=False) if figures.verdict.lines else ""
    return page.section("Verdict of the audit", f'<p class="{"good" if held else "bad"}"><b>{sentence}</b></p>{lines}')


def _waiting(figures: Figures, labels: dict[tuple[str, str], str]) -> str:
    if not figures.blocked:
        return page.section("Waiting for room", '<p class="card">Nobody waited.</p>')
    drawn = page.grid([page.picture(charts.blocked(figures)), page.picture(charts.blocked_by(figures, labels))])
    return page.section("Waiting for room", drawn) + page.section(
        "Producers that waited longest", _producers(figures, labels)
    )


def _producers(figures: Figures, labels: dict[tuple[str, str], str]) -> str:
    rows = (
        [
            row["session"], _label(row, labels), span(row["waited"]), span(row["longest"]), count(row["waits"]),
            count(row["gave_up"]), charts.CAUSES[row["cause"]][0],
        ]
        for row in figures.producers
    )  # fmt: skip
    return page.table(("session", "destination", "waited", "longest", "times", "gave up", "mostly for"), rows)


def _pictures(figures: Figures, labels: dict[tuple[str, str], str]) -> str:
    drawn = [
        page.picture(charts.levels(_label(row, labels), figures.levels[row["namespace"], row["destination"]], figures))
        for row in figures.destinations
        if (row["namespace"], row["destination"]) in figures.levels
    ]
    more = (
        f"the {len(drawn)} of {figures.count:,} where most waited; the table below has the rest"
        if figures.count > len(drawn)
        else ""
    )
    sections = page.section("Limit, pending and leased", page.legend(charts.LEGEND) + page.grid(drawn), more)
    if figures.consumers:
        rows = (
            [row["consumer"], _label(row, labels), span(row["slow"]), count(row["times"]), count(row["messages"] or 0)]
            for row in figures.consumers
        )
        sections += page.section(
            "Slow consumers", page.table(("consumer", "destination", "slow for", "times", "settled"), rows)
        )
    return sections


def _links(figures: Figures) -> str:
    if not figures.links:
        return ""
    rows = (
        [
            row["link"], row["source"] or "elsewhere", row["target"] or "elsewhere", count(row["forwarded"]),
            f"{count(row['forwarded'] / max(row['last_ms'] - row['first_ms'], 1) * 1000)}/s", count(row["behind"]),
        ]
        for row in figures.links
    )  # fmt: skip
    columns = ("link", "source", "target", "forwarded", "rate", "still to forward")
    return page.section("Links", page.grid([page.picture(charts.lags(figures))]) + page.table(columns, rows))


def _destinations(figures: Figures, labels: dict[tuple[str, str], str]) -> str:
    rows = (
        [
            _label(row, labels), size(row["limit"]), size(row["peak_held"]), utilisation(row), span(row["waited"]),
            count(row["gave_up"]), count(row["published_messages"]), size(row["published"]),
            count(row["settled_messages"]), size(row["pending"]),
        ]
        for row in figures.destinations
    )  # fmt: skip
    columns = (
        "destination", "limit", "peak", "of limit", "waited", "gave up", "messages in", "bytes in",
        "messages out", "left",
    )  # fmt: skip
    shown = len(figures.destinations)
    note = (
        f"the {shown:,} where most waited; {figures.count - shown:,} more are left out" if figures.count > shown else ""
    )
    return page.section("Destinations", page.table(columns, rows), note)


def _problems(figures: Figures) -> str:
    if not figures.problems:
        return ""
    rows = ([row["destination"] or "-", row["problem"], count(row["times"])] for row in figures.problems)
    return page.section("Missing from the ledger", page.table(("destination", "what", "times"), rows))


def _label(row: Row, labels: dict[tuple[str, str], str]) -> str:
    return labels.get((row["namespace"], row["destination"])) or str(row["destination"])

"""A report gives advice from its figures, in words."""

from collections.abc import Iterator

from headgate_pipeline.formatting import count, share, size, span
from headgate_pipeline.report.report_data import ReportData, Row

_MOST_ROWS = 20


def advise(figures: ReportData, labels: dict[tuple[str, str], str]) -> list[str]:
    """Return what should be looked at in a period, the most pressing first, under these labels of destinations."""
    advice = [*_broken(figures)]
    for row in figures.destinations:
        if row["waited"] and len(advice) < _MOST_ROWS:
            advice.append(_stalled(row, labels[row["namespace"], row["destination"]]))
    for row in figures.destinations:
        advice += _turned_away(row, labels[row["namespace"], row["destination"]])
    advice += _limited(figures, labels)
    advice += _shadowed(figures, labels)
    advice += _tried(figures, labels)
    advice += _slow(figures, labels)
    advice += _behind(figures)
    idle = [
        row for row in figures.destinations
        if not row["waited"] and row["peak_share"] is not None and row["peak_share"] < 0.1 and row["published"]
    ]  # fmt: skip
    if idle:
        names = ", ".join(labels[row["namespace"], row["destination"]] for row in idle[:3])
        advice.append(
            f"{names}{' and others' if len(idle) > 3 else ''}: under 10 % of the limit was used at most. "
            "A lower limit would show sooner that something is wrong."
        )
    if not advice:
        advice.append("Nobody waited, no consumer was slow, and nothing is missing. Nothing needs to change.")
    return advice[:_MOST_ROWS]


def _broken(figures: ReportData) -> Iterator[str]:
    if figures.verdict and not figures.verdict.held:
        yield "A promise was broken in this period: read the verdict before anything else here."
    if figures.problems:
        yield (
            f"{len(figures.problems)} part(s) of the ledger are missing or could not be read, so sums are too low: "
            f"{_places(figures)}. "
            "Where the ledger was trimmed before it was read, raise ledger_keep or ingest more often."
        )


def _places(figures: ReportData) -> str:
    names = list(dict.fromkeys(str(row["destination"]) for row in figures.problems))
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def _turned_away(row: Row, name: str) -> Iterator[str]:
    """Tell of what was not let wait: tokens of a bucket, messages that were dropped."""
    if row["refused"]:
        asked = row["taken"] + row["refused"]
        yield (
            f"{name}: of {count(asked)} tokens that were asked for, {count(row['refused'])} were refused, or more: "
            "calls that took nothing are not in the ledger. `headgate pipeline recommend` shows which rate would do."
        )
    if row["dropped"]:
        yield (
            f"{name}: {count(row['dropped'])} message(s) were dropped because there was no room, as `when_full` says. "
            "`headgate pipeline what-if` says which limit would have held them."
        )


def _limited(figures: ReportData, labels: dict[tuple[str, str], str]) -> Iterator[str]:
    for row in figures.limits[:3]:
        if not row["waited_ms"] or row["limit"] in ("line", "hold_off"):
            continue
        name = labels.get((row["namespace"], row["destination"]), row["destination"])
        limit = f"{row['limit']}{' of each key' if row['of'] == 'key' else ''}"
        yield (
            f"{name}: {count(row['waits'])} admission(s) waited {span(row['waited_ms'])} in all for its limit {limit}, "
            f"{count(row['unserved'])} of them in vain. `headgate pipeline recommend` shows which limit would do."
        )


def _shadowed(figures: ReportData, labels: dict[tuple[str, str], str]) -> Iterator[str]:
    """Say of shadow limits, beside the real ones, how often they would have kept somebody waiting."""
    for row in [row for row in figures.limits if row["would_wait"]][:3]:
        name = labels.get((row["namespace"], row["destination"]), row["destination"])
        of = " of each key" if row["of"] == "key" else ""
        yield (
            f"{name}: the shadow limit {row['limit']}{of} would have kept {count(row['would_wait'])} admission(s) "
            f"waiting; for the real one {count(row['waits'])} waited. `headgate pipeline recommend` names the keys."
        )


def _tried(figures: ReportData, labels: dict[tuple[str, str], str]) -> Iterator[str]:
    """Say the same of queues, topics, gates and buckets."""
    waited = {(row["namespace"], row["destination"]): row["sessions"] for row in figures.destinations}
    for row in figures.tried[:3]:
        place = row["namespace"], row["destination"]
        yield (
            f"{labels.get(place, row['destination'])}: the shadow limit {row['limit']} would have kept "
            f"{count(row['times'])} waiting, at most {count(row['over'])} above it; for the real ones "
            f"{count(waited.get(place) or 0)} session(s) waited."
        )


def _stalled(row: Row, name: str) -> str:
    period = max(row["last_ms"] - row["first_ms"], 1)
    causes = {cause: row[f"waited_{cause}"] for cause in ("bytes", "messages", "turn", "unknown")}
    cause = max(causes, key=lambda key: causes[key])
    text = f"{name}: {count(row['sessions'])} session(s) waited {span(row['waited'])} in all, "
    text += f"at most {span(row['longest'])}"
    text += f", and {count(row['gave_up'])} time(s) in vain. " if row["gave_up"] else ". "
    if cause == "turn":
        return f"{text}There was room under its own limit: look at its pools, its rate, resume_at, and stops by hand."
    if cause == "unknown":
        return f"{text}The limit of that time is not in the entries that remain, so the cause is not known."
    if not row["published"] and not row["settled"]:
        return (
            f"{text}It is a gate of {size(row['limit'])}: its permits were held by others. Hold them for a shorter "
            "time, or let in more: `headgate pipeline recommend` says how many were held and asked for at a time."
        )
    in_messages = f"It was the limit of {count(row['limit_messages'])} messages"
    text += f"It was the limit of {size(row['limit'])}" if cause == "bytes" else in_messages
    rate = row["settled"] / period * 1000
    bound = cause == "bytes" and rate and _bound(row)
    delay = f"; what is sent last then waits about {span(row['limit'] / rate * 1000)}" if bound else ""
    if row["waited"] < 0.25 * period:
        return (
            f"{text}, in bursts: a larger one would absorb them{delay}. `headgate pipeline recommend` proposes one, "
            "`what-if` shows what it would do."
        )
    return (
        f"{text}, for much of the time: consumers took {size(rate)}/s{delay}. If they are always busy, only more or "
        "faster ones help: a larger limit makes messages wait in the queue instead of at their sender. "
        "See `headgate pipeline what-if`."
    )


def _bound(row: Row) -> bool:
    return row["limit"] is not None and row["limit"] != float("inf")


def _slow(figures: ReportData, labels: dict[tuple[str, str], str]) -> Iterator[str]:
    for row in figures.consumers[:5]:
        name = labels.get((row["namespace"], row["destination"]), row["destination"])
        yield (
            f"{name}: consumer {row['consumer']} was slow for {span(row['slow'])} ({count(row['times'])} time(s)) "
            f"and settled {count(row['messages'] or 0)} message(s) in the period. Look at what it does with each, "
            "or give it a smaller window, so that others get what waits for it."
        )


def _behind(figures: ReportData) -> Iterator[str]:
    for row in figures.links[:5]:
        took = max(row["last_ms"] - row["first_ms"], 1)
        rate = row["forwarded"] / took * 1000
        if row["behind"] and row["behind"] > rate:
            yield (
                f"The link from {row['source']} to {row['target'] or 'elsewhere'} has {count(row['behind'])} "
                f"message(s) still to forward, at {count(rate)} a second. `headgate links` shows what it waits for."
            )


def utilisation(row: Row) -> str:
    """Return the most of its limit that a destination used."""
    return share(row["peak_share"])

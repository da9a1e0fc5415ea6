"""`headgate pipeline what-if` replays a period under other rules."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headgate import InvalidValue
from headgate.units import parse_limit
from headgate_pipeline.cli.options import Input, Namespace, Redis
from headgate_pipeline.formatting import count, size, span


def what_if(
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SIZE",
            help="Limit of a destination (orders=1MiB) or a limiter (llm:tokens=300k/min); may be given several times.",
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Policy to try, in the format of `headgate policy apply`.")
    ] = None,
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,  # noqa: FBT002
) -> None:
    """Replay a period under other rules: which senders would have waited and why, the peak level, and the delay.

    The line `same rules` is what the replay says of those that were in force: how far it is from `recorded` is how far
    to trust it. A --limit wins over the policy.
    """
    if not limit and policy is None:
        raise InvalidValue("nothing to try: give --policy FILE, or --limit NAME=SIZE such as orders=1MiB")
    limits, of_limiters = limits_of(limit or [])

    from headgate import policy as documents
    from headgate_pipeline.ledger import events
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.live_settings import in_force
    from headgate_pipeline.simulate import what_if as job
    from headgate_pipeline.simulate.scenario import ask, seen_of
    from headgate_pipeline.spark_session import session

    document = documents.load(policy) if policy else None
    found = events.prepare(entries(session("headgate what-if"), folder, redis, namespace)).persist()
    seen = seen_of(row.asDict() for row in job.look(found).orderBy("destination").collect())
    _take_colons(limits, of_limiters, {destination.name for destination in seen})
    if missing := {*limits, *of_limiters} - {destination.name for destination in seen}:
        raise InvalidValue(f"the ledger has no entries of {', '.join(sorted(missing))}{_there_are(seen)}")
    if not seen:
        raise InvalidValue(f"the ledger of namespace {namespace} has no entries, so there is nothing to replay")
    now = asyncio.run(in_force(redis, namespace, [destination.name for destination in seen])) if redis else None
    question = ask(seen, document, limits, now, of_limiters)
    rows = [row.asDict() for row in job.what_if(found, question).collect()] if question.asked else []
    rows.sort(key=lambda row: (row["destination"], job.CASES.index(row["case"])))
    if as_json:
        not_judged = [{"of": of, "why": why} for of, why in question.not_judged]
        answer = {"destinations": [_finite(row) for row in rows], "not_judged": not_judged}
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    console = Console(markup=False)
    for table in render(rows, question.buckets | question.limiters):
        console.print(table)
        console.print()
    if question.not_judged:
        typer.echo("not judged:")
    for of, why in question.not_judged:
        typer.echo(f"  {of}: {why}")


def limits_of(texts: Sequence[str]) -> tuple[dict[str, float], dict[str, dict[str, str]]]:
    """Return limits in bytes by name, ``unlimited`` is infinite; and limits of limiters, as they are written.

    Raises:
        InvalidValue: one is not a name, ``=`` and a size.
    """
    limits: dict[str, float] = {}
    of_limiters: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InvalidValue(f"--limit {text}: write NAME=SIZE, such as orders=1MiB")
        limiter, colon, single = name.rpartition(":")
        if colon and limiter and single:
            of_limiters.setdefault(limiter, {})[single] = value
            continue
        limits[name] = _bytes(name, value)
    return limits, of_limiters


def _bytes(name: str, text: str) -> float:
    parsed = parse_limit(text, f"--limit {name}")
    return float(parsed) if isinstance(parsed, int) else float("inf")


def _take_colons(limits: dict[str, float], of_limiters: dict[str, dict[str, str]], names: Collection[str]) -> None:
    """Take a name with a colon for that of a destination, where there is one that is called so."""
    for limiter, singles in list(of_limiters.items()):
        for single in [single for single in singles if f"{limiter}:{single}" in names]:
            name = f"{limiter}:{single}"
            limits[name] = _bytes(name, singles.pop(single))
        if not singles:
            del of_limiters[limiter]


def _there_are(seen: Sequence[Any]) -> str:
    names = [destination.name for destination in seen]
    return f"; it has {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}" if names else "; it is empty"


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return dict(row) | {"limit": int(row["limit"]) if isfinite(row["limit"]) else None}


def render(rows: Sequence[Mapping[str, Any]], buckets: Collection[str] = ()) -> Iterator[Table]:
    """Yield the tables that people read, one for each destination.

    Args:
        rows: in the order of the destinations, three of each.
        buckets: those whose amounts are counts, not bytes.
    """
    for name, found in groupby(rows, key=lambda row: row["destination"]):
        cases = list(found)
        rules = " -> ".join(dict.fromkeys(row["rules"] for row in cases))
        table = Table(
            title=f"{name}: {rules}", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
        )
        for column in ("", "waited, mostly for", "peak", "mean delay", "99 % within", "ended after"):
            table.add_column(column, overflow="fold")
        amount = count if name in buckets else size
        for row in cases:
            table.add_row(
                row["case"], span(row["waited"]) + _cause(row["causes"] or {}), amount(row["peak"]), span(row["delay"]),
                span(row["delay_p99"]), span(row["took"]) + _lost(row, amount),
            )  # fmt: skip
        yield table


def _cause(causes: Mapping[str, float]) -> str:
    return f" ({max(causes, key=lambda name: causes[name])})" if any(causes.values()) else ""


def _lost(row: Mapping[str, Any], amount: Callable[[float], str]) -> str:
    lost = (("unsent", "never sent"), ("refused", "refused"))
    return "".join(f", {amount(row[name])} {words}" for name, words in lost if row[name])

"""`headgate pipeline what-if`."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headgate import InvalidValue
from headgate.units import parse_limit
from headgate_pipeline.cli_source import Input, Namespace, Redis
from headgate_pipeline.words import size, span


def what_if(
    limit: Annotated[
        list[str], typer.Option("--limit", metavar="NAME=SIZE", help="Of a destination, e.g. orders=1MiB; or several.")
    ],
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,  # noqa: FBT002
) -> None:
    """Replay a period under other limits: who would have waited, how full it would have been, and the delay.

    The line `same limit` is what the replay says of the limit that was in force: how far it is from `recorded` is how
    far to trust it.
    """
    from headgate_pipeline import what_if as job
    from headgate_pipeline.entries import entries
    from headgate_pipeline.session import session

    limits = limits_of(limit)
    found = job.what_if(entries(session("headgate what-if"), folder, redis, namespace), limits).collect()
    rows = sorted((row.asDict() for row in found), key=lambda row: (row["destination"], job.CASES.index(row["case"])))
    if missing := set(limits) - {row["destination"] for row in rows}:
        raise InvalidValue(f"the ledger has no entries of {', '.join(sorted(missing))}")
    if as_json:
        typer.echo(json.dumps([{**row, "limit": _finite(row["limit"])} for row in rows], indent=2))
    else:
        Console().print(render(rows))


def limits_of(texts: list[str]) -> dict[str, float]:
    """Return limits in bytes by name; ``unlimited`` is infinite.

    Raises:
        InvalidValue: one is not a name, ``=`` and a size.
    """
    limits = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InvalidValue(f"--limit {text}: write NAME=SIZE, such as orders=1MiB")
        parsed = parse_limit(value, f"--limit {name}")
        limits[name] = float(parsed) if isinstance(parsed, int) else float("inf")
    return limits


def _finite(value: float) -> int | None:
    return None if value == float("inf") else int(value)


def render(rows: list[dict[str, Any]]) -> Table:
    """Return the table that people read."""
    table = Table(box=None)
    for column in (
        "destination",
        "",
        "limit",
        "waited",
        "peak",
        "mean delay",
        "99 % within",
        "ended after",
    ):
        table.add_column(column, overflow="fold")
    for row in rows:
        unsent = f", {size(row['unsent'])} never sent" if row["unsent"] else ""
        table.add_row(
            row["destination"], row["case"], size(row["limit"]), span(row["waited"]), size(row["peak"]),
            span(row["delay"]), span(row["delay_p99"]), span(row["took"]) + unsent,
        )  # fmt: skip
    return table
